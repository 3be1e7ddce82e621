"""The paper's claims, each with the contrasts that decide it; units are points of percent unless said."""

from eqr.experiments.experiment import Claim, Contrast

ACC = "Accuracy"
TASKS = ("Sudoku", "Sudoku 9x9", "Maze")
SHAPED_TASKS = (*TASKS, "Sudoku 9x9, 32 clues")


def more(left: str, right: str, by: float = 0.0, says: str = "") -> Contrast:
    """Return the contrast that one cell exceeds another, by more than `by`."""
    return Contrast(plus=(left,), minus=(right,), above=by, says=says)


def less(left: str, right: str, by: float = 0.0, says: str = "") -> Contrast:
    """Return the contrast that one cell is below another plus `by`."""
    return Contrast(plus=(left,), minus=(right,), below=by, says=says)


def alike(left: str, right: str, within: float, says: str = "") -> Contrast:
    """Return the contrast that two cells differ by less than `within` either way."""
    return Contrast(plus=(left,), minus=(right,), above=-within, below=within, says=says)


def t8(row: str) -> str:
    """Return a cell of table 8."""
    return f"T8 | {row} | {ACC}"


TIED, TWICE, TERMINAL = t8("2 weight-tied"), t8("3 + 2x depth"), t8("5 terminal loss, detached")
ANCHORS, ONLINE = t8("6 trajectory supervision"), t8("7 segmented online")
ONE_SHORT, TWO, TWO_SHORT = t8("8 z + truncation"), t8("9 (z_L, z_H)"), t8("10 (z_L, z_H) + truncation")

