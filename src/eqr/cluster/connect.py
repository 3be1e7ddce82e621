"""Finding a cluster: from the words behind `--on` to a connection, or to what is wrong and how to mend it."""

import os
import platform
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eqr.errors import UserError, with_extra
from eqr.signals import stoppable

PATIENCE = 10.0
"""Seconds in which somebody must answer at an address."""
_ADDRESS = re.compile(r"ray(://[^\s/]+:\d+)?")


def require_on(on: str) -> str | None:
    """Return the address that `--on` names; None leaves it to Ray: RAY_ADDRESS, one here, or a new one."""
    if not _ADDRESS.fullmatch(on):
        raise UserError(
            f"--on {on!r}: ray, or ray://HOST:PORT of a cluster's client server (10001 by default)"
        )
    return None if on == "ray" else on


def imported_ray() -> Any:
    """Return the module; that it is not installed is a `UserError`.

    A cluster that is begun here listens to this machine only: Ray's switch for systems without clusters does
    that, and is read when Ray is imported. Set to 1 beforehand, Ray listens on every address.
    """
    if "RAY_ADDRESS" not in os.environ:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    # Ray would report usage, and hide GPUs from tasks that ask for none
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise UserError(f"--on ray needs {error.name}: {with_extra('cluster')}") from None
    return ray


@contextmanager
def connected(on: str) -> Iterator[Any]:
    """Give Ray, connected to the cluster, while the block runs; a connection that was there before stays."""
    address = require_on(on)
    ray = imported_ray()
    if ray.is_initialized():
        yield ray
        return
    named = address or os.environ.get("RAY_ADDRESS")
    _require_somebody(named)
    try:
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as error:
        # Ray wraps what it found in a ConnectionError, or does not
        mismatch = [one for one in (error, error.__cause__) if "ersion mismatch" in str(one)]
        if mismatch:
            raise UserError(_other_version(ray, named, str(mismatch[0]))) from None
        raise UserError(_unreachable(named, error)) from None
    try:
        with stoppable():  # Ray takes SIGTERM to itself, and ends without a word to what runs
            yield ray
    finally:
        ray.shutdown()


def _require_somebody(address: str | None) -> None:
    """Say so if nobody listens at an address, which Ray would try again for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not port.isdecimal():  # a word of Ray's own, such as auto
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except OSError as error:
        raise UserError(_unreachable(address, error)) from None


def _unreachable(address: str | None, error: BaseException) -> str:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if address is None:
        return f"--on ray: no cluster could be started on this machine: {reason}"
    return (
        f"no Ray cluster answers at {address}: {reason}; is it up (`ray status` there), is the port open? "
        "Without an address, `--on ray` uses this machine"
    )


def _other_version(ray: Any, address: str | None, said: str) -> str:
    """Say which versions meet: Ray and Python must be the same on both sides."""
    found = re.findall(r"(Ray|Python): ([\d.]+\w*)", said.partition("This process")[0])
    theirs = " and ".join(f"{name} {version}" for name, version in found) or said.strip()
    return (
        f"the cluster at {address} runs another version: {theirs}; this process has Ray {ray.__version__} "
        f"and Python {platform.python_version()}; install one on both: pip install ray=={ray.__version__}"
    )
