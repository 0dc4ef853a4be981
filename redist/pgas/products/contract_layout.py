"""The typing rule of a product of two arrays: which labels are cut, what moves, what is pending.

Dims carry labels. A label of both operands that the result lacks is contracted; cut alike in both it
gives a pending sum. What is chosen says which axes cut which label; the cheapest choice wins.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from redist.errors import LayoutError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, refined_parts
from redist.layout.cuts import cut_dim
from redist.layout.dtype import DType
from redist.layout.lower_bound import lower_bound_bytes
from redist.pgas.products.streaming import BLOCK_BYTES
from redist.pgas.tiles.layouts import resolved_type

Labels = tuple[Hashable, ...]
Cuts = Mapping[Hashable, tuple[SubAxis, ...]]

BYTE_COST = 8
"""A received byte costs as much as so many multiplications."""
MOVE_COST = 200_000
"""What a move costs on every device, however small it is."""
MOST_CANDIDATES = 600
TOO_LARGE = 2**80
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


@lru_cache(maxsize=4096)
def place(product: Product, free_bytes: int | None = None) -> Placed:
    """Find the cheapest layout, by bytes that move now and when a pending result is needed, and by work.

    >>> from redist.layout.mesh import Mesh
    >>> m, f = Mesh(x=4), DType.parse("f64")
    >>> a, b = (ArrayType.parse(t, m) for t in ("f64[4096, 64{x}]", "f64[64{x}, 8]"))
    >>> print(place(Product(a, b, (0, 1), (1, 2), (0, 2), f)).result)
    f64[4096, 8] sum{x}
    """
    best: tuple[int, Placed] | None = None
    for cuts in _candidates(product):
        try:
            found = _place(product, cuts)
        except LayoutError:
            continue
        work = _work(product, cuts) * found.result.mesh.n_devices
        if best is not None and work >= best[0]:
            continue
        cost = work + _move_cost(product, found)
        if free_bytes is not None and _peak(product, found) > free_bytes:
            cost += TOO_LARGE
        if best is None or cost < best[0]:
            best = cost, found
    assert best is not None
    return best[1]


def _place(product: Product, cuts: Cuts) -> Placed:
    sizes = product.sizes
    a = _end(product.a, product.la, cuts, sizes)
    b = _end(product.b, product.lb, cuts, sizes)
    gone = dict.fromkeys(label for label in (*product.la, *product.lb) if label not in product.lo)
    pending = tuple(part for label in gone for part in cuts.get(label, ()))
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


def _candidates(product: Product) -> Iterator[Cuts]:
    """The operands' own cuts, both together, and axes on any labels."""
    sizes = product.sizes
    own = [
        {
            label: cut
            for label, n, cut in zip(labels, t.shape, resolved_type(t).dims, strict=True)
            if cut and sizes[label] == n
        }
        for t, labels in ((product.a, product.la), (product.b, product.lb))
    ]
    yield from own
    yield _join_cuts(own[0], own[1])
    yield _join_cuts(own[1], own[0])
    mesh = product.a.mesh
    used = [part for cuts in own for cut in cuts.values() for part in cut]
    parts = [part for part in refined_parts(mesh, used) if part.size > 1]
    labels = [label for label, n in sizes.items() if n > 1]
    if (len(labels) + 1) ** len(parts) > MOST_CANDIDATES:
        parts = []
    for places in itertools.product([*labels, None], repeat=len(parts)):
        cuts: dict[Hashable, tuple[SubAxis, ...]] = {}
        for part, label in zip(parts, places, strict=True):
            if label is not None:
                cuts[label] = (*cuts.get(label, ()), part)
        yield cuts


def _join_cuts(first: Cuts, second: Cuts) -> Cuts:
    """Join the cuts of one with those of the other that do not meet them."""
    out = dict(first)
    names = {part.name for cut in first.values() for part in cut}
    for label, cut in second.items():
        if label not in out and not names & {part.name for part in cut}:
            out[label] = cut
    return out


def _work(product: Product, cuts: Cuts) -> int:
    """Multiplications of the busiest device; without a BLAS they cost more."""
    n = math.prod(
        cut_dim(size, math.prod(part.size for part in cuts.get(label, ()))).tile_size
        for label, size in product.sizes.items()
    )
    return n if product.dtype.name[0] in "fc" else 10 * n


def _move_cost(product: Product, found: Placed) -> int:
    n, out = found.result.mesh.n_devices, 0
    for source, target in (
        (product.a, found.a),
        (product.b, found.b),
        (found.result, resolved_type(found.result)),
    ):
        if source != target:
            out += BYTE_COST * lower_bound_bytes(source, target) + MOVE_COST * n
    most = max(BLOCK_BYTES, product.a.tile_bytes + product.b.tile_bytes)
    if found.result.tile_bytes > most:  # partial values would fill the memory
        out += BYTE_COST * found.result.tile_bytes * n
    return out


def _peak(product: Product, found: Placed) -> int:
    """What a device must hold beside its operands; what is large passes in blocks."""
    moved = sum(
        min(end.tile_bytes, 2 * start.tile_bytes)
        for start, end in ((product.a, found.a), (product.b, found.b))
        if start != end
    )
    return moved + found.result.tile_bytes
