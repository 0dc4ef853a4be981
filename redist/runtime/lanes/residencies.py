"""What lies where while a graph runs: arrays in memory, spaces in stores, and their bytes counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redist.errors import RequestError
from redist.program.memory_graph import MemoryGraph
from redist.runtime.lanes.stores import TileStore, UnderWay, bytes_of
from redist.runtime.lanes.vertex_table import VertexRow

MakeTile = Callable[[int], Any]
"""A new array for a tile, by its number."""


class LiveTiles:
    """By residency what holds it: an array in place 0, a space in a store behind it.

    ``live_bytes`` and ``peak_bytes`` count by place, as the graph does: a tile has the bytes of the largest
    rank. With ``checks`` limits and operands are asserted.
    """

    def __init__(
        self,
        graph: MemoryGraph,
        stores: Sequence[TileStore],
        make_tile: MakeTile,
        given: Mapping[tuple[int, int], Any],
        checks: bool,
    ) -> None:
        self.graph, self.stores, self._make_tile, self._checks = graph, stores, make_tile, checks
        self.tile_of = [one.tile for one in graph.residencies]
        self.place_of = [one.place for one in graph.residencies]
        self.held: list[Any] = [None] * len(graph.residencies)
        self.live_bytes = [0] * len(graph.places)
        self._limits = [place.limit_bytes for place in graph.places]
        self._own: set[int] = set()
        """Residencies in stores that this run took."""
        for number in range(graph.n_given):
            key = self.tile_of[number], self.place_of[number]
            if key not in given:
                raise RequestError(
                    f"cannot run a graph: tile {key[0]} in place {key[1]} is missing"
                )
            self.held[number] = given[key]
            self.live_bytes[key[1]] += graph.bytes_of(number)
        self.peak_bytes = list(self.live_bytes)

    def begin(self, row: VertexRow) -> None:
        """Count what a vertex takes."""
        live, peak = self.live_bytes, self.peak_bytes
        for place, n_bytes in row.takes:
            live[place] += n_bytes
            if live[place] > peak[place]:
                peak[place] = live[place]
        if self._checks:
            self._check(row)

    def _check(self, row: VertexRow) -> None:
        for place, (live, limit) in enumerate(zip(self.live_bytes, self._limits, strict=True)):
            name = self.graph.places[place].name
            assert limit is None or live <= limit, f"{live} bytes in {name}, limit {limit}"
        for one in (*row.inputs, *row.ends):
            assert self.held[one] is not None, (
                f"a {row.kind} needs residency {one}, which is not there"
            )
        for one in row.inputs:
            size, most = getattr(self.held[one], "nbytes", 0), self.graph.bytes_of(one)
            assert size <= most, f"residency {one} has {size} bytes, more than its tile's {most}"
        for one in row.makes:
            assert self.held[one] is None, f"a {row.kind} makes residency {one}, which is there"

    def arrays_for(self, row: VertexRow) -> list[Any]:
        """The arrays that a task works on; those that it makes are new."""
        held = self.held
        arrays = [held[one] for one in row.inputs]
        if not row.gives:
            for one in row.makes:
                held[one] = self._make_tile(self.tile_of[one])
                arrays.append(held[one])
        return arrays

    def adopt(self, row: VertexRow, result: Any) -> None:
        """Hold what a task gave."""
        several = result if isinstance(result, tuple) else (result,)
        assert len(several) == len(row.makes), f"{len(several)} arrays for {len(row.makes)} tiles"
        for one, array in zip(row.makes, several, strict=True):
            self.held[one] = array

    def copy_for(self, row: VertexRow) -> Callable[[], UnderWay | None]:
        """The copy that a load or store makes; room for it is taken now."""
        source, target = row.inputs[0], (row.makes or row.inputs[1:])[0]
        for one in row.makes:
            place = self.place_of[one]
            if place:
                self.held[one] = self.stores[place - 1].take(self.graph.bytes_of(one))
                self._own.add(one)
            else:
                self.held[one] = self._make_tile(self.tile_of[one])
        is_load = self.place_of[target] < self.place_of[source]
        near, far = (target, source) if is_load else (source, target)
        store = self.stores[self.place_of[far] - 1]
        data, space = self._memory_of(near), self.held[far]
        call = store.read if is_load else store.write
        return lambda: call(space, data)

    def _memory_of(self, residency: int) -> Any:
        """The bytes of a residency that is in memory."""
        place = self.place_of[residency]
        if not place:
            return bytes_of(self.held[residency])
        found = self.stores[place - 1].memory_of(self.held[residency])
        assert found is not None, (
            f"{self.graph.places[place].name} is not memory, yet places are behind it"
        )
        return found

    def end(self, row: VertexRow) -> None:
        """Let go what a vertex ends, and count what it gives back."""
        for one in row.ends:
            self._let_go(one)
        for place, n_bytes in row.returns:
            self.live_bytes[place] -= n_bytes

    def _let_go(self, residency: int) -> None:
        held, self.held[residency] = self.held[residency], None
        place = self.place_of[residency]
        if place and held is not None:
            self._own.discard(residency)
            self.stores[place - 1].give(held)

    def results(self) -> dict[tuple[int, int], Any]:
        """What is there at the end, by tile and place."""
        return {
            (self.tile_of[number], self.place_of[number]): held
            for number, held in enumerate(self.held)
            if held is not None
        }

    def give_up(self) -> None:
        """Free everything that this run took."""
        for one in sorted(self._own):
            self._let_go(one)
        self.held.clear()
