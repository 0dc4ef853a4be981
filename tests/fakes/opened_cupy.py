"""A CuPy made of NumPy whose memory other ranks open, as CUDA IPC lets them.

Every array lies in memory that processes of the node share; nobody opens memory of their own. Ranks are on
as many GPUs as it is said. Copies from array to array are put off until somebody looks at values: a rank that
does not wait for its stream before it meets the others shows them old ones, or reads new ones.
"""

from __future__ import annotations

import ctypes
import os
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
from mpi4py import MPI

from redist.runtime.copies.addresses import address_of, array_at
from redist.runtime.copies.copy_list import CopyList
from redist.runtime.cuda.kernels.rounds import CudaCopyList
from redist.runtime.cuda.transports import ipc, opened_memory
from redist.runtime.cuda.transports.opened_memory import OpenedMemory
from redist.runtime.shm.segments import Handle, attach, find, shared_empty
from tests.fakes import emulated_loops, numpy_cupy

OPENED: dict[int, Any] = {}
"""Memory of others that is open here, by address."""
COPIED = [0]
"""Bytes that were copied by the driver."""
HANDLE_BYTES = 64


class CUDARuntimeError(Exception):
    """CUDA's own kind of error."""

    status = 1


def placed(values: Any) -> Any:
    """The same values in shared memory, their dims in the same order."""
    if not values.nbytes:
        return values
    order = sorted(range(values.ndim), key=lambda dim: -abs(values.strides[dim]))
    there = shared_empty(tuple(values.shape[dim] for dim in order), values.dtype)
    out = there.transpose(np.argsort(order)) if order else there
    out[...] = values
    return out


def place_of(address: int) -> OpenedMemory:
    """Where an address lies in memory of this process."""
    found = find(array_at(address, (1,), (1,), np.dtype(np.uint8)))
    if found is None:
        raise ValueError("memory that cannot be shared")
    handle, offset = found
    words = [handle.pid, handle.fd, handle.number, handle.n_bytes]
    return OpenedMemory(
        np.array(words, np.int64).tobytes().ljust(HANDLE_BYTES, b"\0"), handle.number, offset
    )


def open_memory(handle: bytes, flags: int) -> int:
    """Memory of another process, mapped here."""
    pid, fd, number, n_bytes = np.frombuffer(handle, np.int64)[:4].tolist()
    if pid == os.getpid():
        raise CUDARuntimeError("a process cannot open memory of its own")
    memory = attach(Handle(pid, fd, number, n_bytes), writes=True)
    OPENED[address_of(memory)] = memory
    return address_of(memory)


def close_memory(address: int) -> None:
    """Open it no longer: a read of it fails from now on, as far as nobody else has it."""
    del OPENED[address]


def copy(to: int, of: int, n_bytes: int, kind: int, stream: int) -> None:
    """A copy by the driver, counted."""
    numpy_cupy.go_on()
    ctypes.memmove(to, of, n_bytes)
    COPIED[0] += n_bytes


def bind(moves: CudaCopyList, bases: Any, stream: int = 0) -> list[Any]:
    """Copies of a list, on the host."""

    def start() -> None:
        numpy_cupy.go_on()
        CopyList.of(moves.moves).run(bases)

    return [start]


def install(gpus: int = 1, opens: bool = True) -> None:
    """Stand for CuPy in this process; ranks share so many GPUs, and open each other's memory or cannot."""
    numpy_cupy.install()
    numpy_cupy.PLACE[0] = placed
    numpy_cupy.PUT_OFF[:] = [True]
    emulated_loops.BEFORE[0] = numpy_cupy.go_on
    comm = MPI.COMM_WORLD
    gpu = b"gpu %d" % (comm.rank * gpus // comm.size)
    cupy: Any = sys.modules["cupy"]
    runtime, cuda = cupy.cuda.runtime, cupy.cuda
    runtime.getDeviceProperties = lambda number: {"multiProcessorCount": 2, "uuid": gpu}
    runtime.ipcOpenMemHandle, runtime.ipcCloseMemHandle = open_memory, close_memory
    runtime.ipcGetEventHandle, runtime.ipcOpenEventHandle = (lambda event: b""), (lambda handle: 0)
    runtime.streamWaitEvent, runtime.eventDestroy = (lambda *given: None), (lambda event: None)
    runtime.CUDARuntimeError, runtime.memcpyAsync = CUDARuntimeError, copy
    cuda.Event = lambda **options: SimpleNamespace(
        ptr=0, record=lambda stream: None, synchronize=lambda: None
    )
    why = [] if opens else ["memory cannot be opened here"]
    replaced: list[tuple[Any, str, Any]] = [
        (opened_memory, "place_of", place_of),
        (ipc, "can_open", lambda world: why),
        (CudaCopyList, "bind", bind),
    ]
    for owner, name, thing in replaced:
        assert hasattr(owner, name)
        setattr(owner, name, thing)
