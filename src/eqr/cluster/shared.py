"""A shared place at an address: any fsspec file system (s3://, gs://, sftp://, file://) that holds runs.

Runs are trained in a folder of the worker's own and copied to the address as they go: first what a checkpoint
needs, then the checkpoint, then the word that something is done, each file whole. So whenever a machine is
lost, what is at the address is a run that can go on, and goes on to the same weights.
"""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from eqr.errors import UserError
from eqr.experiments.store import FAILED, LOOKS, MADE, PLACE, RUN, Entry, Store
from eqr.files import make_folder
from eqr.runs import CHECKPOINTS, DATA, LOCK, METRICS

EVERY = 5.0
"""Seconds between two looks for something new to copy, at most: young runs are looked at sooner."""


class SharedPlace:
    """A folder at an address; a run is a folder in it, as in a store."""

    def __init__(self, address: str) -> None:
        import fsspec

        self.address = address
        try:
            self._files, self._root = fsspec.core.url_to_fs(address)
            self._files.makedirs(self._root, exist_ok=True)
        except (ImportError, ValueError) as error:
            raise UserError(f"--shared {address}: {error}") from None
        except OSError as error:
            raise UserError(f"--shared {address} cannot be used: {error}") from None

    def has(self, name: str) -> bool:
        """Whether a file is there, for everybody to see."""
        self._files.invalidate_cache()
        return bool(self._files.isfile(self._at(name)))

    def mark(self, name: str) -> None:
        """Leave an empty file."""
        self._files.pipe_file(self._at(name), b"")

    def unmark(self, name: str) -> None:
        """Remove it."""
        with suppress(OSError):
            self._files.rm_file(self._at(name))

    def pull(self, key: str, store: Store, *, checkpoints: bool = True) -> None:
        """Copy a run as it stands into a store; without its checkpoints there is nothing to go on from."""
        self._files.invalidate_cache()
        for name in self._names(key):
            if checkpoints or not name.startswith(f"{RUN}/{CHECKPOINTS}/"):
                self._get(key, name, store)

    def pull_progress(self, keys: set[str], store: Store) -> None:
        """Copy what tells which of some runs are being done, where, and how far they are."""
        self._files.invalidate_cache()
        placed = {str(path).split("/")[-2] for path in self._files.glob(self._at("*", PLACE))}
        for key in keys:
            if key in placed:
                self._get(key, PLACE, store)
                self._get(key, f"{RUN}/{METRICS}", store)
            else:
                store[key].forget_place()

    def _get(self, key: str, name: str, store: Store) -> None:
        target = store[key].folder / name
        make_folder(target.parent)
        temporary = target.with_name(f".{target.name}.pulled")
        with suppress(FileNotFoundError):  # not there yet, or replaced by a newer one meanwhile
            self._files.get_file(self._at(key, name), str(temporary))
            temporary.replace(target)

    @contextmanager
    def working_copy(self, key: str) -> Iterator[Store]:
        """Give a store of this process's own with the run as it stands, and copy back what becomes of it."""
        with tempfile.TemporaryDirectory(prefix="eqr-", ignore_cleanup_errors=True) as folder:
            store = Store(Path(folder))
            make_folder(_puzzles())
            (store.folder / DATA).symlink_to(_puzzles(), target_is_directory=True)
            self.pull(key, store)
            follower = _Follower(self, store[key])
            follower.start()
            try:
                yield store
            finally:
                follower.end()

    def _at(self, *parts: str) -> str:
        return "/".join((self._root.rstrip("/"), *parts))

    def _names(self, key: str) -> list[str]:
        """Names of a run's files, relative to its folder."""
        there = self._files.find(self._at(key)) if self._files.isdir(self._at(key)) else []
        return sorted(str(path).split(f"/{key}/", 1)[1] for path in there)

    def put(self, key: str, name: str, content: bytes) -> None:
        """Write a file whole: object stores do; elsewhere it is written under another name first."""
        target = self._at(key, name)
        self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
        if "file" in _protocols(self._files):
            self._files.pipe_file(f"{target}.part", content)
            self._files.mv(f"{target}.part", target)
        else:
            self._files.pipe_file(target, content)

    def drop(self, key: str, keep: set[str]) -> None:
        """Remove the files of a run that are none of these."""
        self._files.invalidate_cache()
        for name in self._names(key):
            if name not in keep:
                with suppress(OSError):
                    self._files.rm_file(self._at(key, name))


def _protocols(files: Any) -> tuple[str, ...]:
    protocol = files.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _puzzles() -> Path:
    """Where a machine keeps generated puzzles for all runs that it takes part in."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eqr" / "puzzles"


class _Follower:
    """Copies what is new in a run to its address, now and then and at the end."""

    def __init__(self, place: SharedPlace, entry: Entry) -> None:
        self._place, self._entry = place, entry
        self._copied: dict[str, tuple[int, int]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="shared place", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Copy what is left; what cannot be copied now is an error."""
        self._over.set()
        self._thread.join()
        self._copy()

    def _follow(self) -> None:
        seconds = EVERY / 16
        while not self._over.wait(seconds):
            seconds = min(2 * seconds, EVERY)
            with suppress(OSError):  # a moment without network; the next round or the end tries again
                self._copy()

    def _copy(self) -> None:
        """Copy one state of the run: words about what is done are read first and written last."""
        folder = self._entry.folder
        files = dict(_own_files(folder))
        done = [name for name in files if name in (MADE, FAILED) or name.startswith(f"{LOOKS}/")]
        words = {name: content for name in done if (content := _content(files[name])) is not None}
        points = [name for name in files if name.startswith(f"{RUN}/{CHECKPOINTS}/")]
        others = [name for name in files if name not in (*done, *points)]
        gone = [name for name in (*others, *points) if not self._send(name, files[name])]
        for name, content in words.items():
            self._place.put(self._entry.key, name, content)
        if not gone:  # else the checkpoint that is there must stay until its heir is
            self._place.drop(self._entry.key, set(files))

    def _send(self, name: str, path: Path) -> bool:
        try:
            found = path.stat()
            state = (found.st_mtime_ns, found.st_size)
            if self._copied.get(name) != state:
                self._place.put(self._entry.key, name, path.read_bytes())
                self._copied[name] = state
        except FileNotFoundError:
            return False
        return True


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _own_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of a run by name, without puzzles, locks and what is only just being written."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != DATA]
        for name in names:
            if not name.startswith(".") and name != LOCK:
                path = Path(place, name)
                yield path.relative_to(folder).as_posix(), path
