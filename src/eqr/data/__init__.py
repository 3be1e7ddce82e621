"""Puzzles as arrays: sets and splits on disk, where they come from, and streams of batches for training."""

from eqr.data.batches import Batch, Batches, in_order
from eqr.data.generated import GeneratedStream
from eqr.data.puzzles import PuzzleSet
from eqr.data.splits import Splits, load_split

__all__ = ["Batch", "Batches", "GeneratedStream", "PuzzleSet", "Splits", "in_order", "load_split"]
