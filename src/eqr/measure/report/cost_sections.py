"""Sections on training, on the headline numbers and on compute, which need the recipe or the config."""

from collections.abc import Sequence
from dataclasses import dataclass

from eqr.measure import plots
from eqr.measure.accounting import equivalent_layers, flops, flops_per_segment
from eqr.measure.report.parts import ReportPicture, Section, Sheet, decimals, duration, percent, plain, scaled
from eqr.measure.report.source import Source
from eqr.measure.results import CostRow, ResultRow
from eqr.measure.scaling import FIXED, HALTED
from eqr.measure.traces import Traces
from eqr.measure.training_cost import UPDATE_OPERATIONS, UnitCosts, own_row, training_cost_rows, unit_costs

FLOP, BYTES = scaled("FLOP"), scaled("B")
LONG = 16
"""Segments of the long trajectories that a recipe without any is compared with."""


@dataclass(frozen=True, kw_only=True)
class HeadlineRow(ResultRow):
    """A number worth quoting, with its price and the command that prints it."""

    budget: str
    exact: float
    low: float
    high: float
    nfe: float
    equivalent_layers: float
    flops: float
    command: str


@dataclass(frozen=True, kw_only=True)
class UnitCostRow(ResultRow):
    """A symbol of the training-cost table."""

    symbol: str
    value: str
    meaning: str


def unit_cost_rows(unit: UnitCosts) -> list[UnitCostRow]:
    """Say what each symbol of the training-cost table stands for."""
    tracked = f"the {unit.tracked} tracked of {unit.applications} applications"
    told = (
        ("F", FLOP(unit.forward), "one segment forward"),
        ("c_l", FLOP(unit.loss), "backward through the heads: twice their forward"),
        ("c_B", FLOP(unit.parameters), "backward within a segment: two products for each forward one"),
        ("c_B^trunc", FLOP(unit.parameters_truncated), f"the same for {tracked}"),
        ("c_J", FLOP(unit.state), "handing the gradient on to the segment before"),
        ("c_θ", FLOP(unit.sharing), "adding a segment's gradient to the shared one"),
        ("c_u", FLOP(unit.update), f"the optimizer: {UPDATE_OPERATIONS} operations per parameter"),
        ("a_f, a_f^det", BYTES(unit.activations), "what autograd keeps of a segment (measured on one row)"),
        ("a_f^trunc", BYTES(unit.activations_truncated), f"the same for {tracked}"),
        ("a_l", BYTES(unit.loss_activations), "logits and probabilities"),
        ("P", BYTES(unit.parameter_memory), "weights, gradient, two moments and average"),
        ("P, c_u in row 1", f"× {unit.applications}", "where no two applications share weights"),
    )
    return [UnitCostRow(symbol=symbol, value=value, meaning=meaning) for symbol, value, meaning in told]


def headline_rows(rows: Sequence[CostRow], traces: Traces, source: Source) -> list[HeadlineRow]:
    """Return the accuracy of the usual budgets: trained depth, full depth, halting, all starts, racing."""
    trained = min(source.recipe.schedule.depth if source.recipe else 16, traces.depth)
    wanted = [row for row in rows if row.depth == traces.depth]
    if trained != traces.depth:
        wanted = [row for row in rows if row.depth == trained and row.method == FIXED] + wanted
    return [_headline(row, traces, source) for row in wanted]


def _headline(row: CostRow, traces: Traces, source: Source) -> HeadlineRow:
    config = source.reasoner.config
    options = f"--depth {row.depth} --breadth {traces.breadth}"
    if row.method.startswith((HALTED, "racing")):
        options += " --halt head+stable:1" + (" --race" if row.method.startswith("racing") else "")
    if source.split != "test":
        options += f" --split {source.split}"
    if traces.budget.seed:
        options += f" --seed {traces.budget.seed}"
    return HeadlineRow(
        budget=f"{row.method}, D={row.depth}" + ("" if row.breadth > 1 else ", B=1"),
        exact=row.exact,
        low=row.low,
        high=row.high,
        nfe=row.nfe,
        equivalent_layers=equivalent_layers(config, row.nfe),
        flops=flops(config, row.nfe),
        command=f"eqr evaluate {source.folder} --data {source.data} --limit {len(source.puzzles)} {options}",
    )


