"""`eqr solve`: solve puzzles typed, pasted, in a file or on stdin."""

import gc
import io
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from eqr.cli.options import Damping, Device, Halt, Noise, Race, Seed, Start
from eqr.errors import UserError, with_extra
from eqr.files import new_file, regular_file
from eqr.progress import LOG_SECONDS

if TYPE_CHECKING:
    from eqr.model.reasoner import Reasoner
    from eqr.solve import Answer, Refused, Snapshot, Solver
    from eqr.tasks import Task

PATIENCE = 2.0
"""Seconds without an answer after which the progress is shown."""
REDRAW = 0.2
"""Seconds between two lines of progress in a terminal."""
MOST_LINES = 260
"""Lines that a drawn grid has at most."""
LONGEST_ROW = 30
"""Characters that a row of a Sudoku has at most."""
LONGEST_LINE = 1 << 16
"""Bytes of a line that are read; no puzzle is longer."""

Given: TypeAlias = list[str | Iterator[str]]
"""Puzzles in their order: a whole one, or the lines that some are in."""


def solve(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] [PUZZLE]...",
            help="A folder, run, shipped model or hub name, then puzzles as text; - reads stdin.",
            show_default=False,
        ),
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
    depth: Annotated[
        int | None,
        typer.Option(help="Most segments per trajectory; by default 1,024, or 64 with --halt never."),
    ] = None,
    breadth: Annotated[int, typer.Option(help="Independent starts per puzzle.")] = 1,
    halt: Halt = "head+stable:1/stable:64",
    select: Annotated[
        str,
        typer.Option(metavar="RULE", help="How to choose among starts; `verified` uses the task's check."),
    ] = "verified",
    race: Race = False,
    noise: Noise = None,
    damping: Damping = None,
    start: Start = "model",
    seed: Seed = 0,
    trace: Annotated[bool, typer.Option("--trace", help="Show the grid after every segment.")] = False,
    gif: Annotated[Path | None, typer.Option(metavar="FILE", help="Save it as a moving picture.")] = None,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Solve puzzles; exit code 1 if any was refused or its answer breaks the rules."""
    options = {key: value for key, value in locals().items() if key not in ("words", "identity")}
    gc.disable()  # until the first answer: what loads stays, and to look through it takes half a second
    try:
        from eqr.solve import Refused

        name, puzzles = _named(words or [], file)
        solver, given = _opened(name, puzzles, file, task, identity, device, options)
        failed = False
        answers = Watcher(solver, quiet=as_json).solved(_texts(given, solver.task), live="-" in puzzles)
        for number, answer in enumerate(answers):
            gc.enable()
            failed = failed or isinstance(answer, Refused) or not answer.valid
            if as_json:
                print(json.dumps(_plain(solver, answer, trace), allow_nan=False), flush=True)
            else:
                show_answer(solver, answer, trace=trace)
            if gif is not None and number == 0 and not isinstance(answer, Refused):
                _write_gif(gif, solver, answer)
    finally:
        gc.enable()
    raise typer.Exit(1 if failed else 0)


def _named(words: list[str], file: Path | None) -> tuple[str | None, list[str]]:
    """Tell the model's name, if there is one, from the puzzles; `-` is stdin."""
    from eqr.model.lookup import is_path, local_model, shipped, task_for

    if not words and file is None:
        raise UserError("give a puzzle, or a model (`eqr models` lists those that ship) and puzzles")
    if not words or words[0] == "-":
        return None, words
    try:
        local_model(words[0])
    except UserError as unknown:
        try:
            task_for(words[0])
        except UserError:
            alike = get_close_matches(words[0][:80], shipped(), n=1)
            if alike or words[1:] or file is not None or is_path(words[0]):
                raise unknown from None
            raise
        return None, words
    if not words[1:] and file is None:
        raise UserError("give a puzzle, --file FILE, or - to read puzzles from stdin")
    return words[0], words[1:]


