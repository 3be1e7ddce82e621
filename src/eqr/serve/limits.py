"""What one server lets its clients ask: every queue, body and budget has an end."""

from pydantic import PositiveFloat, PositiveInt

from eqr.value import Value


class Limits(Value):
    """Bounds that hold whatever clients send."""

    body: PositiveInt = 1 << 20
    """Bytes of a request's body."""
    body_seconds: PositiveFloat = 10.0
    """How long a body may take to arrive."""
    puzzles: PositiveInt = 256
    """Puzzles of one request."""
    depth: PositiveInt = 512
    breadth: PositiveInt = 64
    segments: PositiveInt = 8192
    """Depth x breadth of one puzzle."""
    waiting: PositiveInt = 1024
    """Puzzles under way or waiting, per model; beyond them a request is told to come back."""
    seconds: PositiveFloat = 60.0
    """From a request's arrival to its answer; then its rows are cancelled."""
    frames: PositiveInt = 256
    """Segments kept for a stream whose reader is slow; the oldest go first."""
    connections: PositiveInt = 2048
