"""From a feedforward predictor to segmented training with halting (T2, T6 to T9, T20, F7 to F9)."""

from eqr.paper.experiment import Cost, Curve, Experiment, Picture, Row, Shape
from eqr.paper.items.regimes import FEW, ONCE, SHORT, column, number, row, train_of

ACC, EVAL, TRAIN, PARAMETERS, LAYERS = "Accuracy", "Eval", "Train", "Parameters (M)", "Layers"


def printed(train: float, held_out: float, parameters: float, layers: int) -> dict[str, float]:
    """Return the numbers that T2 prints for a row."""
    return {TRAIN: train, EVAL: held_out, PARAMETERS: parameters, LAYERS: layers}


T2 = Experiment(
    item="T2",
    title="A clean construction path",
    question="Does each ingredient (tying, long segmented training, hierarchy, learned halting) add "
    "held-out accuracy?",
    lab=FEW,
    regime=FEW.why,
    rows=(
        row(
            "vanilla feedforward",
            "01-feedforward",
            measurement=ONCE,
            published=printed(93.8, 2.6, 105.6, 42),
        ),
        row(
            "+ weight-tied",
            "02-weight-tied",
            measurement=ONCE,
            published=printed(94.5, 32.6, 5.03, 42),
        ),
        row(
            "+ SOT + depth",
            "07-segmented",
            published=printed(94.9, 74.7, 5.03, 672),
        ),
        row(
            "+ hierarchical recurrence",
            "10-two-level-truncated",
            published=printed(99.3, 76.5, 5.03, 672),
        ),
        row(
            "+ ACT training",
            "12-learned-halting",
            published=printed(82.2, 84.8, 5.03, 672),
        ),
    ),
    columns=(
        number(PARAMETERS, Shape(), "parameters (M)", 3),
        number(LAYERS, Shape(), "evaluated layers", 0),
        column(TRAIN, train_of(SHORT)),
        column(EVAL, SHORT),
    ),
    minutes=1,
    note="Train is measured like Eval, with the same weights on 500 of the training puzzles.",
)


def iterated(iterations: int, lab_blocks: int, paper_blocks: int, paper_iterations: int) -> Row:
    """Return a tied model of one segment: so many distinct blocks, applied `iterations` times."""

    def sizes(blocks: int, iterations: int) -> dict[str, int]:
        recurrence = {"model.recurrence.cycles": 1, "model.recurrence.applications": iterations}
        return {"model.blocks": blocks, **recurrence}

    return row(
        f"{iterations} iterations",
        "02-weight-tied",
        lab_changes=sizes(lab_blocks, iterations),
        paper_changes=sizes(paper_blocks, paper_iterations),
    )


FLAT = row("feedforward", "01-feedforward")
ITERATED = (iterated(2, 3, 21, 2), iterated(3, 2, 6, 7), iterated(6, 1, 2, 21))
EVAL_ERROR, TRAIN_ERROR = "Eval error", "Train error"
PRINTED = ((97.4, 6.2), (96.7, 1.8), (95.2, 3.6), (67.4, 3.8))
SHARES = range(20, 101, 20)

T6 = Experiment(
    item="T6",
    title="Training error at the best evaluation accuracy",
    question="At equal layers, do more iterations raise training error and lower held-out error?",
    lab=FEW,
    regime=f"{FEW.why} Six layers: 1x6, 2x3, 3x2 and 6x1 instead of 1x42, 2x21, 7x6 and 21x2.",
    rows=tuple(
        one.replace(published={EVAL_ERROR: held_out, TRAIN_ERROR: train})
        for one, (held_out, train) in zip((FLAT, *ITERATED), PRINTED, strict=True)
    ),
    columns=(column(EVAL_ERROR, ONCE, "error"), column(TRAIN_ERROR, train_of(ONCE), "error")),
    minutes=6,
)
F7 = Experiment(
    item="F7",
    title="Iterative depth improves generalization under a matched budget",
    question="How do training and held-out accuracy move over training for each of these models?",
    lab=FEW,
    regime=f"{FEW.why} The runs of T6.",
    rows=(FLAT, *ITERATED),
    columns=tuple(
        column(f"{name} at {s}%", Curve(), f"{metric} at {s}%")
        for name, metric in (("Eval", "validation"), ("Train", "train"), ("Gap", "gap"))
        for s in SHARES
    ),
    minutes=0.1,
    picture=Picture(
        kind="lines", x_label="share of the steps (%)", columns=tuple(f"Eval at {s}%" for s in SHARES)
    ),
    note="Columns are shares of the training steps. Train is the share of right rows in the batches "
    "since the log record before.",
)


ANCHORED = (
    row("terminal loss", "05-terminal-detached", published={ACC: 51.80}),
    row("full anchors", "06-trajectory", published={ACC: 47.10}),
    row("late anchors, second half", "06-late-half", published={ACC: 51.36}),
    row("late anchors, last quarter", "06-late-quarter", published={ACC: 57.50}),
)

T7 = Experiment(
    item="T7",
    title="Late-anchor supervision",
    question="On a detached trajectory, does anchoring every segment hurt, and do late anchors help?",
    lab=FEW,
    regime=f"{FEW.why} Anchors 1:8, 4:8 and 6:8 stand for 1:16, 8:16 and 12:16.",
    rows=ANCHORED,
    columns=(column(ACC, SHORT),),
    minutes=40,
    note="One learning rate and one weight decay for all; the paper reports the best of four by three.",
)
F8 = Experiment(
    item="F8",
    title="Residual diagnostic for late anchors",
    question="Has the trajectory of the terminal-loss model largely settled where late anchors sit?",
    lab=FEW,
    regime=f"{FEW.why} The runs of T7, run to four times their depth.",
    rows=tuple(one.replace(published={}) for one in ANCHORED),
    columns=tuple(
        number(f"D={d}", SHORT.replace(depth=32, puzzles=200), "residual", 3, at=(d, 1))
        for d in (1, 2, 4, 8, 16, 32)
    ),
    minutes=1,
    picture=Picture(kind="lines", x_label="segment", y_label="residual (RMS per coordinate)", log_x=True),
)