def _opened(
    name: str | None,
    puzzles: list[str],
    file: Path | None,
    task: str | None,
    identity: str | None,
    device: str,
    options: dict[str, Any],
) -> tuple["Solver", Given]:
    """Open the model that is named, or the shipped one for the first puzzle, for the task of that puzzle."""
    from eqr.model.lookup import MAZE, SUDOKU, model_for, task_for
    from eqr.solve import SolveOptions, Solver, load
    from eqr.solve.first_use import EagerFirst, ready
    from eqr.tasks import task_named

    options = {key: value for key, value in options.items() if key in SolveOptions.model_fields}
    asked = SolveOptions.from_json(options, where="solve")
    given: Given = [_lines("stdin", _stdin) if text == "-" else text for text in puzzles]
    if file is not None:
        given.append(_lines(str(file), lambda: regular_file(file).open("rb")))
    found = None if task is None else task_named(task)
    if name is None:
        first, given[0] = _first_puzzle(given[0], None)
        name, of_text = model_for(first)
        found = found or of_text
    reasoner = load(name, device=device)
    kind = reasoner.config.task
    if found is None and kind is not None:
        found = task_named(kind)
        if kind.startswith((MAZE, SUDOKU)):
            first, given[0] = _first_puzzle(given[0], kind)
            found = _fitting(reasoner, task_for(first, kind), found)
    # one puzzle does not wait until kernels are compiled
    alone = len(given) == 1 and isinstance(given[0], str) and reasoner.embedding.device.type == "cpu"
    solver = Solver(
        reasoner,
        task=found,
        budget=asked.budget(reasoner.config),
        select=asked.selection(),
        identity=0 if identity is None else _identity(identity, name),
        backend=EagerFirst(reasoner.config) if alone and not ready() else None,
    )
    if solver.task.identities and identity is None:
        raise UserError(f"{solver.task.name} needs to know the family of its puzzles: add --identity NAME")
    return solver, given


def _fitting(reasoner: "Reasoner", wanted: "Task", own: "Task") -> "Task":
    """Return the task of a puzzle if the model runs on its size, else its own, which refuses the puzzle."""
    try:
        reasoner.for_task(wanted)
    except UserError:
        return own
    return wanted


def _first_puzzle(given: str | Iterator[str], kind: str | None) -> tuple[str, str | Iterator[str]]:
    """Return the first puzzle's text, as far as it tells what it is, and all that was given."""
    if isinstance(given, str):
        return given, given
    read, first = _looked_at(given, kind)
    if kind is None and not first.strip():
        raise UserError("no puzzles in the input")
    return first, chain(read, given)


def _looked_at(lines: Iterator[str], kind: str | None) -> tuple[list[str], str]:
    """Read lines until they tell what the first puzzle is: one line by itself, or all of them as a grid."""
    from eqr.model.lookup import reads_as, task_for

    read: list[str] = []
    block: list[str] = []
    for line in lines:
        read.append(line)
        blank = not (line if "#" in "".join(block) else line.strip())
        if (blank and block) or len(block) > MOST_LINES:
            break
        if blank:
            continue
        block.append(line)
        # a line as long as this is no row of a Sudoku, and a row of a maze has not both ends in it
        whole = len(line.strip()) > LONGEST_ROW and ("#" not in line or {"S", "G"} <= set(line))
        if len(block) == 1 and ((kind and reads_as(kind, line)) or (whole and reads_as(None, line))):
            return read, line
    grid = "\n".join(block)
    if len(block) > 1 and reads_as(None, block[0]):  # small puzzles, one a line, unless they are one grid
        whole = reads_as(None, grid) and bool(task_for(grid).check_puzzle(task_for(grid).parse(grid)))
        return read, grid if whole else block[0]
    return read, grid


def _identity(name: str, model: str) -> int:
    """Return the number of a puzzle identity, given as such or by its name in the run's data."""
    with suppress(ValueError):
        return int(name)
    from eqr.data import load_split
    from eqr.train.sources import run_data

    names = load_split(run_data(Path(model)), "train").identity_names
    if name not in names:
        raise UserError(f"--identity {name}: no such name in the run's data; numbers go to {len(names) - 1}")
    return names.index(name)


def _texts(given: Given, task: "Task") -> Iterator[str]:
    for part in given:
        if isinstance(part, str):
            yield part
        else:
            yield from _split(part, task)


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
        from eqr.figures.moving import moving_picture
    except ImportError as error:
        raise UserError(f"--gif needs {error.name}: {with_extra('plots')}") from None

    frames = list(solver.trace(answer.puzzle, start=answer.start))
    verdict = "answered" if solver.task.identities else "solved" if answer.valid else "not solved"
    picture = moving_picture(solver.task, answer.puzzle, frames, verdict=verdict)
    with new_file(path) as temporary:
        temporary.write_bytes(picture)
    print(f"{path}: {len(frames)} segments, {len(picture) / 1000:.0f} kB", file=sys.stderr)


