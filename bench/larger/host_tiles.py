"""Arrays for tiles in memory that is used again: new pages cost more than a read from a quick disk."""

from __future__ import annotations

import math
import mmap
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from redist.runtime.lanes.file_io import aligned_memory

SMALL_BYTES = 2**14
"""Smaller tiles come from NumPy."""


class HostTiles:
    """Makes arrays for tiles, by number, and keeps the memory of dead ones for the next.

    Living and kept memory together stay within ``most_bytes``, as long as the living does: what is kept goes
    first. Arrays begin with a page, so that direct I/O needs no buffer. One thread at a time may call it;
    arrays may die in any.

    >>> tiles = HostTiles([(64, 64)] * 3, [np.dtype("f8")] * 3, 2**16)
    >>> one = tiles(0)
    >>> address = one.ctypes.data
    >>> del one
    >>> tiles(1).ctypes.data == address, tiles.kept_bytes
    (True, 0)
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[np.dtype[Any]],
        most_bytes: int | None = None,
    ) -> None:
        self._shapes, self._dtypes, self._most = shapes, dtypes, most_bytes
        self._dead: deque[mmap.mmap] = deque()
        self._free: dict[int, list[mmap.mmap]] = {}
        self.live_bytes = self.kept_bytes = 0
        """Of arrays that live, and of memory that is kept: as of the last call, in whole pages."""

    def __call__(self, tile: int) -> Any:
        """**Local.** A new array for a tile, with whatever its memory held."""
        shape, dtype = self._shapes[tile], self._dtypes[tile]
        n_bytes = math.prod(shape) * dtype.itemsize
        if n_bytes < SMALL_BYTES:
            return np.empty(shape, dtype)
        memory = self._take(-(-n_bytes // mmap.PAGESIZE) * mmap.PAGESIZE)
        owner = _TileOwner(memory)
        weakref.finalize(owner, self._dead.append, memory).atexit = False
        return np.asarray(owner)[:n_bytes].view(dtype).reshape(shape)

    def _take(self, size: int) -> mmap.mmap:
        while self._dead:
            memory = self._dead.popleft()
            self.live_bytes -= len(memory)
            self.kept_bytes += len(memory)
            self._free.setdefault(len(memory), []).append(memory)
        self.live_bytes += size
        found = self._free.get(size)
        if found:
            self.kept_bytes -= size
            return found.pop()
        if self._most is not None:
            self.forget(self._most - self.live_bytes)
        return aligned_memory(size)

    def forget(self, most_bytes: int = 0) -> None:
        """**Local.** Give kept memory back until at most so much is left."""
        while self.kept_bytes > max(0, most_bytes):
            size = max(self._free)
            found = self._free[size]
            if found:
                found.pop()
                self.kept_bytes -= size
            else:
                del self._free[size]


class _TileOwner:
    """Lives as long as an array looks at the memory."""

    __slots__ = ("__array_interface__", "__weakref__", "_memory")

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self.__array_interface__ = np.frombuffer(memory, np.uint8).__array_interface__
