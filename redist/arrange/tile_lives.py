"""Which tiles are live while a program does a node, as bytes of the choices of its planning.

At every node: the tiles of all inputs, which are the caller's and stay; of all values made before that are
still to be read, or that are results; the copies of operands that had to be moved; the node's result, and
where it goes from there if several find it elsewhere. Tiles are those of the fullest device. What a move
needs besides its source and its target is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from redist.arrange.domain import TypeDomain
from redist.arrange.ein_graph import EinGraph
from redist.arrange.solving.network import Costs, CostTable, LiveRows, LiveTable
from redist.arrange.strategies import Ways
from redist.layout.cuts import Ints


def live_rows(
    graph: EinGraph,
    ways: Sequence[Ways],
    variables: Mapping[int, int],
    domain_of: Callable[[int], TypeDomain],
) -> LiveRows:
    """Bytes live at every node, by the way in which nodes are done and the types in which values rest.

    ``variables`` has the numbers of the choices of a type: of inputs, and of values with several readers.
    """
    return _Lives(graph, ways, variables, domain_of).run()


@dataclass(slots=True, eq=False)
class _Lives:
    graph: EinGraph
    ways: Sequence[Ways]
    variables: Mapping[int, int]
    domain_of: Callable[[int], TypeDomain]
    _known: dict[object, Costs] = field(default_factory=dict)
    """Equal tables are one array, so that they are worked on once."""

    def run(self) -> LiveRows:
        graph, found = self.graph, list[LiveTable]()
        n_rows = len(graph.nodes)
        if not n_rows:
            return LiveRows(0, ())
        for k in range(len(graph.inputs)):
            found.append(LiveTable(self._rests(~k), 0, n_rows - 1))
        for value in (one for one in graph.values if one >= 0):
            at, _ = graph.maker(value)
            readers = [reader for reader, _ in graph.readers(value)]
            last = max(readers, default=n_rows - 1)
            if value in self.variables:
                found.append(LiveTable(self._made(value), at, at))
                moved = self._copied(value, None, self.variables[value], value)
                found.append(LiveTable(moved, at, at))
                found.append(LiveTable(self._rests(value), at + 1, last))
            else:
                found.append(LiveTable(self._made(value), at, last))
        for reader, node in enumerate(graph.nodes):
            for place, value in enumerate(node.operands):
                copied = self._copied(value, self.ways[reader].operands[place], reader, None)
                found.append(LiveTable(copied, reader, reader))
        return LiveRows(n_rows, tuple(found))

    def _rests(self, value: int) -> CostTable:
        """The tile of a value in the type in which its readers find it."""
        return CostTable((self.variables[value],), self._tiles(value))

    def _made(self, value: int) -> CostTable:
        """The tile of a value as its node makes it."""
        maker, k = self.graph.maker(value)
        made, tiles = self.ways[maker].results[k], self._tiles(value)
        key = "made", id(made), id(tiles)
        if key not in self._known:
            self._known[key] = tiles[made]
        return CostTable((maker,), self._known[key])

    def _copied(self, value: int, wanted: Ints | None, there: int, maker: int | None) -> CostTable:
        """The tile of a value where it is wanted, unless it is there already."""
        tiles = self._tiles(value)
        here, types = self.variables.get(value), None
        if maker is not None or here is None:
            here, k = self.graph.maker(value)
            types = self.ways[here].results[k]
        key = "copied", id(types), id(wanted), id(tiles)
        if key not in self._known:
            every = np.arange(len(tiles), dtype=np.int64)
            a, b = every if types is None else types, every if wanted is None else wanted
            self._known[key] = np.where(a[:, None] == b[None], 0, tiles[b][None])
        return CostTable((here, there), self._known[key])

    def _tiles(self, value: int) -> Costs:
        domain = self.domain_of(value)
        key = "tiles", id(domain)
        if key not in self._known:
            self._known[key] = domain.tile_bytes()
        return self._known[key]
