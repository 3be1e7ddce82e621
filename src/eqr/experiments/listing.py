"""The list of items and claims with their state, from a results folder; nothing heavy is loaded."""

from pathlib import Path
from typing import Any

from eqr.experiments.catalogue import CLAIMS, EXPERIMENTS
from eqr.experiments.judge import judge_claim
from eqr.experiments.tables import read_table


def listed(folder: Path) -> list[dict[str, Any]]:
    """Return a record for each item, then for each claim."""
    tables = {item: read_table(experiment, folder / item) for item, experiment in EXPERIMENTS.items()}
    values = {cell: by_seed for table in tables.values() for cell, by_seed in table.values.items()}
    rows: list[dict[str, Any]] = [
        {
            "item": item,
            "shows": table.experiment.title,
            "minutes": table.experiment.minutes,
            "state": table.state,
        }
        for item, table in tables.items()
    ]
    for item, claim in CLAIMS.items():
        rows.append({"item": item, "shows": claim.says, "verdict": str(judge_claim(claim, values)[0])})
    return rows
