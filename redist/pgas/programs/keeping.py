"""What programs keep of their arguments from one call to the next: moved copies, and lists of inspections.

All of it is made of arguments as they were, and found by them and their versions. Where somebody may write
to an argument without a word, as after ``a.local``, copies are not kept. Lists are: the indices of which they
are made are compared, which costs less than to tell them once more.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from redist.layout.array_type import ArrayType
from redist.pgas.keeper import FAR_BYTES
from redist.pgas.tiles.tiled import Tile, Tiled
from redist.runtime.elements.inspected import Inspection


class _KeptTile:
    """A moved copy of an argument; the tile is None on a rank that has none."""

    __slots__ = ("tile",)

    def __init__(self, tile: Tile | None) -> None:
        self.tile = tile


def _copy_key(array: Tiled, target: ArrayType) -> Any:
    return id(array), array.version, array.type, target


def kept_copy(array: Tiled, target: ArrayType) -> _KeptTile | None:
    """**Local.** The copy of an argument as it is now that was moved to a type, if it is kept."""
    found: _KeptTile | None = None if array.is_shared else FAR_BYTES.get(_copy_key(array, target))
    return found


def keep_copy(array: Tiled, target: ArrayType, tile: Tile | None) -> None:
    """**Local.** Keep a moved copy for as long as the array lives, unless others may write to it unseen."""
    if array.is_shared:
        return
    key = _copy_key(array, target)
    if FAR_BYTES.put(key, _KeptTile(tile), 0 if tile is None else tile.nbytes):
        _let_go_with([array], target, key)


class _KeptLists:
    """An inspection, and what the tiles had in them that may be written unseen, each with its place."""

    __slots__ = ("lists", "seen")

    def __init__(self, lists: Inspection, seen: dict[int, Tile | None]) -> None:
        self.lists, self.seen = lists, seen


def _lists_key(arrays: Sequence[Tiled], way: Hashable) -> Any:
    return tuple((id(one), one.version, one.type) for one in arrays), way


def kept_inspection(arrays: Sequence[Tiled], way: Hashable) -> Inspection | None:
    """**Local.** The lists for indices made in a way of arguments as they are now, if kept."""
    found: _KeptLists | None = FAR_BYTES.get(_lists_key(arrays, way))
    if found is None:
        return None
    for at, one in enumerate(arrays):
        if one.is_shared and not (at in found.seen and _alike(one.tile, found.seen[at])):
            return None
    return found.lists


def keep_inspection(arrays: Sequence[Tiled], way: Hashable, lists: Inspection) -> None:
    """**Local.** Keep lists while the arrays live, with copies of those that may be written unseen."""
    seen = {
        at: None if one.tile is None else one.tile.copy()
        for at, one in enumerate(arrays)
        if one.is_shared and not one.memory.on_device
    }
    key = _lists_key(arrays, way)
    n_bytes = lists.n_bytes + sum(tile.nbytes for tile in seen.values() if tile is not None)
    if FAR_BYTES.put(key, _KeptLists(lists, seen), n_bytes):
        _let_go_with(arrays, way, key)


def _alike(tile: Tile | None, seen: Tile | None) -> bool:
    if tile is None or seen is None:
        return tile is seen
    return np.array_equal(tile, seen)


_KEYS: dict[int, dict[Any, Any]] = {}
"""By array: what is kept of it, by the type that it was moved to, or the way indices are made."""


def _let_go_with(arrays: Sequence[Tiled], what: Hashable, key: Any) -> None:
    """**Local.** Keep something no longer once one of its arrays has died or changed."""
    for array in arrays:
        keys = _KEYS.get(id(array))
        if keys is None:
            keys = _KEYS[id(array)] = {}
            weakref.finalize(array, _drop_all, id(array)).atexit = False
        before = keys.get(what)
        if before is not None and before != key:
            FAR_BYTES.drop(before)
        keys[what] = key


def _drop_all(array: int) -> None:
    for key in _KEYS.pop(array, {}).values():
        FAR_BYTES.drop(key)
