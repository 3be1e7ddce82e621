"""The table of an experiment: ours beside the printed number, and its folder in the results.

RESULTS/<item>/table.md, table.csv, table.json   ours beside the printed numbers
RESULTS/<item>/values.csv                        every number by row, column and seed
RESULTS/<item>/puzzles.csv                       the same by puzzle, where a claim is decided by them
RESULTS/<item>/figure.svg, figure.png            where the item has a picture
RESULTS/<item>/provenance.json                   which runs, versions, machine and how long

Everything else, verdicts included, follows from `values.csv` and `puzzles.csv`.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError
from eqr.files import read_json, write_json, write_text
from eqr.paper.experiment import Cell, Column, Experiment, Output, Row
from eqr.paper.items import JUDGED
from eqr.paper.plan import Place
from eqr.paper.store import Store
from eqr.paper.verdicts import over_seeds
from eqr.result import Result, csv_text

VALUES, PUZZLES, TABLE, PROVENANCE = "values.csv", "puzzles.csv", "table", "provenance.json"
PUZZLE_CELLS = {cell for claim in JUDGED.values() for test in claim.tests for cell in test.compared}
"""Cells of which every puzzle's value is kept, because a claim compares them."""
SMOKE = "A smoke run: everything is tiny, the numbers mean nothing."


