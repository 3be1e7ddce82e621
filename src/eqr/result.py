"""`Result`: one tidy row, the form in which whatever is measured is kept, printed, drawn and compared.

A row is one number: what it is of, at which budget, by which rule, with its interval and how many puzzles. A
figure or a table is a selection of such rows, and a file of them is one line for pandas or polars:
`pandas.read_csv("report/tables/scaling.csv")`, `polars.DataFrame(evaluation["rows"])`.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from eqr.errors import UserError, brief


@dataclass(frozen=True)
class Estimate:
    """A number measured on `n` puzzles, with its 95% interval."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, kw_only=True)
class Result:
    """One number that was measured; shares lie in 0..1, `low` and `high` bound a 95% interval."""

    item: str = ""
    """What it is of: a run, a model, a set of puzzles."""
    part: str = ""
    """Of which part of that: a range of ratings, a landscape mode, a puzzle."""
    metric: str
    rule: str = ""
    """How one of several starts is chosen, or what ends a trajectory."""
    depth: int | None = None
    breadth: int | None = None
    step: int | None = None
    """Of the training."""
    seed: int | None = None
    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    """How many puzzles (of a mean over seeds: seeds) it is from."""

    @classmethod
    def of(cls, metric: str, estimate: Estimate, **where: Any) -> "Result":
        """Return an estimate as a row."""
        return cls(metric=metric, **vars(estimate), **where)

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any, *, where: str) -> "Result":
        """Take back what `to_json` returned."""
        known = isinstance(data, dict) and data.keys() <= set(COLUMNS) and "metric" in data
        if not known or type(data.get("value")) not in (int, float):
            raise UserError(f"{where}: {brief(data)} is no result; it has {', '.join(COLUMNS)}")
        return cls(**data)


COLUMNS = tuple(field.name for field in fields(Result))


def select(rows: Iterable[Result], **wanted: Any) -> list[Result]:
    """Return the rows whose fields have the wanted values, `rule="residual"`; a tuple holds several."""
    unknown = wanted.keys() - set(COLUMNS)
    if unknown:
        raise UserError(f"results have no field {min(unknown)!r}; they have {', '.join(COLUMNS)}")
    several = {name: value if isinstance(value, tuple) else (value,) for name, value in wanted.items()}
    return [row for row in rows if all(getattr(row, name) in values for name, values in several.items())]


def one(rows: Iterable[Result], **wanted: Any) -> Result:
    """Return the only row with the wanted values."""
    found = select(rows, **wanted)
    if len(found) != 1:
        words = ", ".join(f"{name} {value!r}" for name, value in wanted.items())
        raise UserError(f"{len(found)} results have {words}: name more or other fields")
    return found[0]


def pivot(rows: Iterable[Result], *by: str) -> dict[tuple[Any, ...], dict[str, Result]]:
    """Return rows by metric for each value of the fields `by`, in the order of the rows."""
    found: dict[tuple[Any, ...], dict[str, Result]] = {}
    for row in rows:
        found.setdefault(tuple(getattr(row, name) for name in by), {})[row.metric] = row
    return found


def records(rows: Iterable[Result], *by: str) -> list[dict[str, Any]]:
    """Return a wide record for each value of `by`: `exact`, `exact low`, `exact high` and so on."""
    wide = []
    for place, metrics in pivot(rows, *by).items():
        record: dict[str, Any] = dict(zip(by, place, strict=True))
        for name, row in metrics.items():
            record |= {name: row.value, f"{name} low": row.low, f"{name} high": row.high, f"{name} n": row.n}
        wide.append(record)
    return wide


def csv_text(rows: Sequence[Result] | Sequence[Mapping[str, Any]]) -> str:
    """Return results, or other records that are alike, as comma-separated text."""
    plain = [row.to_json() if isinstance(row, Result) else row for row in rows]
    text = io.StringIO()
    if plain:
        writer = csv.DictWriter(text, list(plain[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(plain)
    return text.getvalue()
