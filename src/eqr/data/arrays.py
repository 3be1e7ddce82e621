"""Reading `.npy` and `.npz` files that may be truncated, mis-shaped or not arrays at all.

The only place that touches NumPy's file formats, so that every damage becomes one plain error, and no file
takes more memory than it has bytes.
"""

import zipfile
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqr.errors import UserError
from eqr.files import regular_file

DAMAGE = (
    ValueError,
    EOFError,
    TypeError,
    OverflowError,
    MemoryError,
    RecursionError,
    SyntaxError,
    TokenError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
)
"""What NumPy and `zipfile` raise on damaged headers, depending on which byte is wrong."""


def read_integers(path: Path, *, dimensions: int, mmap: bool = False) -> NDArray[Any]:
    """Read an integer array; a missing, damaged or mis-shaped file is a `UserError` that names it."""
    try:
        array = np.load(regular_file(path), mmap_mode="r", allow_pickle=False)
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


def read_archive(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of an uncompressed `.npz` file; anything else is a `UserError` that names it."""
    try:
        with zipfile.ZipFile(regular_file(path)) as archive:
            return {
                member.filename.removesuffix(".npy"): _read_member(archive, member)
                for member in archive.infolist()
            }
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except DAMAGE as error:
        raise UserError(f"{path} is damaged ({error}); delete it to have it made again") from None


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Read one array, having seen that it is as large as it says: ours are stored without compression."""
    if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
        raise ValueError(f"{member.filename} is compressed")
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        header = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = header(file)
        if prod(shape) * dtype.itemsize != member.file_size - file.tell():
            raise ValueError(f"{member.filename} does not hold the {shape} {dtype} that it says")
        file.seek(0)
        return np.lib.format.read_array(file, allow_pickle=False)
