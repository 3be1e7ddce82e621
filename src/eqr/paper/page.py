"""The page of all results: verdicts first, each with a plot of its contrast, then every table and figure.

RESULTS/claims.json        verdicts, with what decided them
RESULTS/claims/C7.svg      its primary contrast for each operator, with the paper's own value
RESULTS/values.csv         every number of every item and study, one a line
RESULTS/README.md          the page
RESULTS/first-round.json   verdicts of the first round, kept beside: other regimes, other contrasts
RESULTS/learned.md         what we learned that the paper does not say; written by hand, part of the page

All but the last two follow from the values in the items' folders, by code: `verify` computes them again.
"""

from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError
from eqr.files import read_json, write_json, write_text
from eqr.paper.experiment import Contrast, Solve
from eqr.paper.items import CLAIMS, EXPERIMENTS, ITEMS, JUDGED, QUESTIONS, STUDIES
from eqr.paper.plan import build
from eqr.paper.table import SMOKE, VALUES, Table, total_minutes
from eqr.paper.verdicts import ClaimVerdict, JudgedTest, judge_test
from eqr.result import csv_text

OPERATORS = {
    "tokens": "tokens",
    "attention": "attention",
    "groups": "structure told",
    "neighbours": "structure told",
}
"""What a mixer is called on the page."""
CLAIMS_FILE, PAGE, FIRST_ROUND, LEARNED = "claims.json", "README.md", "first-round.json", "learned.md"
WIDTH, SIDE, ROW, AXIS = 260, 10, 34, 30
INK, FAINT, OURS, NO_VERDICT, PAPER = "#222222", "#8a8a8a", "#0072b2", "#9a9a9a", "#d55e00"
FONT = 'font-family="system-ui, sans-serif" font-size="11"'
Verdicts = Mapping[str, list[JudgedTest]]
"""By claim, one for each operator."""


def read_tables(folder: Path) -> dict[str, Table]:
    """Read what the folders of all items and studies hold."""
    return {item: Table.read(experiment, folder / item) for item, experiment in ITEMS.items()}


def judge(tables: Mapping[str, Table]) -> dict[str, list[JudgedTest]]:
    """Judge every claim from what the studies hold."""
    values: dict[str, dict[int, float]] = {}
    puzzles: dict[str, dict[int, NDArray[np.float64]]] = {}
    for item in STUDIES:
        values |= tables[item].values
        puzzles |= tables[item].puzzle_values()
    seeds = {item: study.seeds for item, study in STUDIES.items()}
    return {
        item: [judge_test(test, values, puzzles, seeds) for test in claim.tests]
        for item, claim in JUDGED.items()
    }


def verdicts(folder: Path) -> dict[str, list[JudgedTest]]:
    """Judge every claim from what the studies' folders hold."""
    return judge(read_tables(folder))


def write_page(folder: Path, *, smoke: bool) -> None:
    """Write verdicts, plots and the page from what the items' folders hold."""
    texts, claims = derived(folder, smoke=smoke)
    for name, text in texts.items():
        write_text(folder / name, text)
    write_json(folder / CLAIMS_FILE, claims)


def derived(folder: Path, *, smoke: bool) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the texts that follow from the items' folders, by path, and the verdicts as plain data."""
    tables = read_tables(folder)
    judged = judge(tables)
    texts = {f"claims/{item}.svg": plot(tests) for item, tests in judged.items()}
    texts |= {VALUES: tidy(tables), PAGE: render(folder, tables, judged, smoke=smoke)}
    claims = {
        item: {"says": JUDGED[item].says, "tests": [test.to_json() for test in tests]}
        for item, tests in judged.items()
    }
    return texts, {"smoke": smoke, "claims": claims}


