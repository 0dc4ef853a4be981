"""Functions of tiles of 16-bit floats: computed in f32, block after block, and rounded once.

NumPy has bf16 from ``ml_dtypes``, with other rules: 4096 ones sum to 256 there, and it has no products with
integers. So a function is given f32 values, of 64 Ki elements at a time, and what it gives is rounded to
nearest, ties to even. The result of one call has one rounding, on any number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from redist.pgas.kinds import F32, AnyDType, is_half, number_kind, promote, refuse_if_stored
from redist.pgas.tiles.tiled import Tile

BLOCK_ELEMS = 2**16
"""This many elements are computed at a time: their f32 values stay in the cache."""
ON_ITS_GRID = frozenset({np.nextafter})
"""Functions that ask for the neighbours of a value: of its own dtype."""
Index = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class Rounded:
    """A function of tiles, given f32 values in the places of narrower ones; its results have ``dtype``.

    >>> half = np.array([1.0, 2.0], np.float16)
    >>> Rounded(np.add, (F32, None), np.dtype("f2"))(half, 0.5)
    array([1.5, 2.5], dtype=float16)
    """

    function: Callable[..., Any]
    given: tuple[AnyDType | None, ...]
    """By operand: the dtype that it is converted to; None if it stays."""
    dtype: AnyDType

    @property
    def __name__(self) -> str:
        """The name of the function."""
        return self.function.__name__

    @property
    def work_bytes(self) -> int:
        """What a call takes beside tiles and result: a block of each operand, and of what is computed."""
        return 8 * (len(self.given) + 1) * BLOCK_ELEMS

    def __call__(self, *tiles: Any, out: Any = None, casting: str = "unsafe") -> Any:
        """**Local.** The function of tiles and numbers, also of some that ``out`` overlaps."""
        shape = np.broadcast_shapes(*(np.shape(tile) for tile in tiles))
        if out is None:
            out = np.empty(shape, self.dtype)
        else:
            tiles = tuple(one if one is out else _apart(one, out) for one in tiles)
        if out.size <= BLOCK_ELEMS:
            self._compute(out, tiles)
            return out
        for index in blocks(out.shape):
            self._compute(out[index], [part_of(one, out.shape, index) for one in tiles])
        return out

    def _compute(self, out: Tile, parts: Sequence[Any]) -> None:
        made = self.function(*map(_as, parts, self.given))
        if made.dtype == out.dtype:
            out[...] = made
            return
        with np.errstate(over="ignore"):
            np.copyto(out, made, casting="unsafe")


def _as(part: Any, dtype: AnyDType | None) -> Any:
    return part if dtype is None else part.astype(dtype)


def _apart(tile: Any, out: Tile) -> Any:
    """A tile that a write to ``out`` does not change."""
    if not isinstance(tile, np.ndarray) or not np.may_share_memory(tile, out):
        return tile
    same = tile.shape == out.shape and tile.strides == out.strides
    at = (one.__array_interface__["data"][0] for one in (tile, out))
    return tile if same and len(set(at)) == 1 else tile.copy()


def blocks(shape: tuple[int, ...], most: int = BLOCK_ELEMS) -> Iterator[Index]:
    """**Local.** Cut a shape into blocks of at most so many elements.

    >>> list(blocks((3, 4), 8))
    [(slice(0, 2, None), slice(None, None, None)), (slice(2, 3, None), slice(None, None, None))]
    """
    if math.prod(shape) <= most:
        yield (slice(None),) * len(shape)
        return
    first, rest = shape[0], shape[1:]
    row = math.prod(rest)
    if row > most:
        for i in range(first):
            yield from ((slice(i, i + 1), *inner) for inner in blocks(rest, most))
        return
    n = max(1, most // row)
    for at in range(0, first, n):
        yield (slice(at, min(first, at + n)), *(slice(None),) * len(rest))


def part_of(tile: Any, shape: tuple[int, ...], index: Index) -> Any:
    """**Local.** What a block of a shape reads of an operand that broadcasts to it."""
    ndim = np.ndim(tile)
    if not ndim:
        return tile
    own = index[len(shape) - ndim :]
    return tile[
        tuple(cut if n > 1 else slice(None) for cut, n in zip(own, tile.shape, strict=True))
    ]


@lru_cache(maxsize=4096)
def tile_function(function: Callable[..., Any], *kinds: Any) -> tuple[AnyDType, Callable[..., Any]]:
    """The dtype that a function gives of such dtypes and types of Python's numbers, and what computes it.

    >>> tile_function(np.add, np.dtype("f8"), float) == (np.dtype("f8"), np.add)
    True
    >>> tile_function(np.add, np.dtype("f2"), np.dtype("i8"))[0]
    dtype('float16')
    """
    dtypes = [one for one in kinds if isinstance(one, np.dtype)]
    refuse_if_stored(f"use {function.__name__}", *dtypes)
    if not any(map(is_half, dtypes)):
        return _dtype_of(function, kinds), function
    values = kinds[1:] if function is np.where else kinds
    floats = promote(*(one(1) if isinstance(one, type) else one for one in values))
    if function in ON_ITS_GRID and is_half(floats):
        given = tuple(None if isinstance(one, type) else floats for one in kinds)
        return floats, Rounded(function, given, floats)
    given = tuple(_given(function, at, one, floats) for at, one in enumerate(kinds))
    made = _dtype_of(function, [new or one for new, one in zip(given, kinds, strict=True)])
    narrows = is_half(floats) and made == F32
    dtype = floats if narrows else made
    return dtype, Rounded(function, given, dtype)


def _given(function: Any, at: int, kind: Any, floats: AnyDType) -> AnyDType | None:
    """What an operand is converted to before a function works on it."""
    if isinstance(kind, type) or (function is np.where and at == 0):
        return None
    if is_half(kind):
        return F32
    return F32 if number_kind(kind) in "iu" and is_half(floats) else None


def _dtype_of(function: Callable[..., Any], kinds: Sequence[Any]) -> AnyDType:
    """The dtype that NumPy gives."""
    args = [kind(1) if isinstance(kind, type) else np.ones(1, kind) for kind in kinds]
    with np.errstate(all="ignore"):
        out: AnyDType = function(*args).dtype
    return out
