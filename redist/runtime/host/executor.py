"""Run the stages of a transfer one after another; tiles between them are made and freed in time."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.runtime.host.report import TransferCounts
from redist.runtime.host.stage import Stage, StageRecord
from redist.runtime.ranks.world import World
from redist.runtime.schedule.stages import Key, TransferStages
from redist.runtime.shm.segments import keep_segment, leave_segment, release_pages, shared_empty

# Allocate the arrays of a transfer itself: its own source and target, and tiles between steps.


AnyArray = NDArray[Any]


class OwnTiles:
    """Allocates in shared memory, so that neighbours read in place, and counts.

    ``keep`` says that tiles on the way stay allocated between calls, if the certified bound leaves
    room for them beside both ends.
    """

    def __init__(self, schedule: TransferStages, donate: bool, keep: bool = True) -> None:
        self.schedule = schedule
        self.keep = keep
        self.placed_tiles = schedule.placed_tiles()
        """Tiles between steps that lie in the memory of the target: where they start in it."""
        held = sum(
            t.tile_bytes
            for item, plan in enumerate(schedule.plans)
            for buffer, t in enumerate(plan.types)
            if (item, buffer) not in self.placed_tiles and schedule.has_memory(item, buffer)
        )
        staging = max(schedule.staging_bytes(k) for k in range(len(schedule.stages)))
        self._room = not donate and held + staging <= schedule.peak_bytes()
        self.kept: dict[Key, AnyArray] = {}
        """Tiles between two steps that stay allocated."""
        self._ends: dict[Key, AnyArray] = {}

    def end(self, item: int, buffer: int) -> AnyArray | None:
        """The transfer's own source (buffer 0) or target tile."""
        return self._find(self._ends, (item, buffer))

    def middle(self, item: int, buffer: int, target: AnyArray | None) -> AnyArray | None:
        """A tile between two steps; in the memory of its target where it can be."""
        start = self.placed_tiles.get((item, buffer))
        if start is None or target is None or not target.flags.c_contiguous:
            return self._find(self.kept if self.keeps else {}, (item, buffer))
        t = self.schedule.type_of(item, buffer)
        memory = target.reshape(-1).view(np.uint8)[start : start + t.tile_bytes]
        return memory.view(target.dtype).reshape(self.schedule.shape_of(item, buffer))

    @property
    def keeps(self) -> bool:
        """Whether tiles on the way stay allocated; the same on every rank."""
        return self.keep and self._room

    def clear(self) -> None:
        """Forget all; arrays that were handed out stay valid."""
        self.kept.clear()
        self._ends.clear()

    def _find(self, known: dict[Key, AnyArray], key: Key) -> AnyArray | None:
        if key in known:
            return known[key]
        shape = self.schedule.shape_of(*key)
        if shape is None:
            return None
        array = shared_empty(shape, self.schedule.plans[key[0]].source.dtype.to_numpy())
        known[key] = array
        return array


Tiles = dict[Key, Any]
"""The arrays of a call by (array, buffer)."""


@dataclass(frozen=True, slots=True, eq=False)
class CallRecord:
    """How a call ran: its stages, and whether the ranks of a node met after the last of them."""

    stages: tuple[StageRecord, ...]
    met_after: bool


def tiles_of(schedule: TransferStages, sources: Sequence[Any], targets: Sequence[Any]) -> Tiles:
    """The arrays of a call by (array, buffer)."""
    tiles: Tiles = {(item, 0): source for item, source in enumerate(sources)}
    for item, target in enumerate(targets):
        if target is not None:
            tiles[item, schedule.last(item)] = target
    return tiles


