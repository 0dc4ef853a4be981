"""The typing rule of a join and its aggregation: which labels are cut, what moves, what is pending.

Dims carry labels. A label that the result lacks is aggregated; cut alike in all operands that have it, it
gives a pending reduction. What is chosen says which axes cut which label; the cheapest choice wins.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.layout.axes import prime_parts
from redist.layout.cuts import cut_dim
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.layout.tiles import Ints, coordinates, grid
from redist.pgas.memory import SHARED_FROM
from redist.pgas.products.cut_candidates import Candidates, Cut, Cuts, list_candidates
from redist.pgas.products.streaming import BLOCK_BYTES
from redist.pgas.tiles.budget import all_fit, least_available
from redist.pgas.tiles.layouts import dtype_of, resolved_type
from redist.pgas.tiles.tiled import Tiled

# What the ways to place a product cost, all at once: work, bytes that move, memory.


Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class LabelCuts:
    """Every cut of one label: how many tiles, the size of a full one, and each device's range."""

    n_tiles: Ints
    tile_size: Ints
    lo: Ints
    hi: Ints

    @staticmethod
    def of(mesh: Mesh, size: int, cuts: Sequence[Cut]) -> LabelCuts:
        """The cuts of a label of this size."""
        lo, hi = np.zeros((2, len(cuts), mesh.n_devices), dtype=np.int64)
        n_tiles = np.ones(len(cuts), dtype=np.int64)
        tile_size = np.full(len(cuts), size, dtype=np.int64)
        for number, axes in enumerate(cuts):
            n_tiles[number] = math.prod(part.size for part in axes)
            cut = cut_dim(size, int(n_tiles[number]))
            tile_size[number] = cut.tile_size
            lo[number], hi[number] = cut.ranges_of(coordinates(mesh, axes))
        return LabelCuts(n_tiles, tile_size, lo, hi)


@dataclass(frozen=True, slots=True, eq=False)
class ProductCosts:
    """Tables of a search: every way, and every cut of every label."""

    mesh: Mesh
    sizes: Mapping[Hashable, int]
    ways: Candidates
    tables: Mapping[Hashable, LabelCuts]

    @staticmethod
    def of(mesh: Mesh, sizes: Mapping[Hashable, int], ways: Candidates) -> ProductCosts:
        """The tables of these ways."""
        tables = {
            label: LabelCuts.of(mesh, sizes[label], cuts)
            for label, cuts in zip(ways.labels, ways.cuts, strict=True)
        }
        return ProductCosts(mesh, sizes, ways, tables)

    def work(self) -> Floats:
        """Multiplications of the busiest device."""
        out = np.ones(len(self.ways.ids))
        for label, size in self.sizes.items():
            out = out * (self._of(label, "tile_size") if label in self.tables else size)
        return out

    def tile_bytes(self, labels: Sequence[Hashable], shape: Sequence[int], itemsize: int) -> Floats:
        """Bytes of the fullest device's tile of an array with these labels."""
        out = np.full(len(self.ways.ids), float(itemsize))
        for label, n in zip(labels, shape, strict=True):
            out = out * (self._of(label, "tile_size") if self._is_cut(label, n) else n)
        return out

    def n_tiles(self, labels: Sequence[Hashable], shape: Sequence[int]) -> Ints:
        """Into how many tiles an array with these labels is cut."""
        out = np.ones(len(self.ways.ids), dtype=np.int64)
        for label, n in zip(labels, shape, strict=True):
            if self._is_cut(label, n):
                out = out * self._of(label, "n_tiles")
        return out

    def longest_side(self, labels: Sequence[Hashable], shape: Sequence[int]) -> Ints:
        """The longest side of a full tile of an array with these labels; 0 without dims."""
        out = np.zeros(len(self.ways.ids), dtype=np.int64)
        for label, n in zip(labels, shape, strict=True):
            side = self._of(label, "tile_size") if self._is_cut(label, n) else n
            out = np.maximum(out, side)
        return out

    def moved(self, t: ArrayType, labels: Sequence[Hashable]) -> tuple[Bools, Floats]:
        """Whether an operand of this type must move at all, and bytes that are received at least.

        Of an array with pending axes it is taken that some holder of an element has a value of it.
        """
        n, itemsize = len(self.ways.ids), t.dtype.itemsize
        columns = [
            (i, label)
            for i, (label, size) in enumerate(zip(labels, t.shape, strict=True))
            if self._is_cut(label, size)
        ]
        stays = np.full(n, t.pending_op is None)
        for i, (label, size) in enumerate(zip(labels, t.shape, strict=True)):
            if self._is_cut(label, size):
                same = np.array([cut == t.dims[i] for cut in self._cuts(label)])
                stays &= same[self._ids(label)]
            else:
                stays &= not t.dims[i]
        if t.pending_op is not None:
            partials = math.prod(part.size for part in t.pending_axes)
            holders = self.mesh.n_devices // self.n_tiles(labels, t.shape)
            received = (partials + holders - 2) * float(t.global_elems * itemsize)
            return ~stays, received.astype(np.float64)
        kinds = np.stack([self._ids(label) for _, label in columns], axis=1) if columns else None
        if kinds is None:
            return ~stays, np.full(n, float(self._lacking(t, [], np.zeros((1, 0), np.int64))[0]))
        rows, back = np.unique(kinds, axis=0, return_inverse=True)
        lacks = self._lacking(t, columns, rows)
        return ~stays, lacks[back.reshape(-1)].astype(np.float64) * itemsize

    def _lacking(self, t: ArrayType, columns: Sequence[tuple[int, Hashable]], rows: Ints) -> Ints:
        """Elements that devices lack of their new tiles, of all together, for each kind of tile."""
        have_lo, have_hi = grid(t).boxes()
        need = np.ones((len(rows), self.mesh.n_devices), dtype=np.int64)
        both = np.ones_like(need)
        where = {i: k for k, (i, _) in enumerate(columns)}
        for i, size in enumerate(t.shape):
            if i in where:
                table = self.tables[columns[where[i]][1]]
                lo, hi = (table_[rows[:, where[i]]] for table_ in (table.lo, table.hi))
            else:
                lo, hi = np.zeros((1, 1), np.int64), np.full((1, 1), size)
            need *= hi - lo
            both *= np.maximum(np.minimum(hi, have_hi[:, i]) - np.maximum(lo, have_lo[:, i]), 0)
        lacks: Ints = (need - both).sum(axis=1)
        return lacks

    def _is_cut(self, label: Hashable, n: int) -> bool:
        """Whether a dim with this label follows its cuts: one of size 1 that stretches does not."""
        return label in self.tables and self.sizes[label] == n

    def _ids(self, label: Hashable) -> Ints:
        return self.ways.ids[:, self.ways.labels.index(label)]

    def _cuts(self, label: Hashable) -> tuple[Cut, ...]:
        return self.ways.cuts[self.ways.labels.index(label)]

    def _of(self, label: Hashable, what: str) -> Ints:
        out: Ints = getattr(self.tables[label], what)[self._ids(label)]
        return out


