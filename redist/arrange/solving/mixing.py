"""Mixtures of two choices: one from the beginning of a program, the other from some point on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from redist.arrange.solving.live_rows import LiveRows
from redist.arrange.solving.network import FORBIDDEN, CostNetwork, CostTable


@dataclass(frozen=True, slots=True, eq=False)
class Mixer:
    """A network with its variables in the order of time, and the tables of each."""

    network: CostNetwork
    rows: LiveRows
    order: tuple[int, ...]
    costs_of: tuple[tuple[int, ...], ...]
    bytes_of: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(network: CostNetwork, rows: LiveRows) -> Mixer:
        """Variables go by the first time at which they meet another one in the rows."""
        first = [rows.n_rows] * len(network.sizes)
        costs_of: list[list[int]] = [[] for _ in network.sizes]
        bytes_of: list[list[int]] = [[] for _ in network.sizes]
        for number, table in enumerate(network.tables):
            for v in table.variables:
                costs_of[v].append(number)
        for number, one in enumerate(rows.tables):
            for v in one.table.variables:
                bytes_of[v].append(number)
                if len(one.table.variables) > 1:
                    first[v] = min(first[v], one.first)
        order = sorted(range(len(first)), key=lambda v: (first[v], v))
        return Mixer(
            network, rows, tuple(order), tuple(map(tuple, costs_of)), tuple(map(tuple, bytes_of))
        )

    def best(
        self, limit_bytes: int, cheap: Sequence[int], dear: Sequence[int]
    ) -> tuple[int, tuple[int, ...]] | None:
        """The cheapest mixture within the limit, and its cost; None if none keeps it."""
        found = [
            self._walk(limit_bytes, dear, cheap, self.order),
            self._walk(limit_bytes, dear, cheap, self.order[::-1]),
        ]
        return min((one for one in found if one is not None), default=None)

    def _walk(
        self, limit_bytes: int, here: Sequence[int], there: Sequence[int], order: Sequence[int]
    ) -> tuple[int, tuple[int, ...]] | None:
        """Go from one choice to another, variable by variable; the cheapest on the way within the limit."""
        values, best = list(here), None
        live = np.array(self.rows.at(values), dtype=np.int64)
        cost = sum(_entry(table, values) for table in self.network.tables)
        for v in order:
            if values[v] == there[v]:
                continue
            cost -= sum(_entry(self.network.tables[n], values) for n in self.costs_of[v])
            self._add(live, v, values, -1)
            values[v] = there[v]
            cost += sum(_entry(self.network.tables[n], values) for n in self.costs_of[v])
            self._add(live, v, values, 1)
            keeps = cost < FORBIDDEN and int(live.max(initial=0)) <= limit_bytes
            if keeps and (best is None or cost < best[0]):
                best = cost, tuple(values)
        return best

    def _add(self, live: np.ndarray, v: int, values: Sequence[int], sign: int) -> None:
        for number in self.bytes_of[v]:
            one = self.rows.tables[number]
            live[one.first : one.last + 1] += sign * _entry(one.table, values)


def _entry(table: CostTable, values: Sequence[int]) -> int:
    return int(table.costs[tuple(values[v] for v in table.variables)])
