"""Table 19: the published hyper-parameters, read off our recipes."""

from eqr.experiments.experiment import Column, Experiment, Picture, Row, Setting
from eqr.experiments.looks import Shape

NAMES = {
    "Blocks": "blocks",
    "Cycles": "cycles",
    "L-cycles": "scratch",
    "Outer loop": "segments",
    "Equivalent layers": "layers",
    "Hidden size": "width",
    "Parameters (M)": "parameters (M)",
    "Batch": "rows",
    "Steps": "steps",
}
PRINTED: dict[str, tuple[float | str, ...]] = {
    "trm, sudoku": (2, 3, 6, 16, 42, 512, 5.03, 768, 50_000),
    "trm, maze": (1, 3, 4, 16, 15, 128, 2.64, 768, 100_000),
    "hrm, sudoku": (4, 2, 2, 16, 12, 512, 27.28, 768, 50_000),
    "hrm, maze": (1, 2, 2, 16, 6, 128, 5.26, 768, 100_000),
    "urm, sudoku": (4, "12", "", 16, 24, 512, 13.67, 128, 50_000),
    "urm, maze": (1, "12", "", 16, 12, 128, 2.65, 768, 100_000),
    "eqr, sudoku": (2, 3, 6, 16, 42, 512, 5.03, 768, 50_000),
    "eqr, maze": (1, 3, 4, 16, 15, 128, 2.64, 768, 100_000),
}


def row(name: str, printed: tuple[float | str, ...]) -> Row:
    """Return a system on a task by its published recipe."""
    system, task = name.split(", ")
    setting = Setting(recipe=f"paper/{task}-{system}")
    return Row(name=name, lab=setting, paper=setting, published=dict(zip(NAMES, printed, strict=True)))


EXPERIMENTS = (
    Experiment(
        item="T19",
        title="Hyper-parameters",
        question="Do our recipes have the published hyper-parameters?",
        lab=Setting(recipe="paper/sudoku-eqr"),
        regime="Read off the recipes `paper/*`; nothing is trained.",
        rows=tuple(row(name, printed) for name, printed in PRINTED.items()),
        columns=tuple(
            Column(name=name, metric=metric, look=Shape(), percent=False, digits=3 if "(M)" in name else 0)
            for name, metric in NAMES.items()
        ),
        minutes=0.5,
        picture=Picture(kind="none"),
        note="URM's 12 are two cycles of six applications here. The printed parameter counts of mazes are "
        "ten times too large, the equivalent layers of HRM and URM on Sudoku half, and 5.03 M belongs to a "
        "mixer over 16 more tokens (docs/faithfulness.md).",
    ),
)
