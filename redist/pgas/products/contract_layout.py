"""The typing rule of a product of two arrays: which labels are cut, what moves, what is pending.

Dims carry labels. A label of both operands that the result lacks is contracted; cut alike in both it
gives a pending sum. What is chosen says which axes cut which label; the cheapest choice wins.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import prime_parts
from redist.layout.dtype import DType
from redist.pgas.products.cut_candidates import Cuts, list_candidates
from redist.pgas.products.product_costs import Floats, ProductCosts
from redist.pgas.products.streaming import BLOCK_BYTES
from redist.pgas.tiles.layouts import resolved_type

Labels = tuple[Hashable, ...]

BYTE_COST = 8
"""A received byte costs as much as so many multiplications."""
MOVE_COST = 200_000
"""What a move costs on every device, however small it is."""
MOST_GROWTH = 4
"""Beyond so many times the tiles of both operands, a tile of the result costs as if it were moved."""
TOO_LARGE = 2.0**80
"""Added to the cost of what does not fit in memory: it is taken only where nothing fits."""


@dataclass(frozen=True, slots=True)
class Product:
    """Two operand types, their labels, the labels of the result and the dtype of its elements."""

    a: ArrayType
    b: ArrayType
    la: Labels
    lb: Labels
    lo: Labels
    dtype: DType

    @property
    def sizes(self) -> dict[Hashable, int]:
        """The size of every label; a size of 1 stretches."""
        out: dict[Hashable, int] = {}
        for label, n in [
            *zip(self.la, self.a.shape, strict=True),
            *zip(self.lb, self.b.shape, strict=True),
        ]:
            out[label] = n if out.get(label, 1) == 1 else out[label]
        return out


@dataclass(frozen=True, slots=True)
class Placed:
    """The types of both operands and of the result of a product."""

    a: ArrayType
    b: ArrayType
    result: ArrayType


def place(product: Product, free_bytes: int | None = None) -> Placed:
    """Find the cheapest layout of a product, as :func:`find_cheapest` does."""
    return find_cheapest(product, free_bytes)[1]


@lru_cache(maxsize=4096)
def find_cheapest(product: Product, free_bytes: int | None = None) -> tuple[float, Placed]:
    """The least cost, by bytes that move now and when a pending result is needed, and by work; its layout.

    >>> from redist.layout.mesh import Mesh
    >>> m, f = Mesh(x=4), DType.parse("f64")
    >>> a, b = (ArrayType.parse(t, m) for t in ("f64[4096, 64{x}]", "f64[64{x}, 8]"))
    >>> print(find_cheapest(Product(a, b, (0, 1), (1, 2), (0, 2), f))[1].result)
    f64[4096, 8] sum{x}
    """
    sizes, mesh, n = product.sizes, product.a.mesh, product.a.mesh.n_devices
    own = _own_cuts(product)
    used = [part for cuts in own for cut in cuts.values() for part in cut]
    parts = [part for part in prime_parts(mesh, used) if part.size > 1]
    labels = [label for label, size in sizes.items() if size > 1]
    ways = list_candidates(labels, parts, n, own)
    costs = ProductCosts.of(mesh, sizes, ways)
    total = costs.work() * (n if product.dtype.name[0] in "fc" else 10 * n)
    peak = np.zeros(len(ways.ids))
    for t, own_labels in ((product.a, product.la), (product.b, product.lb)):
        moves, received = costs.moved(t, own_labels)
        total += np.where(moves, BYTE_COST * received + MOVE_COST * n, 0)
        tile = costs.tile_bytes(own_labels, t.shape, t.dtype.itemsize)
        peak += np.where(moves, np.minimum(tile, 2 * t.tile_bytes), 0)
    shape = tuple(sizes[label] for label in product.lo)
    made = costs.tile_bytes(product.lo, shape, product.dtype.itemsize)
    total += _sum_cost(product, costs)
    most = max(BLOCK_BYTES, MOST_GROWTH * (product.a.tile_bytes + product.b.tile_bytes))
    total += np.where(made > most, BYTE_COST * made * n, 0)  # partial values would fill the memory
    if free_bytes is not None:
        total += np.where(peak + made > free_bytes, TOO_LARGE, 0)
    best = int(np.argmin(total))
    return float(total[best]), _place(product, ways[best])


def _place(product: Product, cuts: Cuts) -> Placed:
    sizes = product.sizes
    a = _end(product.a, product.la, cuts, sizes)
    b = _end(product.b, product.lb, cuts, sizes)
    pending = tuple(part for label in _gone(product) for part in cuts.get(label, ()))
    op = "max" if product.dtype.name == "bool" else "sum"
    result = ArrayType(
        product.a.mesh,
        product.dtype,
        tuple(sizes[label] for label in product.lo),
        tuple(cuts.get(label, ()) for label in product.lo),
        op if pending else None,
        pending,
    )
    return Placed(a, b, result)


def _end(t: ArrayType, labels: Labels, cuts: Cuts, sizes: Mapping[Hashable, int]) -> ArrayType:
    dims = tuple(
        cuts.get(label, ()) if sizes[label] == n else ()
        for label, n in zip(labels, t.shape, strict=True)
    )
    return ArrayType(t.mesh, t.dtype, t.shape, dims)


def _own_cuts(product: Product) -> list[Cuts]:
    """The operands' own cuts, and both together."""
    sizes = product.sizes
    own: list[Cuts] = [
        {
            label: cut
            for label, n, cut in zip(labels, t.shape, resolved_type(t).dims, strict=True)
            if cut and sizes[label] == n
        }
        for t, labels in ((product.a, product.la), (product.b, product.lb))
    ]
    return [*own, _join_cuts(*own), _join_cuts(*own[::-1])]


def _join_cuts(first: Cuts, second: Cuts) -> Cuts:
    """Join the cuts of one with those of the other that do not meet them."""
    out = dict(first)
    names = {part.name for cut in first.values() for part in cut}
    for label, cut in second.items():
        if label not in out and not names & {part.name for part in cut}:
            out[label] = cut
    return out


def _gone(product: Product) -> dict[Hashable, int]:
    """The labels that are summed over, and their sizes."""
    return {label: n for label, n in product.sizes.items() if label not in product.lo}


def _sum_cost(product: Product, costs: ProductCosts) -> Floats:
    """What it costs to sum partial values once they are needed, as :func:`resolved_type` says."""
    n, sizes, gone = product.a.mesh.n_devices, product.sizes, _gone(product)
    shape = tuple(sizes[label] for label in product.lo)
    partials = costs.n_tiles(tuple(gone), tuple(gone.values()))
    scattered = costs.longest_side(product.lo, shape) >= partials
    tiles = costs.n_tiles(product.lo, shape) * np.where(scattered, partials, 1)
    received = (partials + n // tiles - 2.0) * (math.prod(shape) * product.dtype.itemsize)
    return np.where(partials > 1, BYTE_COST * received + MOVE_COST * n, 0.0)
