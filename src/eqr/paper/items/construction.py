"""From a feedforward predictor to segmented training with halting (T2, T6 to T9, T20, F7 to F9)."""

from eqr.paper.experiment import Column, Experiment, Picture, Property, Row
from eqr.paper.items.regimes import FEW, FEW_WHY, ONCE, PAPER_TRM, SHORT, train_of
from eqr.paper.measurement import Cost, Curve, Shape

EVAL, TRAIN = "Eval", "Train"


T2 = Experiment(
    item="T2",
    title="A clean construction path",
    question="Does each ingredient (tying, long segmented training, hierarchy, learned halting) add "
    "held-out accuracy?",
    lab=FEW,
    paper=PAPER_TRM,
    regime=FEW_WHY,
    rows=(
        Row(
            name="vanilla feedforward",
            variants=("01-feedforward",),
            measurement=ONCE,
            says={"tied": False, "states": 1},
            published={TRAIN: 93.8, EVAL: 2.6, "Parameters (M)": 105.6, "Layers": 42},
        ),
        Row(
            name="+ weight-tied",
            variants=("02-weight-tied",),
            measurement=ONCE,
            says={"tied": True, "states": 1, "schedule": "terminal-full", "segments": 1},
            published={TRAIN: 94.5, EVAL: 32.6, "Parameters (M)": 5.03, "Layers": 42},
        ),
        Row(
            name="+ SOT + depth",
            variants=("07-segmented",),
            says={"states": 1, "schedule": "segmented-online", "halting": "none", "truncated": False},
            published={TRAIN: 94.9, EVAL: 74.7, "Parameters (M)": 5.03, "Layers": 672},
        ),
        Row(
            name="+ hierarchical recurrence",
            variants=("10-two-level-truncated",),
            says={"states": 2, "schedule": "segmented-online", "halting": "none", "truncated": True},
            published={TRAIN: 99.3, EVAL: 76.5, "Parameters (M)": 5.03, "Layers": 672},
        ),
        Row(
            name="+ ACT training",
            variants=("12-learned-halting",),
            says={"states": 2, "schedule": "segmented-online", "halting": "learned", "truncated": True},
            published={TRAIN: 82.2, EVAL: 84.8, "Parameters (M)": 5.03, "Layers": 672},
        ),
    ),
    columns=(
        Column(name="Parameters (M)", metric="parameters (M)", measurement=Shape(), percent=False, digits=3),
        Column(name="Layers", metric="evaluated layers", measurement=Shape(), percent=False, digits=0),
        Column(name=TRAIN, measurement=train_of(SHORT)),
        Column(name=EVAL, measurement=SHORT),
    ),
    seeds=5,
    minutes=1,
    note="Train is measured like Eval, with the same weights on 500 of the training puzzles.",
)


def iterated(name: str, blocks: int, iterations: int, paper_blocks: int, paper_iterations: int) -> Row:
    """Return a tied model of one segment: `blocks` distinct ones, applied `iterations` times."""

    def sizes(blocks: int, iterations: int) -> dict[str, int]:
        return {
            "model.blocks": blocks,
            "model.recurrence.cycles": 1,
            "model.recurrence.applications": iterations,
        }

    return Row(
        name=name,
        variants=("02-weight-tied",),
        lab_changes=sizes(blocks, iterations),
        paper_changes=sizes(paper_blocks, paper_iterations),
        says={"tied": True, "states": 1, "schedule": "terminal-full", "segments": 1},
    )


FLAT = Row(name="feedforward", variants=("01-feedforward",), says={"tied": False, "segments": 1})
ITERATED = (
    iterated("2 iterations", 3, 2, 21, 2),
    iterated("3 iterations", 2, 3, 6, 7),
    iterated("6 iterations", 1, 6, 2, 21),
)
PRINTED = {"feedforward": (97.4, 6.2), "2 iterations": (96.7, 1.8), "3 iterations": (95.2, 3.6),
           "6 iterations": (67.4, 3.8)}  # fmt: skip
EVAL_ERROR, TRAIN_ERROR = "Eval error", "Train error"
SHARES = range(20, 101, 20)


T6 = Experiment(
    item="T6",
    title="Training error at the best evaluation accuracy",
    question="At equal layers, do more iterations raise training error and lower held-out error?",
    lab=FEW,
    paper=PAPER_TRM,
    regime=f"{FEW_WHY} Six layers: 1x6, 2x3, 3x2 and 6x1 instead of 1x42, 2x21, 7x6 and 21x2.",
    rows=tuple(
        row.replace(published=dict(zip((EVAL_ERROR, TRAIN_ERROR), PRINTED[row.name], strict=True)))
        for row in (FLAT, *ITERATED)
    ),
    columns=(
        Column(name=EVAL_ERROR, metric="error", measurement=ONCE),
        Column(name=TRAIN_ERROR, metric="error", measurement=train_of(ONCE)),
    ),
    seeds=5,
    minutes=6,
)


