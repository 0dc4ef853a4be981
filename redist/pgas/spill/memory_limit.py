"""Bound what global arrays may hold, and spill the oldest where there is a place for them."""

from __future__ import annotations

import gc
import sys
from functools import partial
from typing import Any

import numpy as np

from redist.pgas.global_array import Array
from redist.pgas.keeper import FAR_BYTES
from redist.pgas.limit_in_force import (
    MemoryLimit,
    reset_limit,
    set_limit,
    set_limit_of_process,
)
from redist.pgas.memory import BUFFERS, TileMemory, root_of
from redist.pgas.spill.spill_store import (
    SpillStore,
    StoredTile,
    TileLayout,
    spill_folder,
    store_for,
)
from redist.pgas.tiles.tiled import Tiled, held_by, hold_stored
from redist.runtime.copies.gpu_arrays import is_cupy_array
from redist.runtime.lanes.spill_file import BLOCK_BYTES
from redist.text.units import room_from

# Spill arrays: which may leave memory, and how. Tiles are reloaded when somebody asks for them.


class _Holder:
    __slots__ = ("tile",)
    tile: Any


def _count_alone() -> int:
    """How many hold a tile that only its array holds, as this Python counts where :func:`can_leave` does."""
    holder = _Holder()
    holder.tile = np.empty(0)
    tile = holder.tile
    return sys.getrefcount(tile)


ALONE = _count_alone()


def stored_tile(array: Tiled) -> StoredTile | None:
    """**Local.** What an array holds that is put away; None if it is not."""
    held = held_by(array)
    return held if isinstance(held, StoredTile) else None


def can_leave(array: Tiled) -> bool:
    """**Local.** Whether a tile may be put away: nobody else holds it or its memory, and it has no gaps.

    Views and tiles that were asked for once and are gone do not count; on a GPU nobody can tell.
    """
    if array._space is not None or array.memory.is_ghost:
        return False
    if array.memory.on_device and array.is_shared:
        return False
    tile = held_by(array)
    if not (isinstance(tile, np.ndarray) or is_cupy_array(tile)) or tile.nbytes < BLOCK_BYTES:
        return False
    if sys.getrefcount(tile) > ALONE:
        return False
    root = root_of(tile)
    if root is not tile and sys.getrefcount(root) > ALONE:
        return False
    return TileLayout.of(tile) is not None


def why_held(array: Tiled) -> str:
    """**Local.** Why an array whose tile is large enough cannot leave, and what to do, in words."""
    if array._space is not None:
        return "other ranks can reach it; give a copy"
    if array.memory.on_device:
        return "a view of it or its tile was asked for; give a copy"
    if TileLayout.of(held_by(array)) is None:
        return "there are gaps in its tile; give a copy"
    return "a view of it or its NumPy tile is still alive: delete that"


def put_away(array: Tiled, store: SpillStore) -> None:
    """**Local.** Write the tile of an array that :func:`can_leave` to a store, and free its memory."""
    hold_stored(array, StoredTile.of(held_by(array), store, array.type.tile_bytes))


class memory_limit:
    """Limit the memory of global arrays on each rank: from now on, or while a block runs.

    >>> import numpy as np, redist
    >>> with redist.memory_limit("1MiB"):
    ...     BUFFERS.empty((2**21,), np.dtype("u1"), 0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    redist.errors.MemoryLimitError: cannot allocate 2 MiB: this array alone exceeds the limit of 1 MiB; ...

    **Local**, but pass the same limit on all ranks. It holds as soon as the call is made; at the end of a
    ``with`` block, the previous limit holds again. An array counts by the tile of the fullest rank, and the
    temporary memory of a move counts too: plans are made for what is left. None lifts the limit. Tiles on a
    GPU may take the same amount again: bytes on a GPU and bytes in host memory are counted separately. A
    block limits what its own thread allocates; a call outside any block limits other threads too.

    With ``spill``, a folder, arrays without live views are written to a file there, oldest first, when an
    allocation has no room, and are loaded again when they are used. The file has no name and disappears
    with the last array in it. ``spill="host"`` spills arrays on a GPU to pinned memory instead. Programs
    (:func:`redist.pgas.program`) keep the limit by a plan, which is faster: it knows what is needed next.
    """

    def __init__(self, limit_bytes: int | float | str | None, *, spill: str | None = None) -> None:
        limit, spill = room_from(limit_bytes), spill_folder(spill)
        FAR_BYTES.clear()
        store = None if spill is None or limit is None else store_for(spill)
        given = MemoryLimit(limit)
        if store is not None:
            given = MemoryLimit(limit, spill, partial(spill_from, store))
        self._of_process = set_limit_of_process(given)
        self._token = set_limit(given)
        if limit is not None:
            BUFFERS.forget(max(0, limit - BUFFERS.live_bytes))

    def __enter__(self) -> memory_limit:
        set_limit_of_process(self._of_process)  # other threads keep theirs
        return self

    def __exit__(self, *error: object) -> None:
        set_limit_of_process(self._of_process)
        reset_limit(self._token)


def count_small(memory: TileMemory) -> None:
    """**Local.** Count arrays that are there and were not counted when they were made: small ones.

    There is no list of them, so that they cost nothing; Python's collector has them.
    """
    for array in [one for one in gc.get_objects() if type(one) is Array]:
        tile = held_by(array) if array.memory is memory and stored_tile(array) is None else None
        if tile is not None and not memory.counted_for(tile):
            memory.enrol(array)


def spill_from(store: SpillStore, memory: TileMemory, n_bytes: int) -> None:
    """**Local.** Spill arrays of a memory until this many bytes more fit, or none can leave any more.

    Those leave first that were made or reloaded longest ago.
    """
    limit = memory.limit_bytes
    if limit is None or (store.starts and not memory.on_device):
        return
    for reference in list(memory.arrays.values()):
        if memory.live_bytes + n_bytes <= limit:
            return
        array = reference()
        if array is not None and stored_tile(array) is None and can_leave(array):
            put_away(array, store)
