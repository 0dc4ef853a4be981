"""What tiles are put away into, a file of a folder or memory of the host, and tiles as they lie there."""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from redist.errors import ArgumentError, SpillError
from redist.pgas.memory import Tile, counted_bytes, memory_for
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import current_stream, to_host
from redist.runtime.cuda.pinned_store import PinnedStore
from redist.runtime.lanes.spill_file import SpillFile
from redist.runtime.lanes.stores import Bytes, TileStore, UnderWay, bytes_of, memory_order

HOST = "host"
"""Where tiles of a GPU are put away in the place of a folder: pinned memory of the host."""


class SpillSpace:
    """Room of a store for as long as somebody holds this; whoever lets it go last gives it back."""

    __slots__ = ("_room", "store")

    def __init__(self, store: SpillStore, room: Any) -> None:
        self.store, self._room = store, room

    def write(self, data: Any) -> UnderWay | None:
        """**Local.** Copy bytes there, or start to."""
        return self.store.inner.write(self._room, data)

    def read(self, out: Any, start: int = 0) -> UnderWay | None:
        """**Local.** Copy bytes from there, or start to: the first, or from ``start`` on in a file."""
        if not start:
            return self.store.inner.read(self._room, out)
        return self.store.inner.read(self._room.from_byte(start), out)

    def memory(self) -> Bytes | None:
        """**Local.** The bytes, where the host can read and write them in place."""
        return self.store.inner.memory_of(self._room)

    def __del__(self) -> None:
        self.store.let_go(self._room)


class PartOfSpace:
    """Some bytes of a space, from one on: they stay as long as the space does."""

    __slots__ = ("_space", "_start", "store")

    def __init__(self, space: SpillSpace, start: int) -> None:
        self.store, self._space, self._start = space.store, space, start

    def read(self, out: Any) -> UnderWay | None:
        """**Local.** Copy the first of these bytes from there."""
        return self._space.read(out, self._start)


class SpillStore:
    """A store (:class:`~redist.runtime.lanes.stores.TileStore`) whose spaces may outlive whoever took them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = store_for(folder)
    ...     stored = StoredTile.of(np.arange(6.0).reshape(2, 3).T, store)
    ...     tile = stored.load()
    >>> tile.strides, tile.tolist()
    ((8, 24), [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])
    """

    def __init__(self, inner: TileStore) -> None:
        self.inner, self.starts = inner, inner.starts
        self._gone: deque[Any] = deque()
        """Rooms that were let go, at any moment and by any thread; given back when one is taken."""
        self._lock = threading.Lock()
        weakref.finalize(self, inner.close).atexit = not inner.starts

    def let_go(self, room: Any) -> None:
        """**Local.** Note that nobody needs a room any more."""
        self._gone.append(room)

    def _give_back(self) -> None:
        while self._gone:
            self.inner.give(self._gone.popleft())

    def reserve(self, n_bytes: int) -> None:
        """**Local.** Make sure of room, or raise :class:`~redist.errors.SpillError`."""
        with self._lock:
            self._give_back()
            self.inner.reserve(n_bytes)

    def take(self, n_bytes: int) -> SpillSpace:
        """**Local.** Room for a copy."""
        with self._lock:
            self._give_back()
            return SpillSpace(self, self.inner.take(n_bytes))

    def give(self, space: SpillSpace) -> None:
        """**Local.** Nothing: a space ends when nobody holds it."""

    def write(self, space: SpillSpace, data: Any) -> UnderWay | None:
        """**Local.** Copy bytes there, wherever the space is."""
        return space.write(data)

    def read(self, space: SpillSpace, out: Any) -> UnderWay | None:
        """**Local.** Copy the first bytes from there."""
        return space.read(out)

    def memory_of(self, space: SpillSpace) -> Bytes | None:
        """**Local.** The bytes of a copy, where the host can read and write them in place; else None."""
        return space.memory()

    def close(self) -> None:
        """**Local.** Nothing: what is behind it ends when nobody holds the store or a space of it."""


_STORES: weakref.WeakValueDictionary[str, SpillStore] = weakref.WeakValueDictionary()
"""By folder: one file a process, while anything is in it or somebody may put something there."""


