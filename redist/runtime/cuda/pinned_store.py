"""Tiles of a GPU in pinned memory of the host: copied beside its kernels, on streams of their own.

A vertex of a graph has ended when the GPU has done it, not when it was launched: so a copy need not wait for
any stream, and memory that a vertex gave back is nobody's. For that tasks are :func:`launched`, and tiles
come from :class:`SeparateMemory`, which no kernel uses for anything else. Tasks alone may be launched behind
tasks that have not ended, because one stream has them all in order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from redist.errors import SpillError
from redist.runtime.cuda.arrays import (
    TO_DEVICE,
    TO_HOST,
    current_gpu,
    current_stream,
    device_address,
)
from redist.runtime.lanes.spill_file import BLOCK_BYTES
from redist.runtime.lanes.stores import Bytes
from redist.runtime.lanes.vertex_table import TaskWork
from redist.runtime.shm.first_fit import FirstFit
from redist.text.units import format_bytes

NOT_READY = 600
"""CUDA's number for an event that has not come yet."""
SEGMENT_BYTES = 2**26
"""Pinned memory grows by this much at least: it is slow to make."""


class OnStream:
    """Work that a GPU was given: done when an event behind it has come. It holds what the work uses."""

    def __init__(self, event: Any, result: Any, *uses: Any) -> None:
        self._event, self.made, self._uses = event, result, uses

    def is_done(self) -> bool:
        """**Local.** Whether the GPU has come to the event, or can never come: :meth:`wait` says which."""
        import cupy

        return bool(cupy.cuda.runtime.eventQuery(self._event.ptr) != NOT_READY)

    def wait(self) -> Any:
        """The result, once the GPU has come to the event."""
        self._event.synchronize()
        self._uses = ()
        return self.made


def launched(function: Callable[..., Any], gives: bool = False) -> TaskWork:
    """What a task does that launches kernels on the current stream: it ends when they have run.

    Tasks of one stream run one after another, so the next may be launched before this one has run.
    """

    def start(*arrays: Any) -> OnStream:
        try:
            result = function(*arrays)
        except BaseException:  # what it launched before may use its arrays
            current_stream().synchronize()
            raise
        return OnStream(current_stream().record(), result)

    return TaskWork(start, gives, starts=True, queues=True)


class SeparateMemory:
    """While inside, CuPy's pool makes arrays in memory that it lends for nothing else.

    The pool lends memory again to the stream that it was made for. Kernels of tasks run on other streams,
    and what they take on the way is never a tile's: a copy into a new tile cannot meet them.
    """

    def __init__(self) -> None:
        self._stream = _tile_stream(current_gpu())

    def __enter__(self) -> None:
        self._stream.__enter__()

    def __exit__(self, *error: object) -> None:
        self._stream.__exit__(*error)


@cache
def _tile_stream(gpu: int) -> Any:
    """One for all tiles of a GPU, for ever: what one program gives back, the pool lends to the next."""
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


class PinnedSpace(NamedTuple):
    """A range of a segment of pinned memory."""

    segment: _PinnedSegment
    start: int
    n_bytes: int


class _PinnedSegment:
    """Pinned memory, and what of it is lent."""

    def __init__(self, n_bytes: int) -> None:
        import cupy

        try:
            self.memory = cupy.cuda.PinnedMemory(n_bytes)
        except Exception as error:  # CUDA's own kind of error
            raise SpillError(
                f"cannot pin {format_bytes(n_bytes)} of the host's memory: {error}; give a folder, or "
                "raise the limit"
            ) from error
        self.n_bytes = n_bytes
        self.address = int(self.memory.ptr)
        self.ranges = FirstFit(BLOCK_BYTES, n_bytes)
        there = (ctypes.c_uint8 * n_bytes).from_address(self.address)
        self.bytes: Bytes = np.ctypeslib.as_array(there)


class PinnedStore:
    """A store in pinned memory of the host, for tiles on the GPU that is current.

    Loads and stores have a stream each. Where no hole is large enough another segment is made:
    ``pinned_bytes`` is what all of them take, ``live_bytes`` what is lent.
    """

    starts = True

    def __init__(self, segment_bytes: int = SEGMENT_BYTES) -> None:
        import cupy

        self._segment_bytes = segment_bytes
        self._streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
        self._segments: list[_PinnedSegment] = []
        self.live_bytes = 0

    @property
    def pinned_bytes(self) -> int:
        """What was taken from the host."""
        return sum(one.n_bytes for one in self._segments)

    def reserve(self, n_bytes: int) -> None:
        """**Local.** Pin memory for this many bytes beside what is lent."""
        missing = n_bytes - (self.pinned_bytes - self.live_bytes)
        if missing > 0:
            self._grow(missing)

    def _grow(self, n_bytes: int) -> _PinnedSegment:
        size = -(-max(n_bytes, self._segment_bytes) // BLOCK_BYTES) * BLOCK_BYTES
        self._segments.append(_PinnedSegment(size))
        return self._segments[-1]

    def take(self, n_bytes: int) -> PinnedSpace:
        """**Local.** A range of pinned memory."""
        for segment in self._segments:
            start = segment.ranges.take(n_bytes)
            if start is not None:
                break
        else:
            segment = self._grow(n_bytes)
            start = segment.ranges.take(n_bytes)
            assert start is not None
        self.live_bytes += segment.ranges.rounded(n_bytes)
        return PinnedSpace(segment, start, n_bytes)

    def give(self, space: PinnedSpace) -> None:
        """**Local.** End a copy; its range is lent again."""
        space.segment.ranges.give(space.start, space.n_bytes)
        self.live_bytes -= space.segment.ranges.rounded(space.n_bytes)

    def write(self, space: PinnedSpace, data: Any) -> OnStream:
        """**Local.** Start to copy bytes of the GPU there."""
        return self._copy(_address(space), device_address(data), data, TO_HOST)

    def read(self, space: PinnedSpace, out: Any) -> OnStream:
        """**Local.** Start to copy the first bytes from there to the GPU."""
        return self._copy(device_address(out), _address(space), out, TO_DEVICE)

    def _copy(self, to: int, of: int, array: Any, kind: int) -> OnStream:
        import cupy

        stream = self._streams[kind - 1]
        if array.nbytes:
            cupy.cuda.runtime.memcpyAsync(to, of, array.nbytes, kind, stream.ptr)
        return OnStream(stream.record(), None, array)

    def memory_of(self, space: PinnedSpace) -> Bytes:
        """**Local.** The bytes of a copy: a file is read into them, and written from them."""
        return space.segment.bytes[space.start : space.start + space.n_bytes]

    def close(self) -> None:
        """**Local.** Give the pinned memory back, once no copy is under way."""
        for stream in self._streams:
            stream.synchronize()
        self._segments.clear()
        self.live_bytes = 0


def _address(space: PinnedSpace) -> int:
    return space.segment.address + space.start
