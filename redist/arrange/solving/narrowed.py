"""Networks of fewer values: the same costs and bytes for some values of each variable."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from redist.arrange.solving.live_rows import LiveRows, LiveTable
from redist.arrange.solving.network import CostNetwork, CostTable


@dataclass(frozen=True, slots=True, eq=False)
class NarrowedNetwork:
    """A network of some values, bytes that are live, and which values these are.

    >>> pays = CostTable((0, 1), np.array([[5, 1], [2, 7]]))
    >>> less = NarrowedNetwork.of(CostNetwork((2, 2), (pays,)), LiveRows(0, ()), [{1}, {0, 1}])
    >>> less.network.sizes, less.network.cost((0, 1)), less.whole((0, 1))
    ((1, 2), 7, (1, 1))
    """

    network: CostNetwork
    rows: LiveRows
    kept: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(
        network: CostNetwork, rows: LiveRows, values: Sequence[Collection[int]]
    ) -> NarrowedNetwork:
        """Keep these values of every variable."""
        kept = tuple(tuple(sorted(some)) for some in values)

        def narrow(table: CostTable) -> CostTable:
            if not table.variables:
                return table
            places = np.ix_(*(kept[v] for v in table.variables))
            return CostTable(table.variables, table.costs[places])

        live = (LiveTable(narrow(one.table), one.first, one.last) for one in rows.tables)
        smaller = CostNetwork(
            tuple(len(some) for some in kept), tuple(narrow(table) for table in network.tables)
        )
        return NarrowedNetwork(smaller, LiveRows(rows.n_rows, tuple(live)), kept)

    def whole(self, values: Sequence[int]) -> tuple[int, ...]:
        """A choice in terms of all values."""
        return tuple(some[value] for some, value in zip(self.kept, values, strict=True))