@dataclass
class Table:
    """An experiment's numbers, by cell and seed, and why some are missing."""

    experiment: Experiment
    values: dict[str, dict[int, float]] = field(default_factory=dict)
    """By cell name; percentages are in percent."""
    puzzles: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    """The same for every puzzle, where claims are decided by them; as shares, not percent."""
    failures: dict[str, str] = field(default_factory=dict)
    outputs: dict[tuple[str, str], Output] = field(default_factory=dict)
    """What the numbers were read from, by run and measurement, where they come from a store."""

    @classmethod
    def gathered(cls, experiment: Experiment, places: Sequence[Place], store: Store) -> "Table":
        """Gather an experiment's numbers from the store."""
        table = cls(experiment)
        for place in places:
            name, entry = place.cell.name, store[place.key]
            output = entry.output(place.measurement)
            if output is None:
                reason = entry.failure(place.measurement)
                if reason is not None:
                    table.failures[name] = reason
                continue
            table.outputs[place.key, place.measurement.digest()] = output
            each = output.of_puzzles(place.number)
            if name in PUZZLE_CELLS and each is not None:
                table.puzzles.setdefault(name, {})[place.seed] = each
            if place.number in output.numbers:  # what does not occur, such as a mode no puzzle has, has none
                table.put(place.cell, place.seed, output.numbers[place.number])
        return table

    @classmethod
    def read(cls, experiment: Experiment, folder: Path) -> "Table":
        """Read what `write` wrote; cells that the experiment lost are left out."""
        table = cls(experiment)
        known = {cell.name for cell in experiment.cells()}
        for path in (folder / VALUES, folder / PUZZLES):
            try:
                with path.open(encoding="utf-8", newline="") as file:
                    lines = list(csv.DictReader(line for line in file if not line.startswith("#")))
                for line in lines:
                    name, seed = f"{experiment.item} | {line['row']} | {line['column']}", int(line["seed"])
                    if name in known and path.name == VALUES:
                        table.values.setdefault(name, {})[seed] = float(line["value"])
                    elif name in known:
                        table.puzzles.setdefault(name, {})[seed] = unpacked(line["puzzles"])
            except FileNotFoundError:
                continue
            except (KeyError, ValueError) as error:
                raise UserError(f"{path} is damaged ({error}); run eqr reproduce {experiment.item}") from None
        return table

    def put(self, cell: Cell, seed: int, value: float) -> None:
        """Take a number."""
        self.values.setdefault(cell.name, {})[seed] = 100 * value if cell.column.percent else value

    def seeds(self, cell: Cell) -> dict[int, float]:
        """Return a cell's numbers by seed, in order."""
        return dict(sorted(self.values.get(cell.name, {}).items()))

    def mean(self, row: Row, column: Column) -> Result | None:
        """Return a cell's mean and interval; None if nothing of it has run."""
        cell = Cell(self.experiment, row, column)
        return over_seeds(cell.name, list(self.seeds(cell).values()))

    @property
    def state(self) -> str:
        """How much of the table there is: not run, partly, done.

        A measurement gives all numbers of its row or none, but for those of puzzles that are not there.
        """
        seen: dict[str, set[int]] = {}
        wanted: dict[str, int] = {}
        for cell in self.experiment.cells():
            measurement = cell.measurement()
            key = f"{cell.row.name} {cell.column.lab!r} {measurement!r}"
            seen.setdefault(key, set()).update(self.seeds(cell))
            wanted[key] = max(wanted.get(key, 0), cell.seeds if measurement.trained else 1)
        if not any(seen.values()):
            return "not run"
        return "done" if all(len(seen[key]) >= count for key, count in wanted.items()) else "partly"

    def puzzle_values(self) -> dict[str, dict[int, NDArray[np.float64]]]:
        """Return values by cell, seed and puzzle; percentages are in percent, as in `values`."""
        scale = {cell.name: 100.0 if cell.column.percent else 1.0 for cell in self.experiment.cells()}
        return {
            name: {seed: np.array(values) * scale[name] for seed, values in by_seed.items()}
            for name, by_seed in self.puzzles.items()
        }

    def markdown(self) -> str:
        """Return the table as Markdown, two columns for each of the paper's that has printed numbers."""
        rows, columns = self.experiment.rows, self.experiment.columns
        lines: list[list[Any]] = [["", "---", *(row.name for row in rows)]]
        for column in columns:
            shown = [self._shown(row, column) for row in rows]
            lines.append([f"{column.name}{' (%)' if column.percent else ''}", "---:", *shown])
            if any(column.name in row.published for row in rows):
                lines.append(["paper", "---:", *(str(row.published.get(column.name, "")) for row in rows)])
        return "\n".join("| " + " | ".join(line) + " |" for line in zip(*lines, strict=True))

    def _shown(self, row: Row, column: Column) -> str:
        if row.only is not None and column.name not in row.only:
            return ""
        found = self.mean(row, column)
        if found is None:
            reason = self.failures.get(Cell(self.experiment, row, column).name)
            return "–" if reason is None else f"failed: {reason}"
        text = f"{found.value:,.{column.digits}f}"
        return text if found.low is None else f"{text} ± {found.value - found.low:,.{column.digits}f}"

    def records(self) -> list[dict[str, Any]]:
        """Return a record for each cell: mean, interval, number of seeds, the printed number."""
        records = []
        for cell in self.experiment.cells():
            found = self.mean(cell.row, cell.column)
            records.append(
                {
                    "row": cell.row.name,
                    "column": cell.column.name,
                    "unit": cell.unit,
                    "mean": found and found.value,
                    "low": found and found.low,
                    "high": found and found.high,
                    "n": found.n if found else 0,
                    "published": cell.row.published.get(cell.column.name),
                    "failed": self.failures.get(cell.name),
                }
            )
        return records

    def write(self, folder: Path, *, smoke: bool = False) -> None:
        """Write numbers and records, and values by puzzle if claims need them."""
        experiment = self.experiment
        values = [
            {"row": cell.row.name, "column": cell.column.name, "seed": seed, "value": repr(value)}
            for cell in experiment.cells()
            for seed, value in self.seeds(cell).items()
        ]
        remark = f"# {SMOKE}\n" if smoke else ""
        write_text(folder / f"{TABLE}.csv", remark + csv_text(self.records()))
        write_text(folder / VALUES, remark + (csv_text(values) or "row,column,seed,value\n"))
        if self.puzzles:
            puzzles = [
                dict(zip(("row", "column"), name.split(" | ")[1:], strict=True))
                | {"seed": seed, "puzzles": packed(by_seed[seed])}
                for name, by_seed in self.puzzles.items()
                for seed in sorted(by_seed)
            ]
            write_text(folder / PUZZLES, remark + csv_text(puzzles))
        told = {name: getattr(experiment, name) for name in ("item", "title", "question", "regime", "note")}
        write_json(folder / f"{TABLE}.json", {**told, "smoke": smoke, "cells": self.records()})


