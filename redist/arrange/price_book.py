"""Prices of moves between types of any shape over the factors of a mesh, all of a kind at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from redist.arrange.domain import PENDING, TypeDomain, places_of
from redist.arrange.move_prices import price_moves
from redist.arrange.solving.network import FORBIDDEN, Costs
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.plan.topology import Topology
from redist.planner import synthesize


@dataclass(slots=True, eq=False)
class PriceBook:
    """Domains of types, and what moves between their types cost; equal ones are one and the same."""

    mesh: Mesh
    parts: tuple[SubAxis, ...]
    topology: Topology
    _domains: dict[object, TypeDomain] = field(default_factory=dict)
    _prices: dict[int, Costs] = field(default_factory=dict)
    _exact: dict[tuple[ArrayType, ArrayType], int] = field(default_factory=dict)

    def domain(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        op: str | None,
        others: tuple[ArrayType, ...] = (),
    ) -> TypeDomain:
        """The types of such an array, and the others beside them."""
        if others:
            usual = self.domain(shape, dtype, op)
            others = tuple(t for t in others if usual.find(t) is None)
        key = shape, dtype, op, others
        if key not in self._domains:
            self._domains[key] = TypeDomain.of(self.mesh, self.parts, shape, dtype, op, others)
        return self._domains[key]

    def prices(self, domain: TypeDomain) -> Costs:
        """Picoseconds of all moves between the types of a domain of this book."""
        if id(domain) not in self._prices:
            self._prices[id(domain)] = price_moves(domain, self.topology)
        return self._prices[id(domain)]

    def price(self, source: ArrayType, target: ArrayType) -> int:
        """What one move costs; FORBIDDEN if its types are not over these factors.

        >>> from redist.layout.axes import whole
        >>> from redist.plan.topology import FLAT
        >>> mesh = Mesh(x=2)
        >>> book = PriceBook(mesh, (whole(mesh, "x"),), FLAT)
        >>> rows, columns = (ArrayType.parse(t, mesh) for t in ("f32[8{x}, 8]", "f32[8, 8{x}]"))
        >>> book.price(rows, columns) > book.price(rows, rows) == 0
        True
        """
        ends = source, target
        if any(t.mesh != self.mesh or places_of(t, self.parts) is None for t in ends):
            return FORBIDDEN
        domain = self.domain(source.shape, source.dtype, source.pending_op, ends)
        a, b = domain.find(source), domain.find(target)
        return FORBIDDEN if a is None or b is None else int(self.prices(domain)[a, b])

    def exact_price(self, source: ArrayType, target: ArrayType) -> int:
        """What the synthesizer's own plan of a move costs, with one for every step."""
        if source == target:
            return 0
        found = self.price(source, target)
        if (
            found < FORBIDDEN
            and len(self.topology.levels) == 1
            and source.is_even
            and target.is_even
        ):
            return found
        if (source, target) not in self._exact:
            plan = synthesize(source, target, topology=self.topology)
            self._exact[source, target] = plan.time_ps + len(plan.steps)
        return self._exact[source, target]

    def correct(self, moves: Iterable[tuple[ArrayType, ArrayType]]) -> bool:
        """Put in the exact prices of these moves, in all tables that have them; whether any was another."""
        changed = False
        for source, target in moves:
            exact = self.exact_price(source, target)
            for domain in self._domains.values():
                ends = domain.find(source), domain.find(target)
                prices = self._prices.get(id(domain))
                if prices is not None and None not in ends and prices[ends] != exact:
                    prices[ends] = exact
                    changed = True
        return changed


def finish_prices(domain: TypeDomain, prices: Costs) -> Costs:
    """What it costs, from every type, to have no partial values left, wherever that is cheapest."""
    settled = ~(domain.places == PENDING).any(axis=1)
    least: Costs = np.where(settled, 0, prices[:, settled].min(axis=1))
    return least
