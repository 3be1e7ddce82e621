"""Writing files so that a crash, a full disk or Ctrl-C never leaves half of one behind; reading them warily.

Everything eqr saves is written beside its target under a temporary name, flushed to disk and renamed into
place; then the folder is flushed, so that the name outlives a loss of power. A killed process cannot remove
its temporary files; the next write to the same target does. What is read may have been made by anyone: a
file is opened only if it is one of sensible size. Nothing is written or removed through a link.

Locks are the operating system's: held on an open file, free again when their process ends, however it does.
"""

import errno
import glob
import json
import os
import secrets
import shutil
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from eqr.errors import UserError, brief

TEMPORARY, REPLACED = ".tmp", ".old"
SWEPT_AFTER = 60.0
"""Seconds: a temporary file as young as that may not be locked yet."""
LARGEST_TEXT = 1 << 28
"""Bytes of the largest text that is read whole: a dataset's names of millions of puzzles stay well below."""
DEEPEST = 64
"""Levels of nested JSON; what eqr writes has a handful."""
_NO_FLUSH = (errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP)
"""What file systems say that cannot flush a folder."""
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""What file systems without locks say."""
_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags that open no link and wait for no pipe."""


class NotJson(UserError):
    """Text that is no JSON at all."""


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Give a temporary path to write; on success it becomes `path`, on any failure it vanishes.

    A link is replaced, not what it leads to.
    """
    make_folder(path.parent)
    with _plain_errors(path):
        _sweep(path)
        _require_file(path)
        temporary = _temporary(path, lambda new: os.close(os.open(new, os.O_CREAT | os.O_EXCL, 0o666)))
    try:
        with _plain_errors(path), _in_use(temporary):
            yield temporary
            _flush(temporary)
            _require_file(path)  # it may have appeared meanwhile
            temporary.replace(path)
            _flush(path.parent)
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
        temporary = _temporary(path, Path.mkdir)
    old = temporary.with_name(temporary.name + REPLACED)
    try:
        with _plain_errors(path), _in_use(temporary):
            yield temporary
            for part in (*temporary.rglob("*"), temporary):
                _flush(part)
            _require_replaceable(path, replacing)  # it may have appeared, or become another's, meanwhile
            if path.exists() and replacing is None:
                path.rmdir()  # fails unless it is empty
            elif path.exists():
                path.rename(old)
            temporary.rename(path)
            _flush(path.parent)
            remove(old)
    finally:
        if old.exists() and not path.exists():
            old.rename(path)
        remove(temporary)


def _temporary(path: Path, make: Callable[[Path], None]) -> Path:
    """Make something new beside a path, with the permissions that the umask leaves."""
    while True:
        new = path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMPORARY}")
        with suppress(FileExistsError):
            make(new)
            return new


def _require_file(path: Path) -> None:
    """Refuse to replace what is no file: a pipe or a device would be one from then on."""
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise UserError(f"cannot write {path}: it is a {_kind(mode)}, not a file; choose another name")


def _kind(mode: int) -> str:
    return "folder" if stat.S_ISDIR(mode) else "pipe or device"


def append(path: Path, text: str) -> None:
    """Add text to the end of a file; through no link."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    with _plain_errors(path), os.fdopen(os.open(path, flags, 0o666), "a", encoding="utf-8") as file:
        file.write(text)


def flush(path: Path) -> None:
    """Return when a file is on the disk."""
    with _plain_errors(path):
        _flush(path)


def require_own(folder: Path, *parts: str) -> None:
    """Refuse to change a part of a folder that is a link: what is behind it may be anybody's."""
    place = folder
    for part in Path(*parts).parts:
        place /= part
        if place.is_symlink():
            raise UserError(
                f"{place} is a link to {place.readlink()}, and nothing is written or removed outside "
                f"{folder}; put a folder in its place"
            )


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
        with suppress(OSError):  # a file system without locks
            _try_lock(handle)
        yield
    finally:
        os.close(handle)


def _abandoned(temporary: Path) -> bool:
    if os.name != "posix":
        return False
    handle = os.open(temporary, os.O_RDONLY | _SAFELY)  # it may be anybody's
    try:
        return _try_lock(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Create a folder and its parents; say so plainly when that is not possible."""
    with _plain_errors(path):
        missing = [place for place in (path, *path.parents) if not place.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for place in missing:
            _flush(place.parent)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


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
        raise UserError(f"cannot read {path}: it is a {_kind(found.st_mode)}, not a file")
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
    """Hand a file, or what a folder says of its files, to the disk; an error of the disk's is one."""
    is_folder = path.is_dir()
    if is_folder and os.name != "posix":  # elsewhere a folder cannot be opened
        return
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    except OSError as error:
        if not is_folder or error.errno not in _NO_FLUSH:
            raise
    finally:
        os.close(handle)


@contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def _try_lock(handle: int) -> bool:
    """Lock an open file or folder for this process; False if another has it."""
    from filelock import lock_descriptor  # takes a moment

    return lock_descriptor(handle, blocking=False)


@contextmanager
def held(path: Path, what: str, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file `path` while the block runs; if another process has it, wait, or raise.

    `what` names what the lock is for. The file is there while somebody holds it, or was killed holding it.
    """
    handle = _taken(path, what, wait)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # while it is still ours
        os.close(handle)


def _taken(path: Path, what: str, wait: bool) -> int:
    while True:
        handle = _open_lock(path)
        try:
            locked = _try_lock(handle)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(handle)
                raise UserError(f"cannot lock {path}: {error.strerror}") from None
            print(f"{path}: this file system has no locks; use {what} once at a time", file=sys.stderr)
            locked = True
        if not locked and not wait:
            holder = _holder(handle)
            os.close(handle)
            raise UserError(f"{what} is in use by {holder}; wait for its end, or end it")
        with suppress(OSError):
            if locked and os.path.samestat(os.fstat(handle), path.stat()):
                break
        # another has it, or has removed the file meanwhile: ours is then another, made again
        os.close(handle)
        time.sleep(0.0 if locked else 1.0)
    note = {"pid": os.getpid(), "host": socket.gethostname(), "since": f"{datetime.now():%Y-%m-%d %H:%M:%S}"}
    os.truncate(handle, 0)
    os.write(handle, json.dumps(note).encode() + b"\n")
    return handle


def _open_lock(path: Path) -> int:
    """Open a lock file that is a file of its own: behind a link it may be anybody's."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | _SAFELY, 0o666)
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode) and found.st_nlink < 2:
            return handle
        os.close(handle)
    except OSError as error:
        if not path.is_symlink():
            raise UserError(f"cannot write {path}: {error.strerror}") from None
    raise UserError(f"{path} is a link, a pipe or a device, not a lock file of eqr's; remove it")


def _holder(handle: int) -> str:
    """Say who has written into a lock file, as far as that can be read."""
    try:
        note = json.loads(os.read(handle, 1000))
        return f"process {note['pid']} on {note['host']} since {note['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
