"""The model card: what a model solves, how it is built and how well it does at which cost.

Accuracy of an iterated model means nothing without its budget: every number carries depth, breadth and NFE.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveInt

from eqr.model.config import ReasonerConfig
from eqr.value import Value


class Measured(Value):
    """One number about a model and what it cost."""

    metric: str
    """What was measured, such as `exact accuracy`."""
    value: float
    puzzles: str
    """The puzzle set, by name or digest."""
    count: PositiveInt
    """How many puzzles."""
    depth: PositiveInt
    """Segments per trajectory at most, D."""
    breadth: PositiveInt = 1
    """Starts per puzzle, B."""
    selection: Annotated[str, Field(min_length=1)] = "single start"
    """How an answer was picked among the starts."""
    mean_nfe: NonNegativeFloat | None = None
    """Segments actually run per puzzle, when halting saved some."""
    low: float | None = None
    high: float | None = None
    """95% interval, where it was computed."""

    @property
    def nfe(self) -> float:
        """Segments per puzzle: as run, or depth x breadth."""
        return float(self.depth * self.breadth) if self.mean_nfe is None else self.mean_nfe


class TrainingFacts(Value):
    """Where weights come from: the command that makes them again, and what it took."""

    command: str
    seed: int
    steps: PositiveInt
    seconds: NonNegativeFloat
    """Of training alone."""
    threads: PositiveInt


def model_card(
    config: ReasonerConfig,
    parameters: int,
    measured: Sequence[Measured],
    training: TrainingFacts | None = None,
) -> str:
    """Write the card as Markdown with the Hub's metadata on top."""
    parts = _metadata(config), _description(config, parameters), _origin(training), _numbers(measured), _use()
    return "\n".join(line for part in parts for line in part)


def _metadata(config: ReasonerConfig) -> list[str]:
    tags = ["equilibrium-reasoner", *([config.task] if config.task else [])]
    return ["---", "library_name: eqr", "tags:", *(f"- {tag}" for tag in tags), "---", ""]


def _description(config: ReasonerConfig, parameters: int) -> list[str]:
    task = config.task or "its own puzzles"
    return [
        f"# Equilibrium reasoner for {task}",
        "",
        "A small weight-tied network that solves puzzles by iterating a latent state until it settles.",
        "",
        "| | |",
        "| --- | --- |",
        f"| task | {task}, {config.rows} x {config.columns} cells, {config.vocabulary} tokens |",
        f"| recurrence | {config.recurrence.kind}, {config.layers_per_segment} layers per segment |",
        f"| stack | {config.blocks} blocks, width {config.width}, {config.mixer.kind} mixer |",
        f"| start | {config.start.kind} |",
        f"| path | damping {config.path.damping:g}, noise {config.path.noise:g} |",
        f"| parameters | {parameters:,} |",
        "",
    ]


def _origin(training: TrainingFacts | None) -> list[str]:
    if training is None:
        return []
    cores = f"{training.threads} CPU core{'s' if training.threads > 1 else ''}"
    return [
        "## Training",
        "",
        f"`{training.command}`",
        "",
        f"{training.steps:,} steps in {training.seconds / 60:.0f} minutes on {cores}, seed {training.seed}.",
        "",
    ]


def _numbers(measured: Sequence[Measured]) -> list[str]:
    lines = ["## Measured", ""]
    if not measured:
        return [*lines, "Nothing has been measured with these weights yet.", ""]
    lines += [
        "One NFE is one segment of one start; depth D is segments per start, breadth B is starts per puzzle.",
        "",
        "| metric | value | puzzles | depth D | breadth B | NFE | selection |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for number in measured:
        interval = "" if number.low is None else f" ({number.low:.4g} to {number.high:.4g})"
        lines.append(
            f"| {number.metric} | {number.value:.4g}{interval} | {number.puzzles} ({number.count:,}) "
            f"| {number.depth} | {number.breadth} | {number.nfe:g} | {number.selection} |"
        )
    return [*lines, ""]


def _use() -> list[str]:
    return [
        "## Use",
        "",
        "```python",
        "from eqr.model.reasoner import Reasoner",
        "",
        'reasoner = Reasoner.from_pretrained("path or owner/name")',
        "```",
        "",
    ]
