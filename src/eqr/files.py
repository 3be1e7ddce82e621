"""Writing files so that a crash, a full disk or Ctrl-C never leaves half of one behind; reading them warily.

Everything eqr saves goes through here: written beside its target under a temporary name, flushed to disk,
then renamed into place, which the file system does at once or not at all. A killed process cannot take its
temporary files with it; the next write to the same target does. What is read may have been made by anyone:
a file is opened only if it is a file of sensible size, and JSON only means what it should.
"""

import glob
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from eqr.errors import UserError, brief
from eqr.locks import try_lock

TEMPORARY, REPLACED = ".tmp", ".old"
SWEPT_AFTER = 60.0
"""Seconds: a temporary file as young as that may not be locked yet."""
LARGEST_TEXT = 1 << 28
"""Bytes of the largest text that is read whole: a dataset's names of millions of puzzles stay well below."""
DEEPEST = 64
"""Levels of nested JSON; what eqr writes has a handful."""


class NotJson(UserError):
    """Text that is no JSON at all."""


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Give a temporary path to write; on success it becomes `path`, on any failure it vanishes."""
    make_folder(path.parent)
    with _plain_errors(path):
        _sweep(path)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY)
    os.close(handle)
    temporary = Path(name)
    try:
        with _plain_errors(path), _in_use(temporary):
            yield temporary
            _flush(temporary)
            temporary.chmod(0o644)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path, *, replacing: str | None = None) -> Iterator[Path]:
    """Give a temporary folder to fill; on success it becomes `path`, on any failure it vanishes.

    A folder that is there already is replaced only if it has a file called `replacing`, by which one can tell
    that it is of the same kind; None replaces nothing but an empty folder.
    """
    make_folder(path.parent)
    with _plain_errors(path):
        _sweep(path)
        _require_replaceable(path, replacing)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY))
    try:
        with _plain_errors(path), _in_use(temporary):
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    _flush(file)
            temporary.chmod(0o755)
            _require_replaceable(path, replacing)  # it may have appeared, or become another's, meanwhile
            old = temporary.with_name(temporary.name + REPLACED)
            if path.exists() and replacing is None:
                path.rmdir()  # fails unless it is empty
            elif path.exists():
                path.rename(old)
            temporary.rename(path)
            remove(old)
    finally:
        remove(temporary)


def _require_replaceable(path: Path, replacing: str | None) -> None:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        if replacing is None:
            raise UserError(f"{path} already exists; choose another --out, or add --overwrite to replace it")
        if not (path / replacing).is_file():
            raise UserError(f"{path} has no {replacing} in it, so --overwrite will not remove it")


def leftovers(folder: Path, name: str | None = None) -> list[Path]:
    """Return the temporary files and folders of unfinished writes to `name` in a folder, or to anything."""
    pattern = "*" if name is None else glob.escape(name)
    return sorted(folder.glob(f".{pattern}.????????{TEMPORARY}"))


def remove(path: Path) -> None:
    """Remove a file, a link (never what it leads to) or a whole folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sweep(path: Path) -> None:
    """Remove what killed writers to `path` have left, bringing back what they were about to replace."""
    for temporary in leftovers(path.parent, path.name):
        with suppress(OSError):
            if time.time() - temporary.stat().st_mtime > SWEPT_AFTER and _abandoned(temporary):
                old = temporary.with_name(temporary.name + REPLACED)
                if old.exists() and not path.exists():
                    old.rename(path)
                remove(old)
                remove(temporary)


@contextmanager
def _in_use(temporary: Path) -> Iterator[None]:
    """Hold a lock on a temporary file or folder, by which others see that its writer lives."""
    if os.name != "posix":  # elsewhere an open file cannot be renamed
        yield
        return
    handle = os.open(temporary, os.O_RDONLY)
    try:
        with suppress(OSError):  # file systems without locks
            try_lock(handle)
        yield
    finally:
        os.close(handle)


def _abandoned(temporary: Path) -> bool:
    if os.name != "posix":
        return False
    handle = os.open(temporary, os.O_RDONLY)
    try:
        return try_lock(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Create a folder and its parents; say so plainly when that is not possible."""
    with _plain_errors(path):
        path.mkdir(parents=True, exist_ok=True)


def write_json(path: Path, data: Any) -> None:
    """Write readable JSON atomically."""
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    with new_file(path) as temporary:
        # half of a surrogate pair, as undecodable arguments have, becomes the escape that JSON has for it
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def regular_file(path: Path, *, largest: int | None = None) -> Path:
    """Return the path if a file is there; a folder, a pipe or a device is a `UserError`, not a long wait."""
    try:
        found = path.stat()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"cannot read {str(path)!r}: {error}") from None
    if not stat.S_ISREG(found.st_mode):
        kind = "folder" if stat.S_ISDIR(found.st_mode) else "pipe or device"
        raise UserError(f"cannot read {path}: it is a {kind}, not a file")
    if largest is not None and found.st_size > largest:
        raise UserError(f"cannot read {path}: {found.st_size:,} bytes are more than {largest:,}")
    return path


def read_text(path: Path) -> str:
    """Read a text file whole; one that is missing, too large or not UTF-8 is a `UserError` that names it."""
    try:
        return regular_file(path, largest=LARGEST_TEXT).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}); is it the right file?") from None


def read_json(path: Path) -> Any:
    """Read JSON; a missing, truncated or non-UTF-8 file is a `UserError` that names it."""
    return parse_json(read_text(path), where=str(path))


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; anything else is a `UserError`."""
    return require_object(read_json(path), where=str(path))


def parse_json(text: str, *, where: str) -> Any:
    """Read JSON that anyone may have written; what is not of a sensible form is a `UserError`."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise NotJson(f"{where} line {error.lineno} is not valid JSON: {error.msg}") from None
    except RecursionError:
        raise UserError(f"{where} is nested more than {DEEPEST} levels deep") from None
    except ValueError:
        raise UserError(f"{where} holds a number of thousands of digits") from None
    level, depth = [data], 0
    while level := [inner for outer in level for inner in _inside(outer) if isinstance(inner, dict | list)]:
        depth += 1
        if depth > DEEPEST:
            raise UserError(f"{where} is nested more than {DEEPEST} levels deep")
    return data


def parse_word(text: str, *, where: str) -> Any:
    """Read a value as people type it: JSON, or else the text itself."""
    try:
        return parse_json(text, where=where)
    except NotJson:
        return text


def require_object(data: Any, *, where: str) -> dict[str, Any]:
    """Return the data if they are a JSON object."""
    if not isinstance(data, dict):
        raise UserError(f"{where} must hold an object, {{...}}, not {brief(data)}")
    return data


def _inside(data: Any) -> Iterable[Any]:
    return data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()


def _flush(path: Path) -> None:
    with path.open("rb") as file, suppress(OSError):
        os.fsync(file.fileno())


@contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
