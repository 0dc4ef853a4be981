"""Bound what global arrays may hold, and put away what is not used lately where there is a place for it."""

from __future__ import annotations

import gc

from redist.pgas.keeper import FAR_BYTES
from redist.pgas.memory import BUFFERS, DEVICE, TileMemory
from redist.pgas.spill.put_away import can_leave, last_loads, put_away
from redist.pgas.spill.spill_store import SpillStore, spill_folder, store_for
from redist.pgas.tiles.tiled import Tiled, held_by
from redist.text.units import room_from

MEMORIES = (BUFFERS, DEVICE)


class memory_limit:
    """Bound what global arrays may hold on each rank: from now on, or while a block runs.

    >>> import numpy as np, redist
    >>> with redist.memory_limit("1MiB"):
    ...     BUFFERS.empty((2**21,), np.dtype("u1"), 0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    redist.errors.MemoryLimitError: cannot allocate 2 MiB: this array alone exceeds the limit of 1 MiB; ...

    **Local**, but give all ranks the same. The limit holds as soon as the call is made; at the end of a
    ``with`` block the one before holds again. Arrays count by the tile of the fullest rank, and what a
    move takes on the way counts too: plans are made for what is left. None lifts the limit. Tiles on
    a GPU may take as much again: bytes of a GPU and bytes in memory are counted apart.

    With ``spill``, a folder, arrays without live views are written to a file there, the oldest first, where
    an allocation has no room, and come back when they are touched. The file has no name and is gone
    with the last array in it. ``spill="host"`` puts arrays on a GPU away into pinned memory instead. Programs
    (:func:`redist.pgas.program`) keep the limit by a plan, which is quicker: it knows what is needed next.
    """

    def __init__(self, limit_bytes: int | float | str | None, *, spill: str | None = None) -> None:
        limit, spill = room_from(limit_bytes), spill_folder(spill)
        self._before = [(one, one.limit_bytes, one.spill, one.put_away) for one in MEMORIES]
        FAR_BYTES.clear()
        store = None if spill is None or limit is None else store_for(spill)
        for memory in MEMORIES:
            memory.limit_bytes = limit
            memory.spill = None if store is None else spill
            is_served = store is not None and (memory.on_device or not store.starts)
            memory.put_away = Spiller(store, memory).make_room if store and is_served else None
        if limit is not None:
            BUFFERS.forget(max(0, limit - BUFFERS.live_bytes))

    def __enter__(self) -> memory_limit:
        return self

    def __exit__(self, *error: object) -> None:
        for memory, limit, spill, make_room in self._before:
            memory.limit_bytes, memory.spill, memory.put_away = limit, spill, make_room


def count_small(memory: TileMemory) -> None:
    """**Local.** Count arrays that are there and were not counted when they were made: small ones."""
    for array in _living(Tiled._kinds[memory.on_device]):
        tile = held_by(array)
        if tile is not None and not memory.counted_for(tile):
            memory.adopt(tile, array.type.tile_bytes)


def _living(kind: type[Tiled]) -> list[Tiled]:
    """**Local.** All arrays of a kind that are not put away, the oldest first.

    There is no list of them, so that they cost nothing; the collector has them.
    """
    return [one for age in (2, 1, 0) for one in gc.get_objects(age) if type(one) is kind]


class Spiller:
    """Makes room by putting arrays away, those first that came longest ago."""

    def __init__(self, store: SpillStore, memory: TileMemory) -> None:
        self._store, self._memory = store, memory

    def make_room(self, n_bytes: int) -> None:
        """**Local.** Put arrays away until this many bytes more fit, or none can leave any more."""
        limit, kind = self._memory.limit_bytes, Tiled._kinds[self._memory.on_device]
        assert limit is not None
        arrays = _living(kind)
        loaded = last_loads()
        arrays.sort(key=lambda array: loaded.get(id(array), 0))
        for array in arrays:
            if self._memory.live_bytes + n_bytes <= limit:
                return
            if can_leave(array):
                put_away(array, self._store)