class Executor(ABC):
    """Runs the stages of a transfer on arrays of one kind.

    ``tiles`` of a call has the sources and targets by (array, buffer); what lies between is added
    when it is first needed, and dropped when nobody needs it any more.
    """

    def __init__(
        self, world: World, schedule: TransferStages, counts: TransferCounts, donates: bool
    ) -> None:
        self.world, self.schedule, self.counts, self.donates = world, schedule, counts, donates

    def run(self, token: int, tiles: Tiles) -> CallRecord:
        """**Collective.** Run all stages; targets that ``tiles`` lacks are made."""
        return self.finish(token, tiles, 0, False)

    def finish(
        self, token: int, tiles: Tiles, done: int, in_place: bool, release: Sequence[Any] = ()
    ) -> CallRecord:
        """**Collective.** Run the stages from ``done`` on.

        ``in_place`` says that neighbours may still read what the stages before wrote; pages of the
        arrays in ``release`` are given back once the ranks have met.
        """
        records = []
        n_stages = len(self.schedule.stages)
        for number in range(done, n_stages):
            parts = self.schedule.stages[number]
            start = time.perf_counter()
            for part in parts:
                for key in ((part.item, part.source), (part.item, part.target)):
                    if key not in tiles:
                        tiles[key] = self.new_tile(key, tiles)
            ins = [tiles[part.item, part.source] for part in parts]
            outs = [tiles[part.item, part.target] for part in parts]
            record = self.run_stage(number, token, ins, outs, release if number == done else ())
            records.append(record)
            # Meeting again settles earlier reads.
            in_place = record.in_place or (in_place and self.is_local(number))
            if number + 1 < n_stages:
                del ins, outs
                in_place = self._free_tiles(number, tiles, in_place)
            self.counts.count(number, time.perf_counter() - start)
        if in_place:
            self.wait_for_readers()
        return CallRecord(tuple(records), in_place)

    def _free_tiles(self, number: int, tiles: Tiles, in_place: bool) -> bool:
        """Free what no later stage reads, once the neighbours have read it; all ranks alike.

        Whether neighbours may still read.
        """
        schedule = self.schedule
        later = {(p.item, p.source) for parts in schedule.stages[number + 1 :] for p in parts}
        done = {(part.item, part.source) for part in schedule.stages[number]} - later
        gone = {0} if self.donates else set()
        free = [
            (item, buffer)
            for item, buffer in done
            if buffer in gone
            or (0 < buffer < schedule.last(item) and not self.keeps_tiles)
            or (item, buffer) in self.placed_tiles
        ]
        if not free:
            return in_place
        if in_place:
            self.wait_for_readers()
        for item, buffer in free:
            array = tiles.pop((item, buffer))
            if array is not None:
                rest = [tile for tile in tiles.values() if tile is not None]
                self.free(array, rest, buffer == 0)
        return False

    # What depends on where arrays lie

    @property
    @abstractmethod
    def keeps_tiles(self) -> bool:
        """Whether tiles on the way stay allocated between calls; the same on every rank."""

    @property
    def placed_tiles(self) -> Collection[Key]:
        """Tiles between steps that have no memory of their own; the same on every rank."""
        return ()

    @abstractmethod
    def is_local(self, number: int) -> bool:
        """Whether a stage moves nothing between ranks."""

    @abstractmethod
    def new_tile(self, key: Key, tiles: Tiles) -> Any:
        """A tile between two steps, or a target; None outside the mesh. ``tiles`` are there already."""

    @abstractmethod
    def run_stage(
        self, number: int, token: int, ins: list[Any], outs: list[Any], release: Sequence[Any]
    ) -> StageRecord:
        """**Collective.** Run one stage."""

    @abstractmethod
    def wait_for_readers(self) -> None:
        """**Collective over the node.** Wait until the neighbours have read."""

    @abstractmethod
    def free(self, array: Any, rest: Sequence[Any], is_source: bool) -> None:
        """Give up a tile; a donated source gives its memory back, unless one of ``rest`` is in it."""


class HostExecutor(Executor):
    """Runs the stages of a transfer on arrays in memory. Making one is **collective**."""

    def __init__(
        self,
        world: World,
        schedule: TransferStages,
        own_tiles: OwnTiles,
        counts: TransferCounts,
        donates: bool,
        is_limited: bool,
    ) -> None:
        super().__init__(world, schedule, counts, donates)
        self.own_tiles = own_tiles
        self.stages = tuple(
            Stage(world, parts, schedule.staging_bytes(number), is_limited)
            for number, parts in enumerate(schedule.stages)
        )
        world.reserve(len(schedule.plans), max(stage.pool_bytes for stage in self.stages))
        self._buffer = np.empty(max(stage.staging.message_bytes for stage in self.stages), np.uint8)
        self._is_tight = schedule.is_tight_beside(own_tiles.placed_tiles)

    def run(self, token: int, tiles: Tiles) -> CallRecord:
        """**Collective.** Run all stages; no page of a target exists before a tight plan has room."""
        release = self._early_targets(tiles) if self._is_tight else []
        while self.stages[0].is_local and release:
            release_pages(release.pop())
        return self.finish(token, tiles, 0, False, release)

    def _early_targets(self, tiles: Tiles) -> list[Any]:
        """Targets that are written by a later stage than the first."""
        last = [(item, self.schedule.last(item)) for item in range(len(self.schedule.plans))]
        return [tiles[key] for key in last if key[1] > 1 and tiles.get(key) is not None]

    @property
    def keeps_tiles(self) -> bool:
        """Whether tiles on the way stay allocated between calls; the same on every rank."""
        return self.own_tiles.keeps

    def take_back(self, tiles: Tiles) -> None:
        """**Local.** After a failure: neighbours may still be at work on the arrays of a call.

        They do not reach results any more, and what they read stays where it is.
        """
        opened = {
            (part.item, part.target)
            for parts in self.schedule.stages
            for part in parts
            if part.step.is_brought
        }
        for (item, buffer), array in (tiles | self.own_tiles.kept).items():
            if (
                array is not None
                and (item, buffer) in opened
                and buffer == self.schedule.last(item)
            ):
                leave_segment(array)
            elif array is not None:
                keep_segment(array)

    def is_local(self, number: int) -> bool:
        """Whether a stage moves nothing between ranks."""
        return self.stages[number].is_local

    def new_tile(self, key: Key, tiles: Tiles) -> Any:
        """A tile between two steps; None outside the mesh."""
        return self.own_tiles.middle(*key, tiles.get((key[0], self.schedule.last(key[0]))))

    @property
    def placed_tiles(self) -> Collection[Key]:
        """Tiles between steps in the memory of targets: gone when no later stage reads them."""
        return self.own_tiles.placed_tiles

    def run_stage(
        self, number: int, token: int, ins: list[Any], outs: list[Any], release: Sequence[Any]
    ) -> StageRecord:
        """**Collective.** Run one stage."""
        return self.stages[number].run(token, ins, outs, self._buffer, release)

    def wait_for_readers(self) -> None:
        """**Collective over the node.** Wait until the neighbours have read."""
        self.world.meet_node()

    def free(self, array: Any, rest: Sequence[Any], is_source: bool) -> None:
        """Give up a tile; a donated source gives its pages back, unless one of ``rest`` is in them."""
        if is_source and not any(np.may_share_memory(array, other) for other in rest):
            release_pages(array)
