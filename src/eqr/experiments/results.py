"""Writing results: a folder per item, and the page that shows all of them.

RESULTS/<item>/table.md, table.csv, table.json   ours beside the printed numbers
RESULTS/<item>/values.csv                        every number by row, column and seed
RESULTS/<item>/figure.svg, figure.png            where the item has a picture
RESULTS/<item>/provenance.json                   which runs, code, machine and how long
RESULTS/<item>/verdicts.json                     the claims that the item helps to decide
RESULTS/claims.json, RESULTS/README.md           generated from the values of all items
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eqr.errors import UserError
from eqr.experiments.catalogue import CLAIMS, EXPERIMENTS
from eqr.experiments.experiment import Claim, Experiment
from eqr.experiments.figures import draw, save
from eqr.experiments.judge import ClaimVerdict, Judged, Values, judge_claim
from eqr.experiments.plan import Place
from eqr.experiments.store import Kept, Store
from eqr.experiments.tables import TABLE, VALUES, Table, cell_name, read_table
from eqr.files import new_file, read_json, write_json

SMOKE = "A smoke run: everything is tiny, the numbers mean nothing."


def fill_table(experiment: Experiment, places: Sequence[Place], store: Store) -> tuple[Table, list[Kept]]:
    """Gather an experiment's numbers from the store, and the looks they are from."""
    table, kept = Table(experiment), dict[tuple[str, str], Kept]()
    for place in places:
        if place.cell.experiment.item != experiment.item:
            continue
        entry = store[place.key]
        found = entry.found(place.look)
        name = cell_name(experiment, place.cell.row, place.cell.column)
        if found is None:
            reason = entry.failure(place.look)
            if reason is not None:
                table.failures[name] = reason
            continue
        one = Kept(place.key, place.look.digest(), found)
        kept[one.key, one.look] = one
        if place.number in found.numbers:  # what does not occur, such as a mode no puzzle has, has none
            table.put(place.cell, place.seed, found.numbers[place.number])
    return table, list(kept.values())


def write_item(
    table: Table,
    kept: Sequence[Kept],
    places: Sequence[Place],
    store: Store,
    folder: Path,
    *,
    smoke: bool,
) -> None:
    """Write everything about one item."""
    experiment = table.experiment
    here = folder / experiment.item
    if not smoke and (here / "provenance.json").is_file() and not kept:
        return  # nothing new to say
    remark = SMOKE if smoke else ""
    table.write_csv(here, remark=remark)
    write_json(
        here / f"{TABLE}.json",
        {
            "item": experiment.item,
            "title": experiment.title,
            "question": experiment.question,
            "regime": experiment.regime,
            "note": experiment.note,
            "smoke": smoke,
            "cells": table.rows(),
        },
    )
    figure = draw(table, kept, store.folder)
    if figure is not None:
        save(figure, here, remark=remark)
    with new_file(here / f"{TABLE}.md") as temporary:
        temporary.write_text(item_page(table, figure is not None, smoke=smoke), encoding="utf-8")
    write_json(here / "provenance.json", provenance(experiment, kept, places, store, smoke=smoke))


def item_page(table: Table, has_figure: bool, *, smoke: bool) -> str:
    """Return an item's page."""
    experiment = table.experiment
    parts = [f"# {experiment.item}: {experiment.title}"]
    parts += [f"**{SMOKE}**"] if smoke else []
    parts += [experiment.question, f"Lab form: {experiment.regime}", table.markdown()]
    parts.append(
        "Ours: mean over seeds ± half of its 95% t-interval. The paper's numbers are of its own scale: "
        "compare orders and directions, not values."
    )
    parts += [experiment.note] if experiment.note else []
    parts += ["![figure](figure.svg)"] if has_figure else []
    parts.append(
        f"Again: `eqr reproduce {experiment.item}`. What made it: [provenance.json](provenance.json)."
    )
    return "\n\n".join(parts) + "\n"


def provenance(
    experiment: Experiment,
    kept: Sequence[Kept],
    places: Sequence[Place],
    store: Store,
    *,
    smoke: bool,
) -> dict[str, Any]:
    """Return which runs an item's numbers are from and what they cost."""
    keys = sorted({place.key for place in places if place.cell.experiment.item == experiment.item})
    runs, machines, codes = [], [], set()
    for key in keys:
        made = store[key].made()
        if made is None:
            continue
        codes.add(made["code"])
        if made["machine"] not in machines:
            machines.append(made["machine"])
        fields = ("label", "code", "steps", "parameters", "core_seconds")
        recipe = {"recipe": made["recipe"]["name"], "seed": made["recipe"]["seed"]}
        looks = {one.look: one.found.core_seconds for one in kept if one.key == key}
        told = {name: made[name] for name in fields if name in made}
        runs.append({"key": key, **recipe, **told, "look_seconds": looks})
    seconds = sum(run["core_seconds"] + sum(run["look_seconds"].values()) for run in runs)
    return {
        "item": experiment.item,
        "smoke": smoke,
        "core_minutes": round(seconds / 60, 2),
        "code": sorted(codes),
        "machines": machines,
        "runs": runs,
    }


