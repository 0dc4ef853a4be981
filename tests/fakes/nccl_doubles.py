"""Doubles of NCCL: the same interface, data by MPI. For ranks that share a GPU, or have none."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from redist.runtime.cuda.transports.nccl import UINT8

Call = tuple[bool, int, int, int, int]
MESSAGES, GATHER, JOIN = 7, 8, 100
"""Tags of MPI: NCCL does not bring messages and collectives together either."""


class Nccl:
    """Stands for cupy.cuda.nccl; ``run`` says how a group gets onto a stream.

    Calls outside of a group are refused, and so is what NCCL would never bring together: both ends
    of a message must name the same number of bytes in the same group. ``gathers`` has the ranks and the
    bytes of every all-gather.
    """

    available = True

    def __init__(self, run: Callable[[Nccl, list[Call], int], None]) -> None:
        self.comm = MPI.COMM_WORLD.Dup()
        self.open: list[Call] | None = None
        self.run, self.groups, self.aborted = run, 0, False
        self.ids = itertools.count(1)
        self.gathers: list[tuple[tuple[int, ...], int]] = []

    def get_version(self) -> int:
        """2.99.0."""
        return 29900

    def get_unique_id(self) -> tuple[int, ...]:
        """Of this rank, each another."""
        return (self.comm.rank, next(self.ids), *range(126))

    def NcclCommunicator(self, size: int, number: tuple[int, ...], rank: int) -> Any:
        """Itself for all ranks, else one of some."""
        assert len(number) == 128
        if size < self.comm.size:
            return Some(self, size, number, rank)
        assert rank == self.comm.rank
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
            self.run(self, calls, MESSAGES)

    def send(self, address: int, n: int, kind: int, peer: int, stream: int) -> None:
        """One message of a group."""
        assert self.open is not None and kind == UINT8 and n > 0 and not self.aborted
        self.open.append((True, address, n, peer, stream))

    def recv(self, address: int, n: int, kind: int, peer: int, stream: int) -> None:
        """The other end."""
        assert self.open is not None and kind == UINT8 and n > 0 and not self.aborted
        self.open.append((False, address, n, peer, stream))

    def allGather(self, own: int, to: int, n: int, kind: int, stream: int) -> None:
        """Of all ranks."""
        self.gather(tuple(range(self.comm.size)), own, to, n, kind, stream)

    def gather(
        self, ranks: tuple[int, ...], own: int, to: int, n: int, kind: int, stream: int
    ) -> None:
        """Of some ranks, in place."""
        assert self.open is None and kind == UINT8 and n > 0 and not self.aborted
        assert own == to + ranks.index(self.comm.rank) * n, "not in place"
        self.gathers.append((ranks, n))
        others = [(place, rank) for place, rank in enumerate(ranks) if rank != self.comm.rank]
        calls = [(False, to + place * n, n, rank, stream) for place, rank in others]
        calls += [(True, own, n, rank, stream) for _, rank in others]
        if calls:
            self.run(self, calls, GATHER)

    def abort(self) -> None:
        """Never again."""
        self.aborted = True


class Some:
    """A communicator of some ranks, which find each other by the number they were told."""

    def __init__(self, nccl: Nccl, size: int, number: tuple[int, ...], place: int) -> None:
        self.nccl, comm, self.aborted = nccl, nccl.comm, False
        first, tag = number[0], JOIN + number[1]
        if comm.rank == first:
            assert place == 0
            found = dict(comm.recv(tag=tag) for _ in range(size - 1))
            ranks = (first, *(found[k] for k in range(1, size)))
            for rank in ranks[1:]:
                comm.send(ranks, rank, tag)
        else:
            comm.send((place, comm.rank), first, tag)
            ranks = comm.recv(source=first, tag=tag)
        self.ranks: tuple[int, ...] = ranks
        assert len(set(ranks)) == size and ranks[place] == comm.rank

    def allGather(self, own: int, to: int, n: int, kind: int, stream: int) -> None:
        """Of its ranks."""
        assert not self.aborted
        self.nccl.gather(self.ranks, own, to, n, kind, stream)

    def abort(self) -> None:
        """Never again."""
        self.aborted = True


def exchange(nccl: Nccl, calls: list[Call], buffers: list[Any], tag: int) -> None:
    """Do the messages of a group, from and to buffers of the host."""
    requests = []
    for (is_send, _, _, peer, _), buffer in zip(calls, buffers, strict=True):
        start = nccl.comm.Isend if is_send else nccl.comm.Irecv
        requests.append(start([buffer, MPI.BYTE], peer, tag))
    statuses = [MPI.Status() for _ in requests]
    MPI.Request.Waitall(requests, statuses)
    for (is_send, _, n, _, _), status in zip(calls, statuses, strict=True):
        assert is_send or status.Get_count(MPI.BYTE) == n, "the two ends of a message differ"


def put_off(nccl: Nccl, calls: list[Call], tag: int) -> None:
    """On a pretended GPU: when the stream comes to it."""
    from tests.fakes.pretended_cupy import STREAMS

    buffers = [MPI.memory.fromaddress(address, n) for _, address, n, _, _ in calls]
    STREAMS[calls[0][4]].add(lambda: exchange(nccl, calls, buffers, tag))


def through_host(nccl: Nccl, calls: list[Call], tag: int) -> None:
    """On a real GPU: after what is on the stream, by copies to the host and back."""
    import cupy

    stream = cupy.cuda.ExternalStream(calls[0][4])
    stream.synchronize()
    buffers = [np.empty(n, np.uint8) for _, _, n, _, _ in calls]
    for (is_send, address, n, _, _), buffer in zip(calls, buffers, strict=True):
        if is_send:
            cupy.cuda.runtime.memcpyAsync(buffer.ctypes.data, address, n, 4, stream.ptr)
    stream.synchronize()
    exchange(nccl, calls, buffers, tag)
    for (is_send, address, n, _, _), buffer in zip(calls, buffers, strict=True):
        if not is_send:
            cupy.cuda.runtime.memcpyAsync(address, buffer.ctypes.data, n, 4, stream.ptr)
    stream.synchronize()
