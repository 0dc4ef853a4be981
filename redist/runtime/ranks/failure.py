"""How the end of one rank reaches the others of its node: it gives up, ends, dies, or does not come."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from redist.errors import PeerError, TransferError, error_in_words
from redist.runtime.ranks.answers import by_text
from redist.runtime.ranks.control_page import (
    ARRIVED,
    GAVE_UP,
    IS_WAITING,
    LEFT,
    STATUS,
    WAITS,
    ControlPages,
)
from redist.runtime.ranks.membership import raise_if_gone
from redist.runtime.ranks.node import Node
from redist.runtime.shm.process_reads import is_alive
from redist.text.call_site import call_text
from redist.text.units import ranks_in_words

APART_S, STILL_S = 0.1, 3.0
"""Ranks that wait so long in different places, or in different calls at one place, wait for ever."""
TOLD = "PeerError: "
FAILED, ENDED = "failed", "ended"


class Failure:
    """What this rank knows of failures, and how long it waits for others.

    ``timeout_s`` is that of the operation under way. A failure in the middle of one is for good:
    ranks may have stopped at different places, and only new ones have a common start. ``names`` has what
    errors call the ranks, by default their numbers. What passes between nodes is left to subclasses.
    """

    def __init__(
        self,
        node: Node,
        pages: ControlPages,
        timeout_s: float | None,
        size: int,
        names: Sequence[int] | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.broken: str | None = None
        """Why the ranks cannot work together any more, if so."""
        self._node, self._pages = node, pages
        self.rank, self.size = node.rank, size
        self._names: Sequence[int] = range(size) if names is None else names
        self._apart: tuple[Any, float] = None, 0.0
        """Where ranks wait that have no way to meet, and since when this one has seen it."""

    def raise_if_broken(self) -> None:
        """**Local.** Raise if an earlier failure ended the work of these ranks together."""
        if self.broken is not None:
            raise TransferError(self.why_broken())

    def why_broken(self) -> str:
        """**Local.** What users are told who go on after a failure."""
        return f"cannot move between these ranks any more: an earlier move failed ({self.broken})"

    def abort(self, error: BaseException) -> None:
        """**Local.** Tell every rank that this one has given up; nothing can be used after that.

        Other nodes are told what they cannot notice: an error of this rank, or a death on its node. That
        a rank is late or gone they notice themselves.
        """
        reason = error_in_words(error)
        self.broken = reason
        self._pages.own.text = reason
        self._pages.own.control[STATUS] = GAVE_UP
        if not isinstance(error, PeerError) or self._gone():
            self.tell_other_nodes(FAILED, reason)

    def leave(self, error: BaseException | None) -> None:
        """**Local.** Tell every rank that the program of this one has ended, by an error or well.

        An error is told to other nodes too, for which it may be the only word; a program that ends well is
        not, because MPI's own end of a program waits for the others.
        """
        page = self._pages.own
        if self.broken is not None or int(page.control[STATUS]):
            return
        reason = "" if error is None else error_in_words(error)
        page.text = reason
        page.control[STATUS] = LEFT
        if error is not None and not isinstance(error, PeerError):
            self.tell_other_nodes(ENDED, reason)

    def tell_other_nodes(self, how: str, reason: str) -> None:
        """**Local.** Tell the ranks of other nodes, if there is a way to."""

    def still_here(self) -> list[int]:
        """**Local.** The neighbours that run and have neither given up nor left."""
        gone = self._gone()
        pages = self._pages.by_rank.items()
        others = [rank for rank, page in pages if rank != self.rank and rank not in gone]
        return [rank for rank in others if not self._pages.words[rank][STATUS]]

    def raise_if_aborted(self) -> None:
        """**Local.** Raise if a rank of this node has given up, or left without what this one has come to."""
        words = self._pages.words
        own = words[self.rank]
        for rank, page in self._pages.by_rank.items():
            status = words[rank][STATUS]
            if status == GAVE_UP:
                raise failed(self._names[rank], FAILED, page.text)
            if status and (words[rank][ARRIVED] < own[ARRIVED] or words[rank][WAITS] < own[WAITS]):
                raise failed(self._names[rank], ENDED, page.text)

    def may_get_messages(self) -> bool:
        """**Local.** Whether :meth:`raise_if_message` may be called in this thread."""
        return False

    def raise_if_message(self) -> None:
        """**Local.** Raise if a rank of another node has told that it has given up."""

    def raise_if_dead(self) -> None:
        """**Local.** Raise if the process of a rank of this node is gone."""
        for rank, pid in self._gone().items():
            raise PeerError(f"rank {self._names[rank]} died (process {pid} is gone)")
        raise_if_gone()

    def _gone(self) -> dict[int, int]:
        """The ranks of this node whose processes are gone, and these."""
        others = {r: pid for r, pid in self._node.pids.items() if r != self.rank}
        return {rank: pid for rank, pid in others.items() if not is_alive(pid)}

    def raise_if_any(self) -> None:
        """**Local.** Raise if any other rank is known to have failed."""
        self.raise_if_aborted()
        self.raise_if_message()
        self.raise_if_dead()

    # What neighbours see of each other's waits

    def count_wait(self) -> None:
        """**Local.** A wait of all ranks for MPI begins: neighbours see how many there were."""
        self._pages.words[self.rank][WAITS] += 1

    def say_waiting(self, call: str | None) -> None:
        """**Local.** Tell the neighbours in which call this rank waits; None: it waits no more."""
        page = self._pages.own
        if call is not None:
            page.call = call
        page.control[IS_WAITING] = call is not None

    def raise_if_apart(self) -> None:
        """**Local.** Raise if neighbours wait in other calls, where none can ever come to the others.

        Ranks come to meetings, and to waits for MPI, in one order: who is ahead in the one and behind in the
        other took another way. So did ranks that are at one place in different calls, all of them, for long.
        """
        words = self._pages.words
        waiting = [r for r in self._pages.by_rank if words[r][IS_WAITING] and not words[r][STATUS]]
        places = {r: (words[r][ARRIVED], words[r][WAITS]) for r in waiting}
        arrived, waits = words[self.rank][ARRIVED], words[self.rank][WAITS]
        other = any((s - arrived) * (w - waits) < 0 for s, w in places.values())
        calls = {r: self._pages[r].call for r in waiting}
        names = {call.partition(" (")[0] for call in calls.values()}
        stuck = len(waiting) == self.size and len(set(places.values())) == 1 < len(names)
        now = time.monotonic()
        if not (other or stuck):
            self._apart = None, now
        elif self._apart[0] != places:
            self._apart = places, now
        elif now - self._apart[1] > (APART_S if other else STILL_S):
            who = by_text((self._names[rank], call) for rank, call in calls.items())
            said = "; ".join(f"{ranks_in_words(r, self.size)}: {c}" for c, r in who.items())
            raise PeerError(
                f"ranks wait in different calls: {said}; all ranks must make the same calls in one order"
            )

    def all_wait_here(self) -> bool:
        """**Local.** Whether all ranks wait in the line that this one waits in, as neighbours see it."""
        words, own = self._pages.words, self._pages.own.call
        return len(self._pages.by_rank) == self.size and all(
            words[rank][IS_WAITING] and not words[rank][STATUS] and page.call == own
            for rank, page in self._pages.by_rank.items()
        )

    def absent(self) -> tuple[list[int], list[int], int]:
        """**Local.** The neighbours that wait too, if this is the first; who has not come; all ranks."""
        words, me = self._pages.words, self.rank
        own = words[me]
        here: list[int] = []
        absent: list[int] = []
        for rank in self._pages.by_rank:
            there = words[rank]
            is_here = there[ARRIVED] >= own[ARRIVED] and there[WAITS] >= own[WAITS]
            (here if is_here else absent).append(rank)
        here = [rank for rank in here if words[rank][IS_WAITING]]
        waiting = here if here[:1] == [me] else []
        return [self._names[r] for r in waiting], [self._names[r] for r in absent], self.size


def failed(rank: int, how: str, text: str) -> PeerError:
    """What this rank says of another that has failed or ended."""
    if how == FAILED and text.startswith(TOLD):
        told = text.removeprefix(TOLD)
        return PeerError(told if "told by rank" in told else f"{told} (told by rank {rank})")
    if how == FAILED or text:
        return PeerError(f"rank {rank} {how}: {text.removeprefix(TOLD)}")
    return left_without(rank)


def left_without(rank: int) -> PeerError:
    """**Local.** What this rank says of another whose program has ended."""
    return PeerError(
        f"rank {rank} has left: its program ended without {call_text()}; every rank must make this call"
    )
