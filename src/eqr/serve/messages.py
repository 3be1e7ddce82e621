"""What goes over the wire: requests, answers and events, as the OpenAPI description shows them."""

from typing import Annotated, Any

from pydantic import BaseModel, Field, PositiveFloat

from eqr.serve.limits import Limits
from eqr.serve.problems import Problem, fault
from eqr.solve.asked import USUAL_DEPTH, Asked

PuzzleText = Annotated[str, Field(max_length=100_000)]


class SolveRequest(Asked):
    """One puzzle or many, and what to spend on each."""

    model: str | None = Field(None, description="Name of a model; not needed where only one is served.")
    puzzle: PuzzleText | None = Field(None, description="One puzzle as text.")
    puzzles: list[PuzzleText] | None = Field(None, description="Or several.")
    seconds: PositiveFloat | None = Field(None, description="A deadline sooner than the server's own.")

    def texts(self, limits: Limits) -> list[str]:
        """Return the puzzles; `Problem` if there are none or too many, or their budget is too large."""
        if (self.puzzle is None) == (self.puzzles is None):
            both = "both" if self.puzzle is not None else "neither"
            raise _wrong("puzzle", both, "give either `puzzle` or `puzzles`")
        texts = [self.puzzle] if self.puzzle is not None else list(self.puzzles or [])
        if not 1 <= len(texts) <= limits.puzzles:
            raise _wrong("puzzles", len(texts), f"1 to {limits.puzzles} puzzles go into a request")
        depth = self.depth or USUAL_DEPTH
        for name, value, most in (
            ("depth", depth, limits.depth),
            ("breadth", self.breadth, limits.breadth),
            ("depth x breadth", depth * self.breadth, limits.segments),
        ):
            if value > most:
                raise _wrong(name, value, f"this server allows at most {most}")
        return texts


def _wrong(field: str, value: object, fix: str) -> Problem:
    found = fault(field, value, fix)
    return Problem(422, "invalid-field", f"{field} = {found.value}: {fix}", errors=[found])


class CheckRequest(BaseModel):
    """A puzzle to look at without solving it."""

    model: str | None = None
    puzzle: PuzzleText


class CheckReply(BaseModel):
    """Whether a puzzle can be tried."""

    valid: bool
    reason: str
    cells: list[int] = Field(description="Cells that the reason is about, row by row from 0.")


class AnswerReply(BaseModel):
    """What the model says about one puzzle, or why it was not tried."""

    puzzle: int = Field(description="Its number in the request, from 0.")
    answer: str | None = Field(None, description="A character a cell, `?` for none.")
    valid: bool | None = Field(None, description="Whether the task's own check accepts it.")
    reason: str = ""
    start: int | None = None
    depth: int | None = None
    nfe: int | None = None
    halted: bool | None = None
    residual: float | None = None
    halt: float | None = None
    seconds: float | None = None
    refused: str | None = Field(None, description="Why the puzzle was not tried.")


class SolveReply(BaseModel):
    """The answers, in the order of the puzzles."""

    model: str
    answers: list[AnswerReply]
    seconds: float = Field(description="From the request's arrival to the last answer.")


class ModelsReply(BaseModel):
    """What is served."""

    models: list[dict[str, Any]]