def tidy(tables: Mapping[str, Table]) -> str:
    """Return every number as CSV; n is how many puzzles were asked for, of which Mini-ARC has fewer."""
    lines: list[dict[str, Any]] = []
    for item, table in tables.items():
        for cell in table.experiment.cells():
            by_seed = table.seeds(cell)
            built = build(cell, "lab") if by_seed else None
            measurement = cell.measurement()
            lines += [
                {
                    "metric": cell.number(),
                    "item": item,
                    "row": cell.row.name,
                    "column": cell.column.name,
                    "operator": "" if built is None else OPERATORS[built.recipe.model.mixer.kind],
                    "seed": seed,
                    "value": repr(value),
                    "unit": cell.unit,
                    "n": measurement.puzzles if isinstance(measurement, Solve) else "",
                }
                for seed, value in by_seed.items()
            ]
    return csv_text(lines)


def verify(folder: Path) -> list[str]:
    """Compute all verdicts, plots and the page again; return what is not as it was written."""
    path = folder / CLAIMS_FILE
    if not path.is_file():
        raise UserError(
            f"{folder} has no {CLAIMS_FILE}; run eqr reproduce, or name a results folder by --out"
        )
    written = read_json(path)
    texts, found = derived(folder, smoke=bool(written["smoke"]))
    wrong = [
        f"{CLAIMS_FILE}: {item}"
        for item in {**found["claims"], **written["claims"]}
        if found["claims"].get(item) != written["claims"].get(item)
    ]
    for name, text in texts.items():
        there = folder / name
        if not there.is_file() or there.read_text(encoding="utf-8") != text:
            wrong.append(name)
    return wrong


def listed(folder: Path) -> list[dict[str, Any]]:
    """Return a record for each item and study, then for each claim, with their state in a results folder."""
    tables = read_tables(folder)
    rows: list[dict[str, Any]] = [
        {"item": item, "shows": e.title, "minutes": e.minutes, "state": tables[item].state}
        for item, e in ITEMS.items()
    ]
    for item, tests in judge(tables).items():
        said = ", ".join(f"{test.verdict} ({test.test.operator})" for test in tests)
        rows.append({"item": item, "shows": JUDGED[item].says, "verdict": said})
    return rows


def require_kind(folder: Path, *, smoke: bool) -> None:
    """Refuse to mix smoke runs and real ones in one folder."""
    path = folder / CLAIMS_FILE
    if path.is_file() and bool(read_json(path).get("smoke")) != smoke:
        kind = "a smoke run's" if not smoke else "real"
        raise UserError(f"{folder} holds {kind} results; choose another --out")


def render(folder: Path, tables: Mapping[str, Table], judged: Verdicts, *, smoke: bool) -> str:
    """Return the page of all results."""
    minutes = total_minutes([folder / item for item in tables])
    claims = {item: judged[item] for item in CLAIMS}
    decided = sum(any(test.verdict.decided for test in tests) for tests in claims.values())
    parts = ["# Results", "Generated by `eqr reproduce`; do not edit."]
    parts += [f"**{SMOKE}**"] if smoke else []
    parts += [
        "Every claim, table and figure of the paper with small models on two CPU cores. What decides a claim "
        "was [written down](../src/eqr/paper/preregistered.py) before its runs; verdicts follow from the "
        "committed numbers by code (`eqr reproduce --verify`). They are about these small models.",
        f"{decided} of {len(claims)} claims are decided. Cost so far: {minutes / 60:,.1f} core-hours.",
        "## Claims",
        "Each plot shows one comparison: our mean with its 95% interval (blue; grey where the regime cannot "
        "show the claim), what the paper's own numbers give (orange diamond), and the bound that was set "
        "(dashed). *Structure told* is the mixer that knows rows, columns and boxes; *tokens* is the paper's "
        "own. *Interim*: fewer seeds are there than planned.",
        claim_table(folder, claims),
        "## Questions the paper does not ask",
        "Decided alike, by contrasts written down before their runs; *supported* is yes.",
        claim_table(folder, {item: judged[item] for item in QUESTIONS}),
    ]
    learned = folder / LEARNED
    if learned.is_file():
        parts.append(learned.read_text(encoding="utf-8").strip())
    parts += ["## Beside the main comparisons", secondary_table(judged)]
    for title, some in (
        ("Tables and figures of the paper", EXPERIMENTS),
        ("Studies that decide claims", STUDIES),
    ):
        parts.append(f"## {title}")
        for item in some:
            parts += _item(folder, tables[item])
    return "\n\n".join(parts) + "\n"


