"""The turns and reflections of a grid, shared by the tasks whose rules do not mind them.

Numbering and inverses follow the published data builders (and so their puzzle names): 0 is the identity, 1 to
3 are quarter turns, then the left-right flip, the up-down flip, the transpose and the anti-transpose.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from eqr.tasks.base import Tokens

INVERSE = (0, 3, 2, 1, 4, 5, 6, 7)
"""`INVERSE[t]` undoes transform t."""
KEEPS_RECTANGLE = (0, 2, 4, 5)
"""The transforms that keep the shape of any rectangle; a square is kept by all eight."""


@cache
def dihedral(rows: int, columns: int) -> NDArray[np.intp]:
    """Return the shape-keeping transforms, ordered by id, as gather tables (transforms, cells)."""
    grid = np.arange(rows * columns).reshape(rows, columns)
    images = (
        grid,
        np.rot90(grid, 1),
        np.rot90(grid, 2),
        np.rot90(grid, 3),
        np.fliplr(grid),
        np.flipud(grid),
        grid.T,
        np.rot90(grid, 2).T,
    )
    kept = range(8) if rows == columns else KEEPS_RECTANGLE
    table = np.stack([images[transform].reshape(-1) for transform in kept]).astype(np.intp)
    table.setflags(write=False)
    return table


def smallest_image(grids: Tokens, tables: NDArray[np.intp]) -> Tokens:
    """Return for each grid (count, cells) its lexicographically smallest image under the gather tables."""
    best = grids
    rows = np.arange(len(grids))
    for table in tables:
        image = grids[:, table]
        first = (image != best).argmax(axis=1)
        smaller = image[rows, first] < best[rows, first]
        best = np.where(smaller[:, None], image, best)
    return best
