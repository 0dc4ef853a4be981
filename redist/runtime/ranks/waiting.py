"""Waiting for MPI without burning the processor and without waiting for ever."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI

from redist.errors import PeerError
from redist.runtime.ranks.background import is_background
from redist.runtime.ranks.long_wait import LONG_S, TIMEOUT_S, LongWait, Surroundings
from redist.runtime.ranks.signs import Beginning

__all__ = ["TIMEOUT_S", "abandon", "broadcast", "gather", "wait_for", "wait_until"]
BUSY_S = 0.002
"""So long a wait only yields; after that it sleeps."""
BESIDE_S = 2e-4
"""A wait beside other work of this process sleeps so long at a time: that work has the core."""


class Watch(Surroundings, Protocol):
    """What a wait looks at besides what it waits for."""

    def raise_if_any(self) -> None:
        """**Local.** Raise if any other rank is known to have failed."""

    def raise_if_broken(self) -> None:
        """**Local.** Raise if an earlier failure ended the use of the communicator."""

    def count_wait(self) -> None:
        """**Local.** A wait of all ranks begins."""


def wait_for(requests: list[Any], timeout_s: float | None, watch: Watch | None = None) -> None:
    """Wait for requests; raise if the ``watch`` does, which looks now and then.

    What ends a wait early does not end the requests: they, and so their buffers, are kept for good.
    """
    try:
        wait_until(lambda: are_complete(requests), timeout_s, watch)
    except BaseException:
        _ABANDONED.append(requests)
        raise


_ABANDONED: list[Any] = []


def abandon(receives: list[Any], *owners: Any) -> None:
    """Take receives back as far as MPI lets us, and keep alive whatever it may still touch."""
    _ABANDONED.append(owners)
    for request in receives:
        if request != MPI.REQUEST_NULL:
            request.Cancel()
    end = time.monotonic() + 1.0
    while not MPI.Request.Testall(receives) and time.monotonic() < end:
        time.sleep(1e-4)


def may_call_mpi() -> bool:
    """**Local.** Whether this thread may call MPI."""
    return MPI.Query_thread() >= MPI.THREAD_MULTIPLE or MPI.Is_thread_main()


def wait_until(
    is_done: Callable[[], bool], timeout_s: float | None, watch: Watch | None = None
) -> None:
    """Ask again and again, politely, until it is done; the ``watch`` looks now and then and may raise."""
    tries, start = 0, 0.0
    beside = is_background()
    long: LongWait | None = None
    try:
        while not is_done():
            tries += 1
            if beside:
                time.sleep(BESIDE_S)
            elif tries % 8:
                os.sched_yield()
                continue
            now = time.monotonic()
            start = start or now
            waited = now - start
            if watch is not None and (tries % 512 == 0 or (waited > BUSY_S and not beside)):
                watch.raise_if_any()
            if waited > LONG_S or (timeout_s is not None and waited > timeout_s):
                long = long or LongWait(start, timeout_s, watch)
                long.look(now)
            if waited > BUSY_S and not beside:
                time.sleep(min(1e-3, waited / 20))
    finally:
        if long is not None:
            long.end()


def are_complete(requests: list[Any]) -> bool:
    """**Local.** Whether all requests are; MPI goes on with them meanwhile."""
    try:
        return bool(MPI.Request.Testall(requests))
    except MPI.Exception as error:
        raise _gave_up(error) from None


class Incomplete:
    """Requests that are not complete yet, as far as was seen: to be asked often, one of them at a time.

    MPI goes on with all of them whichever is asked for.
    """

    __slots__ = ("_rest",)

    def __init__(self, requests: list[Any]) -> None:
        self._rest = requests[::-1]

    def add(self, requests: list[Any]) -> None:
        """**Local.** Look at these, too."""
        self._rest = [*requests[::-1], *self._rest]

    def is_empty(self) -> bool:
        """**Local.** Whether all are complete."""
        rest = self._rest
        try:
            while rest and rest[-1].Test():
                rest.pop()
        except MPI.Exception as error:
            raise _gave_up(error) from None
        return not rest


def _gave_up(error: MPI.Exception) -> PeerError:
    return PeerError(f"MPI gave up waiting for another rank, which may have died ({error})")


def gather(comm: MPI.Comm, value: Any, timeout_s: float | None) -> list[Any]:
    """**Collective.** The values of all ranks, in order."""
    watch = _begin(comm)
    data = np.frombuffer(pickle.dumps(value), np.uint8)
    sizes = np.zeros(comm.size, dtype=np.int64)
    wait_for([comm.Iallgather(np.array([len(data)], dtype=np.int64), sizes)], timeout_s, watch)
    everything = np.empty(int(sizes.sum()), np.uint8)
    starts = np.cumsum(sizes) - sizes
    counts = (sizes.tolist(), starts.tolist())
    wait_for([comm.Iallgatherv(data, [everything, counts, MPI.BYTE])], timeout_s, watch)
    pairs = zip(starts.tolist(), sizes.tolist(), strict=True)
    return [pickle.loads(everything[a : a + n].tobytes()) for a, n in pairs]


def broadcast(comm: MPI.Comm, value: Any, timeout_s: float | None) -> Any:
    """**Collective.** The value of rank 0."""
    data = np.frombuffer(pickle.dumps(value) if comm.rank == 0 else b"", np.uint8).copy()
    size = np.array([len(data)], dtype=np.int64)
    watch = _begin(comm)
    wait_for([comm.Ibcast(size)], timeout_s, watch)
    if comm.rank != 0:
        data = np.empty(int(size[0]), np.uint8)
    wait_for([comm.Ibcast([data, MPI.BYTE])], timeout_s, watch)
    return pickle.loads(data.tobytes())


def watch_over(comm: MPI.Comm, watch: Watch) -> None:
    """**Local.** Let every wait on a communicator look at this."""
    comm.Set_attr(_KEY, watch)


def _begin(comm: MPI.Comm) -> Watch | None:
    """**Local.** What watches over a communicator, which a wait of all its ranks begins on."""
    watch: Any = comm.Get_attr(_KEY)
    if watch is not None:
        watch.raise_if_broken()
        watch.count_wait()
    elif comm.size > 1:
        return Beginning(comm)
    return watch


_KEY = MPI.Comm.Create_keyval()
