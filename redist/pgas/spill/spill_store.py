"""The file that tiles of a folder are put away into, and tiles as they lie in it."""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.pgas.memory import BUFFERS, Tile
from redist.runtime.lanes.spill_file import FileSpace, SpillFile
from redist.runtime.lanes.stores import Bytes, bytes_of, memory_order


class SpillSpace:
    """Room of a store for as long as somebody holds this; whoever lets it go last gives it back."""

    __slots__ = ("_room", "store")

    def __init__(self, store: SpillStore, room: FileSpace) -> None:
        self.store, self._room = store, room

    def write(self, data: Bytes) -> None:
        """**Local.** Copy bytes there."""
        self.store.file.write(self._room, data)

    def read(self, out: Bytes) -> None:
        """**Local.** Copy the first bytes from there."""
        self.store.file.read(self._room, out)

    def __del__(self) -> None:
        self.store.let_go(self._room)


class SpillStore:
    """A store (:class:`~redist.runtime.lanes.stores.TileStore`) whose spaces may outlive whoever took them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = store_in(folder)
    ...     stored = StoredTile.of(np.arange(6.0).reshape(2, 3).T, store)
    ...     tile = stored.load()
    >>> tile.strides, tile.tolist()
    ((8, 24), [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])
    """

    starts = False

    def __init__(self, folder: str) -> None:
        self.file = SpillFile(folder)
        self._gone: deque[FileSpace] = deque()
        """Rooms that were let go, at any moment and by any thread; given back when one is taken."""
        self._lock = threading.Lock()
        weakref.finalize(self, self.file.close)

    def let_go(self, room: FileSpace) -> None:
        """**Local.** Note that nobody needs a room any more."""
        self._gone.append(room)

    def _give_back(self) -> None:
        while self._gone:
            self.file.give(self._gone.popleft())

    def reserve(self, n_bytes: int) -> None:
        """**Local.** Make sure of room on the disk, or raise :class:`~redist.errors.SpillError`."""
        with self._lock:
            self._give_back()
            self.file.reserve(n_bytes)

    def take(self, n_bytes: int) -> SpillSpace:
        """**Local.** Room for a copy."""
        with self._lock:
            self._give_back()
            return SpillSpace(self, self.file.take(n_bytes))

    def give(self, space: SpillSpace) -> None:
        """**Local.** Nothing: a space ends when nobody holds it."""

    def write(self, space: SpillSpace, data: Bytes) -> None:
        """**Local.** Copy bytes there, wherever the space is."""
        space.write(data)

    def read(self, space: SpillSpace, out: Bytes) -> None:
        """**Local.** Copy the first bytes from there."""
        space.read(out)

    def memory_of(self, space: SpillSpace) -> None:
        """**Local.** None: a file is not memory."""

    def close(self) -> None:
        """**Local.** Nothing: the file ends when nobody holds the store or a space of it."""


_STORES: weakref.WeakValueDictionary[str, SpillStore] = weakref.WeakValueDictionary()
"""By folder: one file a process, while anything is in it or somebody may put something there."""


def store_in(folder: str) -> SpillStore:
    """**Local.** The store of a folder, made if there is none; whoever needs it holds it."""
    key = os.path.realpath(folder)
    store = _STORES.get(key)
    if store is None:
        store = _STORES[key] = SpillStore(folder)
    return store


@dataclass(frozen=True, slots=True)
class TileLayout:
    """How a tile lies in memory without gaps: ``order`` has its dims from the outermost to the innermost."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: tuple[int, ...]

    @staticmethod
    def of(tile: Tile) -> TileLayout | None:
        """The layout of a tile; None if there are gaps in it.

        >>> TileLayout.of(np.zeros((2, 3)).T).order, TileLayout.of(np.zeros((4, 4))[::2])
        ((1, 0), None)
        """
        order = memory_order(tile)
        if order is None:
            return None
        return TileLayout(tile.shape, tile.dtype, order)

    @property
    def nbytes(self) -> int:
        """The bytes of such a tile."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides of such a tile.

        >>> TileLayout((2, 3), np.dtype("f8"), (1, 0)).strides
        (8, 16)
        """
        out, step = [0] * len(self.shape), self.dtype.itemsize
        for dim in reversed(self.order):
            out[dim] = step
            step *= max(1, self.shape[dim])
        return tuple(out)

    def empty(self, worst_bytes: int = 0) -> Tile:
        """**Local.** A new tile that lies so."""
        shape = tuple(self.shape[dim] for dim in self.order)
        tile = BUFFERS.empty(shape, self.dtype, worst_bytes)
        return tile.transpose([self.order.index(dim) for dim in range(len(shape))])


@dataclass(frozen=True, slots=True, eq=False)
class StoredTile:
    """A tile in a store: the space that has its bytes, and how they lay in memory."""

    space: SpillSpace
    layout: TileLayout
    worst_bytes: int = 0
    """What it is counted with where it comes back: the tile of the fullest rank."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the tile."""
        return self.layout.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its elements."""
        return self.layout.dtype

    @property
    def ndim(self) -> int:
        """Number of its dims."""
        return len(self.layout.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """As they were, and will be."""
        return self.layout.strides

    @property
    def nbytes(self) -> int:
        """Bytes of the tile."""
        return self.layout.nbytes

    @staticmethod
    def of(tile: Tile, store: SpillStore, worst_bytes: int = 0) -> StoredTile:
        """**Local.** Write a tile to a store; it must have no gaps."""
        layout = TileLayout.of(tile)
        assert layout is not None
        space = store.take(tile.nbytes)
        space.write(bytes_of(tile))
        return StoredTile(space, layout, worst_bytes)

    def load(self) -> Tile:
        """**Local.** The tile, in memory again."""
        tile = self.layout.empty(self.worst_bytes)
        self.space.read(bytes_of(tile))
        return tile
