"""Inference: one loop, halting rules, an engine of slots and a queue, selection, and `Solver` on top."""

from eqr.solve.asked import Asked
from eqr.solve.budget import Budget
from eqr.solve.candidates import Candidates, Status
from eqr.solve.cohort import Finished, Glimpse
from eqr.solve.engine import Engine
from eqr.solve.halting import (
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
from eqr.solve.line import Puzzle
from eqr.solve.loading import load_reasoner
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
from eqr.solve.session import Answer, Refused, Session
from eqr.solve.solver import Solver

__all__ = [
    "AllOf",
    "Answer",
    "AnswerAccepted",
    "AnswerStable",
    "AnyOf",
    "Asked",
    "Budget",
    "Candidates",
    "Engine",
    "Finished",
    "First",
    "FirstToHalt",
    "FixedDepth",
    "Glimpse",
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
    "Solver",
    "Status",
    "Trajectories",
    "VerifiedFirst",
    "load_reasoner",
    "parse_halting",
    "parse_selection",
    "rollout",
]
