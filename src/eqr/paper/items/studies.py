"""The second round: arms and measurements chosen so that the paper's claims can show, each shared by several.

A study is an experiment like any other, in the store and in `results/`. What decides a claim is in
`preregistered.py`. Its seeds begin at 100, so that no run of the first round, by which regimes were chosen,
counts again.
"""

from collections.abc import Mapping
from typing import Any

from eqr.paper.experiment import NO_CHANGES, Column, Experiment, Picture, Property, Row, Setting
from eqr.paper.items.construction import FLAT, ITERATED
from eqr.paper.items.regimes import (
    ATTENTIVE,
    ATTENTIVE_WHY,
    FEW,
    FEW_WHY,
    HALF_LEARNED,
    HALF_LEARNED_WHY,
    HEAD,
    MAZE,
    ONCE,
    SHORT,
    SUDOKU,
    train_of,
)
from eqr.paper.measurement import Curve, Halves, Puzzles, Solve

FIRST_SEED = 100

S = Setting(
    recipe="sudoku-9x9-minimal",
    changes={
        "steps": 5000,
        "data.train": 20000,
        "data.test": 2600,
        "halting.exploration": 0.1,
        "evaluation.every": 1000,
        "evaluation.puzzles": 128,
        "evaluation.depths": (1, 4, 16),
        "evaluation.test_puzzles": 64,
    },
)
S_WHY = (
    "9x9 Sudoku without a spare clue by the mixer that knows rows, columns and boxes, 20,000 puzzles, 5,000 "
    "steps of 16 rows. Tested on generated puzzles at which our search backtracks four times or more, a "
    "fifth of all, because the others are solved by nearly every model."
)
HARD = Solve(puzzles=500, depth=16, least_rating=4, by_puzzle=True)
DEEPER = HARD.replace(depth=64)
BROADER = HARD.replace(puzzles=200, breadth=8)
STILL: dict[str, Property] = {"RI": False, "NI": False, "states": 2}
SHAPED: dict[str, Property] = {"RI": True, "NI": True, "states": 2}
GRADUAL = ("D=4", "D=8", "D=16", "D=32", "D=64")


def arm(name: str, variant: str, says: dict[str, Property], changes: Mapping[str, Any] = NO_CHANGES) -> Row:
    """Return an arm: a variant of the setting, with changes."""
    return Row(name=name, variants=(variant,), lab_changes=changes, says=says)


TRM, RI, EQR = (
    arm("TRM", "trm", {**STILL, "halting": "learned"}),
    arm("+ RI", "ri", {"RI": True, "NI": False, "halting": "learned"}),
    arm("EqR", "eqr", {**SHAPED, "halting": "learned"}),
)
RULES = tuple(
    arm(f"TRM, {name}", "trm", {**STILL, "halting": kind}, {"halting": {"kind": kind}})
    for name, kind in (
        ("no halting", "none"),
        ("oracle halting", "oracle"),
        ("head unused", "learned-unused"),
    )
)
HALTING_RULES = {"none": "none", "learned": "learned", "oracle": "oracle", "head unused": "learned-unused"}
SIZES = (100, 300, 1_000, 10_000)


def several(depth: int, breadth: int, rule: str = "best settled") -> str:
    """Return what the accuracy of a choice among starts is called."""
    return f"{rule} of {breadth}, D={depth}" if breadth > 1 else f"one start, D={depth}"


def spread(measurement: Solve, metric: str, rule: str, *budgets: tuple[int, int]) -> tuple[Column, ...]:
    """Return a column for a choice among starts at each of some budgets."""
    return tuple(
        Column(name=several(d, b, rule), metric=metric, measurement=measurement, at=(d, b))
        for d, b in budgets
    )


BREADTHS = ((2, 1), (2, 8), (4, 1), (4, 8), (8, 1), (8, 8), (16, 1), (16, 4), (16, 8))

