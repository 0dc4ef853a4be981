"""Memory that the processes of one node share: made by one rank, mapped by the others, nameless.

A process has a few large memory files, its segments, and lends parts of them, blocks, to arrays:

    segment 1   | block | block |    free     |       64 MiB
    segment 2   |     block     | free | block |       half of all before, or as much as is asked for

So there are few descriptors and few mappings, however many arrays there are: 25 segments hold 1 TiB.
Only pages that were touched take memory, and those of a block are given back as soon as its last
array dies, even where a peer has the segment mapped.

A segment has no name: it vanishes with the process that made it, however that ends. Peers open it
through the owner's descriptor, map all of it once, and keep it mapped: an address in it stays good.
Mappings are made without Python's ``mmap``, which keeps a descriptor for each.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import TransferError
from redist.runtime.copies.addresses import address_of
from redist.runtime.shm.first_fit import FirstFit
from redist.text.units import ceil_div

MOVE_THERE, FAILED = 1 | 2, 2**64 - 1
"""MREMAP_MAYMOVE with MREMAP_FIXED, and MAP_FAILED, of Linux."""
CHUNK_BYTES = 2**24
"""Memory is replaced in parts of this size."""


class Mapping:
    """A memory file, or a part of one, at an address of this process; arrays over it keep it alive.

    Close the descriptor afterwards if nobody else needs it: the mapping does not.

    >>> import numpy as np
    >>> fd = os.memfd_create("example")
    >>> os.ftruncate(fd, 4096)
    >>> memory = np.asarray(Mapping(fd, 4096, writes=True))
    >>> os.close(fd)
    >>> memory[7] = 9
    >>> int(memory.sum()), memory.nbytes
    (9, 4096)
    """

    __slots__ = ("__array_interface__", "__weakref__", "address", "n_bytes")

    def __init__(self, fd: int, n_bytes: int, writes: bool) -> None:
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if writes else 0)
        self.address = _map(n_bytes, prot, mmap.MAP_SHARED, fd)
        self.n_bytes = n_bytes
        self.__array_interface__ = array_interface(self.address, n_bytes, writes)
        end = weakref.finalize(self, libc().munmap, self.address, n_bytes)
        end.atexit = False  # arrays may outlive this


def array_interface(address: int, n_bytes: int, writes: bool = True) -> dict[str, Any]:
    """What NumPy asks for to make an array of bytes at an address."""
    return {"data": (address, not writes), "shape": (n_bytes,), "typestr": "|u1", "version": 3}


def advise(address: int, n_bytes: int, advice: int) -> None:
    """Tell the system what becomes of whole pages: ``MADV_REMOVE`` makes those of a file zeros."""
    libc().madvise(address, whole_pages(n_bytes), advice)


def whole_pages(n_bytes: int) -> int:
    """Bytes rounded up to whole pages."""
    return ceil_div(n_bytes, mmap.PAGESIZE) * mmap.PAGESIZE


def make_private(address: int, n_bytes: int) -> None:
    """Replace pages of a shared mapping by private ones with the same bytes, at the same address."""
    prot, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    end = address + n_bytes
    for at in range(address, end, CHUNK_BYTES):
        size = min(CHUNK_BYTES, end - at)
        new = _map(size, prot, flags, -1)
        ctypes.memmove(new, at, size)
        libc().mremap(new, size, size, MOVE_THERE, at)


def _map(n_bytes: int, prot: int, flags: int, fd: int) -> int:
    address: int = libc().mmap(None, n_bytes, prot, flags, fd, 0)
    if address == FAILED:
        number = ctypes.get_errno()
        raise TransferError(f"cannot map {n_bytes} bytes of memory: {os.strerror(number)}")
    return address


@lru_cache(maxsize=1)
def libc() -> Any:
    """The C library, with the functions for memory typed."""
    found = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    found.mmap.restype = found.mremap.restype = pointer
    found.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_long]
    found.mremap.argtypes = [pointer, size, size, number, pointer]
    found.munmap.argtypes = [pointer, size]
    found.madvise.argtypes = [pointer, size, number]
    return found


Bytes = NDArray[np.uint8]
NAME = "redist"
"""What segments are called in the lists of the system, with a number; they cannot be opened by it."""
FIRST_BYTES = 2**26
"""The size of the first segment."""


@dataclass(frozen=True, slots=True)
class Handle:
    """How another process finds a segment."""

    pid: int
    fd: int
    number: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class _Segment:
    handle: Handle
    mapping: Mapping
    ranges: FirstFit

    @property
    def start(self) -> int:
        return self.mapping.address


class _Block:
    """A part of a segment that arrays use. It keeps the segment mapped."""

    __slots__ = ("__array_interface__", "__weakref__", "_segment")

    def __init__(self, start: int, n_bytes: int, segment: _Segment) -> None:
        self.__array_interface__ = array_interface(start, n_bytes)
        self._segment = segment


class _Live:
    """The segments of this process, and the blocks that arrays use.

    A block may die at any moment and in any thread, also while another is made: then its pages go back
    to the system at once, and its addresses when the next block is asked for.
    """

    def __init__(self) -> None:
        self.segments: tuple[tuple[int, ...], tuple[_Segment, ...]] = (), ()
        """Addresses and segments, sorted; replaced as a whole, because other threads look."""
        self.blocks: dict[int, int] = {}
        """The bytes of every block that is in use, by address."""
        self.kept: set[int] = set()
        """Blocks whose pages are never given back, and whose addresses are never used again."""
        self.left: dict[int, int] = {}
        """Blocks whose addresses hold private memory now, and where they end."""
        self._dead: deque[tuple[int, int]] = deque()
        """Start and bytes of blocks that have died since the last one was made."""
        self._numbers = count(1)
        self._lock = threading.Lock()

    def add(self, n_bytes: int) -> _Block:
        """Make a block of zeros."""
        with self._lock:
            while self._dead:
                dead, size = self._dead.popleft()
                starts, segments = self.segments
                there = segments[bisect_right(starts, dead) - 1]
                there.ranges.give(dead - there.start, size)
            segment, offset = self._take(n_bytes) or self._grow(n_bytes)
        start = segment.start + offset
        self.blocks[start] = n_bytes
        block = _Block(start, n_bytes, segment)
        end = weakref.finalize(block, self.drop, start, n_bytes, os.getpid())
        end.atexit = False  # a neighbour may still read; the system frees it with the last mapping
        return block

    def drop(self, start: int, n_bytes: int, pid: int) -> None:
        """The last array of a block died: give its pages back, then its addresses."""
        if os.getpid() != pid:  # a child of this process: the block is its parent's
            return
        self.blocks.pop(start, None)
        if start in self.left:
            advise(start, n_bytes, mmap.MADV_DONTNEED)
        elif start not in self.kept:
            advise(start, n_bytes, mmap.MADV_REMOVE)
            self._dead.append((start, n_bytes))

    def block_at(self, address: int) -> tuple[int, int] | None:
        """The start and the bytes of the block in use that has an address."""
        for start, n_bytes in list(self.blocks.items()):
            if start <= address < start + n_bytes:
                return start, n_bytes
        return None

    def _take(self, n_bytes: int) -> tuple[_Segment, int] | None:
        """The first free range that is large enough; None if there is none."""
        for segment in self.segments[1]:
            offset = segment.ranges.take(n_bytes)
            if offset is not None:
                return segment, offset
        return None

    def _grow(self, n_bytes: int) -> tuple[_Segment, int]:
        """Make another segment, larger than the block that is asked for if the system lets us."""
        size = whole_pages(n_bytes)
        held = sum(one.handle.n_bytes for one in self.segments[1])
        try:
            segment = self._make(max(size, FIRST_BYTES, whole_pages(held // 2)))
        except (OSError, TransferError):
            segment = self._make(size)
        found = tuple(sorted([*self.segments[1], segment], key=lambda one: one.start))
        self.segments = tuple(one.start for one in found), found
        offset = segment.ranges.take(size)
        assert offset is not None
        return segment, offset

    def _make(self, n_bytes: int) -> _Segment:
        number = next(self._numbers)
        fd = os.memfd_create(f"{NAME}-{number}", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, n_bytes)
            mapping = Mapping(fd, n_bytes, writes=True)
        except BaseException:
            os.close(fd)
            raise
        ranges = FirstFit(mmap.PAGESIZE, n_bytes)
        return _Segment(Handle(os.getpid(), fd, number, n_bytes), mapping, ranges)


_LIVE = _Live()
_ATTACHED: weakref.WeakValueDictionary[tuple[int, int, bool], Mapping] = (
    weakref.WeakValueDictionary()
)
"""Segments of other processes that are mapped here, by process, number, and whether to be written."""


def _begin_again() -> None:
    """In a child: blocks of the parent stay the parent's, and new ones come from segments of its own."""
    _LIVE.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_again)


