"""The rounds of a stage, as the runtime makes them, from counted pieces.

The arithmetic is that of :class:`redist.runtime.host.staging.Staging`; a test holds both against each other.
It is written again because the runtime goes through lists of pieces, of which a rank of 65,536 has too many.
Turns are left out: here every round takes a part of every piece, because peers of a class are not told apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from bench.scale.machine import NODE, OWN
from bench.scale.shares import Kind, Shape, StageShare
from redist.runtime.copies.strided import c_strides, canonical
from redist.runtime.host.staging import (
    BOOK_BYTES,
    GRAIN_BYTES,
    LEAST_HALF_BYTES,
    LEAST_HOST_HALF_BYTES,
    MAX_MESSAGE_BYTES,
    MOST_SOFT_PARTS,
    ROUND_BYTES,
)
from redist.runtime.ranks.control_page import LEAST_POOL_BYTES
from redist.runtime.schedule.pieces import box_at
from redist.runtime.schedule.rounds import ALIGN, ALIGN_FROM, part_counts, parts_needed, place_at
from redist.runtime.schedule.rounds import part_elems as runtime_part_elems
from redist.text.units import ceil_div

part_elems = lru_cache(maxsize=4096)(runtime_part_elems)


@dataclass(frozen=True, slots=True)
class StageRounds:
    """Into how many parts every piece is cut, and how many rounds are under way at a time."""

    parts: int
    halves: int
    crosses: bool


def rounds_of(
    shares: Sequence[StageShare],
    staging_bytes: int,
    one_node: bool,
    shared: bool,
    packs_all: bool = False,
) -> StageRounds:
    """The rounds of a stage of which these are all classes' shares.

    ``shared`` says that nodes have several ranks, ``packs_all`` that tiles are in memory of GPUs.
    """
    books = 2 * BOOK_BYTES if packs_all else BOOK_BYTES
    budget = max(staging_bytes - min(books, staging_bytes // 8), LEAST_POOL_BYTES)
    share = budget if one_node or not shared else budget // 2
    slot, halves = min(share // 2, MAX_MESSAGE_BYTES), 1
    least = LEAST_HALF_BYTES if packs_all else LEAST_HOST_HALF_BYTES
    if (packs_all or not one_node) and share // 4 >= least:
        most = ROUND_BYTES if packs_all else MAX_MESSAGE_BYTES
        slot, halves = min(share // 4 // GRAIN_BYTES * GRAIN_BYTES, most), 2
    needs = [_Needs.of(one, packs_all) for one in shares]
    sends, receives = any(n.sent for n in needs), any(n.received for n in needs)
    crosses = any(n.between for n in needs) if not packs_all else not one_node
    room = slot
    if not one_node and not packs_all and sends != receives:
        room = min(2 * slot, MAX_MESSAGE_BYTES)
    parts = max(_parts(*pair, slot, room) for pair in zip(shares, needs, strict=True))
    hard = max(n.hard(parts) for n in needs)
    if parts == 1 or hard > (0 if one_node else room):
        halves = 1
    return StageRounds(parts, halves, crosses)


def _parts(share: StageShare, needs: _Needs, slot: int, packed: int) -> int:
    align = ALIGN if slot >= ALIGN_FROM else 1

    def exported(parts: int) -> int:
        return sum(
            n * ceil_div(part_elems(shape, parts) * share.itemsize, align) * align
            for shape, n in share.exports
        )

    message = ceil_div(needs.largest(1) * slot, MAX_MESSAGE_BYTES)
    staged = ceil_div(math.ceil(max(needs.hard(1), needs.soft(1))) * slot, packed)
    if max(exported(1), staged, message) <= slot:
        return 1
    pieces = [*share.got, *share.given]
    most = max(1, max((part_elems(kind.shape, 1) for kind in pieces), default=1))
    found: list[tuple[Callable[[int], int], int, int]] = [
        (exported, slot, most),
        (needs.hard, packed, most),
        (needs.soft, packed, min(most, MOST_SOFT_PARTS)),
        (needs.largest, MAX_MESSAGE_BYTES, most),
    ]
    return max(parts_needed(*one) for one in found)


@dataclass(frozen=True, slots=True)
class _Needs:
    """Bytes that messages between nodes take in staging, by the number of parts."""

    itemsize: int
    between: tuple[Kind, ...]
    sent: tuple[Kind, ...]
    received: tuple[Kind, ...]
    combined: tuple[Kind, ...]
    given: tuple[Kind, ...]

    @staticmethod
    def of(share: StageShare, packs_all: bool) -> _Needs:
        given = tuple(kind for kind in share.given if kind.distance > NODE)
        got = tuple(kind for kind in share.got if kind.distance > NODE)
        return _Needs(
            share.itemsize,
            (*given, *got),
            tuple(k for k in given if not is_contiguous(k.shape, k.src_shape, share.itemsize)),
            tuple(
                k
                for k in got
                if k.combined or not is_contiguous(k.shape, k.dst_shape, share.itemsize)
            ),
            got if packs_all else tuple(k for k in got if k.combined),
            given if packs_all else (),
        )

    def largest(self, parts: int) -> int:
        """The largest message: all that one peer is sent or sends."""
        sizes: dict[tuple[bool, int], float] = {}
        for number, k in enumerate(self.between):
            n_bytes = part_elems(k.shape, parts) * self.itemsize * k.count / k.peers
            key = number < len(self.given), k.peer
            sizes[key] = (
                max(sizes.get(key, 0.0), n_bytes) if k.peers > 1 else sizes.get(key, 0.0) + n_bytes
            )
        return math.ceil(max(sizes.values(), default=0))

    def hard(self, parts: int) -> int:
        """Bytes that must pass through staging, in or out."""
        return max(self._bytes(self.combined, parts), self._bytes(self.given, parts))

    def soft(self, parts: int) -> int:
        """Bytes that are better packed."""
        return max(self._bytes(self.sent, parts), self._bytes(self.received, parts))

    def _bytes(self, kinds: Iterable[Kind], parts: int) -> int:
        return math.ceil(sum(part_elems(k.shape, parts) * k.count for k in kinds) * self.itemsize)


Message = tuple[int, int, float, float]
"""All that goes between a rank and a class at some distance: class, distance, bytes, how many messages."""


@dataclass(frozen=True, slots=True)
class RoundWork:
    """What a rank does in one round, in bytes."""

    pack: float
    unpack: float
    own: float
    near: float
    combine: float
    sends: tuple[Message, ...]
    receives: tuple[Message, ...]


def work_of(share: StageShare, number: int, parts: int, packs_all: bool = False) -> RoundWork:
    """The work of round ``number`` of ``parts``."""
    pack = unpack = own = near = combine = 0.0
    sends: dict[tuple[int, int], list[float]] = {}
    receives: dict[tuple[int, int], list[float]] = {}
    for kind in share.given:
        n_bytes, contiguous = _part(kind.shape, number, parts, share.itemsize, kind.src_shape)
        n_bytes *= kind.count
        if n_bytes and kind.distance > NODE:
            _add(sends, kind, n_bytes)
            if packs_all or not contiguous or kind.count > kind.peers:
                pack += n_bytes
    for kind in share.got:
        n_bytes, contiguous = _part(kind.shape, number, parts, share.itemsize, kind.dst_shape)
        n_bytes *= kind.count
        if not n_bytes:
            continue
        if kind.distance > NODE:
            _add(receives, kind, n_bytes)
        if kind.combined:
            combine += n_bytes
        elif kind.distance == OWN:
            own += n_bytes
        elif kind.distance == NODE:
            near += n_bytes
        elif packs_all or not contiguous or kind.count > kind.peers:
            unpack += n_bytes
    sent, received = (
        tuple((peer, far, n_bytes, n) for (peer, far), (n_bytes, n) in one.items())
        for one in (sends, receives)
    )
    return RoundWork(pack, unpack, own, near, combine, sent, received)


def _add(messages: dict[tuple[int, int], list[float]], kind: Kind, n_bytes: float) -> None:
    at = messages.setdefault((kind.peer, kind.distance), [0.0, 0.0])
    at[0] += n_bytes
    # the pieces of one peer are one message
    at[1] = at[1] + kind.peers if kind.peers > 1 else max(1.0, at[1])


@lru_cache(maxsize=4096)
def _part(whole: Shape, number: int, parts: int, itemsize: int, tile: Shape) -> tuple[float, bool]:
    """Bytes of a part of a piece, and whether it is in one piece of a tile."""
    counts = part_counts(whole, parts)
    if number >= math.prod(counts):
        return 0.0, True
    _, shape = box_at(whole, counts, place_at(number, counts))
    n_bytes = math.prod(shape) * itemsize
    return float(n_bytes), n_bytes == 0 or is_contiguous(shape, tile, itemsize)


@lru_cache(maxsize=4096)
def is_contiguous(shape: Shape, tile: Shape, itemsize: int) -> bool:
    """Whether a box lies in one piece in a tile."""
    strides = c_strides(tile, itemsize)
    return not canonical(shape, itemsize, c_strides(shape, itemsize), strides).dims
