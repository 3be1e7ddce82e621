"""`eqr bench`: how fast the parts are on this machine, each figure beside what it should be."""

import json
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure how fast the model, training and inference are on this machine."""


@app.command()
def model(
    rounds: Annotated[int, typer.Option(min=1, help="Repetitions; the median is reported.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Compare one segment with this machine's matmul limit and with a straightforward implementation."""
    from eqr.measure.bench_model import HEADER, line, measure

    if as_json:
        print(json.dumps([share.to_json() for share in measure(rounds=rounds)], indent=2))
        return
    print(HEADER)
    for share in measure(rounds=rounds):
        print(line(share), flush=True)
