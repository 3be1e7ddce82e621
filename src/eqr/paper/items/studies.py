"""The second round: arms and measurements chosen so that the paper's claims can show, each shared by several.

A study is an experiment like any other, in the store and in `results/`. What decides a claim is in
`preregistered.py`. Its seeds begin at 100, so that no run of the first round, by which regimes were chosen,
counts again.
"""

from typing import Any

from eqr.paper.experiment import Column, Curve, Experiment, Halves, Picture, Puzzles, Row, Solve
from eqr.paper.items.construction import FLAT, ITERATED
from eqr.paper.items.regimes import (
    AMBIGUOUS,
    ATTENTIVE,
    ATTENTIVE_WHY,
    FEW,
    HALF_LEARNED,
    HEAD,
    LONGER,
    MAZE,
    ONCE,
    SHORT,
    SUDOKU,
    column,
    lab,
    number,
    row,
    train_of,
)


def study(**fields: Any) -> Experiment:
    """Return an experiment on seeds of its own: twelve of them unless it says."""
    unpublished = {"lab": fields["lab"].replace(paper=None)}
    return Experiment(**{"first_seed": 100, "seeds": 12, **fields, **unpublished})


S = lab(
    "sudoku-9x9-minimal",
    5000,
    every=1000,
    changes={"data.train": 20000, "data.test": 2600, "halting.exploration": 0.1, **LONGER},
    why="9x9 Sudoku without a spare clue by the mixer that knows rows, columns and boxes, 20,000 puzzles, "
    "5,000 steps of 16 rows. Tested on generated puzzles at which our search backtracks four times or more, "
    "a fifth of all, because the others are solved by nearly every model.",
)
HARD = Solve(puzzles=500, depth=16, least_rating=4, by_puzzle=True)
DEEPER = HARD.replace(depth=64)
BROADER = HARD.replace(puzzles=200, breadth=8)
ANY_RATING = HARD.replace(least_rating=0)
TRM, RI, EQR = row("TRM", "trm"), row("+ RI", "ri"), row("EqR", "eqr")


def ruled(name: str, kind: str) -> Row:
    """Return TRM trained with another halting rule."""
    return row(f"TRM, {name}", "trm", lab_changes={"halting": {"kind": kind}})


def several(measurement: Solve, metric: str, rule: str, *budgets: tuple[int, int]) -> tuple[Column, ...]:
    """Return a column for a choice among starts at each of some budgets."""
    return tuple(
        column(
            f"{rule} of {breadth}, D={depth}" if breadth > 1 else f"one start, D={depth}",
            measurement,
            metric,
            at=(depth, breadth),
        )
        for depth, breadth in budgets
    )


BUDGETS = ((2, 1), (2, 8), (4, 1), (4, 8), (8, 1), (8, 8), (16, 1), (16, 4), (16, 8))

