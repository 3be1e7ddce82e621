"""Reading one `.npy` file that may be truncated, mis-shaped or not an array at all.

The only place of `eqr.data` that touches NumPy's file format, so that every damage becomes one plain error.
"""

from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError

DAMAGE = (ValueError, EOFError, TypeError, OverflowError, MemoryError, SyntaxError, TokenError, KeyError)
"""What NumPy raises on damaged headers, depending on which byte is wrong."""


def read_integers(path: Path, *, dimensions: int, mmap: bool = False) -> NDArray[Any]:
    """Read an integer array; a missing, damaged or mis-shaped file is a `UserError` that names it."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except DAMAGE as error:
        raise UserError(f"{path} is damaged or not a .npy array ({error}); build or copy it again") from None
    if not isinstance(array, np.ndarray):
        raise UserError(f"{path} is an archive, not one .npy array")
    if array.dtype.kind not in "iu" or array.ndim != dimensions:
        raise UserError(
            f"{path} holds {array.ndim}-dimensional {array.dtype}; needed: {dimensions}-dimensional integers"
        )
    return array if mmap else np.array(array)
