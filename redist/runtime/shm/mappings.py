"""Mappings of memory files, made without Python's ``mmap``, which keeps a descriptor for each."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from functools import lru_cache
from typing import Any

from redist.errors import TransferError
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
