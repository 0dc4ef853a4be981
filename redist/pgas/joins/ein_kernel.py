"""An extended Einstein sum of tiles: one rank's part, written into the memory of the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.pgas.joins.run_blocks import Aggregation, run_blocks
from redist.pgas.joins.steps import Join
from redist.pgas.products.contract_layout import Labels, sizes_of
from redist.pgas.tiles.layouts import dtype_of
from redist.pgas.tiles.tiled import Tile
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.copies.reduce import identity
from redist.runtime.cuda.arrays import fill_with

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
