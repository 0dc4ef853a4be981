"""An extended Einstein sum of tiles: one rank's part, written into the memory of the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.pgas.joins.block_shapes import block_bytes, choose_block, order_labels, pack
from redist.pgas.joins.run_blocks import Aggregation, run_blocks
from redist.pgas.joins.steps import Join
from redist.pgas.products.contract_layout import Labels, sizes_of
from redist.pgas.tiles.layouts import dtype_of
from redist.pgas.tiles.tiled import Tile
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.copies.reduce import identity
from redist.runtime.cuda.arrays import fill_with

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
