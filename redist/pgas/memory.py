"""Memory for tiles, of the host or of a GPU, counted against a limit; the host's is shared and reused."""

from __future__ import annotations

import gc
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from redist.errors import MemoryLimitError
from redist.layout.array_type import ArrayType
from redist.pgas.kinds import is_stored
from redist.pgas.limit_in_force import current_limit
from redist.runtime.cuda.arrays import current_stream, empty_on_device, to_device, to_host
from redist.runtime.shm.segments import Bytes, can_share, shared_bytes
from redist.text.units import ceil_div, format_beside, format_bytes

Tile = NDArray[Any]

SHARED_FROM = 2**16
"""Smaller tiles lie in private memory: neighbours get them through the pool. They count where a
limit was set before they were made, and where a program is planned within a limit."""
GRAIN = 2**16
DEVICE_GRAIN = 512
"""CuPy's pool lends memory in whole grains."""
KEPT_BYTES = 2**28
"""Dead segments up to this much are kept for the next tiles."""
RESERVE_BYTES = 2**22
"""Where a plan has counted the living, this much of the dead is kept at its end."""


class TileMemory:
    """Allocates tiles, and counts the bytes that global arrays hold.

    ``live_bytes`` is what global arrays hold on this rank, wherever their tiles came from (small
    ones only if a limit was there first, or a plan), ``limit_bytes`` what they may hold. ``made`` and
    ``reused`` count segments.
    """

    on_device: ClassVar[bool] = False
    is_ghost: ClassVar[bool] = False
    is_plain: ClassVar[bool] = True
    """Whether tiles are arrays of NumPy: neither on a GPU nor without bytes."""

    def __init__(self) -> None:
        self.granted_bytes: int | None = None
        """What the exchange that runs may take on the way, where a plan has counted it."""
        self.arrays: dict[int, weakref.ref[Any]] = {}
        """The living arrays whose tiles count, those first that were made or reloaded longest ago."""
        self.live_bytes = 0
        self.made = self.reused = 0
        self._free: dict[int, list[Bytes]] = {}
        self._kept_bytes = 0
        self._most_kept_bytes = KEPT_BYTES
        self._planned_bytes: int | None = None
        """What living and dead segments may take together, where a plan has counted the living."""
        self._adopted: dict[int, _Held] = {}
        self._lock = threading.RLock()
        """Tiles of programs end in threads that load and store."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], worst_bytes: int) -> Tile:
        """**Local.** Allocate a tile; raise if the limit has no room for it.

        ``worst_bytes`` is what the fullest rank takes: counted here too, so that all ranks have the
        same error.
        """
        n_bytes = math.prod(shape) * dtype.itemsize
        counted = max(n_bytes, worst_bytes)
        if counted < SHARED_FROM or not can_share():
            if self.limit_bytes is not None:
                self.check_room(counted)
            return np.empty(shape, dtype)
        counted = round_to_grains(counted)
        self.check_room(counted)
        size = round_to_grains(max(1, n_bytes))
        with self._lock:
            memory = self._take(size)
            self.live_bytes += counted
        owner = _Owner(memory, counted)
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

    def write(self, function: Callable[..., None], tile: Tile | list[Tile], *args: Any) -> None:
        """**Local.** Let a function write a tile, or a list of some, which is its first argument."""
        function(tile, *args)

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """**Local.** Call a function of tiles whose result has sizes of theirs; it may look at values."""
        return function(*args, **options)

    def settle(self) -> None:
        """**Local.** Wait until all is written that was to be written."""

    def __repr__(self) -> str:
        return "GPU" if self.on_device else "memory"

    @property
    def limit_bytes(self) -> int | None:
        """What tiles may take here; None without a limit, or where a plan has counted all of them."""
        return None if self._planned_bytes is not None else current_limit().limit_bytes

    def beside(self, on_device: bool) -> TileMemory:
        """**Local.** The memory of the host, or of the GPU, beside this one."""
        return memory_for(on_device)

    # What arrays ask of the memory that they lie in

    def enrol(self, array: Any) -> None:
        """**Local.** Count the tile of an array that has one of its own now."""
        key, arrays = id(array), self.arrays
        arrays.pop(key, None)
        arrays[key] = weakref.ref(array, lambda _: arrays.pop(key, None))
        assert array.tile is not None
        self.adopt(array.tile, array.type.tile_bytes)

    def updated(self, array: Any) -> None:
        """**Local.** The values of an array have changed."""

    def check_values(self, what: str, t: ArrayType, instead: str = "", noted: bool = False) -> None:
        """**Local.** Refuse to read values that are not known; ``noted`` if an explanation notes the move."""

    def check_tile(self, what: str, t: ArrayType, instead: str = "") -> None:
        """**Local.** Refuse to reach into a tile that is not there."""

    def number_in(self, tile: Tile) -> Any:
        """**Local.** The only element of a tile, as NumPy's number."""
        return self.host(tile)[()]

    # What they hold

    def adopt(self, tile: Tile, worst_bytes: int) -> None:
        """**Local.** Count a tile whose memory came from elsewhere, once, for as long as it lives."""
        root = root_of(tile)
        if root.base.__class__ is _Owner or id(root) in self._adopted:
            return
        self._hold(root, worst_bytes)

    def counted_for(self, tile: Tile) -> int:
        """**Local.** The bytes of :attr:`live_bytes` that the memory of a tile is counted with.

        >>> tile = BUFFERS.empty((2**16,), np.dtype("f4"), 0)
        >>> BUFFERS.counted_for(tile[:3]), BUFFERS.counted_for(np.zeros(3))
        (262144, 0)
        """
        root = root_of(tile)
        if root.base.__class__ is _Owner:
            return int(root.base.counted)
        held = self._adopted.get(id(root))
        return 0 if held is None else held.counted

    def _hold(self, root: Any, worst_bytes: int) -> None:
        held = _Held(root, self._disown)
        held.root, held.counted = id(root), max(root.nbytes, worst_bytes)
        with self._lock:
            self._adopted[held.root] = held
            self.live_bytes += held.counted
            if self._planned_bytes is not None:
                self.expect(0)

    def _disown(self, held: Any) -> None:
        with self._lock:
            del self._adopted[held.root]
            self.live_bytes -= held.counted

    def make_room(self, n_bytes: int) -> None:
        """**Local.** Under a limit with a place to spill to, spill arrays so that this much more fits."""
        spill_from, limit = current_limit().spill_from, self.limit_bytes
        if spill_from is not None and limit is not None and self.live_bytes + n_bytes > limit:
            spill_from(self, n_bytes)

    @contextmanager
    def planned(self, most_bytes: int) -> Iterator[None]:
        """**Local.** While inside, a plan has counted all tiles: none is checked.

        Dead segments are kept where they and the living take no more than ``most_bytes`` together. At the
        end all but a small reserve goes back to the system.

        >>> memory = TileMemory()
        >>> with memory.planned(3 * 2**16):
        ...     for _ in range(3):
        ...         tile = memory.empty((2**17,), np.dtype("u1"), 0)
        ...         del tile
        >>> memory.made, memory.reused
        (1, 2)
        """
        self._planned_bytes = most_bytes
        self.forget(max(0, most_bytes - self.live_bytes))
        try:
            yield
        finally:
            self._planned_bytes = None
            self.forget(RESERVE_BYTES)

    def expect(self, n_bytes: int) -> None:
        """**Local.** Where a plan has counted all tiles, free dead segments for memory from elsewhere.

        >>> memory = TileMemory()
        >>> with memory.planned(3 * 2**16):
        ...     tile = memory.empty((2**17,), np.dtype("u1"), 0)
        ...     del tile
        ...     memory.expect(2**17)
        ...     memory._kept_bytes
        0
        """
        if self._planned_bytes is not None:
            self.forget(max(0, self._planned_bytes - self.live_bytes - n_bytes))

    @contextmanager
    def granting(self, n_bytes: int) -> Iterator[None]:
        """**Local.** While inside, an exchange may take this much on the way, the same on all ranks."""
        self.granted_bytes = n_bytes
        try:
            yield
        finally:
            self.granted_bytes = None

    def check_room(self, n_bytes: int) -> None:
        """**Local.** Raise if ``n_bytes`` more would pass the limit.

        Garbage is collected before, because ranks have different garbage.
        """
        limit = self.limit_bytes
        if limit is None or self.live_bytes + n_bytes <= limit:
            return
        gc.collect()
        self.make_room(n_bytes)
        if self.live_bytes + n_bytes > limit:
            raise MemoryLimitError(self._no_room(n_bytes, limit))

    def _no_room(self, n_bytes: int, limit: int) -> str:
        """Why this many bytes more cannot be had, and what to do."""
        in_blocks = "call it in a @pgas.program(limit=..., spill=...), which works in blocks"
        if n_bytes > limit:
            return (
                f"cannot allocate {format_beside(n_bytes, limit)}: this array alone exceeds the limit of "
                f"{format_beside(limit, n_bytes)}; {in_blocks}, use more ranks, or raise the limit"
            )
        spill = "" if current_limit().spill else ", give spill= a folder"
        return (
            f"cannot allocate {format_bytes(n_bytes)}: {format_bytes(self.live_bytes)} are alive "
            f"and the limit is {format_bytes(limit)}; free arrays{spill}, {in_blocks}, cut them into "
            "smaller tiles, or raise the limit"
        )

    def _take(self, size: int) -> Bytes:
        found = self._free.get(size)
        if found:
            self._kept_bytes -= size
            self.reused += 1
            return found.pop()
        self.made += 1
        most = self.limit_bytes if self._planned_bytes is None else self._planned_bytes
        if most is not None:
            self.forget(max(0, most - self.live_bytes - size))
        return shared_bytes(size)

    def _give_back(self, memory: Bytes, size: int, counted: int) -> None:
        with self._lock:
            self.live_bytes -= counted
            most = self._most_kept_bytes
            if self._planned_bytes is not None:
                most = min(most, self._planned_bytes - self.live_bytes)
            if self._kept_bytes + size <= most:
                self._free.setdefault(size, []).append(memory)
                self._kept_bytes += size

    def forget(self, most_bytes: int = 0) -> None:
        """Free dead segments until at most this many bytes are kept, the largest first."""
        if self._kept_bytes <= most_bytes:
            return
        with self._lock:
            for size in sorted(self._free, reverse=True):
                found = self._free[size]
                while found and self._kept_bytes > most_bytes:
                    found.pop()
                    self._kept_bytes -= size
                if not found:
                    del self._free[size]


