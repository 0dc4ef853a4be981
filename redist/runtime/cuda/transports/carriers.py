"""How packed bytes of GPU arrays reach ranks of other nodes.

A carrier takes a stage through its rounds: pack, exchange, fetch from the own node meanwhile, take
apart. With two halves of staging the GPU packs the next round, and takes the last one apart, while
messages are under way. :mod:`redist.runtime.cuda.transports.carrier_choice` says which one a world uses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from mpi4py import MPI

from redist.runtime.copies.addresses import Addresses
from redist.runtime.cuda.kernels.rounds import CudaRound
from redist.runtime.host.messages import post
from redist.runtime.ranks.tokens import Tag
from redist.runtime.ranks.waiting import abandon
from redist.runtime.ranks.world import World
from redist.runtime.schedule.compiler import Message
from redist.runtime.schedule.stages import StagePart

PINNED = "pinned memory and MPI"
AWARE = "CUDA-aware MPI"


class StagingPool:
    """Memory for staging: what is sent, and what is received.

    ``on_device`` it comes from CuPy's pool for a call and goes back there; else it is pinned memory
    of the host that the GPU writes and reads in place, kept for the largest need so far. Transfers
    over one communicator run one after another, and share it.
    """

    def __init__(self, on_device: bool) -> None:
        self.on_device = on_device
        self.memory: list[Any] = []
        self._sizes = [0, 0]
        self._used: dict[int, Any] = {}

    def lend(self, *needs: int) -> list[int]:
        """The addresses of both parts; what is too small is given up first, once it was read."""
        sizes = [max(1, *both) for both in zip(self._sizes, needs, strict=True)]
        if sizes != self._sizes:
            self.give_up()
            self.memory = [self._made(n_bytes) for n_bytes in sizes]
            self._sizes = sizes
        return [int(part.ptr) for part in self.memory]

    def give_up(self) -> None:
        """Wait until all was read, and keep no memory."""
        self.settle()
        self.memory, self._sizes = [], [0, 0]

    def _made(self, n_bytes: int) -> Any:
        import cupy

        return cupy.cuda.alloc(n_bytes) if self.on_device else cupy.cuda.PinnedMemory(n_bytes)

    def mark(self, stream: Any, half: int = 0) -> None:
        """Note that what ``stream`` was given so far reads this half."""
        self._used[half] = stream.record()

    def settle(self, half: int | None = None) -> None:
        """Wait until what was marked has been read: of one half, or of all."""
        for one in [*self._used] if half is None else [half]:
            event = self._used.pop(one, None)
            if event is not None:
                event.synchronize()


class StagingLease:
    """Staging that one transfer needs, of a shared pool, or of one of its own if it is given none."""

    def __init__(self, on_device: bool, pool: StagingPool | None = None) -> None:
        self.on_device = on_device
        self.pool = pool or StagingPool(on_device)
        self.send_bytes = self.receive_bytes = 0

    def reserve(self, send_bytes: int, receive_bytes: int) -> None:
        """**Local.** Note that a stage needs this many bytes."""
        self.send_bytes = max(self.send_bytes, send_bytes)
        self.receive_bytes = max(self.receive_bytes, receive_bytes)

    @contextlib.contextmanager
    def lent(self) -> Iterator[tuple[int, int]]:
        """The addresses of both parts, for one stage on the current stream."""
        send, receive = self.pool.lend(self.send_bytes, self.receive_bytes)
        yield send, receive
        if self.on_device:
            self.pool.give_up()  # the pool may lend it to another stream's messages at once


class Carrier(Protocol):
    """One way for packed bytes to reach other nodes; all ranks of a world use the same."""

    @property
    def name(self) -> str:
        """What ``redist doctor`` calls it."""

    def lease(self) -> StagingLease:
        """**Local.** Staging of the kind that it needs, of no size yet."""

    def all_gather(self, parts: Sequence[StagePart]) -> tuple[int, ...]:
        """**Collective.** The ranks among which messages of a stage are one all-gather; else none.

        Rounds of such a stage come with something ``gathered``, not with messages.
        """

    def carry(
        self,
        rounds: Sequence[CudaRound],
        lease: StagingLease,
        tables: Sequence[Addresses],
        stream: Any,
        held: Any,
    ) -> None:
        """**Collective.** Start all rounds on ``stream``; ``tables`` have every buffer's address.

        There is a table for each half of the staging: rounds use them in turn, and one is packed, and
        another taken apart, while messages of a third are under way. ``held`` is kept alive for good
        where a failure leaves messages behind.
        """


def pack(k: int, rounds: Sequence[CudaRound], tables: Sequence[Addresses], stream: Any) -> Any:
    """**Local.** Start to pack round ``k``, if there is one; an event for when it is packed."""
    if k >= len(rounds):
        return None
    rounds[k].pack.run(tables[k % len(tables)], stream.ptr)
    return stream.record()


class ByMessages:
    """Messages of MPI, out of pinned memory or, where the library reads it, out of the GPU's."""

    def __init__(self, world: World, on_device: bool = False) -> None:
        self.world, self.on_device = world, on_device
        self.pool = StagingPool(on_device)

    @property
    def name(self) -> str:
        """What it is called."""
        return AWARE if self.on_device else PINNED

    def lease(self) -> StagingLease:
        """**Local.** Pinned, or from the pool."""
        return StagingLease(self.on_device, self.pool)

    def all_gather(self, parts: Sequence[StagePart]) -> tuple[int, ...]:
        """**Local.** Never: what one rank sends to many is packed for each."""
        return ()

    def carry(
        self,
        rounds: Sequence[CudaRound],
        lease: StagingLease,
        tables: Sequence[Addresses],
        stream: Any,
        held: Any,
    ) -> None:
        """**Collective.** The host waits for what is packed and for its messages, for no more."""
        pool = lease.pool
        pool.settle()  # the stage before, or another call, has taken its messages apart
        n = len(tables)
        packed = pack(0, rounds, tables, stream)
        for k, round_ in enumerate(rounds):
            table = tables[k % n]
            pool.settle(k % n)  # the last round that was received here is taken apart
            with self._under_way((held, pool.memory)) as (receives, sends):
                self._post(MPI.Comm.Irecv, round_.receives, table, receives)
                if round_.sends:
                    packed.synchronize()
                self._post(MPI.Comm.Isend, round_.sends, table, sends)
                if n > 1:
                    packed = pack(k + 1, rounds, tables, stream)  # while messages are under way
                round_.fetch(table, stream)
            if n == 1:
                packed = pack(k + 1, rounds, tables, stream)
            round_.take_apart(table, stream)
            pool.mark(stream, k % n)

    def _post(
        self,
        start: Callable[..., MPI.Request],
        messages: Iterable[Message],
        table: Addresses,
        requests: list[Any],
    ) -> None:
        for message in messages:
            requests.append(post(partial(start, self.world.comm), message, table, Tag.DATA))

    @contextlib.contextmanager
    def _under_way(self, held: Any) -> Iterator[tuple[list[Any], list[Any]]]:
        """Lists for requests; waits for them at the end, and abandons them if an error ends it early."""
        receives: list[Any] = []
        sends: list[Any] = []
        try:
            yield receives, sends
            self.world.wait_for_messages(receives + sends)
        except BaseException:
            with contextlib.suppress(MPI.Exception):
                abandon(receives, receives + sends, held)
            raise
