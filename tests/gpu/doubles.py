"""Doubles of NCCL: the same interface, data by MPI. For ranks that share a GPU, or have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from redist.runtime.cuda_nccl import UINT8

Call = tuple[bool, int, int, int, int]


class Nccl:
    """Stands for cupy.cuda.nccl; ``run`` says how a group gets onto a stream.

    Calls outside of a group are refused, and so is what NCCL would never bring together: both ends
    of a message must name the same number of bytes in the same group.
    """

    available = True

    def __init__(self, run: Callable[[Nccl, list[Call]], None]) -> None:
        self.comm = MPI.COMM_WORLD.Dup()
        self.open: list[Call] | None = None
        self.run, self.groups, self.aborted = run, 0, False

    def get_version(self) -> int:
        """2.99.0."""
        return 29900

    def get_unique_id(self) -> tuple[int, ...]:
        """Any."""
        return tuple(range(128))

    def NcclCommunicator(self, size: int, number: tuple[int, ...], rank: int) -> Nccl:
        """Itself, for all ranks."""
        assert (size, rank) == (self.comm.size, self.comm.rank) and number == self.get_unique_id()
        return self

    def groupStart(self) -> None:
        """Begin a group."""
        assert self.open is None
        self.open = []

    def groupEnd(self) -> None:
        """Start all of it at once."""
        assert self.open is not None
        calls, self.open = self.open, None
        self.groups += 1
        if calls:
            assert len({call[4] for call in calls}) == 1, "a group on several streams"
            self.run(self, calls)

    def send(self, address: int, n: int, kind: int, peer: int, stream: int) -> None:
        """One message of a group."""
        assert self.open is not None and kind == UINT8 and n > 0 and not self.aborted
        self.open.append((True, address, n, peer, stream))

    def recv(self, address: int, n: int, kind: int, peer: int, stream: int) -> None:
        """The other end."""
        assert self.open is not None and kind == UINT8 and n > 0 and not self.aborted
        self.open.append((False, address, n, peer, stream))

    def abort(self) -> None:
        """Never again."""
        self.aborted = True


def exchange(nccl: Nccl, calls: list[Call], buffers: list[Any]) -> None:
    """Do the messages of a group, from and to buffers of the host."""
    requests = []
    for (is_send, _, _, peer, _), buffer in zip(calls, buffers, strict=True):
        start = nccl.comm.Isend if is_send else nccl.comm.Irecv
        requests.append(start([buffer, MPI.BYTE], peer, 7))
    statuses = [MPI.Status() for _ in requests]
    MPI.Request.Waitall(requests, statuses)
    for (is_send, _, n, _, _), status in zip(calls, statuses, strict=True):
        assert is_send or status.Get_count(MPI.BYTE) == n, "the two ends of a message differ"


def put_off(nccl: Nccl, calls: list[Call]) -> None:
    """On a pretended GPU: when the stream comes to it."""
    from tests.gpu.pretend import STREAMS

    buffers = [MPI.memory.fromaddress(address, n) for _, address, n, _, _ in calls]
    STREAMS[calls[0][4]].add(lambda: exchange(nccl, calls, buffers))


def through_host(nccl: Nccl, calls: list[Call]) -> None:
    """On a real GPU: after what is on the stream, by copies to the host and back."""
    import cupy

    stream = cupy.cuda.ExternalStream(calls[0][4])
    stream.synchronize()
    buffers = [np.empty(n, np.uint8) for _, _, n, _, _ in calls]
    for (is_send, address, n, _, _), buffer in zip(calls, buffers, strict=True):
        if is_send:
            cupy.cuda.runtime.memcpyAsync(buffer.ctypes.data, address, n, 4, stream.ptr)
    stream.synchronize()
    exchange(nccl, calls, buffers)
    for (is_send, address, n, _, _), buffer in zip(calls, buffers, strict=True):
        if not is_send:
            cupy.cuda.runtime.memcpyAsync(address, buffer.ctypes.data, n, 4, stream.ptr)
    stream.synchronize()