def allocated_bytes() -> int:
    """Memory of this process's segments: pages that were touched and not given back."""
    return sum(os.fstat(one.handle.fd).st_blocks * 512 for one in _LIVE.segments[1])


def can_share() -> bool:
    """Whether this system has memory files."""
    return hasattr(os, "memfd_create")


def shared_bytes(n_bytes: int) -> Bytes:
    """**Local.** Zeroed bytes that other processes of this node can map."""
    return np.asarray(_LIVE.add(max(1, n_bytes)))[:n_bytes]


def shared_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """**Local.** An array in shared memory, zeroed; plain memory where there is none to share.

    >>> a = shared_empty((2, 3), np.dtype("f4"))
    >>> a.shape, find(a) is not None
    ((2, 3), True)
    """
    if not can_share():
        return np.zeros(shape, dtype)
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return shared_bytes(n_bytes).view(dtype).reshape(shape)


def find(array: NDArray[Any]) -> tuple[Handle, int] | None:
    """The segment that an array's first element lies in, and its offset there."""
    starts, segments = _LIVE.segments
    address = address_of(array)
    k = bisect_right(starts, address) - 1
    if k < 0:
        return None
    handle = segments[k].handle
    offset = address - starts[k]
    if offset >= handle.n_bytes or (_LIVE.left and _was_left(address)):
        return None
    return handle, offset