F7 = Experiment(
    item="F7",
    title="Iterative depth improves generalization under a matched budget",
    question="How do training and held-out accuracy move over training for each of these models?",
    lab=FEW,
    paper=PAPER_TRM,
    regime=f"{FEW_WHY} The runs of T6.",
    rows=(FLAT, *ITERATED),
    columns=(
        *(Column(name=f"Eval at {s}%", metric=f"validation at {s}%", measurement=Curve()) for s in SHARES),
        *(Column(name=f"Train at {s}%", metric=f"train at {s}%", measurement=Curve()) for s in SHARES),
        *(Column(name=f"Gap at {s}%", metric=f"gap at {s}%", measurement=Curve()) for s in SHARES),
    ),
    seeds=5,
    minutes=0.1,
    picture=Picture(
        kind="lines", x_label="share of the steps (%)", columns=tuple(f"Eval at {s}%" for s in SHARES)
    ),
    note="Columns are shares of the training steps. Train is the share of right rows in the batches "
    "since the log record before.",
)
ACC = "Accuracy"


def anchored(name: str, variant: str, schedule: str, first: int | None, published: float) -> Row:
    """Return a row with losses on segments from `first` on, of 8."""
    says: dict[str, Property] = {"states": 1, "schedule": schedule}
    if first is not None:
        says["first anchor"] = first
    return Row(name=name, variants=(variant,), says=says, published={ACC: published})


ROWS = (
    anchored("terminal loss", "05-terminal-detached", "terminal-detached", None, 51.80),
    anchored("full anchors", "06-trajectory", "trajectory", 1, 47.10),
    anchored("late anchors, second half", "06-late-half", "trajectory", None, 51.36),
    anchored("late anchors, last quarter", "06-late-quarter", "trajectory", None, 57.50),
)
DEPTHS = (1, 2, 4, 8, 16, 32)


T7 = Experiment(
    item="T7",
    title="Late-anchor supervision",
    question="On a detached trajectory, does anchoring every segment hurt, and do late anchors help?",
    lab=FEW,
    paper=PAPER_TRM,
    regime=f"{FEW_WHY} Anchors 1:8, 4:8 and 6:8 stand for 1:16, 8:16 and 12:16.",
    rows=ROWS,
    columns=(Column(name=ACC, measurement=SHORT),),
    seeds=5,
    minutes=40,
    note="One learning rate and one weight decay for all; the paper reports the best of four by three.",
)


F8 = Experiment(
    item="F8",
    title="Residual diagnostic for late anchors",
    question="Has the trajectory of the terminal-loss model largely settled where late anchors sit?",
    lab=FEW,
    paper=PAPER_TRM,
    regime=f"{FEW_WHY} The runs of T7, run to four times their depth.",
    rows=tuple(row.replace(published={}) for row in ROWS),
    columns=tuple(
        Column(
            name=f"D={d}",
            metric="residual",
            measurement=SHORT.replace(depth=32, puzzles=200),
            at=(d, 1),
            percent=False,
            digits=3,
        )
        for d in DEPTHS
    ),
    seeds=5,
    minutes=1,
    picture=Picture(kind="lines", x_label="segment", y_label="residual (RMS per coordinate)", log_x=True),
)
ONLINE = "segmented-online"


def row(name: str, variant: str, printed: float | str | None, **says: Property) -> Row:
    """Return a row; underscores in the names of properties stand for spaces."""
    named = {key.replace("_", " "): value for key, value in says.items()}
    published = {} if printed is None else {ACC: printed}
    return Row(name=name, variants=(variant,), says={"RI": False, "NI": False, **named}, published=published)