def _item(folder: Path, table: Table) -> list[str]:
    experiment = table.experiment
    item = experiment.item
    parts = [f"### {item}: {experiment.title}"]
    if table.state == "not run":
        return [*parts, f"{experiment.question} Not run yet; about {experiment.minutes:g} core-minutes."]
    parts.append(f"{experiment.question} ([page]({item}/table.md), {table.state})")
    has_figure = (folder / item / "figure.svg").is_file()
    return [*parts, f"![{item}]({item}/figure.svg)" if has_figure else table.markdown()]


def claim_table(folder: Path, judged: Verdicts) -> str:
    """Return the claims as a table: in plain words, plot, verdicts of this round and of the first."""
    path = folder / FIRST_ROUND
    before = read_json(path)["claims"] if path.is_file() else {}
    shown = "our mean and 95% interval; the paper's value".replace(" ", "&nbsp;")  # as wide as a plot
    lines = [
        f"| | claim or question, and what was compared | {shown} | verdict |",
        "| --- | --- | --- | --- |",
    ]
    for item, tests in judged.items():
        compared = "<br>".join(dict.fromkeys(f"*{plain(test.test.primary)}*" for test in tests))
        said = "<br>".join(_said(test) for test in tests)
        earlier = f"<br>first round: {before[item]['verdict']}" if item in before else ""
        plot = f"![{item}](claims/{item}.svg)"
        lines.append(f"| {item} | {JUDGED[item].says}:<br>{compared} | {plot} | {said}{earlier} |")
    return "\n".join(lines)


def _said(test: JudgedTest) -> str:
    found, words = test.primary.found, [f"**{test.verdict}** ({test.test.operator}"]
    if found is not None:
        seeds = f"{found.seeds} of {test.planned} seeds, interim" if test.interim else f"{found.seeds} seeds"
        words.append(f"; {seeds}")
    words.append(")")
    unit = f" {test.test.unit}" if test.test.unit else ""
    if test.verdict is ClaimVerdict.UNDECIDED and found is not None:
        words.append(f": {found.detectable:.2g}{unit} would have been seen")
    elif test.verdict is ClaimVerdict.NO_EFFECT:
        words.append(f": less than {test.test.of_interest:g}{unit} either way")
    elif test.reason:
        words.append(f": {test.reason}")
    return "".join(words)


def secondary_table(judged: Verdicts) -> str:
    """Return the secondary contrasts as a table, with probabilities after Holm's correction."""
    lines = ["| | operator | compared | found | p | |", "| --- | --- | --- | --- | ---: | --- |"]
    for item, tests in judged.items():
        for test in tests:
            for part in test.secondary:
                if part.found is None:
                    continue
                low, high = part.found.interval()
                found = f"{part.found.value:.3g} [{low:.3g}, {high:.3g}]"
                p = "" if part.p is None else "<0.001" if part.p < 0.001 else f"{part.p:.3f}"
                shown = test.verdict is not ClaimVerdict.CANNOT_SHOW
                cells = (item, test.test.operator, _bounded(part.contrast), found, p)
                lines.append(f"| {' | '.join(cells)} | {part.verdict if shown else test.verdict} |")
    return "\n".join(lines) if len(lines) > 2 else "None was run yet."


def plain(contrast: Contrast) -> str:
    """Return a contrast in words: what it says, or its cells without the item's number."""
    if contrast.says:
        return contrast.says
    plus, minus = (
        " + ".join(cell.split(" | ")[1] for cell in cells) for cells in (contrast.plus, contrast.minus)
    )
    return f"{plus} minus {minus}, {contrast.plus[0].split(' | ')[2].lower()}"


