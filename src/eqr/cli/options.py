"""Options that several verbs share, and reading durations."""

import re
from pathlib import Path
from typing import Annotated

import typer

from eqr.errors import UserError

Model = Annotated[str, typer.Argument(metavar="MODEL", help="Model folder, run folder or hub name.")]
Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help="Run folders, the reference first; or a model, with --data."),
]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to make.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the folder if it exists.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]

Data = Annotated[Path | None, typer.Option(metavar="DIR", help="Dataset folder; a run's own if not given.")]
Page = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The page; in the first run's folder if not given.")
]
Split = Annotated[str | None, typer.Option(help="Which split of it: test, else validation.")]
Sample = Annotated[int, typer.Option(help="Measure a random sample of this many puzzles.")]
Starts = Annotated[int, typer.Option(help="Independent starts per puzzle.")]
Depth = Annotated[int | None, typer.Option(help="Segments per trajectory; 64, or 1 for feedforward models.")]

Halt = Annotated[
    str,
    typer.Option(
        metavar="RULE",
        help="never, head, above-continue (HRM), residual:0.02, stable:3, valid (uses the rules); "
        "a+b both, a/b either.",
    ),
]
Race = Annotated[bool, typer.Option("--race", help="The first start that halts cancels the rest.")]
Noise = Annotated[float | None, typer.Option(help="Path noise instead of the model's.")]
Damping = Annotated[float | None, typer.Option(help="Damping instead of the model's.")]
Start = Annotated[
    str, typer.Option(metavar="START", help="model (its own) or random[:scale[:scratch scale]].")
]
Seed = Annotated[int, typer.Option(help="Of the starts and the noise.")]

Workers = Annotated[
    int | None, typer.Option(help="Runs at the same time, one thread each; one per core if not given.")
]
Limit = Annotated[
    str | None, typer.Option(metavar="TIME", help="Write checkpoints and stop after this long: 90s, 30m, 2h.")
]
On = Annotated[
    str | None,
    typer.Option(
        metavar="CLUSTER", help="ray: a cluster instead of this machine's cores; or ray://HOST:PORT."
    ),
]
Kept = Annotated[Path | None, typer.Option(metavar="DIR", help="Runs by content; runs/store if not given.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show which runs are there and which would be trained.")
]
Accepted = Annotated[
    bool, typer.Option("--accept-store", help="Use runs made by code that trains or answers otherwise.")
]


def seconds(text: str) -> float:
    """Read a duration such as `90`, `90s`, `3m` or `1.5h`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not match or float(match[1]) == 0:
        raise UserError(f"--time-limit {text!r} is not a duration; write for example 90s, 3m or 1.5h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