class _Held(weakref.ref[Any]):
    """Knows when an array dies, and what was counted for it."""

    __slots__ = ("counted", "root")
    root: int
    counted: int


class _Owner:
    """Keeps a segment in use as long as an array looks at it; knows what was counted for it."""

    def __init__(self, memory: Bytes, counted: int) -> None:
        self.__array_interface__ = memory.__array_interface__
        self.counted = counted


def root_of(tile: Any) -> Any:
    """The array that a tile is a view of, or itself."""
    root = tile
    while root.base.__class__ in (np.ndarray, root.__class__):
        root = root.base
    return root


class DeviceTileMemory(TileMemory):
    """Tiles on the rank's GPU, from CuPy's pool. Their bytes count apart from those in memory."""

    on_device: ClassVar[bool] = True
    is_plain: ClassVar[bool] = False

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], worst_bytes: int) -> Tile:
        """**Local.** Allocate a tile; raise if the limit has no room for it."""
        self.check_room(max(math.prod(shape) * dtype.itemsize, worst_bytes))
        if dtype.itemsize == 1 and is_stored(dtype):  # CuPy has no such dtypes
            dtype = np.dtype(np.uint8)
        return empty_on_device(shape, dtype)

    def asarray(self, values: Any) -> Tile:
        """**Local.** Bring values from the host, or from here, into this memory; 8-bit floats as bytes."""
        if isinstance(values, np.ndarray) and values.itemsize == 1 and is_stored(values.dtype):
            values = values.view(np.uint8)
        return to_device(values)

    def host(self, tile: Tile) -> Tile:
        """**Local.** A tile as a NumPy array: a copy, made when the stream has come to it."""
        return to_host(tile)

    def contiguous(self, tile: Tile) -> Tile:
        """**Local.** Copy a tile into C order; itself if it is."""
        return tile if tile.flags.c_contiguous else tile.copy()

    def settle(self) -> None:
        """**Local.** Wait until all is written that the current stream was given to write."""
        current_stream().synchronize()


