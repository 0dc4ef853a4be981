"""Make the tiles of an array reachable from every rank, and keep them while anyone may reach."""

from __future__ import annotations

import os
import weakref
from itertools import count
from typing import Any

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.runtime.copies.addresses import address_of
from redist.runtime.onesided.read_service import ReadService
from redist.runtime.onesided.window import Tile, TilePlace, Window
from redist.runtime.ranks.world import World
from redist.runtime.shm.segments import find


class Windows:
    """The windows of a world: which numbers they have, and which arrays have died."""

    def __init__(self) -> None:
        self.numbers = count(1)
        self.live: dict[int, Window] = {}
        self.dead: set[int] = set()
        """Arrays that died here; their tiles stay until they have died everywhere."""
        self.service: ReadService | None = None

    def drop(self, numbers: set[int]) -> None:
        """Let go of arrays that are dead everywhere."""
        for number in numbers:
            self.live.pop(number, None)
            self.dead.discard(number)
            if self.service is not None:
                self.service.tiles.pop(number, None)

    def close(self) -> None:
        """**Collective.** End the service."""
        if self.service is not None:
            self.service.close()


def windows_of(world: World) -> Windows:
    """The windows of a world."""
    return world.kept(Windows) or world.keep(Windows())


def publish(
    world: World, owner: Any, t: ArrayType, tile: Tile | None, timeout_s: float | None
) -> Window:
    """**Collective.** Open a window on an array of these tiles, for as long as ``owner`` lives on any rank.

    A tile stays in memory until its array has died on every rank and the ranks have met again to
    publish another: so a rank that is behind reads what it means to read.
    """
    windows = windows_of(world)
    number = next(windows.numbers)
    with world.operation(timeout_s):
        said = str(t), _place(tile), tuple(windows.dead), world.reads_memory
        answers = world.gather(said)
        if len({text for text, *_ in answers}) == 1:
            places = [place for _, place, *_ in answers]
            windows.drop(set.intersection(*(set(dead) for _, _, dead, _ in answers)))
            asks = len(set(world.node.groups)) > 1 or not all(
                place is None or place.handle is not None or reads for _, place, _, reads in answers
            )
            if asks and windows.service is None:
                windows.service = ReadService(world.comm)
            window = Window(world, number, t, tile, windows.service, timeout_s)
            window.connect(places)
            if windows.service is not None and tile is not None:
                windows.service.tiles[number] = tile
            windows.live[number] = window
            weakref.finalize(owner, windows.dead.add, number).atexit = False
            world.wait([world.comm.Ibarrier()])
            return window
    parts = "; ".join(f"rank {rank}: {text}" for rank, (text, *_) in enumerate(answers))
    raise RequestError(f"cannot open one array on all ranks: they disagree on it; {parts}")


def retire(window: Window) -> None:
    """**Local.** Say that a window is no longer used here; its array may have another."""
    windows_of(window.world).dead.add(window.number)


def _place(tile: Tile | None) -> TilePlace | None:
    if tile is None:
        return None
    handle, offset = find(tile) or (None, 0)
    here = os.getpid(), address_of(tile)
    return TilePlace(*here, tile.shape, tile.strides, handle, offset, tile.flags.writeable)
