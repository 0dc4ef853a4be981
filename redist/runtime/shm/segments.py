"""Memory that the processes of one node share: made by one rank, mapped by the others, nameless.

A segment is a memory file without a name: it vanishes with the process that made it, however that
ends. Peers open it through the owner's file descriptor. Its pages are given back as soon as the
owner's last array dies, even where a peer still has it mapped.
"""

from __future__ import annotations

import mmap
import os
import weakref
from bisect import bisect_right
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.runtime.copies.addresses import address_of

Bytes = NDArray[np.uint8]
NAME = "redist"
"""What segments are called in the lists of the system; it is no name to open them by."""


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

    def add(self, start: int, handle: Handle) -> None:
        self.handles[start] = handle
        self.starts = sorted(self.handles)

    def drop(self, start: int, pid: int, fd: int) -> None:
        """The last array died: give the pages back."""
        if self.handles.pop(start, None) is None or os.getpid() != pid:
            return
        self.starts = sorted(self.handles)
        os.ftruncate(fd, 0)
        os.close(fd)


_LIVE = _Live()


def allocated_bytes() -> int:
    """Memory of this process's segments: pages that were touched and not given back."""
    return sum(os.fstat(handle.fd).st_blocks * 512 for handle in _LIVE.handles.values())


def can_share() -> bool:
    """Whether this system has memory files."""
    return hasattr(os, "memfd_create")


def shared_bytes(n_bytes: int) -> Bytes:
    """**Local.** Zeroed bytes that other processes of this node can map."""
    fd = os.memfd_create(NAME, os.MFD_CLOEXEC)
    size = max(1, n_bytes)
    try:
        os.ftruncate(fd, size)
        memory = _Memory(fd, size)
    except BaseException:
        os.close(fd)
        raise
    out = np.frombuffer(memory, np.uint8)
    start = address_of(out)
    _LIVE.add(start, Handle(os.getpid(), fd, next(_LIVE.numbers), size))
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


def attach(handle: Handle) -> Bytes:
    """Map a segment of another process for reading."""
    fd = os.open(f"/proc/{handle.pid}/fd/{handle.fd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return np.frombuffer(mmap.mmap(fd, handle.n_bytes, prot=mmap.PROT_READ), np.uint8)
    finally:
        os.close(fd)