SYSTEMS = study(
    item="E1",
    title="Starts, noise, depth, breadth and halting, with the structure told",
    question="What do random starts, path noise and halting rules do to accuracy, and to depth and breadth?",
    lab=S,
    regime=S.why,
    rows=(
        TRM,
        RI,
        EQR,
        ruled("no halting", "none"),
        ruled("oracle halting", "oracle"),
        ruled("head unused", "learned-unused"),
    ),
    columns=(
        *(column(f"D={depth}", DEEPER, at=(depth, 1)) for depth in (4, 8, 16, 32, 64)),
        number("log2 NFE for 85%", DEEPER, "log2 nfe for 85%", 2),
        number("AUROC, D=16", DEEPER, "auroc", 3, at=(16, 1)),
        column("Training puzzles, D=16", train_of(HARD)),
        number("Depth of training", Curve(), "halt depth at the end"),
    ),
    minutes=230,
    picture=Picture(columns=("D=16", "D=64")),
)
BREADTH = study(
    item="E2",
    title="Breadth and path dependence, with the structure told",
    question="Where does breadth begin to pay, and do answers depend on where a trajectory begins?",
    lab=S,
    regime=f"{S.why} The runs of E1; TRM from random starts, which it was not trained on.",
    rows=(TRM.replace(start="random"), RI, EQR),
    columns=(
        *several(BROADER, "top", "best settled", *BUDGETS),
        *several(BROADER, "vote", "majority", (16, 4), (16, 8)),
        column("Path dependence", BROADER, "path per puzzle", at=(16, 8)),
        column("Spurious starts", BROADER, "spurious", at=(16, 1)),
    ),
    minutes=25,
    picture=Picture(columns=("one start, D=16", "best settled of 8, D=16", "Path dependence")),
)
HALTED = study(
    item="E3",
    title="Halting by the head, and difficulty",
    question="What does the head's halting cost and save, and does a search's rating predict success?",
    lab=S,
    regime=f"{S.why} The runs of E1. Ratings are those of 500 puzzles of any difficulty.",
    rows=(EQR,),
    columns=(
        column("D=64", DEEPER),
        column("D=64, halted", DEEPER.replace(halt=HEAD)),
        number("Times fewer", DEEPER.replace(halt=HEAD), "saving"),
        column("Any rating, D=8", ANY_RATING, at=(8, 1)),
        number("Rating", ANY_RATING, "rating"),
        number("Rating AUROC, D=8", ANY_RATING, "rating auroc", 2, at=(8, 1)),
        number("NFE of easy puzzles", DEEPER.replace(halt=HEAD, least_rating=0), "nfe rated 0-0"),
    ),
    minutes=20,
    picture=Picture(kind="none"),
)
HALF = HALF_LEARNED.plus({"data.test": 1000})
MANY = Solve(puzzles=256, depth=16, breadth=16, by_puzzle=True)
TOKENS = study(
    item="E4",
    title="Half-learned Sudoku by the paper's token mixer",
    question="Where spurious attractors are common, does the residual tell right from wrong?",
    lab=HALF,
    regime=HALF.why,
    rows=(TRM.replace(start="random"), RI, EQR),
    columns=(
        *several(MANY, "top", "best settled", *BUDGETS, (16, 16)),
        *several(MANY, "vote", "majority", (16, 4), (16, 8), (16, 16)),
        number("AUROC, D=16", MANY, "auroc", 3, at=(16, 1)),
        number("Rank correlation", MANY, "tracking", 3, at=(16, 16)),
        column("Spurious starts", MANY, "spurious", digits=3, at=(16, 1)),
        column("Path dependence", MANY, "path per puzzle", digits=3, at=(16, 16)),
    ),
    minutes=30,
    picture=Picture(
        columns=("one start, D=16", "best settled of 16, D=16", "AUROC, D=16", "Spurious starts")
    ),
)
LANDSCAPE = study(
    item="E5",
    title="Landscape modes as a prediction",
    question="Does the mode that half of the starts show at D=8 say whether depth or breadth helps the rest?",
    lab=HALF,
    regime=f"{HALF.why} The runs of E4. Depth goes from 8 to 32, breadth from 1 to 4 starts: as many "
    "segments.",
    rows=(EQR, RI),
    columns=tuple(
        column(f"({mode}) {name}", Halves(), f"{name} {mode}")
        for mode in "abcd"
        for name in ("share", "breadth over depth")
    ),
    minutes=12,
    picture=Picture(kind="none"),
)
REPEATED = (ITERATED[0], ITERATED[-1])
ONCE_EACH, SHORT_EACH = ONCE.replace(by_puzzle=True), SHORT.replace(by_puzzle=True)
TYING = study(
    item="E6",
    title="Tying and iterations where puzzles are not learned by heart",
    question="At equal layers, what do tying and more iterations do to training and held-out error?",
    lab=FEW.plus({"data.train": 10000, "data.test": 1000}),
    regime="6x6 Sudoku without a spare clue by the paper's token mixer, 10,000 puzzles, 1,200 steps: a tied "
    "model of six layers learns about two thirds of its own puzzles. Six layers: 6x1, 3x2 and 1x6 blocks. "
    "Rows of 3,000 puzzles are for the training error, which 10,000 leave unfinished.",
    rows=(
        FLAT,
        *REPEATED,
        *(
            one.replace(
                name=f"{one.name}, 3,000 puzzles", lab_changes={**one.lab_changes, "data.train": 3000}
            )
            for one in REPEATED
        ),
    ),
    columns=(
        column("Accuracy", ONCE_EACH),
        column("Error", ONCE_EACH, "error"),
        column("Training error", train_of(ONCE_EACH), "error"),
    ),
    minutes=24,
)
TRUNCATION = study(
    item="E7",
    title="Truncation with one state and with two",
    question="Does tracking only the last cycle hurt one state and help two?",
    lab=FEW,
    regime=FEW.why,
    rows=(
        row("z", "07-segmented"),
        row("z, truncated", "08-segmented-truncated"),
        row("(z_L, z_H)", "09-two-level"),
        row("(z_L, z_H), truncated", "10-two-level-truncated"),
    ),
    columns=(column("Accuracy", SHORT_EACH),),
    minutes=28,
)
ANCHORS = study(
    item="E8",
    title="Where along a trajectory losses sit, at equal steps and equal segments",
    question="Do late anchors beat full anchors, and does segmented online training beat both?",
    lab=FEW,
    regime=f"{FEW.why} At 9,600 steps segmented online training takes as many segments as a trajectory of "
    "8 does in 1,200.",
    rows=(
        row("terminal loss", "05-terminal-detached"),
        row("full anchors", "06-trajectory"),
        row("late anchors, second half", "06-late-half"),
        row("late anchors, last quarter", "06-late-quarter"),
        row("segmented, equal steps", "07-segmented"),
        row(
            "segmented, equal segments",
            "07-segmented",
            lab_changes={"steps": 9600, "evaluation.every": 1600},
        ),
    ),
    columns=(column("Accuracy", SHORT_EACH),),
    seeds=8,
    minutes=140,
)
DEEP_LAYERS = {"model.recurrence.cycles": 4, "model.recurrence.applications": 6, "optimizer.rate": 0.001}
DEEP_SEGMENTS = study(
    item="E9",
    title="Depth where a segment has 24 layers",
    question="Does twice the depth help, and sixteen times with a detached carry gain little more?",
    lab=FEW.plus({"schedule.depth": 16}),
    regime="6x6 Sudoku as in T8, but with 24 layers a segment for the paper's 42 "
    "and trajectories of 16 segments. "
    "The rate of each arm is the best of three by validation on seeds 0 to "
    "2, fixed before these seeds are run.",
    rows=tuple(
        row(name, variant, lab_changes=DEEP_LAYERS, measurement=SHORT_EACH.replace(depth=depth))
        for name, variant, depth in (
            ("1x", "02-weight-tied", 1),
            ("2x", "03-twice-the-depth", 2),
            ("16x, detached", "05-terminal-detached", 16),
        )
    ),
    columns=(column("Accuracy", SHORT_EACH),),
    seeds=8,
    minutes=160,
)