SYSTEMS = Experiment(
    item="E1",
    title="Starts, noise, depth, breadth and halting, with the structure told",
    question="What do random starts, path noise and halting rules do to accuracy, and to depth and breadth?",
    lab=S,
    regime=S_WHY,
    rows=(TRM, RI, EQR, *RULES),
    columns=(
        *(Column(name=name, measurement=DEEPER, at=(int(name[2:]), 1)) for name in GRADUAL),
        Column(
            name="log2 NFE for 85%", metric="log2 nfe for 85%", measurement=DEEPER, percent=False, digits=2
        ),
        Column(name="AUROC, D=16", metric="auroc", measurement=DEEPER, at=(16, 1), percent=False, digits=3),
        Column(name="Training puzzles, D=16", measurement=HARD.replace(split="train")),
        Column(name="Depth of training", metric="halt depth at the end", measurement=Curve(), percent=False),
    ),
    seeds=12,
    first_seed=FIRST_SEED,
    minutes=230,
    picture=Picture(columns=("D=16", "D=64")),
)
BREADTH = Experiment(
    item="E2",
    title="Breadth and path dependence, with the structure told",
    question="Where does breadth begin to pay, and do answers depend on where a trajectory begins?",
    lab=S,
    regime=f"{S_WHY} The runs of E1; TRM from random starts, which it was not trained on.",
    rows=(TRM.replace(start="random"), RI, EQR),
    columns=(
        *spread(BROADER, "top", "best settled", *BREADTHS),
        *spread(BROADER, "vote", "majority", (16, 4), (16, 8)),
        Column(name="Path dependence", metric="path per puzzle", measurement=BROADER, at=(16, 8)),
        Column(name="Spurious starts", metric="spurious", measurement=BROADER, at=(16, 1)),
    ),
    seeds=12,
    first_seed=FIRST_SEED,
    minutes=25,
    picture=Picture(columns=("one start, D=16", "best settled of 8, D=16", "Path dependence")),
)
HALTED = Experiment(
    item="E3",
    title="Halting by the head, and difficulty",
    question="What does the head's halting cost and save, and does a search's rating predict success?",
    lab=S,
    regime=f"{S_WHY} The runs of E1. Ratings are those of 500 puzzles of any difficulty.",
    rows=(EQR,),
    columns=(
        Column(name="D=64", measurement=DEEPER),
        Column(name="D=64, halted", measurement=DEEPER.replace(halt=HEAD)),
        Column(name="Times fewer", metric="saving", measurement=DEEPER.replace(halt=HEAD), percent=False),
        Column(name="Any rating, D=8", measurement=HARD.replace(least_rating=0), at=(8, 1)),
        Column(name="Rating", metric="rating", measurement=HARD.replace(least_rating=0), percent=False),
        Column(
            name="Rating AUROC, D=8",
            metric="rating auroc",
            measurement=HARD.replace(least_rating=0),
            at=(8, 1),
            percent=False,
            digits=2,
        ),
        Column(
            name="NFE of easy puzzles",
            metric="nfe rated 0-0",
            measurement=DEEPER.replace(halt=HEAD, least_rating=0),
            percent=False,
        ),
    ),
    seeds=12,
    first_seed=FIRST_SEED,
    minutes=20,
    picture=Picture(kind="none"),
)
TOKENS = Experiment(
    item="E4",
    title="Half-learned Sudoku by the paper's token mixer",
    question="Where spurious attractors are common, does the residual tell right from wrong?",
    lab=HALF_LEARNED.plus({"data.test": 1000}),
    regime=HALF_LEARNED_WHY,
    rows=(
        arm("TRM", "trm", STILL).replace(start="random"),
        arm("+ RI", "ri", {"RI": True, "NI": False}),
        arm("EqR", "eqr", SHAPED),
    ),
    columns=(
        *spread(
            Solve(puzzles=256, depth=16, breadth=16, by_puzzle=True),
            "top",
            "best settled",
            *BREADTHS,
            (16, 16),
        ),
        *spread(
            Solve(puzzles=256, depth=16, breadth=16, by_puzzle=True),
            "vote",
            "majority",
            (16, 4),
            (16, 8),
            (16, 16),
        ),
        *(
            Column(
                name=name,
                metric=metric,
                measurement=Solve(puzzles=256, depth=16, breadth=16, by_puzzle=True),
                at=at,
                percent=percent,
                digits=3,
            )
            for name, metric, at, percent in (
                ("AUROC, D=16", "auroc", (16, 1), False),
                ("Rank correlation", "tracking", (16, 16), False),
                ("Spurious starts", "spurious", (16, 1), True),
                ("Path dependence", "path per puzzle", (16, 16), True),
            )
        ),
    ),
    seeds=12,
    first_seed=FIRST_SEED,
    minutes=30,
    picture=Picture(
        columns=("one start, D=16", "best settled of 16, D=16", "AUROC, D=16", "Spurious starts")
    ),
)
LANDSCAPE = Experiment(
    item="E5",
    title="Landscape modes as a prediction",
    question="Does the mode that half of the starts show at D=8 say whether depth or breadth helps the rest?",
    lab=HALF_LEARNED.plus({"data.test": 1000}),
    regime=f"{HALF_LEARNED_WHY} The runs of E4. Depth goes from 8 to 32, breadth from 1 to 4 starts: as many "
    "segments.",
    rows=(arm("EqR", "eqr", SHAPED), arm("+ RI", "ri", {"RI": True, "NI": False})),
    columns=tuple(
        Column(name=f"({mode}) {name}", metric=f"{metric} {mode}", measurement=Halves())
        for mode in "abcd"
        for name, metric in (("share", "share"), ("breadth over depth", "breadth over depth"))
    ),
    seeds=12,
    first_seed=FIRST_SEED,
    minutes=12,
    picture=Picture(kind="none"),
)
REPEATED = tuple(row for row in ITERATED if row.name != "3 iterations")
MORE_PUZZLES = FEW.plus({"data.train": 10000, "data.test": 1000})
TYING = Experiment(
    item="E6",
    title="Tying and iterations where puzzles are not learned by heart",
    question="At equal layers, what do tying and more iterations do to training and held-out error?",
    lab=MORE_PUZZLES,
    regime="6x6 Sudoku without a spare clue by the paper's token mixer, 10,000 puzzles, 1,200 steps: a tied "
    "model of six layers learns about two thirds of its own puzzles. Six layers: 6x1, 3x2 and 1x6 blocks. "
    "Rows of 3,000 puzzles are for the training error, which 10,000 leave unfinished.",
    rows=(
        FLAT,
        *REPEATED,
        *(
            row.replace(
                name=f"{row.name}, 3,000 puzzles", lab_changes={**row.lab_changes, "data.train": 3000}
            )
            for row in REPEATED
        ),
    ),
    columns=(
        Column(name="Accuracy", measurement=ONCE.replace(by_puzzle=True)),
        Column(name="Error", metric="error", measurement=ONCE.replace(by_puzzle=True)),
        Column(name="Training error", metric="error", measurement=train_of(ONCE.replace(by_puzzle=True))),
    ),
    seeds=12,
    first_seed=FIRST_SEED,
    minutes=24,
)
SHORT_EACH = SHORT.replace(by_puzzle=True)
TRUNCATION = Experiment(
    item="E7",
    title="Truncation with one state and with two",
    question="Does tracking only the last cycle hurt one state and help two?",
    lab=FEW,
    regime=FEW_WHY,
    rows=tuple(
        Row(
            name=name,
            variants=(variant,),
            says={
                "states": states,
                "truncated": truncated,
                "schedule": "segmented-online",
                "halting": "none",
            },
        )
        for name, variant, states, truncated in (
            ("z", "07-segmented", 1, False),
            ("z, truncated", "08-segmented-truncated", 1, True),
            ("(z_L, z_H)", "09-two-level", 2, False),
            ("(z_L, z_H), truncated", "10-two-level-truncated", 2, True),
        )
    ),
    columns=(Column(name="Accuracy", measurement=SHORT_EACH),),
    seeds=12,
    first_seed=FIRST_SEED,
    minutes=28,
)
ANCHORS = Experiment(
    item="E8",
    title="Where along a trajectory losses sit, at equal steps and equal segments",
    question="Do late anchors beat full anchors, and does segmented online training beat both?",
    lab=FEW,
    regime=f"{FEW_WHY} At 9,600 steps segmented online training takes as many segments as a trajectory of "
    "8 does in 1,200.",
    rows=(
        Row(name="terminal loss", variants=("05-terminal-detached",), says={"schedule": "terminal-detached"}),
        Row(
            name="full anchors",
            variants=("06-trajectory",),
            says={"schedule": "trajectory", "first anchor": 1},
        ),
        Row(name="late anchors, second half", variants=("06-late-half",), says={"first anchor": 4}),
        Row(name="late anchors, last quarter", variants=("06-late-quarter",), says={"first anchor": 6}),
        Row(name="segmented, equal steps", variants=("07-segmented",), says={"schedule": "segmented-online"}),
        Row(
            name="segmented, equal segments",
            variants=("07-segmented",),
            lab_changes={"steps": 9600, "evaluation.every": 1600},
            says={"schedule": "segmented-online"},
        ),
    ),
    columns=(Column(name="Accuracy", measurement=SHORT_EACH),),
    seeds=8,
    first_seed=FIRST_SEED,
    minutes=140,
)
DEEP_LAYERS = {"model.recurrence.cycles": 4, "model.recurrence.applications": 6, "optimizer.rate": 0.001}
DEEP_SEGMENTS = Experiment(
    item="E9",
    title="Depth where a segment has 24 layers",
    question="Does twice the depth help, and sixteen times with a detached carry gain little more?",
    lab=FEW.plus({"schedule.depth": 16}),
    regime="6x6 Sudoku as in T8, but with 24 layers a segment for the paper's 42 "
    "and trajectories of 16 segments. "
    "The rate of each arm is the best of three by validation on seeds 0 to "
    "2, fixed before these seeds are run.",
    rows=tuple(
        Row(
            name=name,
            variants=(variant,),
            lab_changes=DEEP_LAYERS,
            measurement=SHORT_EACH.replace(depth=depth),
        )
        for name, variant, depth in (
            ("1x", "02-weight-tied", 1),
            ("2x", "03-twice-the-depth", 2),
            ("16x, detached", "05-terminal-detached", 16),
        )
    ),
    columns=(Column(name="Accuracy", measurement=SHORT_EACH),),
    seeds=8,
    first_seed=FIRST_SEED,
    minutes=160,
)
SCALES = Experiment(
    item="E10",
    title="Scales of starts and noise, a learned start, noise without damping",
    question="Does accuracy depend on how far starts are spread, on the scale of "
    "noise, or on a learned start?",
    lab=S,
    regime=S_WHY,
    rows=(
        TRM,
        RI,
        EQR,
        arm("learned start", "learned-start", {"learned start": True, "NI": False}),
        *(
            arm(
                f"+ RI, sigma_{name}=8",
                "ri",
                {f"sigma_{name}": 8.0, "NI": False},
                {f"model.start.{part}": 8.0},
            )
            for name, part in (("L", "scratch"), ("H", "answer"))
        ),
        *(
            arm(f"EqR, beta={beta}", "eqr", {"RI": True, "beta": beta}, {"model.path.noise": beta})
            for beta in (0.05, 0.1)
        ),
        arm(
            "EqR without damping",
            "eqr",
            {"RI": True, "NI": True, "damped": False},
            {"model.path.damping": 0.0},
        ),
    ),
    columns=(Column(name="D=16", measurement=HARD),),
    seeds=12,
    first_seed=FIRST_SEED,
    minutes=170,
)
ATTENTION = Experiment(
    item="E11",
    title="Random starts and noise with attention",
    question="Do the interventions help where attention mixes cells?",
    lab=SUDOKU,
    regime=f"6x6 Sudoku with 16 clues. {ATTENTIVE_WHY}",
    rows=tuple(
        Row(
            name=name,
            variants=("attention", variant),
            lab_changes=ATTENTIVE,
            says={"mixer": "attention", "RI": shaped, "NI": shaped},
        )
        for name, variant, shaped in (("TRM", "trm", False), ("EqR", "eqr", True))
    ),
    columns=(Column(name="D=16", measurement=Solve(puzzles=500, depth=16, by_puzzle=True)),),
    seeds=12,
    first_seed=FIRST_SEED,
    minutes=30,
)
AMBIGUOUS = {
    "data.task": "maze-1k-11x11",
    "model.task": "maze-1k-11x11",
    "data.options": {"min_length": 14, "max_length": 36, "min_walls": 0.25, "max_walls": 0.35},
}
"""Open mazes of which 3 to 4% have one shortest path; the generator's own 30 to 50% of walls leave 36%."""
LARGER = Solve(puzzles=500, depth=64, by_puzzle=True)
MAZES = Experiment(
    item="E12",
    title="Depth on mazes with one shortest path and with several",
    question="Does depth beyond that of training help where the label is unique, "
    "not where it is one of many?",
    lab=MAZE.plus({"steps": 6000}),
    regime="11x11 mazes by the mixer that hears its neighbours, the recipe's 6,000 steps.",
    rows=(Row(name="one path"), Row(name="several paths", lab_changes=AMBIGUOUS)),
    columns=(
        Column(name="D=16", measurement=LARGER, at=(16, 1)),
        Column(name="D=64", measurement=LARGER),
        Column(name="One shortest path", metric="unique", measurement=Puzzles()),
    ),
    seeds=10,
    first_seed=FIRST_SEED,
    minutes=80,
)
LEARNED_BY_HEART = Experiment(
    item="E13",
    title="Halting rules against how much is learned by heart",
    question="Does the collapse under oracle and learned halting come and go with how early rows halt?",
    lab=FEW.plus({"data.test": 1000}),
    regime="6x6 Sudoku without a spare clue by the paper's token mixer, 1,200 "
    "steps, from 100 to 10,000 puzzles.",
    rows=tuple(
        Row(
            name=f"{size:,} puzzles, {name}",
            variants=("10-two-level-truncated",),
            lab_changes={"data.train": size, "halting": {"kind": kind}},
            says={"halting": kind, "trained on": size},
            series=name,
        )
        for size in SIZES
        for name, kind in HALTING_RULES.items()
    ),
    columns=(
        Column(name="Accuracy", measurement=SHORT_EACH),
        Column(name="Training puzzles", measurement=train_of(SHORT_EACH.replace(puzzles=100))),
        Column(name="Depth of training", metric="halt depth at the end", measurement=Curve(), percent=False),
    ),
    seeds=5,
    first_seed=FIRST_SEED,
    minutes=50,
)

