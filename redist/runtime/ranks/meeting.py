"""Meetings of ranks: each brings a token and a flag, and learns whether all brought the same."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.errors import RedistError, TransferError
from redist.runtime.copies.kernels import ABORTED, ALL_SAME, NOT_YET
from redist.runtime.ranks.control_page import CONTROL_WORD, ControlPages
from redist.runtime.ranks.failure import Failure
from redist.runtime.ranks.long_wait import LONG_S, LongWait
from redist.runtime.ranks.node import Node, RankGroup
from redist.runtime.ranks.tokens import Token

if TYPE_CHECKING:
    from redist.runtime.ranks.letters import Enclosed, Letters

SLICE_NS = 50_000_000
"""Waits look up so often: at signals, at the clock, and at whether the others live."""
BETWEEN_NODES_NS = 200_000
"""So often if ranks are on several nodes: see :meth:`Meeting.wait_until`."""


class Met(Enum):
    """How the ranks came to a meeting."""

    SAME = auto()
    """All with one token and one flag."""
    MIXED = auto()
    """All with one token, but with different flags."""
    DISAGREE = auto()
    """With different tokens: they are in different operations."""


class Disagreement(TransferError):
    """A rank came to the first meeting with another request, or with an error (this rank's, if any)."""

    def __init__(self, error: RedistError | None = None) -> None:
        super().__init__("ranks met for the same request in different ways: all must make one call")
        self.error = error


class LoopWords(ctypes.Structure):
    """What a loop in C must know to meet the ranks of its node: ``struct redist_ranks`` of redist_spmd.h."""

    _fields_ = (
        ("meet", ctypes.c_void_p),
        ("control", ctypes.c_void_p),
        ("tiles", ctypes.c_void_p),
        ("n", ctypes.c_int64),
        ("me", ctypes.c_int64),
        ("wait_ns", ctypes.c_int64),
        ("seq", ctypes.c_uint64),
        ("word", ctypes.c_uint64),
    )
    seq: int
    word: int


class Meeting:
    """Lets all ranks, or those of a node, wait for each other.

    ``seq`` counts the meetings; even and odd ones use different words and slots of shared memory, so
    that a rank may be one meeting ahead of another.
    """

    def __init__(self, ranks: RankGroup, node: Node, pages: ControlPages, failure: Failure) -> None:
        self.seq = 0
        self.letters: Letters | None = None
        """How the ranks of several nodes meet; a reduction where there are none."""
        self._ranks, self._node, self._pages, self._failure = ranks, node, pages, failure
        self._on_one_node = node.is_everyone
        self._kernels = node.kernels
        self._slice_ns = SLICE_NS if node.is_everyone else BETWEEN_NODES_NS

    def meet(self, token: int, flag: int = 0, enclosed: Enclosed | None = None) -> Met:
        """**Collective.** Wait for every rank; how they came. :meth:`flag_of` tells whose flag is set.

        Between nodes letters carry what is ``enclosed``: see :class:`Letters`.
        """
        said = 2 * token + flag
        self.seq += 1
        if self._on_one_node and self._kernels is not None:
            return self.classify(self._wait_on_node(said), said)
        self._pages.words[self._node.rank][CONTROL_WORD * (1 + (self.seq & 1))] = said
        if self.letters is not None:
            if len(self._node.ranks) > 1:
                near = partial(self._wait_for_node, said)
                return self._compare(said, self.letters.meet(said, enclosed, near))
            words = self.letters.meet(said, enclosed, None)
            return Met.SAME if words.count(said) == len(words) else self._compare(said, words)
        seen = np.array([said, -said], dtype=np.int64)
        self._ranks.all_max(seen)
        if seen[0] == -seen[1]:
            return Met.SAME
        return Met.MIXED if seen[0] // 2 == -seen[1] // 2 else Met.DISAGREE

    def classify(self, answer: int, said: int) -> Met:
        """**Local.** What an answer of the kernel means for a meeting of all ranks."""
        if answer == ALL_SAME:
            return Met.SAME
        return self._compare(said, [])

    def _compare(self, said: int, far: list[int]) -> Met:
        """**Local.** How ranks came of which those of other nodes say this."""
        at = CONTROL_WORD * (1 + (self.seq & 1))
        words = {*far, *(self._pages.words[rank][at] for rank in self._node.ranks)}
        if words == {said}:
            return Met.SAME
        return Met.MIXED if all(word // 2 == said // 2 for word in words) else Met.DISAGREE

    def flag_of(self, rank: int) -> int:
        """**Local.** The flag with which a neighbour came to the last meeting of all ranks."""
        return self._pages.words[rank][CONTROL_WORD * (1 + (self.seq & 1))] & 1

    def meet_node(self) -> None:
        """**Collective over the node.** Wait for its ranks; what they wrote before is visible after."""
        self.seq += 1
        self._wait_for_node(0)

    def _wait_for_node(self, said: int) -> None:
        if len(self._node.ranks) == 1:
            return
        if self._kernels is not None:
            self._wait_on_node(said)
        else:
            self._ranks.wait_on_node()

    def loop_words(self, tiles: int) -> LoopWords:
        """**Local.** For loops in C; ``tiles`` is the address of a table of where the ranks' tiles lie."""
        assert self._kernels is not None
        meet, node = ctypes.cast(self._kernels.meet, ctypes.c_void_p), self._node
        n, me, word = len(node.ranks), node.place, 2 * Token.LOOP
        return LoopWords(meet.value, self._pages.table, tiles, n, me, self._slice_ns, 0, word)

    def _wait_on_node(self, said: int) -> int:
        assert self._kernels is not None
        meet, node = self._kernels.meet, self._node
        args = self._pages.table, len(node.ranks), node.place, self.seq, said, None, self._slice_ns
        return self.wait_until(lambda: meet(*args))

    def run_loop(self, words: LoopWords, loop: Callable[[Any], int]) -> None:
        """**Collective over the node.** Call a loop in C that meets the other ranks until it has ended.

        A loop that has to wait for long comes back, and is called again once the others are there.
        """
        words.seq = self.seq + 1
        while True:
            answer = loop(ctypes.byref(words))
            self.seq = words.seq if answer == NOT_YET else words.seq - 1
            if answer == ALL_SAME:
                return
            if answer == ABORTED:
                self._failure.raise_if_aborted()
            elif answer != NOT_YET:
                raise Disagreement
            self._wait_on_node(words.word)

    def wait_until(self, meet: Callable[[], int]) -> int:
        """Call ``meet`` until the others have come; raise if one of them fails, dies or is too late.

        MPI calls a send complete when it has taken the data, not when it has delivered it: for that
        it must be called again. A neighbour may be waiting for that very message, so MPI is called
        here too.
        """
        start = looked = 0.0
        failure, timeout_s = self._failure, self._failure.timeout_s
        long: LongWait | None = None
        try:
            while True:
                answer = meet()
                if answer == ABORTED:
                    failure.raise_if_aborted()
                elif answer != NOT_YET:
                    return answer
                now = time.monotonic()
                start = start or now
                if not self._on_one_node:
                    failure.raise_if_message()
                if now - looked < LONG_S:
                    continue
                looked = now
                failure.raise_if_dead()
                if self._on_one_node and failure.may_get_messages():
                    failure.raise_if_message()
                long = long or LongWait(start, timeout_s, failure)
                long.look(now)
        finally:
            if long is not None:
                long.end()
