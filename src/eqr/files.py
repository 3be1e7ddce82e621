"""Writing files so that a crash, a full disk or Ctrl-C never leaves half of one behind.

Everything eqr saves goes through here: written beside its target under a temporary name, flushed to disk,
then renamed into place, which the file system does at once or not at all.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from eqr.errors import UserError


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Give a temporary path to write; on success it becomes `path`, on any failure it vanishes."""
    make_folder(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        with _plain_errors(path):
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
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        if replacing is None:
            raise UserError(f"{path} already exists; choose another --out, or add --overwrite to replace it")
        if not (path / replacing).is_file():
            raise UserError(f"{path} has no {replacing} in it, so --overwrite will not remove it")
    make_folder(path.parent)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        with _plain_errors(path):
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    _flush(file)
            temporary.chmod(0o755)
            old = temporary.with_name(temporary.name + ".old")
            if path.exists():
                path.rename(old)
            temporary.rename(path)
            shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def make_folder(path: Path) -> None:
    """Create a folder and its parents; say so plainly when that is not possible."""
    with _plain_errors(path):
        path.mkdir(parents=True, exist_ok=True)


def write_json(path: Path, data: Any) -> None:
    """Write readable JSON atomically."""
    with new_file(path) as temporary:
        temporary.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read JSON; a missing, truncated or non-UTF-8 file is a `UserError` that names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}); is it the right file?") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path} line {error.lineno} is not valid JSON: {error.msg}") from None


def _flush(path: Path) -> None:
    with path.open("rb") as file, suppress(OSError):
        os.fsync(file.fileno())


@contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