AT_TEST = HARD.replace(puzzles=300)
PERTURBED = Experiment(
    item="E14",
    title="Noise and damping at test time",
    question="Does a model trained with little noise gain from more of it, or from none, when it is run?",
    lab=S,
    regime=f"{S_WHY} The runs of EqR in E1, trained with noise 0.01 and damping 0.05; 300 puzzles.",
    rows=(
        EQR.replace(name="as trained", measurement=AT_TEST),
        *(
            EQR.replace(name=f"noise {size:g}", measurement=AT_TEST.replace(noise=size))
            for size in (0.0, 0.03, 0.1, 0.3)
        ),
        *(
            EQR.replace(name=f"damping {size:g}", measurement=AT_TEST.replace(damping=size))
            for size in (0.0, 0.2, 0.4)
        ),
    ),
    columns=(Column(name="D=16"),),
    seeds=12,
    first_seed=FIRST_SEED,
    minutes=10,
)

SHALLOW = HARD.replace(depth=1)


def untied(blocks: int) -> Row:
    """Return a feedforward arm of so many blocks, which runs once."""
    return Row(
        name=f"feedforward, {blocks} blocks",
        variants=("01-feedforward",),
        lab_changes={"model.blocks": blocks},
        measurement=SHALLOW,
        says={"tied": False, "iterations": 1, "segments": 1},
    )


