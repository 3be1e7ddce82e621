"""The candidates table on disk: one row per puzzle, start and noted depth, saved in parts as they complete.

The model runs once; every metric, vote and selection rule is scored from here. A part is written whole or not
at all, so an interrupted run keeps what it has and goes on with the parts that are missing, and several
processes fill one table by taking different parts. `manifest.json` says what the rows were made from.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from eqr.behaviour import ANSWERS, stated
from eqr.data import PuzzleSet
from eqr.data.arrays import read_archive
from eqr.errors import UserError
from eqr.files import make_folder, new_file, read_object, require_own, write_json
from eqr.model.reasoner import Reasoner
from eqr.model.saving import digest_of
from eqr.solve.budget import Budget
from eqr.solve.candidates import CandidateBlock, Candidates
from eqr.tasks import task_named
from eqr.value import Value

MANIFEST = "manifest.json"
WALL = "wall"
"""Column of a part beside those of its candidates: seconds of work it took."""


class Manifest(Value):
    """What decides a table's rows."""

    format: Literal["eqr-candidates-1"] = "eqr-candidates-1"
    task: str
    model: str
    """Digest of the model's config and weights."""
    data: str
    """Digest of the puzzles."""
    puzzles: PositiveInt
    budget: Budget
    depths: tuple[PositiveInt, ...]
    """Depths at which predictions were noted, ascending; the last is the budget's."""
    window: PositiveInt
    """Residuals kept of each trajectory."""
    part: PositiveInt = 256
    """Puzzles in each part."""
    answers: int = ANSWERS
    """Version of the answers (`eqr.behaviour`); a repair that changes them makes older rows another run's."""

    @classmethod
    def of(
        cls,
        reasoner: Reasoner,
        puzzles: PuzzleSet,
        budget: Budget,
        *,
        depths: Iterable[int],
        window: int,
        part: int,
    ) -> "Manifest":
        """Return that of a model's run over puzzles; no trajectory has more residuals than segments."""
        return cls(
            task=puzzles.task,
            model=model_digest(reasoner),
            data=puzzles.digest,
            puzzles=len(puzzles),
            budget=budget,
            depths=tuple(depths),
            window=min(window, budget.depth),
            part=part,
        )

    @property
    def parts(self) -> int:
        """Number of parts of the whole table."""
        return -(-self.puzzles // self.part)

    @property
    def label(self) -> str:
        """The run in a few words, for people."""
        return f"depth {self.budget.depth}, breadth {self.budget.breadth}"

    def rows(self, number: int) -> range:
        """Return the indices of the puzzles of a part."""
        return range(number * self.part, min((number + 1) * self.part, self.puzzles))

    def starts(self, number: int) -> int:
        """Return how many trajectories a part has."""
        return self.budget.breadth * len(self.rows(number))


class CandidateTable:
    """A folder of parts; rows of puzzle p are in part p // manifest.part."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest

    @classmethod
    def open(cls, folder: Path, manifest: Manifest, *, overwrite: bool = False) -> "CandidateTable":
        """Open the table of exactly this run, making it if there is none; another run's is an error."""
        require_own(folder.parent, folder.name)
        path, parts = folder / MANIFEST, sorted(folder.glob("part-*.npz"))
        if path.is_file() and not overwrite:
            mine, theirs = manifest.to_json(), _manifest(path).to_json()
            differ = [key for key in mine if mine[key] != theirs[key]]
            if differ:
                raise UserError(
                    f"{folder} holds candidates of another run ({', '.join(differ)} differ); "
                    "choose another --out, or add --overwrite to replace them"
                )
            return cls(folder, manifest)
        if parts and not overwrite:
            raise UserError(
                f"{folder} has {len(parts)} parts of candidates but no {MANIFEST} that says of what; "
                "restore it, choose another --out, or add --overwrite to replace them"
            )
        make_folder(folder)
        for part in parts:
            part.unlink()
        write_json(path, manifest.to_json())
        return cls(folder, manifest)

    @classmethod
    def load(cls, folder: Path) -> "CandidateTable":
        """Open a table to read."""
        return cls(folder, _manifest(folder / MANIFEST))

    def missing(self) -> list[int]:
        """Return the numbers of the parts that are not there yet."""
        return [number for number in range(self.manifest.parts) if not self._path(number).is_file()]

    def write(self, block: CandidateBlock, wall: float) -> None:
        """Save a part, all of it or nothing."""
        with (
            new_file(self._path(block.first // self.manifest.part)) as temporary,
            temporary.open("wb") as file,
        ):
            columns: dict[str, Any] = {**block.candidates.columns(), WALL: np.float64(wall)}
            np.savez(file, **columns)

    def blocks(self) -> Iterator[CandidateBlock]:
        """Yield the parts in order of puzzles; a missing one is an error."""
        missing = self.missing()
        if missing:
            raise UserError(
                f"{self.folder} is not complete: {len(missing)} of {self.manifest.parts} parts are missing; "
                "run the same command again to go on"
            )
        for number in range(self.manifest.parts):
            columns = self._read(number)
            del columns[WALL]
            yield CandidateBlock(number * self.manifest.part, Candidates(**columns))

    def seconds(self) -> float:
        """Return the seconds of work in all parts, summed over processes."""
        return sum(float(self._read(number)[WALL]) for number in range(self.manifest.parts))

    def _read(self, number: int) -> dict[str, NDArray[Any]]:
        path, manifest = self._path(number), self.manifest
        part = read_archive(path)
        count = len(manifest.rows(number))
        shape = (0, manifest.budget.breadth, len(manifest.depths))
        due = Candidates.empty(*shape, cells=task_named(manifest.task).cells, window=manifest.window)
        wanted = {name: ((count, *array.shape[1:]), array.dtype) for name, array in due.columns().items()}
        wanted[WALL] = ((), np.dtype(np.float64))
        found = {name: (array.shape, array.dtype) for name, array in part.items()}
        if found != wanted:
            odd = next(name for name in {**wanted, **found} if found.get(name) != wanted.get(name))
            raise UserError(
                f"{path} holds other rows than {MANIFEST} says ({odd}); delete it and run the command again"
            )
        return part

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:06d}.npz"


def _manifest(path: Path) -> Manifest:
    data = {**read_object(path)}
    data["answers"] = stated(data, "answers")
    data.pop("code", None)  # the digest of older ones
    return Manifest.from_json(data, where=str(path))


def model_digest(reasoner: Reasoner) -> str:
    """Return a content hash of a model: its config and every weight."""
    return digest_of(reasoner.state_dict(), reasoner.config.digest())[:16]
