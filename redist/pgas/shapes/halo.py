"""Tiles that reach into their neighbours: whole slices pass between ranks whose tiles lie side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from redist.errors import ArgumentError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import tile_index
from redist.pgas.shapes.shift import roll
from redist.pgas.tiles.tiled import Tile, Tiled

WRAP = "wrap"


def with_halo(x: Tiled, reach: Mapping[int, int], edges: float | str) -> Tile | None:
    """**Collective.** The tile of an array with parts of its neighbours' on both sides of some dims."""
    t, tile = x.type, x.tile
    for dim, n in reach.items():
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise ArgumentError(
                f"cannot reach {n!r} elements far along dim {dim}: need an int >= 0"
            )
        sizes = np.diff(t.cut(dim).edges())
        if sizes.min(initial=n) < n:
            raise ArgumentError(
                f"cannot reach {n} elements far along dim {dim} of {t}: a tile has {sizes.min()}"
            )
    grown = list(t.shape)
    for dim, n in reach.items():
        if n:
            tile = _reach_along(x, tile, tuple(grown), dim, n, edges)
            grown[dim] += 2 * n * t.cuts[dim]
    return tile


def _reach_along(
    x: Tiled, tile: Tile | None, shape: tuple[int, ...], dim: int, n: int, edges: float | str
) -> Tile | None:
    """**Collective.** A tile and ``n`` slices of each neighbour along a dim.

    ``shape`` is that of all tiles together, with what they reach along other dims: corners come along.
    """
    t = x.type
    before = (slice(None),) * dim
    ends = (
        slice(-n, None),
        slice(n),
    )  # the last slices go to the next tile, the first to the one before
    slabs = []
    for end, shift in zip(ends, (1, -1), strict=True):
        slab = None if tile is None else tile[(*before, end)]
        slabs.append(_from_neighbour(x, slab, shape, dim, n, shift))
    if tile is None:
        return None
    index = tile_index(t, x.comm.rank)[dim]
    if edges != WRAP:
        slabs = [
            np.full_like(slab, edges) if index == last else slab
            for slab, last in zip(slabs, (0, t.cuts[dim] - 1), strict=True)
        ]
    return np.concatenate([slabs[0], tile, slabs[1]], axis=dim)


def _from_neighbour(
    x: Tiled, slab: Tile | None, shape: tuple[int, ...], dim: int, n: int, shift: int
) -> Any:
    """**Collective.** The slab of the tile before (shift 1) or behind (-1), as the ends were joined."""
    t = x.type
    if t.cuts[dim] == 1:
        return slab
    sizes = (t.cuts[dim], *shape[:dim], n, *shape[dim + 1 :])
    dims = (t.dims[dim], *t.dims[:dim], (), *t.dims[dim + 1 :])
    own = None if slab is None else x.memory.contiguous(slab[np.newaxis])
    rolled = roll(x.new(ArrayType(t.mesh, t.dtype, sizes, dims), own), shift, axis=0)
    return None if rolled.tile is None else rolled.tile[0]
