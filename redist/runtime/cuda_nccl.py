"""NCCL between GPUs, one for every rank: found, joined, and a carrier of packed bytes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from threading import Thread
from typing import Any

import numpy as np

from redist.errors import PeerError, TransferError
from redist.runtime.cuda_carriers import Room
from redist.runtime.cuda_program import CudaRound
from redist.runtime.kernels import ALL_SAME, NOT_YET
from redist.runtime.moves import Addresses
from redist.runtime.patience import broadcast
from redist.runtime.program import Message
from redist.runtime.world import World

UINT8 = 1
"""NCCL's number of the type."""
LOOK_S = 2e-5
JOIN_S = 120.0
"""Longer than this nobody waits for a communicator of NCCL."""


def nccl_version() -> tuple[int, ...]:
    """**Local.** Of the library that CuPy finds; an error where there is none.

    As in ``nccl_version() == (2, 27, 5)``.
    """
    try:
        from cupy.cuda import nccl
    except ImportError as error:
        raise TransferError(f"cannot use NCCL: {error}") from None
    if not nccl.available:
        raise TransferError("cannot use NCCL: CuPy does not find it; install nvidia-nccl-cu13")
    number = int(nccl.get_version())
    return number // 10000, number // 100 % 100, number % 100


def joined(world: World, timeout_s: float | None) -> ByNccl:
    """**Collective.** A carrier over a new communicator of all ranks, still to be tried; or an error.

    All ranks must have found NCCL and a GPU of their own before.
    """
    import cupy
    from cupy.cuda import nccl

    number = broadcast(world.comm, nccl.get_unique_id() if world.rank == 0 else None, timeout_s)
    made: list[Any] = []
    device = cupy.cuda.Device().id

    def make() -> None:
        try:
            with cupy.cuda.Device(device):
                made.append(nccl.NcclCommunicator(world.size, number, world.rank))
        except Exception as error:
            made.append(error)

    patience_s = JOIN_S if timeout_s is None else min(JOIN_S, timeout_s / 2)
    thread = Thread(target=make, daemon=True)  # where a rank fails the others may never return
    thread.start()
    thread.join(patience_s)
    if not made:
        raise TransferError(f"cannot join ranks by NCCL: not done within {patience_s:g} s")
    if isinstance(made[0], Exception):
        raise TransferError(f"cannot join ranks by NCCL: {made[0]}")
    return ByNccl(world, made[0], nccl, cupy.cuda.Stream(non_blocking=True))


class ByNccl:
    """Grouped sends and receives of NCCL, out of memory of the GPU, on a stream of its own.

    ``api`` has groupStart and groupEnd, ``communicator`` send, recv and abort, as in cupy.cuda.nccl.
    """

    name = "NCCL"

    def __init__(self, world: World, communicator: Any, api: Any, side: Any) -> None:
        self.world, self.communicator, self.api, self.side = world, communicator, api, side

    def room(self) -> Room:
        """**Local.** From the pool."""
        return Room(on_device=True)

    def carry(
        self,
        rounds: Iterable[CudaRound],
        room: Room,
        table: Addresses,
        stream: Any,
        held: Any,
        timeout_s: float | None,
    ) -> None:
        """**Collective.** Rounds follow each other on the GPU; the host waits once, at the end.

        It does so to hear of ranks that fail: their messages would keep this GPU waiting for ever.
        """
        try:
            for round_ in rounds:
                round_.pack.run(table, stream.ptr)
                self.side.wait_event(stream.record())
                self._exchange(round_.sends, round_.receives, table)
                round_.fetch(table, stream)  # while messages are under way
                stream.wait_event(self.side.record())
                round_.take_apart(table, stream)
            room.mark(stream)
            self._wait(stream.record(), timeout_s)
        except BaseException:
            self.communicator.abort()
            raise

    def _exchange(
        self, sends: Iterable[Message], receives: Iterable[Message], table: Addresses
    ) -> None:
        self.api.groupStart()
        try:
            for m in receives:
                address = int(table[m.base]) + m.offset
                self.communicator.recv(address, m.n_bytes, UINT8, m.peer, self.side.ptr)
            for m in sends:
                address = int(table[m.base]) + m.offset
                self.communicator.send(address, m.n_bytes, UINT8, m.peer, self.side.ptr)
        finally:
            self.api.groupEnd()

    def _wait(self, event: Any, timeout_s: float | None) -> None:
        start = time.monotonic()

        def look() -> int:
            if event.done:
                return ALL_SAME
            if timeout_s is not None and time.monotonic() - start > timeout_s:
                raise PeerError(f"messages of NCCL did not arrive within {timeout_s:g} s")
            time.sleep(LOOK_S)
            return NOT_YET

        self.world.patiently(look, None)

    def try_out(self, timeout_s: float | None) -> None:
        """**Collective.** Pass a number round a ring of all ranks; an error unless it arrives."""
        import cupy

        world = self.world
        both = cupy.asarray(np.array([world.rank + 1, 0], np.int64))
        cupy.cuda.get_current_stream().synchronize()
        table = np.array([int(both.data.ptr)], np.uintp)
        before, after = (world.rank - 1) % world.size, (world.rank + 1) % world.size
        self._exchange([Message(after, 0, 0, 8)], [Message(before, 0, 8, 8)], table)
        self._wait(self.side.record(), JOIN_S if timeout_s is None else timeout_s / 2)
        if int(both[1]) != before + 1:
            raise TransferError("cannot use NCCL: a number did not arrive as it was sent")