ALL_CLAIMS = (
    Claim(
        item="C1",
        says="Tying weights beats untied layers at an equal number of layers",
        contrasts=(more(TIED, t8("1 feedforward")),),
    ),
    Claim(
        item="C2",
        says="More iterations at equal layers raise training error and lower held-out error",
        contrasts=(
            less("T6 | 6 iterations | Eval error", "T6 | 2 iterations | Eval error"),
            more("T6 | 6 iterations | Train error", "T6 | 2 iterations | Train error"),
        ),
    ),
    Claim(
        item="C3",
        says="Twice the depth helps; many times the depth with a detached carry gains little more",
        contrasts=(more(TWICE, TIED), less(TERMINAL, TWICE, 5.0)),
    ),
    Claim(
        item="C4",
        says="Anchoring every segment hurts, late anchors help",
        contrasts=(
            less(f"T7 | full anchors | {ACC}", f"T7 | terminal loss | {ACC}"),
            more(f"T7 | late anchors, last quarter | {ACC}", f"T7 | terminal loss | {ACC}"),
        ),
    ),
    Claim(
        item="C5",
        says="Segmented online training beats trajectory supervision, also at equal segments",
        contrasts=(more(ONLINE, ANCHORS), more(ONLINE, t8("6 at the segments of 7"))),
    ),
    Claim(
        item="C6",
        says="Truncation hurts one state and helps two",
        contrasts=(
            less(ONE_SHORT, ONLINE),
            more(TWO_SHORT, TWO),
            Contrast(
                plus=(TWO_SHORT, ONLINE), minus=(TWO, ONE_SHORT), above=0.0, says="interaction of the two"
            ),
        ),
    ),
    Claim(
        item="C7",
        says="Learned halting beats none, oracle halting collapses, an unused head regularises",
        contrasts=(
            more(t8("12 learned halting"), TWO_SHORT),
            less(t8("11 oracle halting"), TWO_SHORT, -20.0, "oracle halting loses more than 20 points"),
            more(t8("12 head trained, unused"), TWO_SHORT),
        ),
    ),
    Claim(
        item="C8",
        says="Randomised starts, then noise, raise accuracy at the trained depth",
        contrasts=tuple(
            more(f"T3 | {left} | {task}", f"T3 | {right} | {task}")
            for task in SHAPED_TASKS
            for left, right in (("+ RI", "baseline"), ("+ RI + NI (EqR)", "+ RI"))
        ),
    ),
    Claim(
        item="C9",
        says="Accuracy rises beyond the trained depth",
        contrasts=tuple(
            more(f"T4 | + depth, D=64, B=1 | {task}", f"T4 | EqR, D=16, B=1 | {task}") for task in TASKS
        ),
    ),
    Claim(
        item="C10",
        says="Breadth pays, but only from a depth of about four segments on",
        contrasts=(
            less("F2 | D=64, B=16 | Error", "F2 | D=64, B=1 | Error"),
            alike("F2 | D=1, B=16 | Error", "F2 | D=1, B=1 | Error", 2.0, "no gain at D=1"),
        ),
    ),
    Claim(
        item="C11",
        says="The residual tracks error, over budgets and from start to start",
        contrasts=(
            Contrast(plus=("F2 | over all budgets | Rank correlation",), above=0.8, says="rank correlation"),
            Contrast(plus=("F2 | over starts, D=64 | AUROC",), above=0.8, says="AUROC at D=64"),
        ),
    ),
    Claim(
        item="C12",
        says="Top-1 converged beats the majority for shaped models and loses for TRM",
        contrasts=(
            more("F6 | EqR, Top-1 converged | B=4", "F6 | EqR, majority | B=4"),
            less("F6 | TRM, Top-1 converged | B=4", "F6 | TRM, majority | B=4"),
        ),
    ),
    Claim(
        item="C13",
        says="Halting saves 3 to 17 times the segments at no more than a point of accuracy",
        contrasts=(
            Contrast(plus=("T5 | D=64, B=1, head | Times fewer",), above=3.0, says="times fewer at D=64"),
            more(f"T5 | D=64, B=1, head | {ACC}", f"T5 | D=64, B=1 | {ACC}", -1.0),
        ),
    ),
    Claim(
        item="C14",
        says="EqR needs fewer segments at equal accuracy, with halting still fewer",
        contrasts=(
            less("F5 | EqR | log2 NFE for 70%", "F5 | baseline | log2 NFE for 70%"),
            less("F5 | EqR + ACT | log2 NFE for 70%", "F5 | EqR | log2 NFE for 70%"),
        ),
    ),
    Claim(
        item="C15",
        says="Randomised starts lower path dependence",
        contrasts=tuple(
            less(f"T12 | + RI | {task}, {kind}", f"T12 | TRM | {task}, {kind}")
            for task in ("Sudoku", "Maze")
            for kind in ("per puzzle", "of means")
        ),
    ),
    Claim(
        item="C16",
        says="A learned start adds nothing",
        contrasts=(less("T10 | TRM + learnable start | 100%", "T10 | TRM | 100%", 1.0),),
    ),
    Claim(
        item="C17",
        says="The scale of the random starts matters little",
        contrasts=(
            alike(f"T11 | sigma_H=1, sigma_L=8 | {ACC}", f"T11 | sigma_H=1, sigma_L=1 | {ACC}", 3.0),
            alike(f"T11 | sigma_H=8, sigma_L=1 | {ACC}", f"T11 | sigma_H=1, sigma_L=1 | {ACC}", 3.0),
        ),
    ),
    Claim(
        item="C18",
        says="The scale of noise matters little; learned noise wins only when shallow",
        contrasts=(
            alike("T13 | beta=0.05 | Eval, 9x9", "T13 | beta=0.01 | Eval, 9x9", 3.0),
            alike("T13 | beta=0.1 | Eval, 9x9", "T13 | beta=0.01 | Eval, 9x9", 3.0),
            more("T14 | learned | D=16", "T14 | beta=0.01 | D=16"),
            less("T14 | learned | D=1024", "T14 | beta=0.01 | D=1024"),
        ),
    ),
    Claim(
        item="C19",
        says="The interventions transfer to attention and to Mini-ARC",
        contrasts=(
            more(
                f"T15 | Sudoku (attention), + training intervention | {ACC}",
                f"T15 | Sudoku (attention), baseline | {ACC}",
            ),
            more(f"T15 | Mini-ARC, EqR | {ACC}", f"T15 | Mini-ARC, TRM | {ACC}"),
        ),
    ),
    Claim(
        item="C20",
        says="The gain at equal budget is stable over five seeds",
        contrasts=(more(f"T16 | EqR | {ACC}", f"T16 | baseline | {ACC}"),),
    ),
    Claim(
        item="C21",
        says="Ambiguous mazes break depth scaling, unique ones do not",
        contrasts=(
            more("F11 | Maze-Unique | D=64", "F11 | Maze-Unique | D=16"),
            less("F11 | Maze-1k | D=64", "F11 | Maze-1k | D=16", 1.0),
        ),
    ),
    Claim(
        item="C22",
        says="The landscape mode predicts which axis helps",
        contrasts=(
            more(
                "F4 | EqR | (b) correct and spurious: breadth gain",
                "F4 | EqR | (b) correct and spurious: depth gain",
            ),
            less("F4 | EqR | (d) well aligned: breadth gain", "F4 | EqR | (d) well aligned: depth gain"),
        ),
    ),
    Claim(
        item="C23",
        says="Ratings predict success poorly; easy puzzles need one to five segments",
        contrasts=(
            Contrast(plus=("F13 | over puzzles, D=16 | Rating AUROC",), below=0.7, says="rating AUROC"),
            Contrast(
                plus=("F13 | halted by the head | NFE of easy puzzles",),
                below=5.0,
                says="NFE of easy puzzles",
            ),
        ),
    ),
)