T8 = Experiment(
    item="T8",
    title="Training-dynamics ablations",
    question="Which choices of depth, supervision, update, latents, truncation and halting matter?",
    lab=FEW,
    paper=PAPER_TRM,
    regime=f"{FEW_WHY} 16x is 8x here.",
    rows=(
        row("1 feedforward", "01-feedforward", 2.6, tied=False, segments=1).replace(measurement=ONCE),
        row("2 weight-tied", "02-weight-tied", 32.6, states=1, segments=1).replace(measurement=ONCE),
        row(
            "3 + 2x depth", "03-twice-the-depth", 51.3, states=1, segments=2, schedule="terminal-full"
        ).replace(measurement=ONCE.replace(depth=2)),
        row("4 + 16x depth", "04-full-depth", "OOM", states=1, schedule="terminal-full"),
        row(
            "5 terminal loss, detached", "05-terminal-detached", 51.8, states=1, schedule="terminal-detached"
        ),
        row(
            "6 trajectory supervision", "06-trajectory", 47.1, states=1, schedule="trajectory", first_anchor=1
        ),
        row(
            "6 at the segments of 7", "06-trajectory", None, states=1, schedule="trajectory", first_anchor=1
        ).replace(lab_changes={"steps": 150, "rate.warmup": 12}, paper_changes={"steps": 3125}),
        row("7 segmented online", "07-segmented", 74.7, states=1, schedule=ONLINE, truncated=False),
        row("8 z + truncation", "08-segmented-truncated", 67.2, states=1, schedule=ONLINE, truncated=True),
        row("9 (z_L, z_H)", "09-two-level", 69.8, states=2, schedule=ONLINE, truncated=False),
        row(
            "10 (z_L, z_H) + truncation",
            "10-two-level-truncated",
            75.4,
            states=2,
            truncated=True,
            halting="none",
        ),
        row("11 oracle halting", "11-oracle-halting", 13.6, states=2, truncated=True, halting="oracle"),
        row("12 learned halting", "12-learned-halting", 84.8, states=2, truncated=True, halting="learned"),
        row("12 head trained, unused", "12-unused-halting", None, states=2, halting="learned-unused"),
        row("12 learned halting, z", "12-single-state", 73.9, states=1, halting="learned"),
    ),
    columns=(Column(name=ACC, measurement=SHORT),),
    seeds=5,
    minutes=60,
    note="Row 4 runs out of memory in the paper; here it fits, and T9 measures what it holds. `6 at the "
    "segments of 7` takes as many segments, hence an eighth of the optimizer steps.",
)
VARIANTS = {
    "1 vanilla": "01-feedforward",
    "2 weight-tied": "02-weight-tied",
    "3 + full gradient, 2L": "03-twice-the-depth",
    "4 + full gradient, 16L": "04-full-depth",
    "5 + detached carry, 16L": "05-terminal-detached",
    "6 + trajectory supervision": "06-trajectory",
    "7 + segmented online": "07-segmented",
    "8 + truncation": "08-segmented-truncated",
}
METRICS = ("forward GFLOP", "backward GFLOP", "memory MB", "measured MB", "measured ms")


T9 = Experiment(
    item="T9",
    title="Training costs of the variants",
    question="Do measured time and memory of an optimizer step follow the paper's symbolic costs?",
    lab=FEW,
    paper=PAPER_TRM,
    regime="The recipe of T8, 32 rows, one thread; 16L is 8L. Formulas are evaluated with the model's "
    "own operation counts and the bytes that autograd keeps for one segment; measured are 20 steps.",
    rows=tuple(Row(name=name, variants=(variant,)) for name, variant in VARIANTS.items()),
    columns=tuple(
        Column(name=metric, metric=metric, measurement=Cost(), percent=False) for metric in METRICS
    ),
    minutes=2,
    note="Measured: bytes that autograd holds at most during a step, and core time of a step, the median "
    "of 20. Row 6 holds one segment at a time, because each segment's loss is back-propagated at once; "
    "the formula keeps them all. Row 4, out of memory in the paper, is eight times row 2, as predicted.",
    picture=Picture(columns=("backward GFLOP", "memory MB", "measured MB", "measured ms")),
)
LAYERS = {"2 layers": (2, 4), "6 layers": (6, 16)}
RATES = {"high": (4e-3, 5e-4), "middle": (2e-3, 1e-4), "low": (5e-4, 5e-5)}
"""Here and in the paper."""


T20 = Experiment(
    item="T20",
    title="Learning rates of feedforward models",
    question="Does another learning rate make feedforward models generalise?",
    lab=FEW,
    paper=PAPER_TRM,
    regime=f"{FEW_WHY} 2 and 6 layers for 4 and 16; rates 4e-3, 2e-3 and 5e-4 for 5e-4, 1e-4 and 5e-5.",
    rows=tuple(
        Row(
            name=f"{size}, {level} rate",
            variants=("01-feedforward",),
            lab_changes={"model.blocks": layers[0], "optimizer.rate": rate[0]},
            paper_changes={"model.blocks": layers[1], "optimizer.rate": rate[1]},
            says={"tied": False, "segments": 1},
        )
        for size, layers in LAYERS.items()
        for level, rate in RATES.items()
    ),
    columns=(Column(name="Train", measurement=train_of(ONCE)), Column(name="Eval", measurement=ONCE)),
    seeds=5,
    minutes=8,
    note="The paper shows curves and prints no numbers here.",
)
RULES = {
    "no early halt": ("10-two-level-truncated", "none"),
    "head trained, no early halt": ("12-unused-halting", "learned-unused"),
    "learned halting": ("12-learned-halting", "learned"),
    "oracle halting": ("11-oracle-halting", "oracle"),
}


F9 = Experiment(
    item="F9",
    title="ACT halting mechanisms",
    question="What do halting rules do to accuracy and to the depth that rows are trained at?",
    lab=FEW,
    paper=PAPER_TRM,
    regime=f"{FEW_WHY} The runs of T8.",
    rows=tuple(
        Row(name=name, variants=(variant,), says={"halting": halting, "states": 2})
        for name, (variant, halting) in RULES.items()
    ),
    columns=(
        Column(name="Accuracy", measurement=SHORT),
        Column(
            name="Mean depth at the end", metric="halt depth at the end", measurement=Curve(), percent=False
        ),
    ),
    seeds=5,
    minutes=0.1,
)
