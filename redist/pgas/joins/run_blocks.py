"""The one way in which joins are aggregated: block after block, into the memory of the result."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redist.pgas.joins.steps import Join, Room
from redist.pgas.tiles.tiled import Tile
from redist.runtime.copies.gpu_arrays import is_device

COMBINING: dict[Callable[..., Any], np.ufunc] = {
    np.sum: np.add,
    np.prod: np.multiply,
    np.max: np.maximum,
    np.min: np.minimum,
    np.any: np.logical_or,
    np.all: np.logical_and,
}
"""By what reduces a block: what joins the results of two blocks."""

Slices = Mapping[int, slice]
"""By dim that is cut: from where to where."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """What is done with the dims of a join that its result lacks: a function of NumPy, and its options."""

    function: Callable[..., Any]
    dims: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    def of(self, block: Tile) -> Tile:
        """**Local.** The aggregated block; its dims stay, with size 1."""
        out: Tile = self.function(block, axis=self.dims, keepdims=True, **self.options)
        return out


def run_blocks(
    join: Join,
    tiles: Sequence[Tile],
    shape: Sequence[int],
    block: Sequence[int],
    aggregation: Aggregation,
    out: Tile | None = None,
    adds: bool = False,
) -> Tile:
    """**Local.** Join tiles that broadcast to ``shape``, and aggregate, a block of a size at a time.

    ``out``, made if it is None, has size 1 along aggregated dims, of which no size is 0; if it ``adds``, what
    was in it counts too. Where no block cuts one of these dims, results have the bits that all of it at once
    would give.

    >>> from redist.pgas.ghosts.tape import Ref
    >>> from redist.pgas.joins.steps import JoinStep
    >>> off = Join.of((0, 1), [JoinStep(np.subtract, (Ref(0), Ref(1)), {}, 2)], 2)
    >>> a, b = np.arange(4.0)[:, None], np.arange(3.0)[None]
    >>> run_blocks(off, [a, b], (4, 3), (2, 2), Aggregation(np.max, (1,))).tolist()
    [[0.0], [1.0], [2.0], [3.0]]
    """
    room: Room | None = None if is_device(tiles[0]) else {}
    kept = [dim for dim in range(len(shape)) if dim not in aggregation.dims]
    for outer in _boxes(shape, block, kept):
        place: Any = (*(outer.get(dim, slice(None)) for dim in range(len(shape))), ...)
        is_first = not adds
        for inner in _boxes(shape, block, aggregation.dims):
            box = {**outer, **inner}
            sizes = tuple(box[dim].stop - box[dim].start for dim in range(len(shape)))
            parts = [_part(tile, box, shape) for tile in tiles]
            if not aggregation.dims and out is not None:
                into = out[place]
                joined = join.on(parts, room, into)
                if joined is not into:
                    into[...] = joined
                continue
            joined = join.on(parts, room)
            joined = joined if joined.shape == sizes else np.broadcast_to(joined, sizes)
            made = aggregation.of(joined) if aggregation.dims else joined
            if out is None:
                all_of_it = [1 if dim in aggregation.dims else n for dim, n in enumerate(shape)]
                out = np.empty_like(made, shape=tuple(all_of_it), order="C")
            if is_first:
                out[place] = made
            else:
                COMBINING[aggregation.function](out[place], made, out=out[place])
            is_first = False
    assert out is not None
    return out


def _boxes(shape: Sequence[int], block: Sequence[int], dims: Sequence[int]) -> Iterator[Slices]:
    """The parts into which blocks cut some dims, the first of them outermost."""
    starts = [range(0, shape[dim], block[dim]) for dim in dims]
    for lows in itertools.product(*starts):
        yield {
            dim: slice(low, min(shape[dim], low + block[dim]))
            for dim, low in zip(dims, lows, strict=True)
        }


def _part(tile: Tile, box: Slices, shape: Sequence[int]) -> Tile:
    """The part of a tile that a block needs: all of it along dims that stretch."""
    missing = len(shape) - tile.ndim
    index: Any = [
        box[dim] if n == shape[dim] else slice(None) for dim, n in enumerate(tile.shape, missing)
    ]
    return tile[(*index, ...)]
