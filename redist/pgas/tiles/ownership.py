"""Which part of a global array a rank holds."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.tiles import grid
from redist.pgas.tiles.tiled import Tiled

Box = tuple[tuple[int, int], ...]
"""Start and end of indices along every dim."""


@lru_cache(maxsize=4096)
def box_of(t: ArrayType, rank: int) -> Box | None:
    """Start and end of a rank's indices along every dim; None outside the mesh.

    >>> from redist.layout.mesh import Mesh
    >>> box_of(ArrayType.parse("f32[8, 9{x}]", Mesh(x=2)), 1)
    ((0, 8), (5, 9))
    """
    row = _row(t, rank)
    if row is None:
        return None
    lo, hi = grid(t).boxes()
    return tuple(zip(lo[row].tolist(), hi[row].tolist(), strict=True))


def own_box(x: Tiled) -> Box:
    """The same of an array on a rank that has a tile of it."""
    box = box_of(x.type, x.comm.rank)
    assert box is not None
    return box


@lru_cache(maxsize=4096)
def tile_index(t: ArrayType, rank: int) -> tuple[int, ...]:
    """Which tile a rank of the mesh holds along every dim."""
    row = _row(t, rank)
    assert row is not None
    return tuple(grid(t).index[row].tolist())


@lru_cache(maxsize=4096)
def is_first_copy(t: ArrayType, rank: int) -> bool:
    """Whether a rank is the first of those that hold its tile."""
    row = _row(t, rank)
    if row is None:
        return False
    shards = grid(t).shards()
    return int(np.argmax(shards == shards[row])) == row


def _row(t: ArrayType, rank: int) -> int | None:
    """The number of the device that a rank plays."""
    return list(t.mesh.ranks).index(rank) if rank in t.mesh.ranks else None
