"""Inference: one loop, halting rules, an engine of slots and a queue, selection, and `Solver` on top."""

from eqr.dynamics.halting import (
    AllOf,
    AnswerAccepted,
    AnswerStable,
    AnyOf,
    FixedDepth,
    HaltHead,
    HaltingRule,
    ResidualBelow,
    parse_halting,
)
from eqr.model.lookup import load
from eqr.solve.budget import Budget
from eqr.solve.candidates import Answer, Candidates, Finished, Refused, Snapshot, Status
from eqr.solve.engine import Engine
from eqr.solve.queue import Puzzle
from eqr.solve.rollout import Trajectories, rollout
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
from eqr.solve.solver import Session, SolveOptions, Solver

__all__ = [
    "AllOf",
    "Answer",
    "AnswerAccepted",
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
    "Session",
    "Snapshot",
    "SolveOptions",
    "Solver",
    "Status",
    "Trajectories",
    "VerifiedFirst",
    "load",
    "parse_halting",
    "parse_selection",
    "rollout",
]