ARCHITECTURES = Experiment(
    item="E15",
    title="Feedforward, tied and iterated, with the structure told",
    question="At equal steps, what do tying, iterating and shaping add to as many applications?",
    lab=S,
    regime=f"{S_WHY} EqR applies its block 15 times a segment and tracks three of them, so that a step of it "
    "costs no more than one of 15 blocks. HRM and URM bring attention, which is told nothing.",
    rows=(
        *(untied(blocks) for blocks in (5, 15, 30)),
        Row(
            name="tied, 15 applications",
            variants=("02-weight-tied",),
            measurement=SHALLOW,
            says={"tied": True, "states": 1, "iterations": 15, "segments": 1},
        ),
        *(
            Row(name=name, variants=(variant,), lab_changes={"model.positions": "rotary-2d"}, seeds=4)
            for name, variant in (("HRM", "hrm"), ("URM", "urm"))
        ),
        TRM,
        EQR,
    ),
    columns=(
        Column(name="Accuracy", measurement=HARD),
        Column(name="Training puzzles", measurement=HARD.replace(split="train")),
    ),
    seeds=8,
    first_seed=FIRST_SEED,
    minutes=150,
)

LONG = Solve(puzzles=500, depth=64, by_puzzle=True)
BRIEF = LONG.replace(depth=16)
AFTERWARDS = Experiment(
    item="E16",
    title="Depth, halting, noise and damping at test time, by tokens",
    question="What do half-learned models gain from more depth, lose by halting, and gain from other noise?",
    lab=HALF_LEARNED.plus({"data.test": 1000}),
    regime=f"{HALF_LEARNED_WHY} The runs of EqR and TRM in E4, of which D up to 16 on 256 puzzles had been "
    "seen when this was written down.",
    rows=(
        arm("EqR", "eqr", SHAPED),
        arm("TRM", "trm", STILL),
        *(
            arm(f"EqR, noise {size:g}", "eqr", SHAPED).replace(
                measurement=BRIEF.replace(noise=size), only=("D=16",)
            )
            for size in (0.0, 0.03, 0.1, 0.3)
        ),
        *(
            arm(f"EqR, damping {size:g}", "eqr", SHAPED).replace(
                measurement=BRIEF.replace(damping=size), only=("D=16",)
            )
            for size in (0.0, 0.2, 0.4)
        ),
    ),
    columns=(
        Column(name="D=16", measurement=LONG, at=(16, 1)),
        Column(name="D=64", measurement=LONG),
        Column(name="D=64, halted", measurement=LONG.replace(halt=HEAD)),
        Column(name="Times fewer", metric="saving", measurement=LONG.replace(halt=HEAD), percent=False),
        Column(name="Training puzzles, D=16", measurement=train_of(BRIEF)),
    ),
    seeds=12,
    first_seed=FIRST_SEED,
    minutes=7,
    picture=Picture(columns=("D=16", "D=64")),
)