SCALES = study(
    item="E10",
    title="Scales of starts and noise, a learned start, noise without damping",
    question="Does accuracy depend on how far starts are spread, on the scale of "
    "noise, or on a learned start?",
    lab=S,
    regime=S.why,
    rows=(
        TRM,
        RI,
        EQR,
        row("learned start", "learned-start"),
        row("+ RI, sigma_L=8", "ri", lab_changes={"model.start.scratch": 8.0}),
        row("+ RI, sigma_H=8", "ri", lab_changes={"model.start.answer": 8.0}),
        row("EqR, beta=0.05", "eqr", lab_changes={"model.path.noise": 0.05}),
        row("EqR, beta=0.1", "eqr", lab_changes={"model.path.noise": 0.1}),
        row("EqR without damping", "eqr", lab_changes={"model.path.damping": 0.0}),
    ),
    columns=(column("D=16", HARD),),
    minutes=170,
)
ATTENTION = study(
    item="E11",
    title="Random starts and noise with attention",
    question="Do the interventions help where attention mixes cells?",
    lab=SUDOKU,
    regime=f"6x6 Sudoku with 16 clues. {ATTENTIVE_WHY}",
    rows=(
        row("TRM", "attention", "trm", lab_changes=ATTENTIVE),
        row("EqR", "attention", "eqr", lab_changes=ATTENTIVE),
    ),
    columns=(column("D=16", Solve(puzzles=500, depth=16, by_puzzle=True)),),
    minutes=30,
)
OPEN = {
    **AMBIGUOUS,
    "data.options": {"min_length": 14, "max_length": 36, "min_walls": 0.25, "max_walls": 0.35},
}
"""Open mazes of which 3 to 4% have one shortest path; the generator's own 30 to 50% of walls leave 36%."""
LONG = Solve(puzzles=500, depth=64, by_puzzle=True)
BRIEF = LONG.replace(depth=16)
MAZES = study(
    item="E12",
    title="Depth on mazes with one shortest path and with several",
    question="Does depth beyond that of training help where the label is unique, "
    "not where it is one of many?",
    lab=MAZE.plus({"steps": 6000}),
    regime="11x11 mazes by the mixer that hears its neighbours, the recipe's 6,000 steps.",
    rows=(row("one path"), row("several paths", lab_changes=OPEN)),
    columns=(
        column("D=16", LONG, at=(16, 1)),
        column("D=64", LONG),
        column("One shortest path", Puzzles(), "unique"),
    ),
    seeds=10,
    minutes=80,
)
LEARNED_BY_HEART = study(
    item="E13",
    title="Halting rules against how much is learned by heart",
    question="Does the collapse under oracle and learned halting come and go with how early rows halt?",
    lab=FEW.plus({"data.test": 1000}),
    regime="6x6 Sudoku without a spare clue by the paper's token mixer, 1,200 "
    "steps, from 100 to 10,000 puzzles.",
    rows=tuple(
        row(
            f"{size:,} puzzles, {name}",
            "10-two-level-truncated",
            lab_changes={"data.train": size, "halting": {"kind": kind}},
        )
        for size in (100, 300, 1_000, 10_000)
        for name, kind in (
            ("none", "none"),
            ("learned", "learned"),
            ("oracle", "oracle"),
            ("head unused", "learned-unused"),
        )
    ),
    columns=(
        column("Accuracy", SHORT_EACH),
        column("Training puzzles", train_of(SHORT_EACH.replace(puzzles=100))),
        number("Depth of training", Curve(), "halt depth at the end"),
    ),
    seeds=5,
    minutes=50,
)


