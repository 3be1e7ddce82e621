"""Locks of the operating system's: held on an open file, free again when their process ends, however it does.

filelock does the locking. `held` adds what it leaves to its users: a file that says who holds the lock, so
that a second process can name the first, and that is never another's file behind a link.
"""

import errno
import json
import os
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from eqr.errors import UserError

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""What file systems without locks say."""
_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags that open no link and wait for no pipe."""


def try_lock(handle: int) -> bool:
    """Lock an open file or folder for this process; False if another has it."""
    from filelock import lock_descriptor  # takes a moment

    return lock_descriptor(handle, blocking=False)


@contextmanager
def held(path: Path, what: str, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file `path` while the block runs; if another process has it, wait, or raise.

    `what` names what the lock is for. The file is there while somebody holds it, or was killed holding it.
    """
    handle = _take(path, what, wait)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # while it is still ours
        os.close(handle)


def _take(path: Path, what: str, wait: bool) -> int:
    while True:
        handle = _open(path)
        try:
            locked = try_lock(handle)
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
        os.close(
            handle
        )  # another has it, or has removed the file meanwhile: ours is then another, made again
        time.sleep(0.0 if locked else 1.0)
    note = {"pid": os.getpid(), "host": socket.gethostname(), "since": f"{datetime.now():%Y-%m-%d %H:%M:%S}"}
    os.truncate(handle, 0)
    os.write(handle, json.dumps(note).encode() + b"\n")
    return handle


def _open(path: Path) -> int:
    """Open a lock file of our own: behind a link, or under another name, it may be anybody's file."""
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