def _bounded(contrast: Contrast) -> str:
    low, high = contrast.above, contrast.below
    if low is not None and high is not None:
        return f"{plain(contrast)}: within {low:g} and {high:g}"
    return f"{plain(contrast)}: " + (f"above {low:g}" if low is not None else f"below {high:g}")


def plot(tests: list[JudgedTest]) -> str:
    """Return the plot of a claim as SVG; an operator without runs has a line that says so.

    Written as text, without a plotting library, so that a page of many stays small and the same everywhere.
    """
    marks = [0.0]
    for test in tests:
        found, contrast = test.primary.found, test.primary.contrast
        seen = (*(found.interval() if found else ()), contrast.above, contrast.below, test.test.paper)
        marks += [value for value in seen if value is not None]
    low, high = min(marks), max(marks)
    pad = 0.06 * (high - low or 1.0)
    low, high = low - pad, high + pad

    def x(value: float) -> float:
        return round(SIDE + (value - low) / (high - low) * (WIDTH - 2 * SIDE), 1)

    height = ROW * len(tests) + AXIS
    end = height - AXIS + 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" {FONT}>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for index, test in enumerate(tests):
        parts += _row(test, ROW * index, x)
    parts.append(f'<path d="M{SIDE} {end}H{WIDTH - SIDE}" stroke="{FAINT}"/>')
    for tick in _ticks(low, high):
        parts.append(f'<path d="M{x(tick)} {end}v4" stroke="{FAINT}"/>')
        place = f'x="{x(tick)}" y="{end + 15}" text-anchor="middle" fill="{FAINT}"'
        parts.append(f"<text {place}>{_minus(f'{tick:g}')}</text>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _row(test: JudgedTest, top: int, x: Callable[[float], float]) -> list[str]:
    """Return an operator's words and, below them, its interval."""
    middle, found, contrast = top + 25, test.primary.found, test.primary.contrast
    line, said = f"{top + 16}v{ROW - 14}", f"{test.verdict}"
    parts = [
        f'<text x="4" y="{top + 12}" fill="{INK}">{escape(test.test.operator)}</text>',
        f'<path d="M{x(0)} {line}" stroke="{FAINT}"/>',
    ]
    for bound in filter(None, (contrast.above, contrast.below)):
        parts.append(f'<path d="M{x(bound)} {line}" stroke="{FAINT}" stroke-dasharray="2 2"/>')
    if found is not None:
        low, high = found.interval()
        colour = NO_VERDICT if test.verdict is ClaimVerdict.CANNOT_SHOW else OURS
        parts.append(f'<path d="M{x(low)} {middle}H{x(high)}" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<circle cx="{x(found.value)}" cy="{middle}" r="4" fill="{colour}"/>')
        value, *ends = (
            _minus(f"{number:.2f}" if abs(number) < 2 else f"{number:.1f}")
            for number in (found.value, low, high)
        )
        said = f"{value} [{', '.join(ends)}] {test.test.unit}"
    parts.append(f'<text x="{WIDTH - 4}" y="{top + 12}" text-anchor="end" fill="{INK}">{escape(said)}</text>')
    if test.test.paper is not None:
        parts.append(
            f'<path d="M{x(test.test.paper)} {middle - 5}l5 5l-5 5l-5 -5z" fill="none" stroke="{PAPER}" '
            'stroke-width="1.5"><title>the paper</title></path>'
        )
    return parts


def _minus(text: str) -> str:
    return text.replace("-", "\u2212")


def _ticks(low: float, high: float) -> list[float]:
    """Return three to six round numbers inside a range, 0 among them where it is."""
    size = 10.0 ** len(str(int(high - low)))
    while size > (high - low) / 2.5:
        size /= 2 if f"{size:e}"[0] != "5" else 2.5
    first = int(low / size) - 1
    return [step * size for step in range(first, first + 12) if low <= step * size <= high]
