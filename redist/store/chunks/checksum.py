"""A checksum of an array's elements and their places, however the array is cut, on all ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.layout.tiles import Box
from redist.pgas.files.chunked import open_reader
from redist.pgas.files.heads import ArrayHead
from redist.pgas.files.workers import Workers
from redist.store.chunks.grids import Grid, extent
from redist.store.chunks.ways import slab

Values = NDArray[Any]
SLICE_ELEMS = 2**16
"""So many elements are mixed at a time."""
_ODD = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xC2B2AE3D27D4EB4F)
_WORD = 2**64


def checksum(values: Values, box: Box, shape: tuple[int, ...]) -> int:
    """The share of a box in the checksum of an array of this shape: the shares of all boxes add up.

    Each element is mixed with its place, so an element in another's place is found.

    >>> x = np.arange(12.0).reshape(3, 4)
    >>> whole = checksum(x, ((0, 3), (0, 4)), (3, 4))
    >>> parts = checksum(x[:2], ((0, 2), (0, 4)), (3, 4)) + checksum(x[2:], ((2, 3), (0, 4)), (3, 4))
    >>> whole == parts % 2**64, whole == checksum(x[::-1], ((0, 3), (0, 4)), (3, 4))
    (True, False)
    """
    if values.size == 0:
        return 0
    longest = max(range(values.ndim), key=lambda dim: values.shape[dim], default=None)
    if longest is not None and values.size > SLICE_ELEMS:
        middle = values.shape[longest] // 2
        lo, hi = box[longest]
        low = (*box[:longest], (lo, lo + middle), *box[longest + 1 :])
        high = (*box[:longest], (lo + middle, hi), *box[longest + 1 :])
        one, two = np.split(values, [middle], axis=longest)
        return (checksum(one, low, shape) + checksum(two, high, shape)) % _WORD
    return _mixed(_words(values), _places(box, shape))


def _words(values: Values) -> NDArray[np.uint64]:
    """Elements as numbers without a sign: one row for each, with as many words as it has."""
    flat = np.ascontiguousarray(values).reshape(-1)
    size = flat.dtype.itemsize
    word = next(n for n in (8, 4, 2, 1) if size % n == 0)
    return flat.view(f"u{word}").reshape(flat.size, size // word).astype(np.uint64)


def _places(box: Box, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """The place of each element of a box among all elements, in C order."""
    places: NDArray[np.uint64] = np.zeros((), np.uint64)
    for dim, (lo, hi) in enumerate(box):
        step = np.uint64(math.prod(shape[dim + 1 :]))
        places = places[..., None] + np.arange(lo, hi, dtype=np.uint64) * step
    return places.reshape(-1)


def _mixed(words: NDArray[np.uint64], places: NDArray[np.uint64]) -> int:
    first, second, third = (np.uint64(odd) for odd in _ODD)
    numbers: Any = places[:, None] * np.uint64(words.shape[1]) + np.arange(
        words.shape[1], dtype=np.uint64
    )
    mixed = words ^ (numbers + np.uint64(1)) * first
    for odd in (second, third):
        mixed ^= mixed >> np.uint64(32)
        mixed *= odd
    mixed ^= mixed >> np.uint64(29)
    return int(mixed.sum(dtype=np.uint64))


def own_sum(head: ArrayHead, rank: int, ranks: int, threads: int) -> int:
    """**Local.** A rank's share in the checksum of an array of a store, which it reads part by part."""
    grid = Grid(head.shape, head.parts or slab(head.shape, head.dtype.itemsize, head.by_columns))
    sums: list[int] = []
    reader = open_reader(head)

    def add(number: int) -> None:
        box = grid.nth(number)
        values = np.empty(extent(box), head.dtype.newbyteorder("="))
        reader.read(box, values)
        sums.append(checksum(values, box, head.shape))

    try:
        with Workers(threads) as workers:
            workers.each(add, range(rank, grid.n_boxes, ranks))
    finally:
        reader.close()
    return sum(sums) % _WORD