def packed(values: Sequence[float]) -> str:
    """Return values as text: a digit for each where all are 0 or 1, otherwise numbers between spaces."""
    if all(value in (0.0, 1.0) for value in values):
        return "".join(str(int(value)) for value in values)
    return " ".join(f"{value:g}" for value in values)


def unpacked(text: str) -> list[float]:
    """Read what `packed` wrote."""
    return [float(value) for value in (text.split(" ") if " " in text else text)]


def write_item(table: Table, places: Sequence[Place], store: Store, results: Path, *, smoke: bool) -> None:
    """Write everything about one item into its folder."""
    from eqr.paper.figures import draw, save

    experiment = table.experiment
    folder = results / experiment.item
    if not smoke and (folder / PROVENANCE).is_file() and not table.outputs:
        return  # nothing new to say
    table.write(folder, smoke=smoke)
    figure = draw(table, store.folder)
    if figure is not None:
        save(figure, folder, remark=SMOKE if smoke else "")
    parts = [f"# {experiment.item}: {experiment.title}"]
    parts += [f"**{SMOKE}**"] if smoke else []
    parts += [experiment.question, f"Lab form: {experiment.regime}", table.markdown()]
    parts.append(
        "Ours: mean over seeds ± half of its 95% t-interval. The paper's numbers are of its own scale: "
        "compare orders and directions, not values."
    )
    parts += [experiment.note] if experiment.note else []
    parts += ["![figure](figure.svg)"] if figure is not None else []
    parts.append(
        f"Again: `eqr reproduce {experiment.item}`. What made it: [provenance.json](provenance.json)."
    )
    write_text(folder / f"{TABLE}.md", "\n\n".join(parts) + "\n")
    write_json(folder / PROVENANCE, provenance(table, places, store, smoke=smoke))


def provenance(table: Table, places: Sequence[Place], store: Store, *, smoke: bool) -> dict[str, Any]:
    """Return which runs an item's numbers are from and what they cost."""
    runs, machines = [], []
    for key in sorted({place.key for place in places}):
        made = store[key].made()
        if made is None:
            continue
        if made["machine"] not in machines:
            machines.append(made["machine"])
        fields = ("label", "steps", "parameters", "core_seconds")
        told = {name: made[name] for name in fields if name in made}
        run = {"key": key, "recipe": made["recipe"]["name"], "seed": made["recipe"]["seed"], **told}
        spent = {name: one.core_seconds for (at, name), one in table.outputs.items() if at == key}
        runs.append({**run, **store[key].versions(), "look_seconds": spent})  # its name in files that exist
    seconds = sum(run["core_seconds"] + sum(run["look_seconds"].values()) for run in runs)
    return {
        "item": table.experiment.item,
        "smoke": smoke,
        "core_minutes": round(seconds / 60, 2),
        "machines": machines,
        "runs": runs,
    }


def total_minutes(folders: Sequence[Path]) -> float:
    """Return the core-minutes behind several items, what they share counted once."""
    spent: dict[str, float] = {}
    for path in (folder / PROVENANCE for folder in folders):
        for run in read_json(path)["runs"] if path.is_file() else ():
            spent[run["key"]] = run["core_seconds"]
            spent |= {f"{run['key']} {name}": seconds for name, seconds in run["look_seconds"].items()}
    return sum(spent.values()) / 60
