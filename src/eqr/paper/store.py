"""The store of runs, by content: what a recipe and a seed lead to is trained once and measured once.

STORE/<key>/made.json        which recipe, version and machine; core-seconds once it is done; whether it is
                             only the numbers of a results folder, put back without weights
STORE/<key>/run/             the training run, resumable like any other
STORE/<key>/looks/<key>.json what a measurement gave, with the version of the answers
STORE/<key>/place.json       on which machine of several it is being done, while it is
STORE/<key>/failed.json      why the last attempt failed, until one succeeds
STORE/<key>/tables/          what a measurement needs while it is taken
STORE/data/                  generated puzzles, which many runs share; each run has a link to it

Everything is written whole or not at all, so a process may be killed at any moment. A lock keeps two
processes from training the same run twice.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from eqr.behaviour import ANSWERS, TRAINING, stated
from eqr.errors import UserError
from eqr.files import held, make_folder, read_json, read_object, write_json
from eqr.paper.experiment import Measurement, Output
from eqr.runs import DATA, LOCK, RunFolder

MADE, FAILED, PLACE, RUN, TABLES = "made.json", "failed.json", "place.json", "run", "tables"
OUTPUTS = "looks"  # the name in stores that exist
WHOLE_RUN = "training"
"""Where a failure is kept that no measurement is alone to blame for."""
RESTORED = "restored"
"""In `made.json` of a run of which the store has numbers but no weights."""


class Entry:
    """One run of the store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = folder.name

    @property
    def run(self) -> RunFolder:
        """The training run."""
        return RunFolder(self.folder / RUN, puzzles=self.folder.parent / DATA)

    def made(self) -> dict[str, Any] | None:
        """Return what is known about how the run was made; None if it was never begun."""
        path = self.folder / MADE
        return dict(read_json(path)) if path.is_file() else None

    def begin(self, record: dict[str, Any]) -> None:
        """Note how the run is being made; a run that goes on keeps what it said at first."""
        if self.made() is None:
            make_folder(self.folder)
            write_json(self.folder / MADE, record)

    def begin_again(self) -> None:
        """Forget numbers without weights: what is measured next must be of the same training."""
        if (self.made() or {}).get(RESTORED):
            shutil.rmtree(self.folder / OUTPUTS, ignore_errors=True)  # gone if a kill came in between
            (self.folder / MADE).unlink()

    def versions(self) -> dict[str, int]:
        """Return the version of the training, and of the answers that were measured first."""
        answers = (stated(read_object(path), "answers") for path in (self.folder / OUTPUTS).glob("*.json"))
        return {"training": stated(self.made() or {}, "training"), "answers": min(answers, default=ANSWERS)}

    def trained(self) -> bool:
        """Whether the training is over."""
        made = self.made()
        return bool(made and made.get("trained"))

    def note(self, **more: Any) -> None:
        """Add to what is known about the run."""
        write_json(self.folder / MADE, {**(self.made() or {}), **more})

    def output(self, measurement: Measurement) -> Output | None:
        """Return what a measurement gave; None if it was not taken yet."""
        path = self._path(measurement)
        return Output.from_json(read_object(path), where=str(path)) if path.is_file() else None

    def keep(self, measurement: Measurement, output: Output) -> None:
        """Keep what a measurement gave."""
        write_json(self._path(measurement), {"look": measurement.to_json(), **output.to_json()})

    def fail(self, reasons: dict[str, str]) -> None:
        """Keep why an attempt failed, by the digest of the measurement or as `training`."""
        make_folder(self.folder)
        write_json(self.folder / FAILED, reasons)

    def failure(self, measurement: Measurement) -> str | None:
        """Return why the last attempt at a measurement, or the training before it, failed; None if not."""
        path = self.folder / FAILED
        reasons: dict[str, str] = read_json(path) if path.is_file() else {}
        return reasons.get(WHOLE_RUN) or reasons.get(measurement.digest())

    def succeed(self) -> None:
        """Forget an earlier failure."""
        (self.folder / FAILED).unlink(missing_ok=True)

    @contextmanager
    def placed(self, where: str) -> Iterator[None]:
        """Say on which machine the run is being done while the block runs; a kill leaves the word behind."""
        make_folder(self.folder)
        write_json(self.folder / PLACE, where)
        try:
            yield
        finally:
            self.forget_place()

    def forget_place(self) -> None:
        """Take that word back."""
        (self.folder / PLACE).unlink(missing_ok=True)

    def place(self) -> str | None:
        """Return where the run is being done; None if nobody said so."""
        try:
            return str(json.loads((self.folder / PLACE).read_text(encoding="utf-8")))
        except (OSError, ValueError):  # not there, or gone meanwhile
            return None

    def _path(self, measurement: Measurement) -> Path:
        return self.folder / OUTPUTS / f"{measurement.digest()}.json"


class Store:
    """A folder of runs."""

    def __init__(self, folder: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise UserError(f"--store {folder} is a file; name a folder")
        self.folder = folder

    def __getitem__(self, key: str) -> Entry:
        return Entry(self.folder / key)

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Wait until no other process works on a run, or on the shared puzzles, and keep others out."""
        make_folder(self.folder / name)
        with held(self.folder / name / LOCK, name, wait=True):
            yield

    def share_puzzles(self, entry: Entry) -> None:
        """Let a run keep what it generates where every other run finds it."""
        place = entry.run.path / DATA
        if not place.exists():
            make_folder(self.folder / DATA)
            make_folder(entry.run.path)
            with suppress(OSError):  # a file system without links: the run then has puzzles of its own
                place.symlink_to(Path("..", "..", DATA), target_is_directory=True)

    def of_other_versions(self, keys: list[str]) -> list[str]:
        """Return the runs among `keys` that were trained or measured by another version of the behaviour."""
        mine = {"training": TRAINING, "answers": ANSWERS}
        return [key for key in keys if self[key].made() is not None and self[key].versions() != mine]
