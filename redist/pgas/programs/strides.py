"""Tiles that lie otherwise in memory than those of the capture: a program is given them as those lay."""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.pgas.tiles.tiled import Tile

Strides = tuple[int, ...]


def lie_alike(shape: tuple[int, ...], one: Strides, other: Strides) -> bool:
    """Whether arrays of a shape with these strides lie in the same way: dims of size 1 do not count.

    >>> lie_alike((3, 1), (8, 8), (8, 24)), lie_alike((3, 2), (16, 8), (8, 24))
    (True, False)
    """
    return one == other or all(a == b or n <= 1 for n, a, b in zip(shape, one, other, strict=True))


def laid_out(tile: Tile, strides: Strides) -> Tile:
    """**Local.** A copy of a tile with other strides.

    >>> a = np.arange(6).reshape(2, 3)
    >>> b = laid_out(a, (8, 16))
    >>> b.strides, bool((a == b).all())
    ((8, 16), True)
    """
    if not isinstance(tile, np.ndarray) or 0 in strides or not tile.size:
        return _in_order(tile, strides)
    steps = [(n - 1) * stride for n, stride in zip(tile.shape, strides, strict=True)]
    first = -sum(step for step in steps if step < 0)
    n_bytes = first + sum(step for step in steps if step > 0) + tile.itemsize
    out: Tile = np.ndarray(tile.shape, tile.dtype, np.empty(n_bytes, np.uint8), first, strides)
    out[...] = tile
    return out


def _in_order(tile: Any, strides: Strides) -> Tile:
    """A copy whose dims stand in the same order in memory, without gaps."""
    order = sorted(range(tile.ndim), key=lambda dim: (-abs(strides[dim]), dim))
    moved = tile.transpose(order).copy()
    out: Tile = moved.transpose([order.index(dim) for dim in range(tile.ndim)])
    return out
