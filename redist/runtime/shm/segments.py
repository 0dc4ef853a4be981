"""Memory that the processes of one node share: made by one rank, mapped by the others, nameless.

A segment is a memory file without a name: it vanishes with the process that made it, however that
ends. Peers open it through the owner's file descriptor. Its pages are given back as soon as the
owner's last array dies, even where a peer still has it mapped.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from bisect import bisect_right
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import TransferError
from redist.runtime.copies.addresses import address_of
from redist.text.units import ceil_div

Bytes = NDArray[np.uint8]
NAME = "redist"
"""What segments are called in the lists of the system, with a number; it is no name to open them by."""


class _Memory(mmap.mmap):
    """A mapping that Python can watch; arrays over it keep it alive."""


@dataclass(frozen=True, slots=True)
class Handle:
    """How another process finds a segment."""

    pid: int
    fd: int
    number: int
    n_bytes: int


class _Live:
    """The segments of this process, by address."""

    def __init__(self) -> None:
        self.handles: dict[int, Handle] = {}
        self.starts: list[int] = []
        self.numbers = count(1)
        self.kept: set[int] = set()
        """Those whose pages are never given back."""

    def add(self, start: int, handle: Handle) -> None:
        self.handles[start] = handle
        self.starts = sorted(self.handles)

    def drop(self, start: int, pid: int, fd: int) -> None:
        """The last array died: give the pages back."""
        is_kept = start in self.kept
        self.kept.discard(start)
        if self.forget(start) and os.getpid() == pid and not is_kept:
            os.ftruncate(fd, 0)
            os.close(fd)

    def forget(self, start: int) -> bool:
        """Tell nobody of a segment any more; whether it was known."""
        known = self.handles.pop(start, None) is not None
        self.starts = sorted(self.handles)
        return known


_LIVE = _Live()
MOVE_THERE, FAILED = 1 | 2, 2**64 - 1
"""MREMAP_MAYMOVE with MREMAP_FIXED, and MAP_FAILED, of Linux."""
CHUNK_BYTES = 2**24
"""Memory is replaced in parts of this size."""


def allocated_bytes() -> int:
    """Memory of this process's segments: pages that were touched and not given back."""
    return sum(os.fstat(handle.fd).st_blocks * 512 for handle in _LIVE.handles.values())


def can_share() -> bool:
    """Whether this system has memory files."""
    return hasattr(os, "memfd_create")


def shared_bytes(n_bytes: int) -> Bytes:
    """**Local.** Zeroed bytes that other processes of this node can map."""
    number = next(_LIVE.numbers)
    fd = os.memfd_create(f"{NAME}-{number}", os.MFD_CLOEXEC)
    size = max(1, n_bytes)
    try:
        os.ftruncate(fd, size)
        memory = _Memory(fd, size)
    except BaseException:
        os.close(fd)
        raise
    out = np.frombuffer(memory, np.uint8)
    start = address_of(out)
    _LIVE.add(start, Handle(os.getpid(), fd, number, size))
    end = weakref.finalize(memory, _LIVE.drop, start, os.getpid(), fd)
    end.atexit = False  # a neighbour may still read; the system frees it with the last mapping
    return out[:n_bytes]


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
    if not _LIVE.starts:
        return None
    address = address_of(array)
    k = bisect_right(_LIVE.starts, address) - 1
    if k < 0:
        return None
    start = _LIVE.starts[k]
    handle = _LIVE.handles[start]
    return (handle, address - start) if address < start + handle.n_bytes else None


def attach(handle: Handle, writes: bool = False) -> Bytes:
    """Map a segment of another process for reading, or for writing too; raise if it is gone."""
    mode, prot = os.O_RDONLY, mmap.PROT_READ
    if writes:
        mode, prot = os.O_RDWR, mmap.PROT_READ | mmap.PROT_WRITE
    fd = os.open(f"/proc/{handle.pid}/fd/{handle.fd}", mode | os.O_CLOEXEC)
    try:
        name = str(Path(f"/proc/self/fd/{fd}").readlink())
        if not name.startswith(f"/memfd:{NAME}-{handle.number} "):  # the descriptor is used again
            raise TransferError(f"cannot map memory of process {handle.pid}: it was given back")
        return np.frombuffer(mmap.mmap(fd, handle.n_bytes, prot=prot), np.uint8)
    finally:
        os.close(fd)


def keep_segment(array: NDArray[Any]) -> None:
    """**Local.** Keep the memory of an array until this process ends: someone may still read it."""
    found = find(array)
    if found is not None:
        _LIVE.kept.add(address_of(array) - found[1])


def leave_segment(array: NDArray[Any]) -> None:
    """**Local.** Give an array memory of its own, at the same address and with the same bytes.

    What a neighbour writes into its segment from now on does not reach it. The segment stays until this
    process ends: someone may still be at work there.

    >>> a = shared_empty((3,), np.dtype("f4"))
    >>> a[:] = 7
    >>> leave_segment(a)
    >>> a, find(a)
    (array([7., 7., 7.], dtype=float32), None)
    """
    found = find(array)
    if found is None:
        return
    handle, offset = found
    start = address_of(array) - offset
    _LIVE.forget(start)
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype = libc.mremap.restype = pointer
    libc.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_long]
    libc.mremap.argtypes = [pointer, size, size, number, pointer]
    prot, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    end = start + ceil_div(handle.n_bytes, mmap.PAGESIZE) * mmap.PAGESIZE
    for at in range(start, end, CHUNK_BYTES):
        n_bytes = min(CHUNK_BYTES, end - at)
        new = libc.mmap(None, n_bytes, prot, flags, -1, 0)
        if new == FAILED:
            raise TransferError(f"cannot take a result back: error {ctypes.get_errno()}")
        ctypes.memmove(new, at, n_bytes)
        libc.mremap(new, n_bytes, n_bytes, MOVE_THERE, at)
