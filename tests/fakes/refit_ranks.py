"""Ranks of a refit as threads of one process: they speak through shared lists, messages are copies."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Barrier, BrokenBarrierError
from typing import Any

import numpy as np

from redist.errors import PeerError
from redist.runtime.copies.addresses import array_at

LIMIT_S = 5.0


class Talk:
    """What threads share; one that fails breaks the barrier of all."""

    def __init__(self, n: int) -> None:
        self.size = n
        self.barrier = Barrier(n, timeout=LIMIT_S)
        self.said: list[Any] = [None] * n
        self.votes: dict[int, Any] = {}
        self.voters: list[int] = []
        self.ballot: Barrier | None = None
        self.letters = {(a, b): SimpleQueue[Any]() for a in range(n) for b in range(n)}


class ThreadRanks:
    """One rank; ``shares`` says whether they map each other's memory."""

    sends_from_gpu = False
    before_round: Callable[[int], None] | None = None
    """Called before each round of messages: a test lets a rank fail there."""

    def __init__(self, talk: Talk, rank: int, shares: bool) -> None:
        self.talk, self.rank, self.size, self.shares = talk, rank, talk.size, shares

    def on_stream(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def operation(self) -> Iterator[None]:
        try:
            yield
        except BrokenBarrierError:
            raise PeerError("another rank failed") from None
        except BaseException:
            self.talk.barrier.abort()
            raise

    def gather(self, value: Any) -> list[Any]:
        self.talk.said[self.rank] = value
        self.talk.barrier.wait()
        found = list(self.talk.said)
        self.talk.barrier.wait()
        return found

    def meet(self) -> None:
        self.talk.barrier.wait()

    def choose_messages(self, memories: Any) -> None:
        pass

    def choose_voters(self, ranks: Sequence[int]) -> None:
        self.talk.barrier.wait()
        self.talk.voters, self.talk.ballot = list(ranks), Barrier(len(ranks) or 1, timeout=LIMIT_S)
        self.talk.barrier.wait()

    def vote(self, value: Any) -> list[Any]:
        assert self.talk.ballot is not None
        self.talk.votes[self.rank] = value
        self.talk.ballot.wait()
        found = [self.talk.votes[rank] for rank in self.talk.voters]
        self.talk.ballot.wait()
        return found

    def carry(self, rounds: Any, table: Any, held: Any) -> None:
        for round_ in rounds:
            if self.before_round is not None:
                self.before_round(round_.number)
            round_.pack.run(table)
            for one in round_.sends:
                self.talk.letters[self.rank, one.peer].put(
                    (round_.number, self._bytes(one, table).copy())
                )
            for one in round_.receives:
                try:
                    number, sent = self.talk.letters[one.peer, self.rank].get(timeout=LIMIT_S)
                except Empty:
                    raise PeerError("no message came") from None
                assert number == round_.number and len(sent) == one.n_bytes, "messages do not match"
                self._bytes(one, table)[:] = sent
            round_.unpack.run(table)

    @staticmethod
    def _bytes(message: Any, table: Any) -> Any:
        address = int(table[message.base]) + message.offset
        return array_at(address, (message.n_bytes,), (1,), np.dtype(np.uint8))

    def finish(self) -> None:
        pass

    def close(self) -> None:
        pass


def on_ranks(n: int, shares: bool, work: Callable[[ThreadRanks], Any]) -> list[Any]:
    """What some work returns on every rank; an exception is returned, too."""
    talk = Talk(n)

    def run(rank: int) -> Any:
        try:
            return work(ThreadRanks(talk, rank, shares))
        except Exception as problem:
            return problem

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(run, range(n)))
