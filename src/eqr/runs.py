"""`RunFolder`: the one place that knows what a training run keeps where, what is its own, and who holds it.

RUN/recipe.json       the resolved recipe
RUN/data/             the puzzles, when the recipe generates them, by digest
RUN/metrics.jsonl     one record per log interval and evaluation
RUN/checkpoints/      the last few, for `--resume`
RUN/best, RUN/last    models for `Reasoner.from_pretrained`, with averaged weights
RUN/tensorboard/      what that tracker writes, if asked for
RUN/summary.json      written at the end, after the one look at the test set
RUN/.lock             who trains here, while somebody does
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from eqr.errors import UserError
from eqr.files import held, leftovers, make_folder, parse_json, read_json, read_text, remove, require_own
from eqr.model.lookup import BEST, CONFIG
from eqr.model.saving import CARD, MEASURED, TRAINING, WEIGHTS
from eqr.value import Value

RECIPE, METRICS, SUMMARY, LOCK = "recipe.json", "metrics.jsonl", "summary.json", ".lock"
DATA, CHECKPOINTS, LAST, TENSORBOARD = "data", "checkpoints", "last", "tensorboard"

FILES = (RECIPE, METRICS, SUMMARY)
MODEL = (WEIGHTS, CONFIG, MEASURED, TRAINING, CARD)
INSIDE: dict[str, tuple[str, ...]] = {
    # in the order in which they are removed: as long as a checkpoint is there the run can go on from it
    CHECKPOINTS: ("step-*.safetensors",),
    BEST: MODEL,
    LAST: MODEL,
    TENSORBOARD: ("events.out.tfevents.*",),
}
"""Folders of a run, and what in them is its own; other verbs and people may keep things beside that."""


class Record(Value, extra="allow"):
    """One line of a journal: its kind, its step, and numbers by name."""

    __pydantic_extra__: dict[str, float]

    kind: str
    step: NonNegativeInt


class Summary(Value, extra="ignore"):
    """How a run went."""

    recipe: str = ""
    """Its name."""
    recipe_digest: str
    task: str = ""
    parameters: NonNegativeInt
    steps: NonNegativeInt
    seconds: NonNegativeFloat
    best: dict[str, int | float]
    """The step that did best on validation puzzles and what it reached, `exact@DEPTH`; empty before that."""
    test: dict[str, int | float] = Field(default_factory=dict)
    """What the best weights reach on the test set; empty before the one look at it."""


class RunFolder:
    """The folder of a training run, there or not yet."""

    def __init__(self, path: Path, puzzles: Path | None = None) -> None:
        """`puzzles` is where generated puzzles are kept; None: in the folder."""
        self.path, self.puzzles = path, puzzles
        self.recipe, self.metrics, self.summary_file = (path / name for name in FILES)
        self.checkpoints, self.best, self.last, self.tensorboard = (path / name for name in INSIDE)

    def data(self, digest: str) -> Path:
        """Return where generated puzzles are kept, by the digest of what decides them."""
        return (self.puzzles or self.path / DATA) / digest

    def require_own(self, *names: str) -> None:
        """Refuse to change folders of the run that are links: what is behind them may be anybody's."""
        for name in names or INSIDE:
            require_own(self.path, name)

    def summary(self) -> Summary | None:
        """Return the summary; None for a run that has not ended."""
        if not self.summary_file.is_file():
            return None
        return Summary.from_json(read_json(self.summary_file), where=str(self.summary_file))

    def lines(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the journal's lines with what they say, but a last one that was cut short."""
        lines = read_text(self.metrics).splitlines(keepends=True) if self.metrics.is_file() else []
        for number, line in enumerate(lines, 1):
            where = f"{self.metrics}, record {number}"
            try:
                record = Record.from_json(parse_json(line, where=where), where=where)
            except UserError as error:
                if number == len(lines):
                    return
                raise UserError(f"{error}; remove the line") from None
            if line.endswith("\n"):
                yield line, record.to_json()

    def records(self) -> list[dict[str, Any]]:
        """Return what the journal says."""
        return [record for _, record in self.lines()]

    def results(self) -> list[str]:
        """Return the names of what steps of training have left here."""
        models = [name for name in (BEST, LAST) if any((self.path / name / own).exists() for own in MODEL)]
        steps = [METRICS] if next(self.lines(), None) is not None else []
        return [*([SUMMARY] if self.summary_file.exists() else []), *(f"{name}/" for name in models), *steps]

    @property
    def begun(self) -> bool:
        """Whether a run has left more here than its puzzles."""
        return any((self.path / name).exists() for name in (*FILES, *INSIDE))

    def foreign(self) -> list[str]:
        """Return the names of what is here and no run's."""
        own = {*FILES, *INSIDE, DATA, LOCK, *(path.name for path in leftovers(self.path))}
        there = self.path.iterdir() if self.path.is_dir() else ()
        return sorted(path.name for path in there if path.name not in own)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from training here; a folder that was made for nothing is removed again."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file; name a folder for the run with --out")
        made = not self.path.exists()
        make_folder(self.path)
        try:
            with held(self.path / LOCK, str(self.path)):
                yield
        finally:
            if made:
                with suppress(OSError):
                    self.path.rmdir()

    def sweep(self) -> None:
        """Remove what killed writes have left; only for who holds the folder."""
        inside = (self.path / name for name in (DATA, *INSIDE))
        for folder in (self.path, *(folder for folder in inside if not folder.is_symlink())):
            for path in leftovers(folder):
                remove(path)

    def clear(self) -> None:
        """Remove a run, and nothing that is not a run's own; puzzles stay, they may be of use again."""
        for name in INSIDE:
            self.clear_folder(self.path / name)
        for name in FILES:
            remove(self.path / name)

    def clear_folder(self, folder: Path) -> None:
        """Remove the run's own from one of its folders; of a link the link, and nothing behind it."""
        if folder.is_symlink():
            folder.unlink()
            return
        for pattern in INSIDE[folder.name]:
            for path in sorted(folder.glob(pattern), reverse=True):  # the newest checkpoint first
                remove(path)
        for path in leftovers(folder):
            remove(path)
        with suppress(OSError):
            folder.rmdir()  # unless somebody else keeps something there
