"""Figure 4: where many starts of a puzzle settle, and what that says about which axis helps."""

from eqr.experiments.bases import HALF_LEARNED, HALF_LEARNED_WHY, PAPER_SUDOKU
from eqr.experiments.experiment import Column, Experiment, Picture, Row
from eqr.experiments.looks import Modes

LOOK = Modes(puzzles=64, starts=64, depth=32)
MODES = {
    "a": "(a) no correct attractor",
    "b": "(b) correct and spurious",
    "c": "(c) narrow correct basin",
    "d": "(d) well aligned",
}


def columns(letter: str, name: str) -> tuple[Column, ...]:
    """Return a mode's share of puzzles and what breadth buys there beyond depth."""
    return (
        Column(name=f"{name}: share", metric=f"share {letter}", look=LOOK),
        Column(name=f"{name}: depth gain", metric=f"depth gain {letter}", look=LOOK),
        Column(name=f"{name}: breadth gain", metric=f"breadth gain {letter}", look=LOOK),
    )


EXPERIMENTS = (
    Experiment(
        item="F4",
        title="Four attractor landscape modes",
        question="Which modes do puzzles have, and does the mode say whether depth or breadth helps?",
        lab=HALF_LEARNED,
        paper=PAPER_SUDOKU,
        regime=f"{HALF_LEARNED_WHY} 64 starts of 64 puzzles to depth 32; gains are from D=8 to 32 and from "
        "one start to the best settled of 64.",
        rows=(
            Row(name="EqR", variants=("eqr",), says={"RI": True, "NI": True}),
            Row(name="TRM + RI", variants=("ri",), says={"RI": True, "NI": False}),
        ),
        columns=tuple(column for letter, name in MODES.items() for column in columns(letter, name)),
        seeds=5,
        minutes=8,
        picture=Picture(kind="landscapes"),
        note="A gain is missing where no puzzle has the mode.",
    ),
)
