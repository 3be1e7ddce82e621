"""`eqr solve`: solve puzzles typed, pasted, in a file or on stdin."""

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from eqr.errors import UserError
from eqr.files import regular_file

if TYPE_CHECKING:
    from eqr.solve import Answer, Refused, Solver
    from eqr.tasks import Task

app = typer.Typer()
WORDS = "A folder, run, shipped model or hub name, then puzzles as text; - reads stdin."

HALT_HELP = (
    "never, head, above-continue (HRM), residual:0.02, stable:3, valid (uses the rules); "
    "a+b both, a/b either."
)
START_HELP = "model (its own) or random[:scale[:scratch scale]]."
RACE_HELP = "The first start that halts cancels the rest."
ASSUME_HELP = "Each start but the first is told another guess at a few cells."
DEPTH_HELP = "Most segments per trajectory; 64, or 1 for feedforward models."
SELECT_HELP = "Which start to believe; `verified` uses the task's check."
HARD_OPTIONS = "--depth 128 --breadth 32 --assume --retell 10"
RETELL_HELP = "With --assume: tell starts other guesses after so many segments, by how sure they are."
LONGEST_LINE = 1 << 16
"""Bytes of a line that are read; no puzzle is longer."""


@app.command()
def solve(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL] [PUZZLE]...", help=WORDS, show_default=False)
    ] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Puzzles, one a line or apart by empty lines.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="Kind of puzzle, if the model does not say.")
    ] = None,
    identity: Annotated[
        str | None, typer.Option(metavar="NAME", help="Mini-ARC: the family's name in the data, or number.")
    ] = None,
    depth: Annotated[int | None, typer.Option(help=DEPTH_HELP)] = None,
    breadth: Annotated[int, typer.Option(help="Independent starts per puzzle.")] = 1,
    halt: Annotated[str, typer.Option(metavar="RULE", help=HALT_HELP)] = "head+stable:1",
    select: Annotated[str, typer.Option(metavar="RULE", help=SELECT_HELP)] = "verified",
    race: Annotated[bool, typer.Option("--race", help=RACE_HELP)] = False,
    assume: Annotated[bool, typer.Option("--assume", help=ASSUME_HELP)] = False,
    retell: Annotated[int | None, typer.Option(metavar="SEGMENTS", help=RETELL_HELP)] = None,
    noise: Annotated[float | None, typer.Option(help="Path noise instead of the model's.")] = None,
    damping: Annotated[float | None, typer.Option(help="Damping instead of the model's.")] = None,
    start: Annotated[str, typer.Option(metavar="START", help=START_HELP)] = "model",
    seed: Annotated[int, typer.Option(help="Of the starts and the noise.")] = 0,
    trace: Annotated[bool, typer.Option("--trace", help="Show the grid after every segment.")] = False,
    gif: Annotated[Path | None, typer.Option(metavar="FILE", help="Save it as a moving picture.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Solve puzzles; exit code 1 if any was refused or its answer breaks the rules."""
    from eqr.solve import Refused

    model, task, puzzles = _named(words or [], task, file)
    asked = {
        "depth": depth,
        "breadth": breadth,
        "halt": halt,
        "select": select,
        "race": race,
        "assume": assume,
        "retell": retell,
        "noise": noise,
        "damping": damping,
        "start": start,
        "seed": seed,
    }
    solver = _solver(model, task, identity, asked, device)
    failed, given = False, _given(puzzles, file, solver.task)
    for number, answer in enumerate(solver.solve_many(given, live="-" in puzzles)):
        failed = failed or isinstance(answer, Refused) or not answer.valid
        if as_json:
            print(json.dumps(_plain(solver, answer, trace), allow_nan=False), flush=True)
        else:
            show_answer(solver, answer, trace=trace, color=sys.stdout.isatty())
        if gif is not None and number == 0 and not isinstance(answer, Refused):
            _write_gif(gif, solver, answer)
    raise typer.Exit(1 if failed else 0)


def _named(words: list[str], task: str | None, file: Path | None) -> tuple[str, str | None, list[str]]:
    """Tell the model from the puzzles; a puzzle alone is solved by the shipped model that fits it."""
    from eqr.model.lookup import local_model
    from eqr.solve.shipped import model_for

    if not words:
        raise UserError("give a puzzle, or a model (`eqr models` lists those that ship) and puzzles")
    try:
        local_model(words[0])
    except UserError as unknown:
        if file is not None:
            raise
        try:
            name, found = model_for(words[0])
        except UserError as unread:
            raise (unread if len(words) == 1 else unknown) from None
        return name, task or found.name, words
    if not words[1:] and file is None:
        raise UserError("give a puzzle, --file FILE, or - to read puzzles from stdin")
    return words[0], task, words[1:]


def _solver(
    model: str, task: str | None, identity: str | None, options: dict[str, Any], device: str
) -> "Solver":
    from eqr.solve import Asked, Solver, load_reasoner
    from eqr.tasks import task_named

    asked = Asked.from_json(options, where="solve")
    reasoner = load_reasoner(model, device=device)
    solver = Solver(
        reasoner,
        task=None if task is None else task_named(task),
        budget=asked.budget(reasoner.config),
        select=asked.selection(),
        identity=0 if identity is None else _identity(identity, model),
    )
    if solver.task.identities and identity is None:
        raise UserError(f"{solver.task.name} needs to know the family of its puzzles: add --identity NAME")
    return solver


def _identity(name: str, model: str) -> int:
    """Return the number of a puzzle identity, given as such or by its name in the run's data."""
    if name.isdecimal():
        return int(name)
    from eqr.data import load_split
    from eqr.train.sources import run_data

    names = load_split(run_data(Path(model)), "train").identity_names
    if name not in names:
        raise UserError(f"--identity {name}: no such name in the run's data; numbers go to {len(names) - 1}")
    return names.index(name)


def _given(puzzles: list[str], file: Path | None, task: "Task") -> Iterator[str]:
    for text in puzzles:
        if text == "-":
            yield from _split(_lines("stdin", _stdin), task)
        else:
            yield text
    if file is not None:
        yield from _split(_lines(str(file), lambda: regular_file(file).open("rb")), task)


def _lines(name: str, opened: Callable[[], AbstractContextManager[IO[bytes]]]) -> Iterator[str]:
    """Read line by line, so that puzzles can keep coming and a large file is never held whole.

    Of a line longer than any puzzle only the beginning is given out, at once.
    """
    codec = "utf-8-sig"
    try:
        with opened() as stream:
            while line := stream.readline(LONGEST_LINE):
                cut_off = len(line) == LONGEST_LINE and not line.endswith(b"\n")
                yield line.decode(codec, errors="ignore" if cut_off else "strict").rstrip("\r\n")
                while cut_off and (line := stream.readline(LONGEST_LINE)):
                    cut_off = not line.endswith(b"\n")
                codec = "utf-8"
    except OSError as error:
        raise UserError(f"cannot read {name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{name} is not UTF-8 text") from None


def _stdin() -> AbstractContextManager[IO[bytes]]:
    """Open stdin with a buffer of our own.

    Whoever reads it may be a thread that is still waiting when the program ends; it must not hold the lock of
    the interpreter's buffer then.
    """
    given = sys.stdin.buffer
    return nullcontext(io.BufferedReader(given.raw) if isinstance(given, io.BufferedReader) else given)


def _split(lines: Iterable[str], task: "Task") -> Iterator[str]:
    """Cut text into puzzles: lines up to an empty one are a grid, unless one of them can hold a whole grid.

    Then each line is a puzzle, given out as soon as that is known; likewise if there are too many for a grid.
    """
    spaces, most = " " in task.symbols, 4 * task.shape[0] + 4
    block: list[str] = []
    by_line = found = False
    for line in lines:
        text = line if spaces else line.strip()
        found = found or bool(text)
        if not text:
            if block:
                yield "\n".join(block)
            block, by_line = [], False
        elif by_line or len(text) >= task.cells or len(block) >= most:
            yield from block
            yield text
            block, by_line = [], True
        else:
            block.append(text)
    if block:
        yield "\n".join(block)
    if not found:
        raise UserError("no puzzles in the input")


def _write_gif(path: Path, solver: "Solver", answer: "Answer") -> None:
    try:
        from eqr.measure.moving import moving_picture
    except ImportError as error:
        raise UserError(f"--gif needs {error.name}: pip install 'eqr[plots]'") from None
    from eqr.files import new_file

    frames = list(solver.trace(answer.puzzle, start=answer.start))
    verdict = "answered" if solver.task.identities else "solved" if answer.valid else "not solved"
    picture = moving_picture(solver.task, answer.puzzle, frames, verdict=verdict)
    with new_file(path) as temporary:
        temporary.write_bytes(picture)
    print(f"{path}: {len(frames)} segments, {len(picture) / 1000:.0f} kB", file=sys.stderr)


def show_answer(solver: "Solver", answer: "Answer | Refused", *, trace: bool, color: bool) -> None:
    """Print an answer, with what it looked like on the way if `trace`."""
    from eqr.solve import Refused

    number = answer.index + 1
    if isinstance(answer, Refused):
        print(f"puzzle {number}: refused: {answer.reason}\n")
        return
    if trace:
        _show_trace(solver, answer, color)
    solved = "answered (whether it is right, only a label can say)" if solver.task.identities else "solved"
    verdict = solved if answer.valid else f"not solved: {answer.reason}"
    stopped = "halted" if answer.halted else "ran out of depth"
    print(f"puzzle {number}: {verdict}")
    if not answer.valid and not solver.budget.assume and solver.task.distinct():
        print(f"a hard puzzle may take guesses: {HARD_OPTIONS}")
    print(solver.task.render(answer.grid, puzzle=answer.puzzle, color=color))
    starts = f", start {answer.start + 1} of {solver.budget.breadth}" if solver.budget.breadth > 1 else ""
    chosen = f" by {solver.select.to_json()['kind']}" if starts else ""
    print(
        f"depth {answer.depth} of {solver.budget.depth} ({stopped}){starts}{chosen}, NFE {answer.nfe}, "
        f"residual {answer.residual:.4f}, {answer.seconds:.2f} s\n"
    )


def _show_trace(solver: "Solver", answer: "Answer", color: bool) -> None:
    for frame in solver.trace(answer.puzzle, start=answer.start):
        changed = f"{len(frame.changed)} cells changed" if frame.changed else "nothing changed"
        print(
            f"segment {frame.segment}: {changed}, residual {frame.residual:.4f}, halt {frame.halt:+.2f}"
            + (", halts" if frame.halted else "")
        )
        if frame.changed:
            print(solver.task.render(frame.grid, puzzle=answer.puzzle, color=color))
        print()


def _plain(solver: "Solver", answer: "Answer | Refused", trace: bool) -> dict[str, Any]:
    from eqr.solve import Refused
    from eqr.solve.plain import finite, plain_answer, text_of

    if isinstance(answer, Refused):
        return {"puzzle": answer.index + 1, "refused": answer.reason}
    said = plain_answer(solver.task, answer.index + 1, answer)
    if trace:
        said["trace"] = [
            {
                "segment": frame.segment,
                "grid": text_of(solver.task, frame.grid),
                "changed": list(frame.changed),
                "residual": finite(frame.residual),
                "halt": finite(frame.halt),
            }
            for frame in solver.trace(answer.puzzle, start=answer.start)
        ]
    return said
