"""Which code and which machine made a run: what provenance states and a store is checked by."""

import hashlib
import os
import platform
from functools import cache
from pathlib import Path
from typing import Any

import eqr

DECIDING = ("tasks", "data", "model", "cpu", "solve", "train")
"""Parts of the package that decide what a run learns and answers; the rest only measures and shows it."""


@cache
def code_version() -> str:
    """Return the package's version and a digest of the sources that decide a run."""
    root = Path(eqr.__file__).parent
    digest = hashlib.sha256()
    for part in DECIDING:
        for path in sorted((root / part).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return f"{eqr.__version__}+{digest.hexdigest()[:8]}"


@cache
def machine() -> dict[str, Any]:
    """Return what a number of seconds depends on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **_library_versions(),
    }


def _library_versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "numpy")}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