def spill_folder(spill: Any) -> str | None:
    """**Local.** What ``spill`` says, a folder that is there or ``"host"``; None is none.

    >>> spill_folder(True)
    Traceback (most recent call last):
    ...
    redist.errors.ArgumentError: cannot spill to True: give a folder, such as "/scratch"
    """
    if spill is None or spill == HOST:
        return spill
    if not isinstance(spill, (str, os.PathLike)) or not os.fspath(spill):
        raise ArgumentError(f'cannot spill to {spill!r}: give a folder, such as "/scratch"')
    folder = Path(os.fsdecode(spill))
    if str(spill).startswith("~"):
        with suppress(RuntimeError):  # nobody of that name: the folder is not there
            folder = folder.expanduser()
    if not folder.exists():
        raise SpillError(
            f"cannot spill to {folder}: there is no such folder; make it, or give another"
        )
    if not folder.is_dir():
        raise SpillError(f"cannot spill to {folder}: it is a file, not a folder; give a folder")
    return str(folder)


def store_for(where: str) -> SpillStore:
    """**Local.** The store of a folder, or of the host, made if there is none; whoever needs it holds it."""
    key = where if where == HOST else os.path.realpath(where)
    store = _STORES.get(key)
    if store is None:
        store = _STORES[key] = SpillStore(_pinned() if where == HOST else SpillFile(where))
    return store


def _pinned() -> PinnedStore:
    try:
        return PinnedStore()
    except ImportError as error:
        raise SpillError(
            'cannot spill to "host", which is for arrays on a GPU: CuPy is missing; give a folder'
        ) from error


@dataclass(frozen=True, slots=True)
class TileLayout:
    """How a tile lies in memory without gaps: ``order`` has its dims from the outermost to the innermost."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: tuple[int, ...]
    on_device: bool = False

    @staticmethod
    def of(tile: Tile) -> TileLayout | None:
        """The layout of a tile; None if there are gaps in it.

        >>> TileLayout.of(np.zeros((2, 3)).T).order, TileLayout.of(np.zeros((4, 4))[::2])
        ((1, 0), None)
        """
        order = memory_order(tile)
        if order is None:
            return None
        return TileLayout(tile.shape, tile.dtype, order, is_device(tile))

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
        tile = memory_for(self.on_device).empty(shape, self.dtype, worst_bytes)
        return tile.transpose([self.order.index(dim) for dim in range(len(shape))])


@dataclass(frozen=True, slots=True, eq=False)
class StoredTile:
    """A tile in a store: the space that has its bytes, and how they lay in memory."""

    space: SpillSpace
    layout: TileLayout
    worst_bytes: int = 0
    """What it is counted with where it comes back: the tile of the fullest rank."""

    shape = property(attrgetter("layout.shape"), doc="Sizes of the tile.")
    dtype = property(attrgetter("layout.dtype"), doc="Type of its elements.")
    strides = property(attrgetter("layout.strides"), doc="As they were, and will be.")
    nbytes = property(attrgetter("layout.nbytes"), doc="Bytes of the tile.")

    @property
    def ndim(self) -> int:
        """Number of its dims."""
        return len(self.layout.shape)

    @staticmethod
    def of(tile: Tile, store: SpillStore, worst_bytes: int = 0) -> StoredTile:
        """**Local.** Write a tile to a store; it must have no gaps."""
        layout = TileLayout.of(tile)
        assert layout is not None
        size = tile.nbytes
        if (
            layout.on_device
        ):  # in front of a file it lies in memory of the size that it is counted with
            size = counted_bytes(max(size, worst_bytes), on_device=True)
        space, data = store.take(size), bytes_of(tile)
        if not store.starts:
            space.write(to_host(data))
        else:
            current_stream().synchronize()  # whatever fills it
            under_way = space.write(data)
            assert under_way is not None
            under_way.wait()
        return StoredTile(space, layout, worst_bytes)

    def part(self, dim: int, low: int, high: int) -> tuple[PartOfSpace, TileLayout]:
        """**Local.** Indices of the outermost dim in memory: where they lie, and how."""
        shape = self.layout.shape
        row = self.layout.strides[dim]
        inner = (*shape[:dim], high - low, *shape[dim + 1 :])
        layout = TileLayout(inner, self.layout.dtype, self.layout.order)
        return PartOfSpace(self.space, low * row), layout

    def load(self) -> Tile:
        """**Local.** The tile, in memory again."""
        tile = self.layout.empty(self.worst_bytes)
        out = bytes_of(tile)
        if self.space.store.starts:
            current_stream().synchronize()  # whoever had the memory before
            under_way = self.space.read(out)
            assert under_way is not None
            under_way.wait()
        elif self.layout.on_device:
            there = np.empty(self.nbytes, np.uint8)
            self.space.read(there)
            out.set(there)
        else:
            self.space.read(out)
        return tile