def headline(rows: Sequence[CostRow], traces: Traces, source: Source, setting: str) -> Sheet:
    """The table at the top."""
    return Sheet(
        name="headline",
        caption="Exact accuracy with 95% intervals, and what it costs per puzzle: NFE (segments over all "
        "starts), equivalent layers (NFE times blocks times applications) and operations. B=1 is averaged "
        f"over the starts there are. {setting}",
        rows=headline_rows(rows, traces, source),
        shown={
            "budget": ("budget", plain),
            "exact": ("exact", percent),
            "low": ("95% from", percent),
            "high": ("to", percent),
            "nfe": ("NFE", decimals(1)),
            "equivalent_layers": ("eq. layers", decimals(0)),
            "flops": ("FLOPs", FLOP),
        },
    )


def training(source: Source, name: str = "") -> Section:
    """Training curves, where the run has kept its journal; `name` tells several runs apart."""
    title, file = (f"Training of {name}", f"training-{name}") if name else ("Training", "training")
    steps = [record for record in source.records if record["kind"] == "train"]
    recipe = source.recipe
    if not steps or recipe is None:
        return Section(title=title, text="This model was not trained in this folder: no curves to show.")
    last, checks = steps[-1], recipe.evaluation
    return Section(
        title=title,
        text=f"Recipe {recipe.name}: batches of {recipe.rows} rows, trajectories of up to "
        f"{recipe.schedule.depth} segments, seed {recipe.seed}.",
        parts=[
            ReportPicture(
                name=file,
                figure=plots.training_curves(source.records),
                caption="Left: losses of the answer and of the halt score, means over "
                f"{recipe.saving.log_every} steps. Middle: exact accuracy by depth on up to {checks.puzzles} "
                "validation puzzles, one start each, averaged weights. Right: segments after which training "
                f"rows halt. {last['step']:,} steps, {duration(last.get('seconds', 0.0))} of training.",
                alt="Three line plots over optimizer steps: loss, validation accuracy by depth, mean depth.",
            )
        ],
    )


def compute(source: Source) -> Section:
    """What a segment costs, and the paper's training costs for this recipe."""
    config, recipe = source.reasoner.config, source.recipe
    text = (
        f"One segment is {config.applications} applications of {config.blocks} "
        f"block{'s' if config.blocks > 1 else ''}: {config.layers_per_segment} equivalent layers and "
        f"{FLOP(flops_per_segment(config))} per puzzle and start (matrix products, two operations per "
        "multiply-add). "
    )
    if recipe is None:
        return Section(title="Compute", text=text)
    depth = recipe.schedule.depth if recipe.schedule.depth > 2 else LONG
    unit = unit_costs(config, rows=recipe.rows, tracked=recipe.schedule.applications)
    rows = training_cost_rows(unit, depth=depth, row=own_row(recipe))
    return Section(
        title="Compute",
        text=text + "The training costs are the paper's formulas per optimizer step, with L = one segment "
        f"and long trajectories of {depth} segments: computed from the unit costs below, not timed.",
        parts=[
            ReportPicture(
                name="training-costs",
                figure=plots.training_costs(rows),
                caption="The paper's training variants evaluated for this recipe, per optimizer step of "
                f"{recipe.rows} rows: operations (left) and memory kept for the backward pass (right). "
                "This recipe's own row is highlighted.",
                alt="Two bar charts over eight training variants: compute and memory.",
            ),
            Sheet(
                name="training-costs",
                caption="Rows 1 to 8 of the paper's table of symbolic training costs, per optimizer step of "
                f"{recipe.rows} rows.",
                rows=rows,
                shown={
                    "variant": ("variant", plain),
                    "forward": ("forward", FLOP),
                    "backward_formula": ("backward + update", plain),
                    "backward": ("=", FLOP),
                    "memory_formula": ("memory", plain),
                    "memory": ("=", BYTES),
                },
            ),
            Sheet(
                name="unit-costs",
                caption=f"What the symbols stand for, for a batch of {recipe.rows} rows of this model.",
                rows=[*unit_cost_rows(unit)],
                shown={
                    "symbol": ("symbol", plain),
                    "value": ("value", plain),
                    "meaning": ("meaning", plain),
                },
            ),
        ],
    )
