"""How packed bytes of GPU arrays reach ranks of other nodes.

A carrier takes a stage through its rounds: pack, exchange, fetch from the own node meanwhile, take
apart. :mod:`redist.runtime.cuda_choice` says which one a world uses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from mpi4py import MPI

from redist.runtime.cuda_program import CudaRound
from redist.runtime.datatypes import post
from redist.runtime.moves import Addresses
from redist.runtime.patience import abandon
from redist.runtime.world import TAG_DATA, World

PINNED = "pinned memory and MPI"
AWARE = "CUDA-aware MPI"


class Room:
    """Staging for what is sent and what is received: a plan's staging, shared by its stages.

    ``on_device`` it comes from CuPy's pool for a call and goes back there; else it is pinned memory
    of the host that the GPU writes and reads in place, made once and kept.
    """

    def __init__(self, on_device: bool) -> None:
        self.on_device = on_device
        self.send_bytes = self.receive_bytes = 0
        self.memory: list[Any] = []
        self._used: Any = None

    def reserve(self, send_bytes: int, receive_bytes: int) -> None:
        """**Local.** A stage needs so much."""
        self.send_bytes = max(self.send_bytes, send_bytes)
        self.receive_bytes = max(self.receive_bytes, receive_bytes)

    @property
    def n_bytes(self) -> int:
        """All of it."""
        return self.send_bytes + self.receive_bytes

    @contextlib.contextmanager
    def lent(self) -> Iterator[tuple[int, int]]:
        """The addresses of both parts, for one stage on the current stream."""
        if not self.memory:
            self.memory = [self._made(max(1, n)) for n in (self.send_bytes, self.receive_bytes)]
        yield int(self.memory[0].ptr), int(self.memory[1].ptr)
        if self.on_device:
            self.settle()  # the pool may lend it to another stream's messages at once
            self.memory = []

    def _made(self, n_bytes: int) -> Any:
        import cupy

        return cupy.cuda.alloc(n_bytes) if self.on_device else cupy.cuda.PinnedMemory(n_bytes)

    def mark(self, stream: Any) -> None:
        """What ``stream`` has got to do so far reads this room."""
        self._used = stream.record()

    def settle(self) -> None:
        """Wait until what was marked has been read."""
        if self._used is not None:
            self._used.synchronize()
            self._used = None


class Carrier(Protocol):
    """One way for packed bytes to reach other nodes; all ranks of a world use the same."""

    @property
    def name(self) -> str:
        """What ``redist doctor`` calls it."""

    def room(self) -> Room:
        """**Local.** Staging of the kind that it needs, still empty."""

    def carry(
        self,
        rounds: Iterable[CudaRound],
        room: Room,
        table: Addresses,
        stream: Any,
        held: Any,
        timeout_s: float | None,
    ) -> None:
        """**Collective.** Start all rounds on ``stream``; ``table`` has every buffer's address.

        ``held`` is kept alive for good where a failure leaves messages under way.
        """


class ByMessages:
    """Messages of MPI, out of pinned memory or, where the library reads it, out of the GPU's."""

    def __init__(self, world: World, on_device: bool = False) -> None:
        self.world, self.on_device = world, on_device

    @property
    def name(self) -> str:
        """What it is called."""
        return AWARE if self.on_device else PINNED

    def room(self) -> Room:
        """**Local.** Pinned, or from the pool."""
        return Room(self.on_device)

    def carry(
        self,
        rounds: Iterable[CudaRound],
        room: Room,
        table: Addresses,
        stream: Any,
        held: Any,
        timeout_s: float | None,
    ) -> None:
        """**Collective.** The host waits for what is packed and for its messages, for no more."""
        for round_ in rounds:
            room.settle()  # the round before, or the call before, has taken its messages apart
            requests = self._receives(round_, table)
            round_.pack.run(table, stream.ptr)
            if round_.sends:
                stream.synchronize()
            sends = self._sends(round_, table)
            if not round_.combines:
                round_.fetch(table, stream)  # while messages are under way
            self._finish(requests, sends, (held, room.memory), timeout_s)
            if round_.combines:
                round_.fetch(table, stream)
            round_.take_apart(table, stream)
            room.mark(stream)

    def _receives(self, round_: CudaRound, table: Addresses) -> list[Any]:
        comm = self.world.comm
        return [post(comm.Irecv, message, table, TAG_DATA) for message in round_.receives]

    def _sends(self, round_: CudaRound, table: Addresses) -> list[Any]:
        comm = self.world.comm
        return [post(comm.Isend, message, table, TAG_DATA) for message in round_.sends]

    def _finish(
        self, receives: list[Any], sends: list[Any], held: Any, timeout_s: float | None
    ) -> None:
        requests = receives + sends
        try:
            self.world.wait(requests, timeout_s)
        except BaseException:
            with contextlib.suppress(MPI.Exception):
                abandon(requests[: len(receives)], requests, held)
            raise
