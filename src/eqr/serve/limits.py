"""What one server lets its clients ask: every queue, body and budget has an end."""

from pydantic import PositiveFloat, PositiveInt

from eqr.value import Value

MOST_CHARACTERS = 10_000
"""Of a puzzle: a board of 30 x 30 drawn with lines has about 4,000."""


class Limits(Value):
    """Bounds that hold whatever clients send."""

    body: PositiveInt = 1 << 18
    """Bytes of a request's body: as JSON they are read at once, while every other client waits."""
    body_seconds: PositiveFloat = 10.0
    """How long a body may take to arrive."""
    puzzles: PositiveInt = 256
    """Puzzles of one request."""
    depth: PositiveInt = 1024
    breadth: PositiveInt = 64
    segments: PositiveInt = 8192
    """Depth x breadth of one puzzle; a request that names no depth gets what its breadth leaves of it."""
    waiting: PositiveInt = 1024
    """Puzzles under way or waiting, per model; beyond them a request is told to come back."""
    seconds: PositiveFloat = 60.0
    """From a request's arrival to its answer; then its rows are cancelled."""
    frames: PositiveInt = 256
    """Segments kept for a stream whose reader is slow; the oldest go first."""
    connections: PositiveInt = 2048
    connections_per_address: PositiveInt = 512
    header_seconds: PositiveFloat = 5.0
    """How long a request's headers may take to arrive."""
