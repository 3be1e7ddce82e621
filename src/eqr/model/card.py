"""The model card: what a model solves, how it is built and how well it does at which cost.

Accuracy of an iterated model means nothing without its budget: every number carries depth, breadth and NFE.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import NonNegativeFloat, PositiveInt

from eqr.errors import UserError, brief
from eqr.model.config import ReasonerConfig
from eqr.result import Result, pivot
from eqr.value import Value

SINGLE = "single start"
"""The rule of a number that is of one start."""


class TrainingFacts(Value):
    """Where weights come from: the command that makes them again, and what it took."""

    command: str
    seed: int
    steps: PositiveInt
    seconds: NonNegativeFloat
    """Of training alone."""
    threads: PositiveInt


def with_cost(measured: Sequence[Result]) -> list[tuple[Result, float]]:
    """Return the numbers of a model, each with the segments that were run per puzzle."""
    found = []
    for place in pivot(measured, "item", "rule", "depth", "breadth").values():
        nfe = place.get("nfe")
        found += [
            (row, float((row.depth or 1) * (row.breadth or 1)) if nfe is None else nfe.value)
            for row in place.values()
            if row is not nfe
        ]
    return found


def read_measured(rows: Any, *, where: str) -> tuple[Result, ...]:
    """Take back the numbers saved with a model, older ones too, which were records of another form."""
    if not isinstance(rows, list):
        raise UserError(f"{where} must hold a list of results; delete it to do without")
    found = []
    for row in rows:
        if not isinstance(row, dict) or "puzzles" not in row:
            found.append(Result.from_json(row, where=where))
            continue
        try:
            place = {"item": row["puzzles"], "rule": row["selection"], "n": row["count"]}
            place |= {"depth": row["depth"], "breadth": row["breadth"]}
            found.append(
                Result(metric="exact", value=row["value"], low=row["low"], high=row["high"], **place)
            )
            if row["mean_nfe"] is not None:
                found.append(Result(metric="nfe", value=row["mean_nfe"], **place))
        except KeyError as error:
            raise UserError(f"{where}: {brief(row)} lacks {error}") from None
    return tuple(found)


def model_card(
    config: ReasonerConfig,
    parameters: int,
    measured: Sequence[Result],
    training: TrainingFacts | None = None,
) -> str:
    """Write the card as Markdown, beginning with the metadata that the Hub reads."""
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


def _numbers(measured: Sequence[Result]) -> list[str]:
    lines = ["## Measured", ""]
    if not measured:
        return [*lines, "Nothing has been measured with these weights yet.", ""]
    lines += [
        "One NFE is one segment of one start; depth D is segments per start, breadth B is starts per puzzle.",
        "",
        "| metric | value | puzzles | depth D | breadth B | NFE | selection |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for number, nfe in with_cost(measured):
        interval = "" if number.low is None else f" ({number.low:.4g} to {number.high:.4g})"
        metric = "exact accuracy" if number.metric == "exact" else number.metric
        count = "" if number.n is None else f" ({number.n:,})"
        lines.append(
            f"| {metric} | {number.value:.4g}{interval} | {number.item}{count} "
            f"| {number.depth} | {number.breadth} | {nfe:g} | {number.rule} |"
        )
    return [*lines, ""]


def _use() -> list[str]:
    return [
        "## Use",
        "",
        "With this repository's name on the Hub, or the path of this folder:",
        "",
        "```console",
        'eqr solve OWNER/NAME "PUZZLE"',
        "```",
        "",
        "```python",
        "import eqr",
        "",
        'print(eqr.Solver("OWNER/NAME").solve("PUZZLE"))',
        "```",
        "",
    ]
