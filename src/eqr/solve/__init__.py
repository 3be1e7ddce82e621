"""Inference: one loop, halting rules, an engine of slots and a queue, selection, and `Solver` on top."""

from eqr.solve.budget import Budget
from eqr.solve.candidates import Candidates, Status
from eqr.solve.engine import Engine, Finished, Puzzle
from eqr.solve.halting import (
    AllOf,
    AnswerStable,
    AnyOf,
    FixedDepth,
    HaltHead,
    HaltingRule,
    ResidualBelow,
    parse_halting,
)
from eqr.solve.loading import load_reasoner, model_folder
from eqr.solve.rollout import rollout
from eqr.solve.selection import (
    First,
    FirstToHalt,
    HighestHalt,
    LowestResidual,
    MajorityVote,
    SelectionRule,
    VerifiedFirst,
    parse_selection,
)
from eqr.solve.solver import Answer, Refused, Solver

__all__ = [
    "AllOf",
    "Answer",
    "AnswerStable",
    "AnyOf",
    "Budget",
    "Candidates",
    "Engine",
    "Finished",
    "First",
    "FirstToHalt",
    "FixedDepth",
    "HaltHead",
    "HaltingRule",
    "HighestHalt",
    "LowestResidual",
    "MajorityVote",
    "Puzzle",
    "Refused",
    "ResidualBelow",
    "SelectionRule",
    "Solver",
    "Status",
    "VerifiedFirst",
    "load_reasoner",
    "model_folder",
    "parse_halting",
    "parse_selection",
    "rollout",
]
