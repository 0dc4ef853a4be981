"""Messages of a stage to and from other nodes, those of several rounds at a time."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Protocol

from mpi4py import MPI

from redist.runtime.copies.addresses import Addresses
from redist.runtime.copies.strided import Strided
from redist.runtime.ranks.tokens import Tag
from redist.runtime.ranks.waiting import Incomplete, abandon, are_complete
from redist.runtime.ranks.world import World
from redist.runtime.schedule.compiler import Message
from redist.text.units import ceil_div

# Messages as MPI sees them: plain bytes, or strided bytes by derived datatypes.


def post(
    start: Callable[..., MPI.Request], message: Message, table: Addresses | Sequence[int], tag: int
) -> Any:
    """Start a message with ``comm.Isend`` or ``comm.Irecv``; the request."""
    if not message.forms:
        address = int(table[message.base]) + message.offset
        return start(
            [MPI.memory.fromaddress(address, message.n_bytes), MPI.BYTE], message.peer, tag
        )
    types = [_datatype(form) for _, _, form in message.forms]
    places = [int(table[base]) + offset for base, offset, _ in message.forms]
    joined = MPI.Datatype.Create_struct([1] * len(types), places, types).Commit()
    request = start([MPI.BOTTOM, 1, joined], message.peer, tag)
    for datatype in (joined, *types):  # MPI keeps what a message under way still needs
        datatype.Free()
    return request


def _datatype(form: Strided) -> MPI.Datatype:
    out = MPI.BYTE.Create_contiguous(form.block)
    for count, stride, _ in reversed(form.dims):
        inner = out
        if stride < 0:  # Open MPI takes bytes that go down one by one for bytes that go up
            out = inner.Create_hindexed_block(1, [k * stride for k in range(count)])
        else:
            out = inner.Create_hvector(count, 1, stride)
        inner.Free()
    return out


CUT_BYTES, MOST_CUTS = 2**18, 16
"""Longer messages are cut, and peers are sent a part each in turn: whole messages at once would share
links as it happens, and some receivers would have to wait in the end."""
IN_FLIGHT, IN_FLIGHT_BYTES = 2, 2**21
"""A rank has this many parts under way at a time, or more if they are small."""


@dataclass(slots=True)
class _RoundMessages:
    """The messages of a round: those under way, and still to be sent with their bytes."""

    receives: list[Any] = field(default_factory=list)
    sends: list[Any] = field(default_factory=list)
    queued: deque[tuple[Message, Sequence[int]]] = field(default_factory=deque)


def cut(message: Message) -> tuple[Message, ...]:
    """A message in parts; both of its ends cut it alike, because they know its size.

    >>> [(m.offset, m.n_bytes) for m in cut(Message(1, 0, 100, 2**19 + 2))]
    [(100, 174764), (174864, 174764), (349628, 174762)]
    """
    if message.n_bytes <= CUT_BYTES:
        return (message,)
    return _cut(message)


@lru_cache(maxsize=4096)
def _cut(message: Message) -> tuple[Message, ...]:
    parts = min(MOST_CUTS, ceil_div(message.n_bytes, CUT_BYTES))
    size = ceil_div(message.n_bytes, parts)
    starts = range(0, message.n_bytes, size)
    return tuple(_part(message, at, min(at + size, message.n_bytes)) for at in starts)


def _part(message: Message, lo: int, hi: int) -> Message:
    """The bytes of a message from ``lo`` to ``hi``."""
    forms, start = [], 0
    for base, offset, form in message.forms:
        end = start + form.n_bytes
        if lo < end and start < hi:
            inside = form.between(max(lo, start) - start, min(hi, end) - start)
            forms += [(base, offset + at, part) for at, part in inside]
        start = end
    return replace(message, offset=message.offset + lo, n_bytes=hi - lo, forms=tuple(forms))


class Packing(Protocol):
    """What copies data into the messages of a round."""

    def run(self, bases: Addresses) -> None:
        """**Local.** Copy, to the end."""


class RoundOfMessages(Protocol):
    """As much of a round as passes by messages."""

    @property
    def pack(self) -> Packing:
        """Runs before anything is sent."""

    @property
    def sends(self) -> Sequence[Message]:
        """What goes to others."""

    @property
    def receives(self) -> Sequence[Message]:
        """What comes from others."""


class MessageRounds:
    """The rounds of which messages are under way; a context that leaves none behind.

    After a failure none may be written into arrays that are others' again: receives are taken back,
    and what MPI may still touch, ``held`` included, is kept alive for good.
    """

    def __init__(self, world: World, held: Any) -> None:
        self._world, self._held = world, held
        self._open: dict[int, _RoundMessages] = {}
        """By the number of the round."""
        self._flying: list[tuple[Any, int]] = []
        """Sends under way and their bytes, as far as was seen."""

    def __enter__(self) -> MessageRounds:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            receives = [one for messages in self._open.values() for one in messages.receives]
            with contextlib.suppress(MPI.Exception):
                abandon(receives, self._open, self._held)

    def post(self, number: int, round_: RoundOfMessages, table: Addresses) -> None:
        """Let receives wait for their messages, pack what is sent, and send it in turn."""
        if not (round_.receives or round_.sends):
            return
        irecv, places = self._world.comm.Irecv, table.tolist()  # it soon names the other half
        messages = self._open[number] = _RoundMessages()
        for message in round_.receives:
            messages.receives += [post(irecv, m, places, Tag.DATA) for m in cut(message)]
        round_.pack.run(table)
        for parts in zip_longest(*map(cut, round_.sends)):
            messages.queued.extend((m, places) for m in parts if m is not None)
        self._send()

    def wait(self, number: int) -> None:
        """Wait for the messages of a round, if that was not done before."""
        messages = self._open.get(number)
        if messages is None:
            return
        received, sent = Incomplete(messages.receives), Incomplete(messages.sends)

        def is_done() -> bool:
            if self._send():
                sent.add(messages.sends)
            return received.is_empty() and not messages.queued and sent.is_empty()

        self._world.wait_until(is_done)
        del self._open[number]

    def _send(self) -> bool:
        """Send what comes next, oldest rounds first, as far as it has room; whether there was anything."""
        sent = False
        isend = self._world.comm.Isend
        for messages in self._open.values():
            while messages.queued:
                if len(self._flying) >= IN_FLIGHT and not self._has_room():
                    return sent
                message, places = messages.queued.popleft()
                messages.sends.append(post(isend, message, places, Tag.DATA))
                self._flying.append((messages.sends[-1], message.n_bytes))
                sent = True
        return sent

    def _has_room(self) -> bool:
        """Whether another part may be sent beside what is under way."""
        self._flying = [one for one in self._flying if not are_complete([one[0]])]
        used = sum(n_bytes for _, n_bytes in self._flying)
        return len(self._flying) < IN_FLIGHT or used < IN_FLIGHT_BYTES
