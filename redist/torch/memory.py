"""Shared memory of the ranks of one host: a control page and a pool each, mapped by all, and meetings.

No name is left behind: segments are those of :mod:`redist.runtime.shm.segments`, and handles to them
travel over the process group.
"""

from __future__ import annotations

import os
import socket
import time

import numpy as np

from redist.errors import PeerError, TransferError
from redist.runtime.copies.addresses import address_of
from redist.runtime.copies.kernels import ABORTED, ALL_SAME, NOT_YET, kernels
from redist.runtime.ranks.long_wait import LongWait
from redist.runtime.shm.pages import release_pages
from redist.runtime.shm.process_reads import is_alive
from redist.runtime.shm.segments import Bytes, attach, can_share, find, shared_bytes
from redist.torch.ranks import Group, Ranks

CONTROL_BYTES = 4096
"""The first bytes of every rank's segment: meetings, and whether it has given up; the pool follows."""
WORD, STATUS = 8, 1
"""Control words are a cache line apart; the second of the first line says that a rank has given up."""
SLICE_NS = 50_000_000
"""Waits look up so often: at the clock, and at whether the others live."""
MARK_AT, MARK_BYTES = 256, 16
REASON_AT = 512
"""From here to the end of its control page a rank writes why it has given up."""


class SharedMemory(Group):
    """What the ranks of one host share. Making one is **collective**; :meth:`join` finds out if it can be."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.seq = 0
        self.broken: str | None = None
        self.pool_bytes = 0
        self._touched_bytes = 0
        """The largest slot that was used of this rank's pool, and so keeps pages."""

    @staticmethod
    def join(ranks: Ranks) -> SharedMemory | None:
        """**Collective.** The memory that all ranks share; None if one of them cannot map the others'."""
        able = can_share() and kernels() is not None and ranks.size > 1
        hosts = ranks.gather((able, socket.gethostname()))
        if not all(able for able, _ in hosts) or len({host for _, host in hosts}) > 1:
            return None
        memory = SharedMemory(ranks)
        return memory if memory.reserve(0) else None

    def reserve(self, pool_bytes: int) -> bool:
        """**Collective.** Make pools of at least this size; whether every rank could map all of them."""
        size = max(pool_bytes, self.pool_bytes)
        own = shared_bytes(CONTROL_BYTES + size)
        mark = os.urandom(MARK_BYTES)
        own[MARK_AT : MARK_AT + MARK_BYTES] = np.frombuffer(mark, np.uint8)
        found = find(own)
        told = self.ranks.gather((*(found or (None, 0)), mark))
        pages: list[Bytes] = []
        works = True
        for rank, (handle, offset, there) in enumerate(told):
            try:
                page = own
                if rank != self.ranks.rank:
                    page = attach(handle)[offset : offset + len(own)]
                works = works and bytes(page[MARK_AT : MARK_AT + MARK_BYTES]) == there
                pages.append(page)
            except (OSError, ValueError, AttributeError, TransferError):
                works = False
        if not all(self.ranks.gather(works)):
            return False
        self.own, self.pages, self.pool_bytes, self.seq = own, pages, size, 0
        self._touched_bytes = 0
        self.pids = [handle.pid for handle, *_ in told]
        self._control = own[:CONTROL_BYTES].view(np.uint64)
        self._table = np.array([address_of(page) for page in pages], dtype=np.uintp)
        self.ranks.barrier()  # nobody meets in pages that another has not mapped
        return True

    def slot(self, rank: int, parity: int, slot_bytes: int) -> int:
        """**Local.** Address of a rank's slot for even or odd meetings: at the front, or at the back."""
        start = int(self._table[rank]) + CONTROL_BYTES
        return start + (self.pool_bytes - slot_bytes if parity else 0)

    def use(self, slot_bytes: int) -> None:
        """**Local.** Give back what earlier moves touched of this rank's pool beyond slots of this size.

        All ranks must have met since: then nobody reads there any more.
        """
        if self._touched_bytes > slot_bytes:
            release_pages(self.own[CONTROL_BYTES + slot_bytes : len(self.own) - slot_bytes])
        self._touched_bytes = slot_bytes

    def meet(self, word: int = 0) -> bool:
        """**Collective.** Wait for every rank; whether all said this word.

        What they wrote before is visible after.
        """
        if self.broken is not None:
            raise TransferError(
                f"cannot use this process group any more: an earlier move failed ({self.broken}); "
                "restart the program, or call destroy_process_group() and init_process_group() on every "
                "rank and make meshes and DTensors anew"
            )
        self.seq += 1
        compiled = kernels()
        assert compiled is not None
        long: LongWait | None = None
        while True:
            answer = compiled.meet(
                address_of(self._table), self.ranks.size, self.ranks.rank, self.seq, word, None,
                SLICE_NS,
            )  # fmt: skip
            if answer == ABORTED:
                self._raise_aborted()
            if answer != NOT_YET:
                return bool(answer == ALL_SAME)
            now = time.monotonic()
            long = long or LongWait(now, self.ranks.timeout_s, self)
            self._look(long, now)

    def words(self) -> list[int]:
        """**Local.** What every rank said at the last meeting."""
        at = WORD * (1 + (self.seq & 1))
        return [int(page[:CONTROL_BYTES].view(np.uint64)[at]) for page in self.pages]

    def give_up(self, reason: str) -> None:
        """**Local.** Tell the others that this rank cannot go on; nothing can be used after that."""
        if self.broken is None:
            self.broken = reason
            text = np.frombuffer(reason.encode()[: CONTROL_BYTES - REASON_AT], np.uint8)
            self.own[REASON_AT : REASON_AT + len(text)] = text
        self._control[STATUS] = 1

    def absent(self) -> tuple[list[int], list[int], int]:
        """**Local.** Who has come to this meeting and who has not; the first who waits is to say it."""
        names = self.ranks.names
        counts = [int(page[:8].view(np.uint64)[0]) for page in self.pages]
        here = [name for name, seen in zip(names, counts, strict=True) if seen >= self.seq]
        late = [name for name in names if name not in here]
        says = names[self.ranks.rank] == min(here, default=-1)
        return here if says else [], late, len(names)

    def _look(self, long: LongWait, now: float) -> None:
        """Raise if a rank has died, or if it takes too long; say so if it takes long."""
        for rank, pid in enumerate(self.pids):
            if rank != self.ranks.rank and not is_alive(pid):
                self._fail(f"rank {self.ranks.names[rank]} died (process {pid} is gone)")
        try:
            long.look(now)
        except PeerError as late:
            self._fail(str(late))

    def _raise_aborted(self) -> None:
        """Raise with the cause of the first who gave up: others pass it on, in more words."""
        gone = {}
        for name, page in zip(self.ranks.names, self.pages, strict=True):
            if page[:CONTROL_BYTES].view(np.uint64)[STATUS]:
                text = bytes(page[REASON_AT:CONTROL_BYTES]).rstrip(b"\0")
                gone[name] = text.decode(errors="replace")
        first = min(gone, key=lambda name: len(gone[name]))
        self._fail(f"rank {first} has given up: {gone[first] or 'it has failed'}")

    def _fail(self, reason: str) -> None:
        self.give_up(reason)
        raise PeerError(f"cannot go on moving: {reason}")
