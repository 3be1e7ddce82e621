"""Freed memory kept for the next tensor: a segment makes and drops some hundred arrays of the same few sizes.

The C library hands large pieces back to the system as soon as they are free, and gets them again page by
page, each cleared and cold in the cache: with small models a tenth of the time. Two of its settings say how
large a piece must be for that. They hold for the whole process; elsewhere than on Linux nothing is set.
"""

import ctypes
import sys
from functools import cache

KEPT_BYTES = 256 << 20
"""Free memory at the end of the heap that is kept."""
_LARGEST_PIECE = 32 << 20  # the most that the library allows
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


@cache
def keep_freed_memory() -> bool:
    """Set both, once, and say whether the library took them."""
    if not sys.platform.startswith("linux"):
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return False
    return bool(set_option(_TRIM_THRESHOLD, KEPT_BYTES) and set_option(_MMAP_THRESHOLD, _LARGEST_PIECE))
