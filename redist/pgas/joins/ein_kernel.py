"""An extended Einstein sum of tiles: one rank's part, written into the memory of the result."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redist.pgas.joins.trace_join import Join, Room
from redist.pgas.products.contract_layout import Labels, sizes_of
from redist.pgas.reductions.in_blocks import prod_in_f32, sum_in_f32
from redist.pgas.tiles.layouts import dtype_of
from redist.pgas.tiles.tiled import Tile
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.copies.reduce import identity
from redist.runtime.cuda.arrays import fill_with

# The one way in which joins are aggregated: block after block, into the memory of the result.


COMBINING: dict[Callable[..., Any], np.ufunc] = {
    np.sum: np.add,
    np.prod: np.multiply,
    sum_in_f32: np.add,
    prod_in_f32: np.multiply,
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
        return self.function(block, axis=self.dims, keepdims=True, **self.options)


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
    >>> from redist.pgas.joins.trace_join import JoinStep
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


# In which order the labels of a join follow each other in a block, and how large blocks are.


BLOCK_BYTES = 2**21
"""All values that the steps of a join have of one block, in memory: they stay in the cache."""
DEVICE_BLOCK_BYTES = 2**26
"""The same on a GPU, where a block costs as much as the launch of a few kernels."""
INNER_ELEMS = 2**12
"""The innermost label of a block has no more elements if other labels can have some."""
LOOP_ELEMS = 16
"""What one more inner loop costs, in elements."""
JUMP_ELEMS = 4
"""What one element costs that is not beside the one before, in elements that are."""
PACKED_BYTES = 2**17
"""Operands up to this size are copied into the order of a block."""


def block_bytes(on_device: bool) -> int:
    """What the values of one block may take, in memory or on a GPU."""
    return DEVICE_BLOCK_BYTES if on_device else BLOCK_BYTES


def order_labels(
    terms: Sequence[tuple[Tile, Labels]], kept: Labels, sizes: Mapping[Hashable, int]
) -> tuple[Hashable, ...]:
    """The labels of a block, outermost first: kept ones, aggregated ones, then the best innermost one.

    ``terms`` are the operands and the result. A label is good innermost if it is long, and if large tiles
    have it innermost or not at all.

    >>> import numpy as np
    >>> x, c, far = np.zeros((1000, 8)), np.zeros((64, 8)), np.zeros((1000, 64))
    >>> sizes = {"i": 1000, "j": 64, "k": 8}
    >>> order_labels([(x, tuple("ik")), (c, tuple("jk")), (far, tuple("ij"))], tuple("ij"), sizes)
    ('i', 'k', 'j')
    """
    n_elems = math.prod(sizes.values())

    def cost(label: Hashable) -> float:
        total = n_elems * LOOP_ELEMS / max(1, sizes[label])
        for tile, labels in terms:
            if label in labels and tile.strides[labels.index(label)] != tile.itemsize:
                total += JUMP_ELEMS * (tile.size if tile.nbytes <= PACKED_BYTES else n_elems)
        return total

    if not sizes:
        return ()
    inner = min(reversed(sizes), key=cost)
    gone = [label for label in sizes if label not in kept]
    return (*(label for label in (*kept, *gone) if label != inner), inner)


def pack(tile: Tile) -> Tile:
    """**Local.** Copy a small tile if its innermost elements do not lie side by side; else it stays."""
    if tile.nbytes > PACKED_BYTES or not tile.ndim or tile.strides[-1] in (0, tile.itemsize):
        return tile
    return tile.copy()


def choose_block(shape: Sequence[int], most_elems: int) -> tuple[int, ...]:
    """Sizes of a block: as much of the inner dims as there is room for.

    >>> choose_block((1000, 16, 64), 2**15), choose_block((10, 100_000), 2**15)
    ((32, 16, 64), (8, 4096))
    """
    block = [1] * len(shape)
    left = max(1, most_elems)
    for dim in reversed(range(len(shape))):
        most = INNER_ELEMS if dim == len(shape) - 1 else left
        block[dim] = max(1, min(shape[dim], most, left))
        left //= block[dim]
    if shape:
        block[-1] = max(1, min(shape[-1], block[-1] * left))
    return tuple(block)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
}


@dataclass(frozen=True, slots=True)
class EinKernel:
    """Joins tiles with labels, and aggregates over the labels that are not kept.

    If it ``adds``, what was there before is aggregated too.
    """

    join: Join
    labels: tuple[Labels, ...]
    kept: Labels
    op: str
    adds: bool = False

    def work_bytes(self, on_device: bool) -> int:
        """The most that a call takes beside tiles and result."""
        return 2 * block_bytes(on_device)

    def __call__(self, out: Tile, *tiles: Tile) -> None:
        """**Local.** Write the result of tiles to ``out``; where there is nothing, what changes nothing."""
        sizes = sizes_of(zip(self.labels, (tile.shape for tile in tiles), strict=True))
        if math.prod(out.shape) == 0 or (self.adds and 0 in sizes.values()):
            return
        if 0 in sizes.values():
            nothing = identity(self.op, dtype_of(out.dtype))
            fill_with(out, out.dtype.type(0) if self.op == "sum" else nothing)
            return
        terms = [*zip(tiles, self.labels, strict=True), (out, self.kept)]
        order = order_labels(terms, self.kept, sizes)
        shape = tuple(sizes[label] for label in order)
        gone = tuple(dim for dim, label in enumerate(order) if label not in self.kept)
        options = {"dtype": out.dtype} if self.op in ("sum", "prod") else {}
        *views, into = (_spread(tile, labels, order) for tile, labels in terms)
        elem_bytes = max(tile.itemsize for tile, _ in terms) * (self.join.width + 2)
        block = choose_block(shape, block_bytes(is_device(out)) // elem_bytes)
        aggregation = Aggregation(REDUCTIONS[self.op], gone, options)
        run_blocks(
            self.join, [pack(view) for view in views], shape, block, aggregation, into, self.adds
        )


def _spread(tile: Tile, labels: Labels, order: Sequence[Hashable]) -> Tile:
    """View a tile with its labels in another order, with size 1 for those that it lacks."""
    turned = tile.transpose([labels.index(label) for label in order if label in labels])
    return turned[(*(slice(None) if label in labels else np.newaxis for label in order), ...)]