def read_values(
    folder: Path, experiments: Mapping[str, Experiment] = EXPERIMENTS
) -> dict[str, dict[int, float]]:
    """Return every value of a results folder by cell and seed."""
    values: dict[str, dict[int, float]] = {}
    for item, experiment in experiments.items():
        values.update(read_table(experiment, folder / item).values)
    return values


def verdicts(values: Values) -> dict[str, tuple[ClaimVerdict, list[Judged]]]:
    """Judge every claim from values."""
    return {item: judge_claim(claim, values) for item, claim in CLAIMS.items()}


def write_overview(folder: Path, *, smoke: bool) -> None:
    """Write the verdicts and README.md from what the items' folders hold."""
    judged = verdicts(read_values(folder))
    said = {
        item: {
            "says": CLAIMS[item].says,
            "verdict": str(verdict),
            "contrasts": [part.to_json() for part in parts],
        }
        for item, (verdict, parts) in judged.items()
    }
    write_json(folder / "claims.json", {"smoke": smoke, "claims": said})
    for item in EXPERIMENTS:
        if (folder / item / VALUES).is_file():
            own = {claim.item: said[claim.item] for claim in claims_of(item)}
            write_json(folder / item / "verdicts.json", {"smoke": smoke, "claims": own})
    with new_file(folder / "README.md") as temporary:
        temporary.write_text(overview(folder, judged, smoke=smoke), encoding="utf-8")


def overview(folder: Path, judged: Mapping[str, tuple[ClaimVerdict, list[Judged]]], *, smoke: bool) -> str:
    """Return the page of all results."""
    done = {item: read_table(experiment, folder / item) for item, experiment in EXPERIMENTS.items()}
    minutes = total_minutes([folder / item for item in done])
    parts = ["# Results", "Generated by `eqr reproduce`; do not edit."]
    parts += [f"**{SMOKE}**"] if smoke else []
    parts.append(
        "Every table, figure and claim of the paper at lab scale: small models, two CPU cores, minutes. A "
        "verdict follows from declared contrasts over seeds (95% t-intervals), by code: *supported* and "
        "*refuted* are about these small models in the regime that each page states."
    )
    counts = {kind: sum(verdict is kind for verdict, _ in judged.values()) for kind in ClaimVerdict}
    parts.append(
        ", ".join(f"{count} {kind}" for kind, count in counts.items())
        + f". Cost: {minutes:,.0f} core-minutes."
    )
    parts += ["## Claims", _claim_table(judged), "## Tables and figures"]
    for item, table in done.items():
        experiment = table.experiment
        parts.append(f"### {item}: {experiment.title}")
        if table.state == "not run":
            parts.append(f"Not run yet; about {experiment.minutes:g} core-minutes.")
            continue
        parts.append(f"{experiment.question} ([page]({item}/table.md), {table.state})")
        has_figure = (folder / item / "figure.svg").is_file()
        parts.append(f"![{item}]({item}/figure.svg)" if has_figure else table.markdown())
    return "\n\n".join(parts) + "\n"


def _claim_table(judged: Mapping[str, tuple[ClaimVerdict, list[Judged]]]) -> str:
    lines = ["| | claim | verdict | what decided |", "| --- | --- | --- | --- |"]
    for item, (verdict, parts) in judged.items():
        decided = "<br>".join(_decided(part) for part in parts)
        lines.append(f"| {item} | {CLAIMS[item].says} | **{verdict}** | {decided} |")
    return "\n".join(lines)


def _decided(part: Judged) -> str:
    said = part.contrast.says or part.contrast.text
    said = said.replace("|", "·")
    if part.found is None:
        return f"{said}: {part.reason}".replace("|", "·")
    interval = "" if part.found.low is None else f" [{part.found.low:.1f}, {part.found.high:.1f}]"
    return f"{said}: {part.found.mean:.1f}{interval}, n={part.found.n}, {part.verdict}"


def total_minutes(folders: Sequence[Path]) -> float:
    """Return the core-minutes behind several items, runs and looks that they share counted once."""
    spent: dict[str, float] = {}
    for path in (folder / "provenance.json" for folder in folders):
        for run in read_json(path)["runs"] if path.is_file() else ():
            spent[run["key"]] = run["core_seconds"]
            spent |= {f"{run['key']} {look}": seconds for look, seconds in run["look_seconds"].items()}
    return sum(spent.values()) / 60


def require_kind(folder: Path, *, smoke: bool) -> None:
    """Refuse to mix smoke runs and real ones in one folder."""
    path = folder / "claims.json"
    if path.is_file() and bool(read_json(path).get("smoke")) != smoke:
        kind = "a smoke run's" if not smoke else "real"
        raise UserError(f"{folder} holds {kind} results; choose another --out")


def claims_of(item: str) -> list[Claim]:
    """Return the claims that an item helps to decide."""
    return [claim for claim in CLAIMS.values() if item in claim.items]
