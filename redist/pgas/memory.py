"""Memory for tiles, of the host or of a GPU, counted against a limit; the host's is shared and reused."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from redist.errors import MemoryLimitError, RequestError
from redist.pgas.keeper import FAR_BYTES
from redist.runtime.cuda.arrays import empty_on_device, to_device, to_host
from redist.runtime.shm.segments import Bytes, can_share, shared_bytes
from redist.text.units import ceil_div, format_bytes, parse_bytes

Tile = NDArray[Any]

SHARED_FROM = 2**16
"""Smaller tiles lie in private memory: neighbours get them through the pool. They count where a
limit was set before they were made."""
GRAIN = 2**16
KEPT_BYTES = 2**28
"""Dead segments up to this much are kept for the next tiles."""


class TileMemory:
    """Allocates tiles, and counts the bytes that global arrays hold.

    ``live_bytes`` is what global arrays hold on this rank, wherever their tiles came from (small
    ones only under a limit), ``limit_bytes`` what they may hold. ``made`` and ``reused`` count segments.
    """

    on_device: ClassVar[bool] = False
    is_ghost: ClassVar[bool] = False
    is_plain: ClassVar[bool] = True
    """Whether tiles are arrays of NumPy: neither on a GPU nor without bytes."""

    def __init__(self) -> None:
        self.limit_bytes: int | None = None
        self.live_bytes = 0
        self.made = self.reused = 0
        self._free: dict[int, list[Bytes]] = {}
        self._kept_bytes = 0
        self._adopted: dict[int, _Held] = {}

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], worst_bytes: int) -> Tile:
        """**Local.** Allocate a tile; raise if the limit has no room for it.

        ``worst_bytes`` is what the fullest rank takes: counted here too, so that all ranks have the
        same error.
        """
        n_bytes = math.prod(shape) * dtype.itemsize
        counted = max(n_bytes, worst_bytes)
        if counted < SHARED_FROM or not can_share():
            if self.limit_bytes is not None:
                self.check(counted)
            return np.empty(shape, dtype)
        counted = round_to_grains(counted)
        self.check(counted)
        size = round_to_grains(max(1, n_bytes))
        memory = self._take(size)
        owner = _Owner(memory)
        self.live_bytes += counted
        weakref.finalize(owner, self._give_back, memory, size, counted).atexit = False
        tile: Bytes = np.asarray(owner)
        return tile[:n_bytes].view(dtype).reshape(shape)

    def asarray(self, values: Any) -> Tile:
        """**Local.** Bring values from the host, or from here, into this memory."""
        return np.asarray(values)

    def host(self, tile: Tile) -> Tile:
        """**Local.** A tile as a NumPy array."""
        return tile

    def contiguous(self, tile: Tile) -> Tile:
        """**Local.** Copy a tile into C order; itself if it is."""
        return np.ascontiguousarray(tile)

    def write(self, function: Callable[..., None], tile: Tile, *args: Any) -> None:
        """**Local.** Let a function write a tile, which is its first argument."""
        function(tile, *args)

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """**Local.** Call a function of tiles whose result has sizes of theirs; it may look at values."""
        return function(*args, **options)

    def check_room(self, n_bytes: int) -> None:
        """**Local.** Raise if the limit has no room for ``n_bytes`` more."""
        if self.limit_bytes is not None:
            self.check(n_bytes)

    def adopt(self, tile: Tile, worst_bytes: int) -> None:
        """**Local.** Count a tile whose memory came from elsewhere, once, for as long as it lives."""
        root: Any = tile
        base = root.base
        while base.__class__ is np.ndarray:
            root, base = base, base.base
        if base.__class__ is _Owner or id(root) in self._adopted:
            return
        self._hold(root, worst_bytes)

    def _hold(self, root: Any, worst_bytes: int) -> None:
        held = _Held(root, self._disown)
        held.root, held.counted = id(root), max(root.nbytes, worst_bytes)
        self._adopted[held.root] = held
        self.live_bytes += held.counted

    def _disown(self, held: Any) -> None:
        del self._adopted[held.root]
        self.live_bytes -= held.counted

    def check(self, n_bytes: int) -> None:
        """Raise if ``n_bytes`` more would pass the limit, garbage collected: ranks have different garbage."""
        limit = self.limit_bytes
        if limit is None or self.live_bytes + n_bytes <= limit:
            return
        gc.collect()
        if self.live_bytes + n_bytes > limit:
            raise MemoryLimitError(
                f"cannot allocate {format_bytes(n_bytes)}: {format_bytes(self.live_bytes)} are alive "
                f"and the limit is {format_bytes(limit)}; free arrays, cut them into "
                "smaller tiles, or raise the limit"
            )

    def _take(self, size: int) -> Bytes:
        found = self._free.get(size)
        if found:
            self._kept_bytes -= size
            self.reused += 1
            return found.pop()
        self.made += 1
        if self.limit_bytes is not None:
            self.forget(max(0, self.limit_bytes - self.live_bytes - size))
        return shared_bytes(size)

    def _give_back(self, memory: Bytes, size: int, counted: int) -> None:
        self.live_bytes -= counted
        if self._kept_bytes + size <= KEPT_BYTES:
            self._free.setdefault(size, []).append(memory)
            self._kept_bytes += size

    def forget(self, most_bytes: int = 0) -> None:
        """Free dead segments until at most so many bytes are kept."""
        while self._kept_bytes > most_bytes and self._free:
            size, found = next(iter(self._free.items()))
            if found:
                found.pop()
                self._kept_bytes -= size
            else:
                del self._free[size]


class _Held(weakref.ref[Any]):
    """Knows when an array dies, and what was counted for it."""

    __slots__ = ("counted", "root")
    root: int
    counted: int


class _Owner:
    """Keeps a segment in use as long as an array looks at it."""

    def __init__(self, memory: Bytes) -> None:
        self.__array_interface__ = memory.__array_interface__


class DeviceTileMemory(TileMemory):
    """Tiles on the rank's GPU, from CuPy's pool. Their bytes count apart from those in memory."""

    on_device: ClassVar[bool] = True
    is_plain: ClassVar[bool] = False

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], worst_bytes: int) -> Tile:
        """**Local.** Allocate a tile; raise if the limit has no room for it."""
        if self.limit_bytes is not None:
            self.check(max(math.prod(shape) * dtype.itemsize, worst_bytes))
        tile: Tile = empty_on_device(shape, dtype)
        return tile

    def asarray(self, values: Any) -> Tile:
        """**Local.** Bring values from the host, or from here, into this memory."""
        tile: Tile = to_device(values)
        return tile

    def host(self, tile: Tile) -> Tile:
        """**Local.** A tile as a NumPy array: a copy, made when the stream has come to it."""
        out: Tile = to_host(tile)
        return out

    def contiguous(self, tile: Tile) -> Tile:
        """**Local.** Copy a tile into C order; itself if it is."""
        return tile if tile.flags.c_contiguous else tile.copy()

    def adopt(self, tile: Tile, worst_bytes: int) -> None:
        """**Local.** Count a tile, once with all views of it, for as long as it lives."""
        root = tile if tile.base is None else tile.base
        if id(root) not in self._adopted:
            self._hold(root, worst_bytes)


BUFFERS = TileMemory()
DEVICE = DeviceTileMemory()


def as_tile(values: Any, dtype: Any = None) -> Tile:
    """**Local.** Convert a result on tiles to an array: NumPy gives numbers if no dim is left.

    >>> as_tile(np.float32(3)).shape
    ()
    """
    if isinstance(values, (np.ndarray, np.generic)):
        return np.asarray(values, dtype)
    tile: Tile = values if dtype is None else values.astype(dtype, copy=False)
    return tile


def round_to_grains(n_bytes: int) -> int:
    """Round bytes up to the next whole grain, as segments have them."""
    return ceil_div(n_bytes, GRAIN) * GRAIN


class memory_limit:
    """Bound what global arrays may hold on each rank: from now on, or while a block runs.

    >>> import redist
    >>> with redist.memory_limit("1MiB"):
    ...     BUFFERS.empty((2**21,), np.dtype("u1"), 0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    redist.errors.MemoryLimitError: cannot allocate 2 MiB: ... alive and the limit is 1 MiB; ...

    **Local**, but give all ranks the same. The limit holds as soon as the call is made; at the end of a
    ``with`` block the one before holds again. Arrays count by the tile of the fullest rank, and what a
    move takes on the way counts too: plans are made for what is left. None lifts the limit. Tiles on
    a GPU may take as much again: bytes of a GPU and bytes in memory are counted apart.
    """

    def __init__(self, limit_bytes: int | str | None) -> None:
        limit = parse_bytes(limit_bytes) if isinstance(limit_bytes, str) else limit_bytes
        if limit is not None and (isinstance(limit, bool) or limit < 0):
            raise RequestError(
                f"cannot limit memory to {limit_bytes!r}: need bytes, as 2**30 or '1GiB'"
            )
        self._before = BUFFERS.limit_bytes
        FAR_BYTES.clear()
        _limit_all(limit)
        if limit is not None:
            BUFFERS.forget(max(0, limit - BUFFERS.live_bytes))

    def __enter__(self) -> memory_limit:
        return self

    def __exit__(self, *error: object) -> None:
        _limit_all(self._before)


def _limit_all(limit_bytes: int | None) -> None:
    """Set one limit for memory and for GPUs; each counts its own bytes against it."""
    BUFFERS.limit_bytes = DEVICE.limit_bytes = limit_bytes