def perturbed(one: Row, measurement: Solve, prefix: str = "") -> tuple[Row, ...]:
    """Return a model run with other noise, then with other damping, than it was trained with."""
    others = [("noise", size) for size in (0.0, 0.03, 0.1, 0.3)]
    others += [("damping", size) for size in (0.0, 0.2, 0.4)]
    return tuple(
        one.replace(
            name=f"{prefix}{name} {size:g}", measurement=measurement.replace(**{name: size}), only=("D=16",)
        )
        for name, size in others
    )


AT_TEST = HARD.replace(puzzles=300)
PERTURBED = study(
    item="E14",
    title="Noise and damping at test time",
    question="Does a model trained with little noise gain from more of it, or from none, when it is run?",
    lab=S,
    regime=f"{S.why} The runs of EqR in E1, trained with noise 0.01 and damping 0.05; 300 puzzles.",
    rows=(EQR.replace(name="as trained", measurement=AT_TEST), *perturbed(EQR, AT_TEST)),
    columns=(column("D=16"),),
    minutes=10,
)
SHALLOW = HARD.replace(depth=1)
ARCHITECTURES = study(
    item="E15",
    title="Feedforward, tied and iterated, with the structure told",
    question="At equal steps, what do tying, iterating and shaping add to as many applications?",
    lab=S,
    regime=f"{S.why} EqR applies its block 15 times a segment and tracks three of them, so that a step of it "
    "costs no more than one of 15 blocks. HRM and URM bring attention, which is told nothing.",
    rows=(
        *(
            row(
                f"feedforward, {blocks} blocks",
                "01-feedforward",
                lab_changes={"model.blocks": blocks},
                measurement=SHALLOW,
            )
            for blocks in (5, 15, 30)
        ),
        row(
            "tied, 15 applications",
            "02-weight-tied",
            measurement=SHALLOW,
        ),
        row("HRM", "hrm", lab_changes={"model.positions": "rotary-2d"}, seeds=4),
        row("URM", "urm", lab_changes={"model.positions": "rotary-2d"}, seeds=4),
        TRM,
        EQR,
    ),
    columns=(column("Accuracy", HARD), column("Training puzzles", train_of(HARD))),
    seeds=8,
    minutes=150,
)
AFTERWARDS = study(
    item="E16",
    title="Depth, halting, noise and damping at test time, by tokens",
    question="What do half-learned models gain from more depth, lose by halting, and gain from other noise?",
    lab=HALF,
    regime=f"{HALF.why} The runs of EqR and TRM in E4, of which D up to 16 on 256 puzzles had been "
    "seen when this was written down.",
    rows=(EQR, TRM, *perturbed(EQR, BRIEF, "EqR, ")),
    columns=(
        column("D=16", LONG, at=(16, 1)),
        column("D=64", LONG),
        column("D=64, halted", LONG.replace(halt=HEAD)),
        number("Times fewer", LONG.replace(halt=HEAD), "saving"),
        column("Training puzzles, D=16", train_of(BRIEF)),
    ),
    minutes=7,
    picture=Picture(columns=("D=16", "D=64")),
)
