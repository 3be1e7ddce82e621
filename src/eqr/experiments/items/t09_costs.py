"""Table 9: what an optimizer step of each variant costs, by the paper's formulas and measured."""

from eqr.experiments.bases import FEW, PAPER_TRM
from eqr.experiments.experiment import Column, Experiment, Picture, Row
from eqr.experiments.looks import Cost

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

EXPERIMENTS = (
    Experiment(
        item="T9",
        title="Training costs of the variants",
        question="Do measured time and memory of an optimizer step follow the paper's symbolic costs?",
        lab=FEW,
        paper=PAPER_TRM,
        regime="The recipe of T8, 32 rows, one thread; 16L is 8L. Formulas are evaluated with the model's "
        "own operation counts and the bytes that autograd keeps for one segment; measured are 20 steps.",
        rows=tuple(Row(name=name, variants=(variant,)) for name, variant in VARIANTS.items()),
        columns=tuple(Column(name=metric, metric=metric, look=Cost(), percent=False) for metric in METRICS),
        minutes=2,
        note="Measured: bytes that autograd holds at most during a step, and core time of a step, the median "
        "of 20. Row 6 holds one segment at a time, because each segment's loss is back-propagated at once; "
        "the formula keeps them all. Row 4, out of memory in the paper, is eight times row 2, as predicted.",
        picture=Picture(columns=("backward GFLOP", "memory MB", "measured MB", "measured ms")),
    ),
)
