"""The stages of a transfer one after another, with the tiles between them made and freed in time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from redist.runtime.host.own_tiles import Key, OwnTiles
from redist.runtime.host.report import TransferCounts
from redist.runtime.host.stage import Stage
from redist.runtime.ranks.world import World
from redist.runtime.schedule.stages import TransferStages
from redist.runtime.shm.pages import release_pages

Tiles = dict[Key, Any]


class HostExecutor:
    """Runs the stages of a route on arrays in memory.

    ``tiles`` of a call has the sources and targets by (array, buffer); what lies between is added
    when it is first needed, and dropped when nobody needs it any more.
    """

    def __init__(
        self,
        world: World,
        route: TransferStages,
        stages: Sequence[Stage],
        buffers: OwnTiles,
        watch: TransferCounts,
        donates: bool,
    ) -> None:
        self.world, self.route, self.stages = world, route, tuple(stages)
        self.buffers, self.watch, self.donates = buffers, watch, donates
        self.staging = (
            np.empty(max(stage.staging.send_bytes for stage in stages), np.uint8),
            np.empty(max(stage.staging.receive_bytes for stage in stages), np.uint8),
        )

    def finish(
        self, word: int, tiles: Tiles, done: int, in_place: bool, timeout_s: float | None
    ) -> bool:
        """Run the stages from ``done`` on; whether there was a meeting after the last."""
        for number in range(done, len(self.stages)):
            legs = self.route.stages[number]
            start = time.perf_counter()
            for leg in legs:
                for key in ((leg.item, leg.source), (leg.item, leg.target)):
                    if key not in tiles:
                        tiles[key] = self.made(key)
            ins = [tiles[leg.item, leg.source] for leg in legs]
            outs = [tiles[leg.item, leg.target] for leg in legs]
            read = self.run_stage(number, word, ins, outs, timeout_s)
            # Meeting again settles earlier reads.
            in_place = read or (in_place and self.stages[number].is_local)
            if number + 1 < len(self.stages):
                del ins, outs
                in_place = self._let_go(number, tiles, in_place, timeout_s)
            self.watch.count(number, time.perf_counter() - start)
        if in_place:
            self.after_reading(timeout_s)
        return in_place

    def _let_go(self, number: int, tiles: Tiles, in_place: bool, timeout_s: float | None) -> bool:
        """Free what no later stage reads, once the neighbours have read it; all ranks alike."""
        route = self.route
        later = {(leg.item, leg.source) for legs in route.stages[number + 1 :] for leg in legs}
        done = {(leg.item, leg.source) for leg in route.stages[number]} - later
        gone = {0} if self.donates else set()
        free = [
            (item, buffer)
            for item, buffer in done
            if buffer in gone or (0 < buffer < route.last(item) and not self.keeps)
        ]
        if not free:
            return in_place
        if in_place:
            self.after_reading(timeout_s)
        for item, buffer in free:
            array = tiles.pop((item, buffer))
            if array is not None:
                rest = [tile for tile in tiles.values() if tile is not None]
                self.free(array, rest, buffer == 0)
        return False

    # What depends on where arrays lie

    @property
    def keeps(self) -> bool:
        """Whether tiles on the way stay allocated between calls; the same on every rank."""
        return self.buffers.keeps

    def made(self, key: Key) -> Any:
        """A tile between two steps."""
        return self.buffers.middle(*key)

    def run_stage(
        self, number: int, word: int, ins: list[Any], outs: list[Any], timeout_s: float | None
    ) -> bool:
        """Run one; whether neighbours may still read this rank's tiles."""
        return self.stages[number].run(word, ins, outs, self.staging, timeout_s)

    def after_reading(self, timeout_s: float | None) -> None:
        """Wait until the neighbours have read."""
        self.world.meet_node(timeout_s)

    def free(self, array: Any, rest: Sequence[Any], is_source: bool) -> None:
        """Give up a tile; a donated source gives its pages back, unless one of ``rest`` is in them."""
        if is_source and not any(np.may_share_memory(array, other) for other in rest):
            release_pages(array)
