"""The `eqr` command: a verb is a function of its name, whose module loads only when that verb is used.

`main` turns a `UserError`, or an output that takes no more, into one clear line and exit code 2, a signal
into one line and the exit code that shells expect (130 for Ctrl-C), and leaves a traceback and exit code 3
for bugs.
"""

import errno
import importlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from eqr import __version__
from eqr.errors import UserError, brief, nearest
from eqr.signals import farewell

ISSUES = "https://github.com/eqr-project/eqr/issues"
COMMANDS = {
    "demo": ("eqr.cli.demo", "Train, scale and show a small reasoner, in minutes."),
    "tasks": ("eqr.cli.data", "List the kinds of puzzles there are."),
    "data": ("eqr.cli.data", "Build, import and show puzzle sets."),
    "convert": ("eqr.cli.models", "Convert a published EqR, TRM, HRM or URM checkpoint."),
    "train": ("eqr.cli.train", "Train a model by a recipe, resumably."),
    "sweep": ("eqr.cli.reproduce", "Train a recipe under many settings and seeds."),
    "evaluate": ("eqr.cli.evaluate", "Measure a model: accuracy, intervals and cost."),
    "report": ("eqr.cli.report", "Write every figure and table of a run into one page."),
    "compare": ("eqr.cli.report", "Compare several runs at equal budgets, puzzle by puzzle."),
    "models": ("eqr.cli.models", "List the models that ship with eqr, or show one's card."),
    "reproduce": ("eqr.cli.reproduce", "Reproduce the paper's tables, figures and claims."),
    "solve": ("eqr.cli.solve", "Solve puzzles from the command line, a file or stdin."),
    "serve": ("eqr.cli.serve", "Answer puzzles over HTTP, with a page to watch."),
    "site": ("eqr.cli.serve", "Write the page as a static site that needs no server."),
    "export": ("eqr.cli.models", "Write a model as ONNX or torch.export graphs."),
    "push": ("eqr.cli.models", "Upload a model to the Hugging Face Hub."),
}
"""Verb: (module, line shown by `eqr --help`). The order is the order of the help."""

ALIASES = {"import": "convert"}
"""Former names of verbs, which the help does not list."""


_FULL = (errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC)
"""What a file says that takes no more; those that eqr opens are another matter (`files.py`)."""


class LazyCommands(TyperGroup):
    """Loads verbs by name; their modules import what is heavy on use, so that `eqr --help` is quick."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs in the order a newcomer meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """Load a verb's module and return its command, with the verb's line for the help screen."""
        name = ALIASES.get(name, name)
        if name not in COMMANDS:
            return None
        module, summary = COMMANDS[name]
        verb = getattr(importlib.import_module(module), name)
        if not isinstance(verb, typer.Typer):
            verb, function = typer.Typer(), verb
            verb.command()(function)
        command = typer.main.get_command(verb)
        command.name = name
        command.short_help = summary
        _tidy(command, ctx)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb; a mistyped one is told the nearest."""
        if args[0] not in {**COMMANDS, **ALIASES} and not args[0].startswith("-"):
            raise UserError(f"no command {args[0]!r}{nearest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of `eqr` itself."""
        return _tidy_flags(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options of `eqr` itself; `--load FILE` may stand anywhere before a `--`."""
        return super().parse_args(ctx, _loads_first(args))

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the words; a signal may come as early as that."""
        with _told():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        with _told():
            return super().invoke(ctx)


def _loads_first(args: list[str]) -> list[str]:
    end = args.index("--") if "--" in args else len(args)
    loads, others = list[str](), list[str]()
    words = iter(args[:end])
    for word in words:
        if word == "--load":
            loads += [word, *islice(words, 1)]
        else:
            (loads if word.startswith("--load=") else others).append(word)
    return [*loads, *others, *args[end:]]


@contextmanager
def _told() -> Iterator[None]:
    """End here for a signal or a reader that went away: typer would say nothing, and take any for Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        line, code = farewell(interrupt)
        print(f"\n{line}" if sys.stderr.isatty() else line, file=sys.stderr)
        sys.exit(code)
    except BrokenPipeError:
        # `eqr ... | head`: leave quietly, without Python's complaint at shutdown
        _write_nowhere()
        sys.exit(0)


def _tidy(command: Any, ctx: Any) -> None:
    """Leave out of a verb's help what says nothing: completion (installed for `eqr` as a whole), `<bool>`."""
    command.params = [option for option in command.params if "completion" not in (option.name or "")]
    _tidy_flags(command.get_params(ctx))
    for inner in getattr(command, "commands", {}).values():
        _tidy(inner, ctx)


def _tidy_flags(options: list[Any]) -> list[Any]:
    for option in options:
        if getattr(option, "is_flag", False) and option.metavar is None:
            option.metavar = " "
    return options


app = typer.Typer(
    cls=LazyCommands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(value: bool) -> None:
    if value:
        print(f"eqr {__version__}")
        raise typer.Exit


@app.callback()
def options(
    load: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Run a Python file first, such as one that registers your own task."
        ),
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Equilibrium reasoners: train small networks that solve puzzles by iterating until they settle."""
    for path in load or []:
        if not path.is_file():
            raise UserError(f"--load {path}: no such file")
        import runpy

        runpy.run_path(str(path))


def main() -> None:
    """Run the command line; exit with 0 (done), 1 (a check said no), 2 (a mistake), 3 (a bug) or 128 + N."""
    sys.excepthook = _report_bug
    for stream in (sys.stdout, sys.stderr):  # names of files and people's words may hold what is no UTF-8
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = _exit_code(lambda: typer.main.get_command(app)())
    sys.exit(_exit_code(sys.stdout.flush) or code)


def _exit_code(run: Callable[[], object]) -> int:
    """Run something to its end, say what went wrong, and return the exit code for it."""
    try:
        with _told():  # typer is at work before and after the verb as well
            run()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except UserError as error:
        return _mistake(str(error))
    except OSError as error:
        if error.filename is not None:
            # a path that may not be looked at, is too long or goes through a file: the person's, not a bug
            return _mistake(f"cannot use {brief(error.filename)}: {error.strerror}")
        if error.errno not in _FULL:
            raise
        _write_nowhere()
        return _mistake(f"cannot write the output: {error.strerror}")
    return 0


def _mistake(line: str) -> int:
    with suppress(OSError):
        print(f"error: {line}", file=sys.stderr)
    return 2


def _report_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.__excepthook__(kind, error, trace)
    print(f"this is a bug in eqr; please report it: {ISSUES}", file=sys.stderr)
    sys.exit(3)


def _write_nowhere() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
