"""The table of an experiment: ours beside the printed number, as Markdown, CSV and JSON.

`values.csv` holds every number by row, column and seed; everything else, verdicts included, follows from it.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eqr.errors import UserError
from eqr.experiments.experiment import Cell, Column, Experiment, Row
from eqr.experiments.judge import SeedMean, summary
from eqr.files import new_file

VALUES, TABLE = "values.csv", "table"
HEAD = ("row", "column", "seed", "value")


def cell_name(experiment: Experiment, row: Row, column: Column) -> str:
    """Return a cell's name in contrasts."""
    return f"{experiment.item} | {row.name} | {column.name}"


@dataclass
class Table:
    """An experiment's numbers, by cell and seed, and why some are missing."""

    experiment: Experiment
    values: dict[str, dict[int, float]] = field(default_factory=dict)
    """By cell name; percentages are in percent."""
    failures: dict[str, str] = field(default_factory=dict)

    def put(self, cell: Cell, seed: int, value: float) -> None:
        """Take a number."""
        name = cell_name(self.experiment, cell.row, cell.column)
        self.values.setdefault(name, {})[seed] = 100 * value if cell.column.percent else value

    def summary(self, cell: Cell) -> SeedMean | None:
        """Return a cell's mean and interval."""
        by_seed = self.values.get(cell_name(self.experiment, cell.row, cell.column), {})
        return summary([by_seed[seed] for seed in sorted(by_seed)])

    @property
    def state(self) -> str:
        """How much of the table there is: not run, partly, done.

        A look at a run gives all numbers of its row or none, but for those of puzzles that are not there.
        """
        looks: dict[str, set[int]] = {}
        wanted: dict[str, int] = {}
        for cell in self.experiment.cells():
            look = cell.look(smoke=False)
            key = f"{cell.row.name} {cell.column.lab!r} {look!r}"
            found = self.values.get(cell_name(self.experiment, cell.row, cell.column), {})
            looks.setdefault(key, set()).update(found)
            wanted[key] = max(wanted.get(key, 0), cell.seeds if look.trained else 1)
        if not any(looks.values()):
            return "not run"
        return "done" if all(len(looks[key]) >= count for key, count in wanted.items()) else "partly"

    def markdown(self) -> str:
        """Return the table as Markdown, two columns for each of the paper's that has printed numbers."""
        head, rule = [""], ["---"]
        columns = self.experiment.columns
        printed = {c.name for c in columns if any(c.name in row.published for row in self.experiment.rows)}
        for column in columns:
            unit = " (%)" if column.percent else ""
            head += [f"{column.name}{unit}"] + (["paper"] if column.name in printed else [])
            rule += ["---:"] * (2 if column.name in printed else 1)
        lines = [head, rule]
        for row in self.experiment.rows:
            line = [row.name]
            for column in columns:
                line.append(self._shown(row, column))
                if column.name in printed:
                    line.append(printed_number(row.published.get(column.name)))
            lines.append(line)
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def _shown(self, row: Row, column: Column) -> str:
        if row.only is not None and column.name not in row.only:
            return ""
        cell = Cell(experiment=self.experiment, row=row, column=column)
        found = self.summary(cell)
        name = cell_name(self.experiment, row, column)
        if found is None:
            return f"failed: {self.failures[name]}" if name in self.failures else "–"
        text = f"{found.mean:,.{column.digits}f}"
        if found.low is not None:
            text += f" ± {found.mean - found.low:,.{column.digits}f}"
        return text

    def rows(self) -> list[dict[str, Any]]:
        """Return a record for each cell: mean, interval, number of seeds, the printed number."""
        records = []
        for cell in self.experiment.cells():
            found = self.summary(cell)
            name = cell_name(self.experiment, cell.row, cell.column)
            records.append(
                {
                    "row": cell.row.name,
                    "column": cell.column.name,
                    "unit": "%" if cell.column.percent else "",
                    "mean": found and found.mean,
                    "low": found and found.low,
                    "high": found and found.high,
                    "n": found.n if found else 0,
                    "published": cell.row.published.get(cell.column.name),
                    "failed": self.failures.get(name),
                }
            )
        return records

    def write_csv(self, folder: Path, *, remark: str = "") -> None:
        """Write `table.csv` and `values.csv`; a remark goes above them as a comment."""
        records = self.rows()
        lines: list[list[Any]] = [list(record.values()) for record in records]
        _write(folder / f"{TABLE}.csv", [list(records[0]), *lines], remark)
        lines = []
        for cell in self.experiment.cells():
            by_seed = self.values.get(cell_name(self.experiment, cell.row, cell.column), {})
            lines += [
                [cell.row.name, cell.column.name, seed, repr(by_seed[seed])] for seed in sorted(by_seed)
            ]
        _write(folder / VALUES, [list(HEAD), *lines], remark)


def read_table(experiment: Experiment, folder: Path) -> Table:
    """Read what `write_csv` wrote; cells that the experiment no longer has are left out."""
    table, path = Table(experiment), folder / VALUES
    if not path.is_file():
        return table
    known = {cell_name(experiment, cell.row, cell.column) for cell in experiment.cells()}
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(line for line in file if not line.startswith("#")):
            try:
                name = f"{experiment.item} | {line['row']} | {line['column']}"
                if name in known:
                    table.values.setdefault(name, {})[int(line["seed"])] = float(line["value"])
            except (KeyError, ValueError) as error:
                raise UserError(f"{path} is damaged ({error}); run eqr reproduce {experiment.item}") from None
    return table


def printed_number(value: int | float | str | None) -> str:
    """Return a published number as it was printed, nothing where there is none."""
    return "" if value is None else str(value)


def _write(path: Path, lines: Sequence[Sequence[Any]], remark: str) -> None:
    text = io.StringIO()
    text.write(f"# {remark}\n" if remark else "")
    csv.writer(text, lineterminator="\n").writerows(lines)
    with new_file(path) as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8")