Labels = tuple[Hashable, ...]

BYTE_COST = 8
"""A received byte costs as much as this many multiplications."""
MOVE_COST = 200_000
"""What a move costs on every device, however small it is."""
MOST_GROWTH = 4
"""Beyond this many times the tiles of the operands, a tile of the result costs as if it were moved."""
TOO_LARGE = 2.0**80
"""Added to the cost of what does not fit in memory: it is taken only where nothing fits."""


@dataclass(frozen=True, slots=True)
class Product:
    """Operand types, their labels, the labels of the result, the dtype of its elements, and the aggregation.

    ``effort`` is what joining one element of every operand costs, in multiplications of a matrix product.
    """

    types: tuple[ArrayType, ...]
    labels: tuple[Labels, ...]
    lo: Labels
    dtype: DType
    op: str = "sum"
    effort: int = 1

    @staticmethod
    def of(a: ArrayType, b: ArrayType, la: Labels, lb: Labels, lo: Labels) -> Product:
        """The matrix product of two operands; truth values are not added up, but joined by "or"."""
        dtype = np.result_type(a.dtype.to_numpy(), b.dtype.to_numpy())
        op, effort = ("max" if dtype.kind == "b" else "sum"), (1 if dtype.kind in "fc" else 10)
        return Product((a, b), (la, lb), lo, dtype_of(dtype), op, effort)

    @property
    def sizes(self) -> dict[Hashable, int]:
        """The size of every label; a size of 1 stretches."""
        return sizes_of(zip(self.labels, (t.shape for t in self.types), strict=True))


@dataclass(frozen=True, slots=True)
class Placed:
    """The types of the operands and of the result of a product."""

    operands: tuple[ArrayType, ...]
    result: ArrayType


def sizes_of(terms: Iterable[tuple[Labels, Sequence[int]]]) -> dict[Hashable, int]:
    """The size of every label, from the labels and the shapes of operands; a size of 1 stretches.

    >>> sizes_of([("ij", (4, 1)), ("jk", (3, 2))])
    {'i': 4, 'j': 3, 'k': 2}
    """
    out: dict[Hashable, int] = {}
    for labels, shape in terms:
        for label, n in zip(labels, shape, strict=True):
            out[label] = n if out.get(label, 1) == 1 else out[label]
    return out


def place(product: Product, free_bytes: int | None = None) -> Placed:
    """Find the cheapest layout of a product, as :func:`find_cheapest` does."""
    return find_cheapest(product, free_bytes)[1]


def place_within(x: Tiled, product: Product, found: Placed) -> Placed:
    """**Collective** under a memory limit. A layout that fits where the best one, ``found``, does not.

    ``x`` is one of the operands.
    """
    memory = x.memory
    if memory.limit_bytes is None:
        return found
    room = memory.limit_bytes - memory.live_bytes
    pairs = zip(product.types, found.operands, strict=True)
    moved = [end for t, end in pairs if t != end]
    needed = sum(t.tile_bytes for t in (*moved, found.result))
    if needed < SHARED_FROM or all_fit(x.comm, needed <= room):
        return found
    return place(product, least_available(x.comm, room))


