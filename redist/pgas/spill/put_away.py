"""Spill arrays: which may leave memory, and how. Tiles are reloaded when somebody asks for them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from redist.pgas.memory import root_of
from redist.pgas.spill.spill_store import SpillStore, StoredTile, TileLayout
from redist.pgas.tiles.tiled import Tiled, held_by, hold_stored
from redist.runtime.copies.gpu_arrays import is_cupy_array
from redist.runtime.lanes.file_io import BLOCK_BYTES


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
