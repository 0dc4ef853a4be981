"""Arrays whose tiles lie in a store: they are as any other, and come back when somebody touches the tile."""

from __future__ import annotations

import itertools
import sys
import weakref
from functools import cache
from typing import Any

import numpy as np

from redist.pgas.memory import BUFFERS, SHARED_FROM, root_of
from redist.pgas.spill.spill_store import SpillStore, StoredTile, TileLayout
from redist.pgas.tiles.tiled import Tile, Tiled, held_by, hold
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


class ComesBack:
    """What an array is more while it is put away: it has its tile again as soon as that is asked for."""

    __slots__ = ()

    @property
    def tile(self) -> Tile | None:
        """**Local.** The tile, in memory from now on."""
        bring_back(self)  # type: ignore[arg-type]
        tile: Tile | None = held_by(self)  # type: ignore[arg-type]
        return tile

    @tile.setter
    def tile(self, tile: Tile | None) -> None:
        self.__class__ = _plain_kind(self.__class__)
        hold(self, tile)  # type: ignore[arg-type]


@cache
def _put_away_kind(kind: Any) -> Any:
    return type(f"PutAway{kind.__name__}", (ComesBack, kind), {"__slots__": ()})


def _plain_kind(kind: Any) -> Any:
    """The class of which a class of arrays that are put away was made."""
    return kind.__bases__[1]


def kind_of(array: Tiled) -> type[Tiled]:
    """**Local.** The class of an array, whether or not it is put away."""
    kind: Any = array.__class__
    return _plain_kind(kind) if issubclass(kind, ComesBack) else kind


def stored_tile(array: Tiled) -> StoredTile | None:
    """**Local.** What an array holds that is put away; None if it is not."""
    held = held_by(array)
    return held if isinstance(held, StoredTile) else None


def can_leave(array: Tiled) -> bool:
    """**Local.** Whether a tile may be put away: nobody else holds it or its memory, and it has no gaps.

    Views and tiles that were asked for once and are gone do not count; on a GPU nobody can tell.
    """
    if array._space is not None or array._memory.is_ghost:
        return False
    if array._memory.on_device and array.is_shared:
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
    if array._memory.on_device:
        return "a view of it or its tile was asked for; give a copy"
    if TileLayout.of(held_by(array)) is None:
        return "there are gaps in its tile; give a copy"
    return "a view of it or its NumPy tile is still alive: delete that"


def put_away(array: Tiled, store: SpillStore) -> None:
    """**Local.** Write the tile of an array that :func:`can_leave` to a store, and free its memory."""
    stored = StoredTile.of(held_by(array), store, array.type.tile_bytes)
    hold_stored(array, stored)


def hold_stored(array: Tiled, stored: StoredTile) -> None:
    """**Local.** Let an array be put away, with these bytes."""
    kind: Any = kind_of(array)
    hold(array, stored)
    array.__class__ = _put_away_kind(kind)


def bring_back(array: Tiled) -> None:
    """**Local.** Load the tile of an array that is put away."""
    stored = stored_tile(array)
    if stored is not None:
        tile = stored.load()
        array.__class__ = kind_of(array)
        hold(array, tile)
        if tile.nbytes >= SHARED_FROM or BUFFERS.limit_bytes is not None:  # as that of a new array
            array._memory.adopt(tile, stored.worst_bytes)
        _note_load(array)


_LOADS = itertools.count(1)
_LOADED: dict[int, tuple[weakref.ref[Tiled], int]] = {}
"""By the identity of arrays that came back and live: when that was last."""


def _note_load(array: Tiled) -> None:
    key = id(array)
    gone = weakref.ref(array, lambda _: _LOADED.pop(key, None))
    _LOADED[key] = gone, next(_LOADS)


def last_loads() -> dict[int, int]:
    """**Local.** By the identity of arrays that came back: the number of their last load."""
    return {key: number for key, (_, number) in _LOADED.items()}