@lru_cache(maxsize=4096)
def find_cheapest(product: Product, free_bytes: int | None = None) -> tuple[float, Placed]:
    """The least cost, by bytes that move now and when a pending result is needed, and by work; its layout.

    >>> from redist.layout.mesh import Mesh
    >>> m = Mesh(x=4)
    >>> a, b = (ArrayType.parse(t, m) for t in ("f64[4096, 64{x}]", "f64[64{x}, 8]"))
    >>> print(find_cheapest(Product.of(a, b, (0, 1), (1, 2), (0, 2)))[1].result)
    f64[4096, 8] sum{x}
    """
    sizes, mesh = product.sizes, product.types[0].mesh
    n = mesh.n_devices
    own = _own_cuts(product)
    used = [part for cuts in own for cut in cuts.values() for part in cut]
    parts = [part for part in prime_parts(mesh, used) if part.size > 1]
    labels = [label for label, size in sizes.items() if size > 1]
    ways = list_candidates(labels, parts, n, own)
    costs = ProductCosts.of(mesh, sizes, ways)
    total = costs.work() * (n * product.effort)
    peak = np.zeros(len(ways.ids))
    for t, own_labels in zip(product.types, product.labels, strict=True):
        moves, received = costs.moved(t, own_labels)
        total += np.where(moves, BYTE_COST * received + MOVE_COST * n, 0)
        tile = costs.tile_bytes(own_labels, t.shape, t.dtype.itemsize)
        peak += np.where(moves, np.minimum(tile, 2 * t.tile_bytes), 0)
    shape = tuple(sizes[label] for label in product.lo)
    made = costs.tile_bytes(product.lo, shape, product.dtype.itemsize)
    total += _sum_cost(product, costs)
    most = max(BLOCK_BYTES, MOST_GROWTH * sum(t.tile_bytes for t in product.types))
    total += np.where(made > most, BYTE_COST * made * n, 0)  # partial values would fill the memory
    if free_bytes is not None:
        total += np.where(peak + made > free_bytes, TOO_LARGE, 0)
    best = int(np.argmin(total))
    return float(total[best]), _place(product, ways[best])


def _place(product: Product, cuts: Cuts) -> Placed:
    sizes = product.sizes
    pairs = zip(product.types, product.labels, strict=True)
    pending = tuple(part for label in _gone(product) for part in cuts.get(label, ()))
    result = ArrayType(
        product.types[0].mesh,
        product.dtype,
        tuple(sizes[label] for label in product.lo),
        tuple(cuts.get(label, ()) for label in product.lo),
        product.op if pending else None,
        pending,
    )
    return Placed(tuple(_end(t, labels, cuts, sizes) for t, labels in pairs), result)


def _end(t: ArrayType, labels: Labels, cuts: Cuts, sizes: Mapping[Hashable, int]) -> ArrayType:
    dims = tuple(
        cuts.get(label, ()) if sizes[label] == n else ()
        for label, n in zip(labels, t.shape, strict=True)
    )
    return ArrayType(t.mesh, t.dtype, t.shape, dims)


def _own_cuts(product: Product) -> list[Cuts]:
    """The operands' own cuts, and all together, those of one operand first."""
    sizes = product.sizes
    own: list[Cuts] = [
        {
            label: cut
            for label, n, cut in zip(labels, t.shape, resolved_type(t).dims, strict=True)
            if cut and sizes[label] == n
        }
        for t, labels in zip(product.types, product.labels, strict=True)
    ]
    together = []
    for first in range(len(own)):
        cuts = own[first]
        for other in (*own[:first], *own[first + 1 :]):
            cuts = _join_cuts(cuts, other)
        together.append(cuts)
    return [*own, *together]


def _join_cuts(first: Cuts, second: Cuts) -> Cuts:
    """Join the cuts of one with those of the other that do not meet them."""
    out = dict(first)
    names = {part.name for cut in first.values() for part in cut}
    for label, cut in second.items():
        if label not in out and not names & {part.name for part in cut}:
            out[label] = cut
    return out


def _gone(product: Product) -> dict[Hashable, int]:
    """The labels that are aggregated, and their sizes."""
    return {label: n for label, n in product.sizes.items() if label not in product.lo}


def _sum_cost(product: Product, costs: ProductCosts) -> Floats:
    """What it costs to combine partial values once they are needed, as :func:`resolved_type` says."""
    n, sizes, gone = product.types[0].mesh.n_devices, product.sizes, _gone(product)
    shape = tuple(sizes[label] for label in product.lo)
    partials = costs.n_tiles(tuple(gone), tuple(gone.values()))
    scattered = costs.longest_side(product.lo, shape) >= partials
    tiles = costs.n_tiles(product.lo, shape) * np.where(scattered, partials, 1)
    received = (partials + n // tiles - 2.0) * (math.prod(shape) * product.dtype.itemsize)
    return np.where(partials > 1, BYTE_COST * received + MOVE_COST * n, 0.0)
