"""Read the private memory of another process of this node, as far as the kernel lets us."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from redist.errors import PeerError
from redist.layout.tiles import Ints
from redist.runtime.copies.addresses import address_of
from redist.runtime.shm.segments import Bytes

# Look after other processes of this node.


def is_alive(pid: int) -> bool:
    """Whether a process still runs: it exists, and is not a dead one that nobody has waited for.

    >>> import os
    >>> is_alive(os.getpid())
    True
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        return False
    except OSError:
        return True


MOST_RUNS = 1024
"""Runs that the kernel takes in one call."""


def peek(pid: int, addresses: Ints, run_bytes: int, out: Bytes) -> None:
    """Copy runs of bytes at ``addresses`` of a process to ``out``, one after another.

    >>> import os
    >>> a, out = np.arange(4, dtype="i8"), np.zeros(16, np.uint8)
    >>> peek(os.getpid(), np.array([address_of(a) + 24, address_of(a) + 8]), 8, out)
    >>> out.view("i8")
    array([3, 1])
    """
    read = _function()
    there = np.empty((len(addresses), 2), np.uint64)
    there[:, 0], there[:, 1] = addresses, run_bytes
    here = np.empty((1, 2), np.uint64)
    for k in range(0, len(addresses), MOST_RUNS):
        n = min(MOST_RUNS, len(addresses) - k)
        here[0] = address_of(out) + k * run_bytes, n * run_bytes
        got = read(pid, address_of(here), 1, address_of(there) + 16 * k, n, 0)
        if got != n * run_bytes:
            raise _failed(pid, got, n * run_bytes)


def peeker(pid: int, out: Bytes) -> Callable[[int], None]:
    """A function of an address that fills ``out`` from there, quick for few bytes."""
    read, n_bytes = _function(), len(out)
    runs = np.array([address_of(out), n_bytes, 0, n_bytes], dtype=np.uint64)
    here = address_of(runs)

    def fill(address: int) -> None:
        runs[2] = address
        got = read(pid, here, 1, here + 16, 1, 0)
        if got != n_bytes:
            raise _failed(pid, got, n_bytes)

    return fill


def _failed(pid: int, got: int, n_bytes: int) -> PeerError:
    number = ctypes.get_errno() if got < 0 else 0
    return PeerError(
        f"cannot read the memory of process {pid}: got {max(0, got)} of {n_bytes} bytes "
        f"(error {number} of the system); it may have ended"
    )


@lru_cache(maxsize=1)
def _function() -> Any:
    read = ctypes.CDLL(None, use_errno=True).process_vm_readv
    pointer, count = ctypes.c_void_p, ctypes.c_ulong
    read.argtypes = [ctypes.c_int, pointer, count, pointer, count, count]
    read.restype = ctypes.c_ssize_t
    return read
