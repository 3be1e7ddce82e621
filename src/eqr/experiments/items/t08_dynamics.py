"""Table 8: all rows of the training-dynamics table."""

from eqr.experiments.bases import FEW, FEW_WHY, ONCE, PAPER_TRM, SHORT
from eqr.experiments.experiment import Column, Experiment, Row, Trait

ACC = "Accuracy"
ONLINE = "segmented-online"


def row(name: str, variant: str, printed: float | str | None, **says: Trait) -> Row:
    """Return a row; underscores in the names of traits stand for spaces."""
    traits = {key.replace("_", " "): value for key, value in says.items()}
    published = {} if printed is None else {ACC: printed}
    return Row(name=name, variants=(variant,), says={"RI": False, "NI": False, **traits}, published=published)


EXPERIMENTS = (
    Experiment(
        item="T8",
        title="Training-dynamics ablations",
        question="Which choices of depth, supervision, update, latents, truncation and halting matter?",
        lab=FEW,
        paper=PAPER_TRM,
        regime=f"{FEW_WHY} 16x is 8x here.",
        rows=(
            row("1 feedforward", "01-feedforward", 2.6, tied=False, segments=1).replace(look=ONCE),
            row("2 weight-tied", "02-weight-tied", 32.6, states=1, segments=1).replace(look=ONCE),
            row(
                "3 + 2x depth", "03-twice-the-depth", 51.3, states=1, segments=2, schedule="terminal-full"
            ).replace(look=ONCE.replace(depth=2)),
            row("4 + 16x depth", "04-full-depth", "OOM", states=1, schedule="terminal-full"),
            row(
                "5 terminal loss, detached",
                "05-terminal-detached",
                51.8,
                states=1,
                schedule="terminal-detached",
            ),
            row(
                "6 trajectory supervision",
                "06-trajectory",
                47.1,
                states=1,
                schedule="trajectory",
                first_anchor=1,
            ),
            row(
                "6 at the segments of 7",
                "06-trajectory",
                None,
                states=1,
                schedule="trajectory",
                first_anchor=1,
            ).replace(lab_changes=("steps=150", "rate.warmup=12"), paper_changes=("steps=3125",)),
            row("7 segmented online", "07-segmented", 74.7, states=1, schedule=ONLINE, truncated=False),
            row(
                "8 z + truncation", "08-segmented-truncated", 67.2, states=1, schedule=ONLINE, truncated=True
            ),
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
            row(
                "12 learned halting", "12-learned-halting", 84.8, states=2, truncated=True, halting="learned"
            ),
            row("12 head trained, unused", "12-unused-halting", None, states=2, halting="learned-unused"),
            row("12 learned halting, z", "12-single-state", 73.9, states=1, halting="learned"),
        ),
        columns=(Column(name=ACC, look=SHORT),),
        seeds=5,
        minutes=60,
        note="Row 4 runs out of memory in the paper; here it fits, and T9 measures what it holds. `6 at the "
        "segments of 7` takes as many segments, hence an eighth of the optimizer steps.",
    ),
)