class Watcher:
    """Says on stderr how far the puzzles under way are, and shows the best so far when interrupted."""

    def __init__(self, solver: "Solver", *, quiet: bool) -> None:
        self._solver, self._quiet, self._live = solver, quiet, sys.stderr.isatty()
        self._latest: dict[int, dict[int, Snapshot]] = {}
        """Of each puzzle under way, the last segment of each start."""
        self._answered = self._said = time.monotonic()

    def solved(self, puzzles: Iterable[str], *, live: bool) -> Iterator["Answer | Refused"]:
        """Yield the answers in order."""
        watch = None if self._quiet else self._see
        try:
            for answer in self._solver.solve_many(puzzles, live=live, watch=watch):
                self._clear()
                self._latest.pop(answer.index, None)
                yield answer
                self._answered = time.monotonic()
        except KeyboardInterrupt:
            self._clear()
            if self._latest:
                number, best = self._best()
                print(f"puzzle {number}: stopped after segment {best.segment}; the best so far:")
                print(self._solver.task.render(best.grid), flush=True)
            raise

    def _see(self, snapshot: "Snapshot") -> None:
        """Note a segment; say so if the answer is long in coming."""
        self._latest.setdefault(snapshot.puzzle, {})[snapshot.start] = snapshot
        now = time.monotonic()
        if now - self._answered < PATIENCE or now - self._said < (REDRAW if self._live else LOG_SECONDS):
            return
        self._said = now
        number, best = self._best()
        line = (
            f"puzzle {number}: segment {best.segment} of {self._solver.budget.depth:,}, "
            f"residual {best.residual:.4f}; Ctrl-C shows the best so far"
        )
        print(f"\r{line}\x1b[K" if self._live else f"{line}\n", end="", file=sys.stderr, flush=True)

    def _best(self) -> tuple[int, "Snapshot"]:
        """Return the number of the first puzzle under way, from 1, and its start that moves least."""
        puzzle = min(self._latest)
        return puzzle + 1, min(self._latest[puzzle].values(), key=lambda snapshot: snapshot.residual)

    def _clear(self) -> None:
        if not self._quiet and self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def show_answer(solver: "Solver", answer: "Answer | Refused", *, trace: bool) -> None:
    """Print an answer, with what it looked like on the way if `trace`."""
    from eqr.solve import Refused

    number, color = answer.index + 1, sys.stdout.isatty()
    if isinstance(answer, Refused):
        print(f"puzzle {number}: refused: {answer.reason}\n")
        return
    for frame, cells in _traced(solver, answer) if trace else ():
        changed = f"{len(cells)} cells changed" if cells else "nothing changed"
        print(
            f"segment {frame.segment}: {changed}, residual {frame.residual:.4f}, halt {frame.halt:+.2f}"
            + (f", {frame.status.word}" if frame.status is not None else "")
        )
        if cells:
            print(solver.task.render(frame.grid, puzzle=answer.puzzle, color=color))
        print()
    solved = "answered (whether it is right, only a label can say)" if solver.task.identities else "solved"
    print(f"puzzle {number}: {solved if answer.valid else f'not solved: {answer.reason}'}")
    if not answer.valid:
        print(_what_to_try(solver))
    print(solver.task.render(answer.grid, puzzle=answer.puzzle, color=color))
    breadth = solver.budget.breadth
    chosen = f", start {answer.start + 1} of {breadth} by {solver.select.kind}" if breadth > 1 else ""
    print(
        f"depth {answer.depth} of {solver.budget.depth} ({answer.status.word}){chosen}, "
        f"NFE {answer.nfe}, residual {answer.residual:.4f}, {answer.seconds:.2f} s",
        flush=True,
    )
    if answer.note:
        print(f"note: {answer.note}")
    print()


def _what_to_try(solver: "Solver") -> str:
    """Name the options that may solve what was not solved."""
    budget = solver.budget
    starts = f"--breadth {4 * budget.breadth}" if budget.breadth > 1 else "--breadth 8 --race"
    if solver.reasoner.config.greatest_depth is not None:
        return f"try several starts: {starts}"
    return f"try several starts, {starts}, or more segments, --depth {4 * budget.depth}"


def _traced(solver: "Solver", answer: "Answer") -> list[tuple["Snapshot", list[int]]]:
    """Return what the chosen start decoded to after each segment, with the cells that changed."""
    from eqr.solve.candidates import changes

    frames = list(solver.trace(answer.puzzle, start=answer.start))
    return list(zip(frames, changes(answer.puzzle, frames), strict=True))


def _plain(solver: "Solver", answer: "Answer | Refused", trace: bool) -> dict[str, Any]:
    from eqr.solve import Answer

    number = answer.index + 1
    said = answer.to_json(number)
    if trace and isinstance(answer, Answer):
        said["trace"] = [
            {**frame.to_json(solver.task, number), "changed": changed}
            for frame, changed in _traced(solver, answer)
        ]
    return said
