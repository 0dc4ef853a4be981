"""Ranks that share memory: which tiles they write or read straight, and what passes through staging.

| the receiver's tiles | the sender's tiles | what happens |
|---|---|---|
| mapped | anywhere on the host | the sender writes into them |
| private | mapped | the receiver reads them |
| private | private | the sender packs into staging that is mapped, round by round |
| on a GPU | on a GPU | the receiver reads them, mapped by CUDA IPC |

Tiles are mapped if they lie in shared memory: those of :class:`redist.runtime.refit.arrival.Arrival` do if
it was told so, and arrays of :func:`redist.runtime.shm.segments.shared_empty`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redist.errors import RequestError
from redist.runtime.copies.addresses import Addresses, address_of, array_at
from redist.runtime.refit.arrival import Arrival
from redist.runtime.refit.program import Buffers, Program, Runs, Ways
from redist.runtime.refit.ranks import RefitRanks
from redist.runtime.refit.tiles import Side
from redist.runtime.shm.segments import Handle, attach, find, shared_bytes
from redist.text.units import ceil_div

Place = tuple[Handle, int]
"""A segment, and how far from its start."""
Places = Mapping[int, Any]
"""Where tiles lie that others may map, by number."""
HOST, GPU = "the host", "a GPU"
HEADER_ALIGN = 64


@dataclass(frozen=True, slots=True)
class Shown:
    """What a rank shows of its tiles: what kind of memory they lie in, and where, if they can be mapped.

    ``memory`` is None if it has none. ``targets`` has a dict for each place where weights arrive in turn.
    """

    memory: str | None = None
    sources: Places | None = None
    targets: Sequence[Places] | None = None


def memory_of(source: Side, target: Side) -> str | None:
    """**Local.** The kind of memory that tiles lie in."""
    if not source.tiles and not target.tiles:
        return None
    return HOST if (source if source.tiles else target).gpu is None else GPU


def shown(source: Side, target: Side, arrival: Arrival) -> Shown:
    """**Local.** What this rank shows; an error if memory of its GPU cannot be shared."""
    memory = memory_of(source, target)
    if memory is None:
        return Shown()
    if memory == GPU:
        return Shown(GPU, _on_gpu(source))
    sources = _on_host({k: tile.address for k, tile in source.tiles.items()})
    sets = [_on_host({k: int(one[k]) for k in target.tiles}) for one in arrival.sets]
    return Shown(HOST, sources, None if None in sets else [one for one in sets if one is not None])


def _on_host(addresses: Mapping[int, int]) -> Places | None:
    """Where tiles lie in segments; None if one of them lies in private memory."""
    found = {}
    for number, address in addresses.items():
        place = place_of(address)
        if place is None:
            return None
        found[number] = place
    return found


def place_of(address: int) -> Place | None:
    """**Local.** The segment of this process that an address lies in."""
    return find(array_at(address, (1,), (1,), np.dtype(np.uint8)))


def _on_gpu(side: Side) -> Places:
    from redist.runtime.cuda.transports import opened_memory

    found = {}
    for number, tile in side.tiles.items():
        try:
            found[number] = opened_memory.place_of(tile.address)
        except Exception as problem:
            raise RequestError(
                f"cannot share {side.what} {side.names[number]!r} with other processes: its memory cannot be "
                f"opened by CUDA IPC ({problem}); allocate it in CuPy's pool or, in PyTorch, without "
                "expandable segments"
            ) from None
    return found


@dataclass(slots=True)
class Near:
    """Tiles of other ranks, mapped here, and the ways of blocks between this rank and others.

    ``columns`` has the address of every far buffer, for each turn of the rank that it belongs to.
    """

    ways: Ways
    columns: list[tuple[int, Sequence[int]]] = field(default_factory=list)
    opened: dict[Any, Any] = field(default_factory=dict)
    """What is mapped, and must stay so."""

    @staticmethod
    def of(rank: int, all_shown: Sequence[Shown], sends: Runs, receives: Runs) -> Near:
        """**Local.** Map what this rank writes and reads; an error if that cannot be done."""
        mine = all_shown[rank]
        push, taken, pull, given = (set[int]() for _ in range(4))
        for sending, runs in ((True, sends), (False, receives)):
            for peer in (int(p) for p in np.unique(runs["peer"]) if p != rank):
                theirs = all_shown[peer]
                _check_alike(rank, mine, peer, theirs)
                of, to = (mine, theirs) if sending else (theirs, mine)
                if of.memory == HOST and to.targets is not None:
                    (push if sending else given).add(peer)
                elif of.sources is not None:
                    (taken if sending else pull).add(peer)
        tiles: dict[tuple[int, int], int] = {}
        near = Near(Ways(push=frozenset(push), taken=frozenset(taken), pull=frozenset(pull),
                         given=frozenset(given), tiles=tiles, by_memory=True))  # fmt: skip
        for runs, peers in ((sends, push), (receives, pull)):
            some = runs[np.isin(runs["peer"], list(peers))]
            for peer, number in np.unique(some[["peer", "there"]]).tolist():
                their = all_shown[peer]
                sets = (their.targets if peer in push and runs is sends else [their.sources]) or []
                places = [one[number] for one in sets if one is not None]
                tiles[peer, number] = len(near.columns)
                near.columns.append(
                    (peer, [near._mapped(place, runs is sends) for place in places])
                )
        return near

    def _mapped(self, place: Any, writes: bool) -> int:
        """**Local.** Where a place of another rank is found here."""
        if isinstance(place, tuple):
            handle, offset = place
            key = handle.pid, handle.number, writes
            if key not in self.opened:
                self.opened[key] = attach(handle, writes)
            return address_of(self.opened[key]) + int(offset)
        from cupy.cuda import runtime

        from redist.runtime.cuda.transports.opened_memory import LAZY_PEER_ACCESS

        if place.handle not in self.opened:
            self.opened[place.handle] = runtime.ipcOpenMemHandle(place.handle, LAZY_PEER_ACCESS)
        return int(self.opened[place.handle]) + int(place.offset)

    def addresses(self, turns: Sequence[int]) -> Addresses:
        """**Local.** The far buffers, where the ranks have come to these turns."""
        found = [sets[turns[peer] if len(sets) > 1 else 0] for peer, sets in self.columns]
        return np.array(found, np.uintp)

    def close(self) -> None:
        """**Local.** Close memory of GPUs; nothing fails if CUDA has ended before."""
        for key, what in self.opened.items():
            if isinstance(key, bytes):
                from cupy.cuda import runtime

                with contextlib.suppress(Exception):
                    runtime.ipcCloseMemHandle(what)
        self.opened.clear()


def _check_alike(rank: int, mine: Shown, peer: int, theirs: Shown) -> None:
    if mine.memory != theirs.memory and None not in (mine.memory, theirs.memory):
        raise RequestError(
            f"cannot map tiles: rank {rank} has them on {mine.memory}, rank {peer} on {theirs.memory}; "
            "use messages"
        )


class NodeRounds:
    """Rounds through staging that all ranks have mapped: each packs, all meet, each takes apart, all meet.

    A header says where in the staging of a rank begins what is for each other rank.
    """

    def __init__(self, ranks: RefitRanks, n_rounds: int, program: Program) -> None:
        self._ranks, self._n_rounds = ranks, n_rounds
        self._start = ceil_div(8 * ranks.size, HEADER_ALIGN) * HEADER_ALIGN
        self._memory = shared_bytes(self._start + program.send_bytes)
        self._headers: dict[int, Any] = {}
        self._held: list[Any] = []

    def place(self) -> Place | None:
        """**Local.** Where the staging of this rank is found."""
        return find(self._memory)

    def map(self, places: Sequence[Place | None], program: Program) -> None:
        """**Local.** Map the staging of the ranks from which a program receives."""
        for peer in sorted({message.peer for one in program.rounds for message in one.receives}):
            place = places[peer]
            assert place is not None, "a rank that sends has staging"
            handle, offset = place
            memory = attach(handle)[offset:]
            self._held.append(memory)
            self._headers[peer] = memory[: 8 * self._ranks.size].view(np.int64)

    def carry(self, program: Program, buffers: Buffers, table: Addresses) -> None:
        """**Collective.** Carry out the rounds of a program."""
        rounds = {one.number: one for one in program.rounds}
        own = self._memory[: 8 * self._ranks.size].view(np.int64)
        table[Buffers.SEND] = address_of(self._memory) + self._start
        for number in range(self._n_rounds):
            round_ = rounds.get(number)
            if round_ is not None:
                round_.pack.run(table)
                for peer, at in round_.areas:
                    own[peer] = self._start + at
            self._ranks.meet()
            if round_ is not None:
                for message in round_.receives:
                    header = self._headers[message.peer]
                    at = int(header[self._ranks.rank])
                    table[buffers.staged(message.peer)] = address_of(header) + at
                round_.unpack.run(table)
            self._ranks.meet()