T8 = Experiment(
    item="T8",
    title="Training-dynamics ablations",
    question="Which choices of depth, supervision, update, latents, truncation and halting matter?",
    lab=FEW,
    regime=f"{FEW.why} 16x is 8x here.",
    rows=(
        row("1 feedforward", "01-feedforward", published={ACC: 2.6}, measurement=ONCE),
        row("2 weight-tied", "02-weight-tied", published={ACC: 32.6}, measurement=ONCE),
        row("3 + 2x depth", "03-twice-the-depth", published={ACC: 51.3}, measurement=ONCE.replace(depth=2)),
        row("4 + 16x depth", "04-full-depth", published={ACC: "OOM"}),
        row("5 terminal loss, detached", "05-terminal-detached", published={ACC: 51.8}),
        row("6 trajectory supervision", "06-trajectory", published={ACC: 47.1}),
        row(
            "6 at the segments of 7",
            "06-trajectory",
            lab_changes={"steps": 150, "rate.warmup": 12},
            paper_changes={"steps": 3125},
        ),
        row("7 segmented online", "07-segmented", published={ACC: 74.7}),
        row("8 z + truncation", "08-segmented-truncated", published={ACC: 67.2}),
        row("9 (z_L, z_H)", "09-two-level", published={ACC: 69.8}),
        row("10 (z_L, z_H) + truncation", "10-two-level-truncated", published={ACC: 75.4}),
        row("11 oracle halting", "11-oracle-halting", published={ACC: 13.6}),
        row("12 learned halting", "12-learned-halting", published={ACC: 84.8}),
        row("12 head trained, unused", "12-unused-halting"),
        row("12 learned halting, z", "12-single-state", published={ACC: 73.9}),
    ),
    columns=(column(ACC, SHORT),),
    minutes=60,
    note="Row 4 runs out of memory in the paper; here it fits, and T9 measures what it holds. `6 at the "
    "segments of 7` takes as many segments, hence an eighth of the optimizer steps.",
)
F9 = Experiment(
    item="F9",
    title="ACT halting mechanisms",
    question="What do halting rules do to accuracy and to the depth that rows are trained at?",
    lab=FEW,
    regime=f"{FEW.why} The runs of T8.",
    rows=(
        row("no early halt", "10-two-level-truncated"),
        row("head trained, no early halt", "12-unused-halting"),
        row("learned halting", "12-learned-halting"),
        row("oracle halting", "11-oracle-halting"),
    ),
    columns=(column(ACC, SHORT), number("Mean depth at the end", Curve(), "halt depth at the end")),
    minutes=0.1,
)
T9 = Experiment(
    item="T9",
    title="Training costs of the variants",
    question="Do measured time and memory of an optimizer step follow the paper's symbolic costs?",
    lab=FEW,
    regime="The recipe of T8, 32 rows, one thread; 16L is 8L. Formulas are evaluated with the model's "
    "own operation counts and the bytes that autograd keeps for one segment; measured are 20 steps.",
    rows=(
        row("1 vanilla", "01-feedforward"),
        row("2 weight-tied", "02-weight-tied"),
        row("3 + full gradient, 2L", "03-twice-the-depth"),
        row("4 + full gradient, 16L", "04-full-depth"),
        row("5 + detached carry, 16L", "05-terminal-detached"),
        row("6 + trajectory supervision", "06-trajectory"),
        row("7 + segmented online", "07-segmented"),
        row("8 + truncation", "08-segmented-truncated"),
    ),
    columns=tuple(
        number(metric, Cost(), metric)
        for metric in ("forward GFLOP", "backward GFLOP", "memory MB", "measured MB", "measured ms")
    ),
    minutes=2,
    note="Measured: bytes that autograd holds at most during a step, and core time of a step, the median "
    "of 20. Row 6 holds one segment at a time, because each segment's loss is back-propagated at once; "
    "the formula keeps them all. Row 4, out of memory in the paper, is eight times row 2, as predicted.",
    picture=Picture(columns=("backward GFLOP", "memory MB", "measured MB", "measured ms")),
)
T20 = Experiment(
    item="T20",
    title="Learning rates of feedforward models",
    question="Does another learning rate make feedforward models generalise?",
    lab=FEW,
    regime=f"{FEW.why} 2 and 6 layers for 4 and 16; rates 4e-3, 2e-3 and 5e-4 for 5e-4, 1e-4 and 5e-5.",
    rows=tuple(
        row(
            f"{here} layers, {level} rate",
            "01-feedforward",
            lab_changes={"model.blocks": here, "optimizer.rate": rate},
            paper_changes={"model.blocks": there, "optimizer.rate": paper_rate},
        )
        for here, there in ((2, 4), (6, 16))
        for level, rate, paper_rate in (("high", 4e-3, 5e-4), ("middle", 2e-3, 1e-4), ("low", 5e-4, 5e-5))
    ),
    columns=(column(TRAIN, train_of(ONCE)), column(EVAL, ONCE)),
    minutes=8,
    note="The paper shows curves and prints no numbers here.",
)
