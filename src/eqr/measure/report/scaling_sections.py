"""Sections on what depth, breadth and halting buy: everything scored from the traces."""

from collections.abc import Sequence

from eqr.measure import plots
from eqr.measure.report.parts import ReportPicture, Section, Sheet, decimals, percent, plain
from eqr.measure.results import BreadthRow, CostRow
from eqr.measure.scaling import (
    breadth_rows,
    difficulty,
    difficulty_rows,
    scaling_rows,
)
from eqr.measure.traces import Traces

EXACT = {"exact": ("exact", percent), "low": ("95% from", percent), "high": ("to", percent)}


def settling(traces: Traces, setting: str) -> Section:
    """Accuracy against residual, and both over depth and breadth."""
    rows = scaling_rows(traces)
    last, first = rows[-1], rows[0]
    return Section(
        title="Settling and accuracy",
        text="The residual is how far one more segment moves the latent state, as root mean square per "
        "coordinate. More depth lets a trajectory settle; more breadth gives the choice of the start that "
        "settled best (Top-1 converged: lowest mean residual of the last 3 segments). Labels play no part in "
        "the choice.",
        parts=[
            ReportPicture(
                name="accuracy-against-residual",
                figure=plots.accuracy_against_residual(rows),
                caption="Share of puzzles wrong against the residual of the chosen start, both axes "
                f"logarithmic; colour is the depth, a line joins the depths of one breadth. {setting}",
                alt=f"Scatter plot: residual falls from {first.residual:.2g} to {last.residual:.2g} and "
                f"accuracy goes from {percent(first.exact)} to {percent(last.exact)} as depth grows.",
            ),
            ReportPicture(
                name="depth-and-breadth",
                figure=plots.depth_and_breadth(rows),
                caption="Left: mean residual of the chosen start. Right: share of puzzles whose chosen "
                "answer is wrong, expected over subsets of the starts. Both colours are logarithmic, dark "
                f"is low. {setting}",
                alt=f"Two heat maps over depth 1 to {traces.depth} and breadth 1 to {traces.breadth}.",
            ),
            Sheet(
                name="scaling",
                caption="Top-1 converged at every depth and breadth; the oracle counts a puzzle that any "
                f"start solves. {setting}",
                rows=rows,
                shown={
                    "depth": ("D", plain),
                    "breadth": ("B", plain),
                    "nfe": ("NFE", plain),
                    **EXACT,
                    "residual": ("residual", decimals(4)),
                    "any_correct_oracle": ("any correct (oracle)", percent),
                },
            ),
        ],
    )


def spending(traces: Traces, costs: Sequence[CostRow], setting: str) -> Section:
    """Accuracy against cost, and against breadth."""
    breadths = breadth_rows(traces)
    parts: list[ReportPicture | Sheet] = [
        ReportPicture(
            name="accuracy-against-nfe",
            figure=plots.accuracy_against_cost(costs),
            caption="Share of puzzles wrong against NFE, the mean number of segments spent on a puzzle over "
            "all its starts. Each line runs over the greatest depth allowed, in powers of two. Fixed depth "
            "and halting use one start (averaged over the starts there are); halting stops when the head "
            "says so and the answer stands; racing takes the first start that halts and cancels the others. "
            f"Bands: 95% over puzzles. {setting}",
            alt="Line plot of accuracy against NFE for "
            + ", ".join(dict.fromkeys(row.method for row in costs))
            + ".",
        ),
        Sheet(
            name="cost",
            caption=f"What each way of spending segments reaches. {setting}",
            rows=costs,
            shown={
                "method": ("method", plain),
                "depth": ("greatest D", plain),
                "breadth": ("B", plain),
                "nfe": ("NFE", decimals(1)),
                **EXACT,
            },
        ),
    ]
    if traces.breadth > 1:
        parts[1:1] = [
            ReportPicture(
                name="accuracy-against-breadth",
                figure=plots.accuracy_against_breadth(breadths),
                caption=f"Expected exact accuracy at depth {traces.depth} as starts are added, over random "
                "subsets of the starts: the start that settled best, the most frequent answer, and the "
                f"oracle that no selection can beat. Bands: 95% over puzzles. {setting}",
                alt=f"Line plot of three selection rules for breadth 1 to {traces.breadth}.",
            )
        ]
        parts.append(_breadth_sheet(breadths, setting))
    return Section(
        title="Accuracy and its price",
        text="One NFE is one segment of one start. Halting spends segments where they are needed, racing "
        "spends starts where they are needed; both are replayed on the recorded readings, segment by "
        "segment, with the same result as running them.",
        parts=parts,
    )


def _breadth_sheet(rows: Sequence[BreadthRow], setting: str) -> Sheet:
    return Sheet(
        name="breadth",
        caption=f"Selection rules at depth {rows[0].depth}. {setting}",
        rows=rows,
        shown={"rule": ("rule", plain), "breadth": ("B", plain), **EXACT},
    )


def difficulties(traces: Traces, setting: str) -> Section:
    """Accuracy and depth used by difficulty; a note where puzzles have no rating that varies."""
    name, _ = difficulty(traces)
    rows = difficulty_rows(traces)
    if len(rows) < 2:
        return Section(
            title="Difficulty", text=f"The {name} of these puzzles hardly varies: nothing to show."
        )
    return Section(
        title="Difficulty",
        text=f"Puzzles in bins of {name} that hold about equally many each.",
        parts=[
            ReportPicture(
                name="depth-by-difficulty",
                figure=plots.depth_by_difficulty(rows, rating=name, most=traces.depth),
                caption=f"Segments until halting (head says done, answer stands), by {name}: median and "
                f"middle half over puzzles and starts; a start that never halts counts as {traces.depth}. "
                f"{setting}",
                alt=f"Depth used against {name} in {len(rows)} bins.",
            ),
            ReportPicture(
                name="accuracy-by-difficulty",
                figure=plots.accuracy_by_difficulty(rows, rating=name),
                caption=f"Exact accuracy of one start at depth {traces.depth} by {name}, averaged over "
                f"starts, with 95% intervals over puzzles. {setting}",
                alt=f"Bar chart of accuracy against {name} in {len(rows)} bins.",
            ),
            Sheet(
                name="difficulty",
                caption=f"Accuracy and depth used by {name}. {setting}",
                rows=rows,
                shown={
                    "rating_from": (f"{name} from", plain),
                    "rating_to": ("to", plain),
                    "puzzles": ("puzzles", plain),
                    **EXACT,
                    "depth_median": ("median depth", decimals(1)),
                },
            ),
        ],
    )
