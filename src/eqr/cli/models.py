"""`eqr models`: the models that ship with eqr, with what was measured of them."""

import json
from typing import Annotated, Any

import typer

app = typer.Typer()


@app.command()
def models(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """List the shipped models; `eqr solve NAME PUZZLE` uses one, `eqr solve PUZZLE` picks one itself."""
    from eqr.model.lookup import shipped

    found = [_described(name, folder) for name, folder in shipped().items()]
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for model in found:
        print(f"{model['name']:<16} {model['task']}, {model['kilobytes']:,} kB of weights")
        for number in model["measured"]:
            print(f"{'':<16} {_line(number)}")


def _described(name: str, folder: Any) -> dict[str, Any]:
    from eqr.files import read_json
    from eqr.model.saving import MEASURED, WEIGHTS

    return {
        "name": name,
        "task": read_json(folder / "config.json")["task"],
        "folder": str(folder),
        "kilobytes": (folder / WEIGHTS).stat().st_size // 1000,
        "measured": read_json(folder / MEASURED),
    }


def _line(number: dict[str, Any]) -> str:
    nfe = number.get("mean_nfe") or number["depth"] * number["breadth"]
    return (
        f"{number['value']:6.1%} of {number['count']:,} {number['puzzles']} "
        f"(depth {number['depth']}, breadth {number['breadth']}, NFE {nfe:.4g}, {number['selection']})"
    )
