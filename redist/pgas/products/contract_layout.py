"""Joins of labelled dims, such as products: what each is, and in which layout it is done.

Dims carry labels. A label that the result lacks is aggregated; cut alike in all operands that have it, it
gives a pending reduction. Which axes cut which label is decided by :mod:`redist.arrange`, as in a program.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from redist.arrange.ein_graph import EinNode
from redist.arrange.one_operation import PlacedOperation, place_operation
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.pgas.memory import SHARED_FROM
from redist.pgas.tiles.arranging import label_dims
from redist.pgas.tiles.layouts import dtype_of
from redist.pgas.tiles.tiled import Tiled
from redist.plan.rates import ONE_NODE, device_costs
from redist.runtime.ranks.collectives import all_fit, least_available

Labels = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """Operand types, their labels, those of the result, the dtype of its elements, and how they are made.

    Elements are joined by ``join`` and aggregated by ``op``, as nodes of a program are.
    """

    types: tuple[ArrayType, ...]
    labels: tuple[Labels, ...]
    lo: Labels
    dtype: DType
    op: str = "sum"
    join: str = "product"
    on_device: bool = False

    @staticmethod
    def of(
        a: ArrayType, b: ArrayType, la: Labels, lb: Labels, lo: Labels, on_device: bool = False
    ) -> Product:
        """The matrix product of two operands; truth values are not added up, but joined by "or"."""
        dtype = np.result_type(a.dtype.to_numpy(), b.dtype.to_numpy())
        op = "max" if dtype.kind == "b" else "sum"
        return Product((a, b), (la, lb), lo, dtype_of(dtype), op, on_device=on_device)

    @property
    def sizes(self) -> dict[Hashable, int]:
        """The size of every label; a size of 1 stretches."""
        return sizes_of(zip(self.labels, (t.shape for t in self.types), strict=True))

    @property
    def node(self) -> EinNode:
        """The same as the only node of a program."""
        notation, sizes = label_dims([t.shape for t in self.types], self.labels, self.lo)
        operands = tuple(~k for k in range(len(self.types)))
        return EinNode(notation, operands, sizes, self.join, self.op, self.dtype)


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


@lru_cache(maxsize=4096)
def place(product: Product, free_bytes: int | None = None) -> PlacedOperation:
    """Find the cheapest layout of a product, at the prices of one node.

    A type does not depend on the machine: so ranks agree on it without a word, and what ``explain`` says of
    a machine that is not here holds there. A planned program is priced for the machine that it runs on.

    >>> from redist.layout.mesh import Mesh
    >>> m = Mesh(x=4)
    >>> a, b = (ArrayType.parse(t, m) for t in ("f64[4096, 64{x}]", "f64[64{x}, 8]"))
    >>> print(place(Product.of(a, b, (0, 1), (1, 2), (0, 2))).result)
    f64[4096, 8] sum{x}
    """
    costs = device_costs(product.on_device)
    return place_operation(product.node, product.types, ONE_NODE, costs, free_bytes)


def place_within(x: Tiled, product: Product, found: PlacedOperation) -> PlacedOperation:
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