BUFFERS = TileMemory()
DEVICE = DeviceTileMemory()


def memory_for(on_device: bool) -> TileMemory:
    """The memory of tiles on the rank's GPU, or on the host."""
    return DEVICE if on_device else BUFFERS


def as_tile(values: Any, dtype: Any = None) -> Tile:
    """**Local.** Convert a result on tiles to an array: NumPy gives numbers if no dim is left.

    >>> as_tile(np.float32(3)).shape
    ()
    """
    if isinstance(values, (np.ndarray, np.generic)):
        return np.asarray(values, dtype)
    return values if dtype is None else values.astype(dtype, copy=False)


def round_to_grains(n_bytes: int) -> int:
    """Round bytes up to the next whole grain, as segments have them."""
    return ceil_div(n_bytes, GRAIN) * GRAIN


def counted_bytes(n_bytes: int, on_device: bool = False) -> int:
    """What a tile of this many bytes is counted with.

    >>> counted_bytes(100), counted_bytes(2**16 + 1), counted_bytes(100, on_device=True)
    (100, 131072, 512)
    """
    if on_device:
        return ceil_div(n_bytes, DEVICE_GRAIN) * DEVICE_GRAIN
    return n_bytes if n_bytes < SHARED_FROM else round_to_grains(n_bytes)