def _was_left(address: int) -> bool:
    return any(start <= address < end for start, end in _LIVE.left.items())


def attach(handle: Handle, writes: bool = False) -> Bytes:
    """Map a segment of another process for reading, or for writing too; raise if it is gone.

    It is mapped once, and stays mapped as long as an array over it lives.
    """
    key = handle.pid, handle.number, writes
    found = _ATTACHED.get(key)
    if found is None:
        found = _ATTACHED[key] = _open(handle, writes)
    return np.asarray(found)


def _open(handle: Handle, writes: bool) -> Mapping:
    mode = os.O_RDWR if writes else os.O_RDONLY
    fd = os.open(f"/proc/{handle.pid}/fd/{handle.fd}", mode | os.O_CLOEXEC)
    try:
        name = str(Path(f"/proc/self/fd/{fd}").readlink())
        if not name.startswith(f"/memfd:{NAME}-{handle.number} "):
            raise TransferError(f"cannot map memory of process {handle.pid}: it has ended")
        return Mapping(fd, handle.n_bytes, writes)
    finally:
        os.close(fd)


def keep_segment(array: NDArray[Any]) -> None:
    """**Local.** Keep the memory of an array until this process ends: someone may still read it."""
    block = _LIVE.block_at(address_of(array))
    if block is not None:
        _LIVE.kept.add(block[0])


def leave_segment(array: NDArray[Any]) -> None:
    """**Local.** Give an array memory of its own, at the same address and with the same bytes.

    What a neighbour writes into its segment from now on does not reach it. The file keeps its block
    until this process ends: someone may still be at work there.

    >>> a = shared_empty((3,), np.dtype("f4"))
    >>> a[:] = 7
    >>> leave_segment(a)
    >>> a, find(a)
    (array([7., 7., 7.], dtype=float32), None)
    """
    block = _LIVE.block_at(address_of(array))
    if block is None or block[0] in _LIVE.left:
        return
    start, size = block[0], whole_pages(block[1])
    _LIVE.left[start] = start + size
    make_private(start, size)


def release_pages(array: NDArray[Any]) -> None:
    """Drop the pages that lie wholly inside an array without gaps; its contents are undefined after.

    Its dims may lie in any order. The array stays valid: touched again, its pages come back as zeros.
    """
    if not _has_no_gaps(array) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    page = mmap.PAGESIZE
    start = ceil_div(address_of(array), page) * page
    end = (address_of(array) + array.nbytes) // page * page
    if end > start:
        is_shared = find(array) is not None
        advise(start, end - start, mmap.MADV_REMOVE if is_shared else mmap.MADV_DONTNEED)


def _has_no_gaps(array: NDArray[Any]) -> bool:
    inner_first = sorted(range(array.ndim), key=array.strides.__getitem__)
    return array.transpose(inner_first).flags.f_contiguous
