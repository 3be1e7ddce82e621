"""Locks of the operating system's: held on an open file, free again when their process ends, however it does.

`try_lock` is the bare lock. `held` puts one on a file that says who has it, so that a second process can name
the first.
"""

import errno
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from eqr.errors import UserError

if sys.platform == "win32":
    import msvcrt

    FAR = 1 << 30
    """A byte far behind the content: Windows lets nobody else read what is locked."""

    def try_lock(handle: int) -> bool:
        """Lock an open file for this process; False if another has it."""
        os.lseek(handle, FAR, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def try_lock(handle: int) -> bool:
        """Lock an open file or folder for this process; False if another has it."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""What file systems without locks say."""


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file `path` while the block runs; that another process has it is a `UserError`.

    `what` names what the lock is for. The file is there while somebody holds it, or was killed holding it.
    """
    handle = _take(path, what)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # while it is still ours
        os.close(handle)


def _take(path: Path, what: str) -> int:
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from None
        try:
            if not try_lock(handle):
                holder = _holder(path)
                os.close(handle)
                raise UserError(f"{what} is in use by {holder}; wait for its end, or end it")
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(handle)
                raise UserError(f"cannot lock {path}: {error.strerror}") from None
            print(f"{path}: this file system has no locks; use {what} once at a time", file=sys.stderr)
        with suppress(OSError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                break
        os.close(handle)  # the one who had it has removed the file meanwhile: ours is another, made again
    note = {"pid": os.getpid(), "host": socket.gethostname(), "since": f"{datetime.now():%Y-%m-%d %H:%M:%S}"}
    os.lseek(handle, 0, os.SEEK_SET)
    os.truncate(handle, 0)
    os.write(handle, json.dumps(note).encode() + b"\n")
    return handle


def _holder(path: Path) -> str:
    """Say who has written into a lock file, as far as that can be read."""
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
        return f"process {note['pid']} on {note['host']} since {note['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
