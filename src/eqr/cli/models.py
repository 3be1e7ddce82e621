"""`eqr models`: the models that ship with eqr, a line each; `eqr models NAME` shows the card."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqr.errors import UserError, nearest

if TYPE_CHECKING:
    from eqr.result import Result

app = typer.Typer()


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show the card of this model.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """List the shipped models; `eqr solve NAME PUZZLE` uses one, `eqr solve PUZZLE` picks one itself."""
    from eqr.model.lookup import shipped

    known = shipped()
    if name is not None and name not in known:
        raise UserError(f"no shipped model {name!r}{nearest(name, known)}")
    found = [_described(*model) for model in known.items() if name in (None, model[0])]
    if as_json:
        print(json.dumps(found, indent=2))
    elif name is not None:
        card = (known[name] / "README.md").read_text(encoding="utf-8")
        print(card.partition("\n---\n")[2].strip())
    else:
        for model in found:
            size = f"{model['kilobytes']:>4} kB"
            print(f"{model['name']:<16} {model['task']:<11} {size}  {_line(known[model['name']])}")


def _described(name: str, folder: Path) -> dict[str, Any]:
    from eqr.files import read_json
    from eqr.model.saving import WEIGHTS

    return {
        "name": name,
        "task": read_json(folder / "config.json")["task"],
        "folder": str(folder),
        "kilobytes": (folder / WEIGHTS).stat().st_size // 1000,
        "measured": [row.to_json() for row in _measured(folder)],
    }


def _measured(folder: Path) -> "tuple[Result, ...]":
    from eqr.files import read_json
    from eqr.model.card import read_measured
    from eqr.model.saving import MEASURED

    return read_measured(read_json(folder / MEASURED), where=str(folder / MEASURED))


def _line(folder: Path) -> str:
    """Return what halting reaches on the puzzles that are hardest for the model."""
    from eqr.model.card import with_cost

    known = with_cost(_measured(folder))
    halting = [pair for pair in known if pair[0].rule.startswith("halting")]
    number, nfe = min(halting or known, key=lambda pair: pair[0].value)
    return f"{number.value:.1%} of {number.n:,} {number.item}, one start, {nfe:.1f} segments on average"
