"""Divide a stage into rounds so that pool slots and packed messages fit the staging."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from redist.plan.pieces import Piece
from redist.runtime.copies.strided import c_strides, canonical
from redist.runtime.ranks.control_page import LEAST_POOL_BYTES
from redist.runtime.ranks.node import RankGroup
from redist.runtime.schedule.rounds import (
    Export,
    Exports,
    Rounds,
    export_of,
    make_rounds,
    part_elems,
    parts_needed,
    place_exports,
    take_turns,
    turn_of,
    whole,
)
from redist.runtime.schedule.stages import StagePart
from redist.text.units import ceil_div

if TYPE_CHECKING:
    from redist.runtime.ranks.letters import Letters

BOOK_BYTES = 2**17
"""Of a staging budget, an eighth up to this much is left for control pages, tables and programs."""


@dataclass(frozen=True, slots=True)
class Packing:
    """What messages between nodes ask of staging.

    What is one run of bytes goes from tile to tile, unless ``everything`` is packed; what is not must be
    packed if it is ``strided`` data that nothing carries as it is. MPI carries it, and packs it only where
    there is room. ``overlaps``: while the messages of one round are under way, others are packed. Packed
    parts begin at multiples of ``align``. What finds room in the ``letters`` by which ranks meet passes so.
    """

    everything: bool = False
    strided: bool = False
    overlaps: bool = True
    book_bytes: int = BOOK_BYTES
    align: int = 1
    letters: Letters | None = None

    @property
    def must(self) -> bool:
        """Whether something has to be packed before it is sent."""
        return self.everything or self.strided


BY_MPI = Packing()
FROM_GPUS = Packing(everything=True, book_bytes=2 * BOOK_BYTES)
"""MPI cannot reach the tiles, and there are twice as many tables."""

# What the messages of one array between nodes take in staging, by the number of parts and turns.


class MessageNeeds:
    """Bytes that one array's messages between nodes take in staging, by the number of parts."""

    def __init__(
        self, stage_part: StagePart, rank: int, node: Sequence[int], packing: Packing = BY_MPI
    ) -> None:
        self.itemsize, self.align = stage_part.itemsize, packing.align
        self.between = [
            p
            for p in stage_part.step.pieces
            if rank in (p.sender, p.receiver) and (p.sender in node) != (p.receiver in node)
        ]
        given = [p for p in stage_part.step.pieces if p.sender == rank and p.receiver not in node]
        self.sent = [p for p in given if not _is_run(p, stage_part.itemsize, True)]
        got = [p for p in stage_part.step.pieces if p.receiver == rank and p.sender not in node]
        self.received = [p for p in got if p.order or not _is_run(p, stage_part.itemsize, False)]
        self.combined, self.given = [p for p in got if p.order], list[Piece]()
        if packing.must:
            self.combined, self.given = self.received, self.sent
        if packing.everything:
            self.combined, self.given = got, given

    def largest(self, parts: int) -> int:
        """The largest message: all that one peer is sent or sends."""
        sizes: dict[tuple[int, int], int] = {}
        for p in self.between:
            n_bytes = part_elems(p.shape, parts) * self.itemsize
            sizes[p.sender, p.receiver] = sizes.get((p.sender, p.receiver), 0) + n_bytes
        return max(sizes.values(), default=0)

    def hard(self, parts: int) -> int:
        """Bytes that must pass through staging, in or out."""
        return max(self._bytes(self.combined, parts), self._bytes(self.given, parts))

    def soft(self, parts: int, turns: int = 1) -> int:
        """Bytes that are better packed, in the fullest of this many turns."""
        sizes = [[0] * turns, [0] * turns]
        for side, pieces in enumerate((self.sent, self.received)):
            for p in pieces:
                turn = turn_of(p.sender, p.receiver, False, turns)
                sizes[side][turn] += part_elems(p.shape, parts) * self.itemsize
        return max(*sizes[0], *sizes[1])

    def _bytes(self, pieces: list[Piece], parts: int) -> int:
        sizes = (part_elems(p.shape, parts) * self.itemsize for p in pieces)
        return sum(ceil_div(n_bytes, self.align) * self.align for n_bytes in sizes)


def _is_run(piece: Piece, itemsize: int, sending: bool) -> bool:
    """Whether a piece is one run of bytes in its source or its target."""
    if sending:
        strides = piece.src_strides(c_strides(piece.src_shape, itemsize))
    else:
        strides = piece.dst_strides(c_strides(piece.dst_shape, itemsize))
    return not canonical(piece.shape, itemsize, c_strides(piece.shape, itemsize), strides).dims


Counts = np.ndarray[tuple[int], np.dtype[np.int64]]
"""A number for every array of a stage."""
LEAST_BOOK_BYTES = 2**16
"""Under a limit no less than this, if half the budget has it."""
MAX_MESSAGE_BYTES = 2**29
"""Open MPI refuses messages of 2**31 bytes and more."""
ROUND_BYTES = 2**25
"""Data of GPUs passes in rounds of no more than this: larger buffers of pinned memory are slower."""
LEAST_HALF_BYTES = 2**18
"""Staging of GPUs is not halved into less than this: a round would cost more than it hides."""
LEAST_HOST_HALF_BYTES = 2**17
"""Nor is staging of messages between nodes."""
GRAIN_BYTES = 512
"""Halves begin at multiples of this, as memory of the GPU does."""
MOST_SOFT_PARTS = 64
"""Beyond this many rounds, what still finds no room to be packed goes by MPI's datatypes."""


@dataclass(frozen=True, slots=True)
class Staging:
    """The rounds of a stage, and the bytes they need.

    ``offsets`` has for each (rank, item) of the node where the boxes that this rank reads lie in a
    slot of the other's pool; ``exports`` whether that rank gives its neighbours anything at all.
    With two ``halves`` there are two buffers of ``send_bytes``, and two of ``receive_bytes``: while
    the messages of one round are under way, others are packed and taken apart. ``crosses`` says, alike on
    all ranks, that something passes between nodes. Where all of that is enclosed in letters, ``enclosed`` has
    the bytes of each.
    """

    rounds: Rounds
    slot_bytes: int = 0
    send_bytes: int = 0
    receive_bytes: int = 0
    offsets: dict[tuple[int, int], dict[Export, int]] = field(default_factory=dict)
    exports: dict[tuple[int, int], bool] = field(default_factory=dict)
    halves: int = 1
    crosses: bool = False
    enclosed: tuple[int, ...] | None = None

    @property
    def message_bytes(self) -> int:
        """Bytes of all buffers for messages: those to send come first."""
        return self.halves * (self.send_bytes + self.receive_bytes)

    @staticmethod
    def none(n_items: int) -> Staging:
        """The staging of a stage that moves nothing between ranks."""
        return Staging(whole(n_items))

    @staticmethod
    def of(
        world: RankGroup,
        stage_parts: Sequence[StagePart],
        staging_bytes: int,
        is_limited: bool,
        packing: Packing = BY_MPI,
    ) -> Staging:
        """**Collective.** Choose rounds so that a pool slot, and what is packed for other nodes, fit.

        Copies between nodes that find no room even so go by MPI's datatypes, unless they must be packed;
        partial values that are to be combined must find it. Staging of messages is halved where that helps
        and it is large enough.
        """
        if packing.strided and len(stage_parts) > 1:  # several parts of a message are packed
            packing = replace(packing, everything=True)
        packs_all = packing.everything
        book = min(LEAST_BOOK_BYTES, staging_bytes // 2) if is_limited else 0
        spare = max(book, min(packing.book_bytes, staging_bytes // 8))
        budget = max(staging_bytes - spare, LEAST_POOL_BYTES)
        shared = any(world.node.groups.count(group) > 1 for group in world.node.groups)
        share = budget if world.one_node or not shared else budget // 2
        slot, halves = min(share // 2, MAX_MESSAGE_BYTES), 1
        least = LEAST_HALF_BYTES if packs_all else LEAST_HOST_HALF_BYTES
        crosses = packs_all or not world.one_node
        if packing.overlaps and crosses and share // 4 >= least:
            most = ROUND_BYTES if packs_all else MAX_MESSAGE_BYTES
            slot, halves = min(share // 4 // GRAIN_BYTES * GRAIN_BYTES, most), 2
        needs = [
            MessageNeeds(stage_part, world.rank, world.node.ranks, packing)
            for stage_part in stage_parts
        ]
        exports = [
            Exports.of(
                stage_part.step.pieces, world.rank, world.node.ranks, stage_part.itemsize, slot
            )
            for stage_part in stage_parts
        ]
        if packing.letters is not None:
            enclosed = _enclosed(world, stage_parts, packing.letters)
            near = sum(export.bytes_for(1) for export in exports)
            if _is_small(world, enclosed, near, packing.letters, budget // 2):
                return _in_letters(world, stage_parts, exports, enclosed)
        room = _Room.of(world, needs, slot, packs_all)
        weights, parts = _weights(stage_parts, exports, needs, slot, room.most)
        both = np.stack([weights, parts])
        world.all_max(both)
        weights, parts = both
        turns = np.ones_like(parts)
        # While one turn is under way, the next is packed.
        if room.crosses and not packs_all and halves > 1:
            parts, turns = _in_turns(world, stage_parts, exports, needs, slot, room.most, parts)
        rounds = make_rounds(weights.tolist(), parts.tolist(), slot)
        mine, need = place_exports(exports, weights.tolist(), parts.tolist(), rounds)
        needed = np.array([need], dtype=np.int64)
        world.all_max(needed)
        rounds = take_turns(rounds, turns.tolist())
        slot_bytes = ceil_div(int(needed[0]), 64) * 64 if shared else 0
        # An element of whatever must be packed, however small the budget.
        hard = max(own.hard(k) for own, k in zip(needs, parts.tolist(), strict=True))
        sent = max(room.send, hard) if packing.must else room.send
        if len(rounds) == 1 or hard > max(room.send, room.receive):
            halves = 1
        offsets, gives = _tell(world, stage_parts, exports, mine)
        got = max(room.receive, hard)
        return Staging(rounds, slot_bytes, sent, got, offsets, gives, halves, room.crosses)


@dataclass(frozen=True, slots=True)
class _Room:
    """Whether anything passes between nodes, and the bytes that are packed at a time on either side."""

    crosses: bool
    send: int
    receive: int
    most: int
    """What must fit on the fuller side; a slot where nothing passes between nodes."""

    @staticmethod
    def of(
        world: RankGroup, all_needs: Sequence[MessageNeeds], slot: int, packs_all: bool
    ) -> _Room:
        """**Collective.** A slot for each side; both for one of them if the other packs nothing."""
        if world.one_node:
            return _Room(False, 0, 0, slot)
        if packs_all:
            return _Room(True, slot, slot, slot)
        used = np.array([0, 0, 0], dtype=np.int64)
        for needs in all_needs:
            used = np.maximum(used, [bool(needs.between), bool(needs.sent), bool(needs.received)])
        world.all_max(used)
        crosses, sends, receives = map(bool, used)
        if sends == receives:
            return _Room(crosses, slot, slot, slot)
        both = min(2 * slot, MAX_MESSAGE_BYTES)
        return _Room(crosses, both if sends else 0, both if receives else 0, both)


def _enclosed(
    world: RankGroup, stage_parts: Sequence[StagePart], letters: Letters
) -> tuple[int, ...]:
    """Bytes that this rank would send in each letter."""
    found = dict.fromkeys(letters.far, 0)
    for stage_part in stage_parts:
        for p in stage_part.step.pieces:
            if p.sender == world.rank and p.receiver in found:
                found[p.receiver] += math.prod(p.shape) * stage_part.itemsize
    return tuple(found.values())


def _is_small(
    world: RankGroup, enclosed: Sequence[int], near: int, letters: Letters, slot: int
) -> bool:
    """**Collective.** Whether all that passes between nodes finds room in letters, the rest in one slot."""
    most = np.array([max(enclosed), near], dtype=np.int64)
    world.all_max(most)
    return 0 < most[0] <= letters.most_enclosed and bool(most[1] <= slot)


def _in_letters(
    world: RankGroup,
    stage_parts: Sequence[StagePart],
    exports: Sequence[Exports],
    enclosed: tuple[int, ...],
) -> Staging:
    """**Collective.** One round, in which letters carry what passes between nodes."""
    ones = [1] * len(exports)
    weights = [export.bytes_for(1) for export in exports]
    rounds = whole(len(exports))
    mine, need = place_exports(exports, weights, ones, rounds)
    needed = np.array([need], dtype=np.int64)
    world.all_max(needed)
    offsets, gives = _tell(world, stage_parts, exports, mine)
    slot_bytes = ceil_div(int(needed[0]), 64) * 64
    return Staging(rounds, slot_bytes, 0, 0, offsets, gives, 1, True, enclosed)


def _in_turns(
    world: RankGroup,
    stage_parts: Sequence[StagePart],
    exports: Sequence[Exports],
    all_needs: Sequence[MessageNeeds],
    slot: int,
    packed: int,
    parts: Counts,
) -> tuple[Counts, Counts]:
    """**Collective.** Parts and turns of every array: fewer and larger messages, to some peers at a time.

    Arrays that are combined take none: all partial values of an element pass in one round. Turns are
    powers of two, so that what fits this many fits more.
    """
    finest = 2 ** (world.size - 1).bit_length()
    fewer, turns = parts.copy(), np.ones_like(parts)
    for item, (stage_part, needs) in enumerate(zip(stage_parts, all_needs, strict=True)):
        most = int(parts[item])
        if most > 1 and stage_part.step.op is None:
            fewer[item] = max(
                parts_needed(exports[item].bytes_for, slot, most),
                parts_needed(needs.largest, MAX_MESSAGE_BYTES, most),
                parts_needed(partial(needs.soft, turns=finest), packed, most),
            )
    world.all_max(fewer)
    for item, needs in enumerate(all_needs):
        while turns[item] < finest and needs.soft(int(fewer[item]), int(turns[item])) > packed:
            turns[item] *= 2
    world.all_max(turns)
    worth = (fewer < parts) & (fewer * turns <= MOST_SOFT_PARTS)
    return np.where(worth, fewer, parts), np.where(worth, turns, 1)


def _weights(
    stage_parts: Sequence[StagePart],
    exports: Sequence[Exports],
    all_needs: Sequence[MessageNeeds],
    slot: int,
    packed: int,
) -> tuple[Counts, Counts]:
    """The bytes that each array takes in a slot, and the number of parts it must be cut into.

    What is packed, and messages, count in such a measure that a slot's worth is the most there may be.
    """
    weights = np.zeros(len(stage_parts), dtype=np.int64)
    parts = np.ones(len(stage_parts), dtype=np.int64)
    for item, (stage_part, needs) in enumerate(zip(stage_parts, all_needs, strict=True)):
        message = ceil_div(needs.largest(1) * slot, MAX_MESSAGE_BYTES)
        staged = ceil_div(max(needs.hard(1), needs.soft(1)) * slot, packed)
        weights[item] = max(exports[item].bytes_for(1), staged, message)
        if weights[item] > slot:
            most = max(1, max((part_elems(p.shape, 1) for p in stage_part.step.pieces), default=1))

            own = parts_needed(exports[item].bytes_for, slot, most)
            hard = parts_needed(needs.hard, packed, most)
            soft = parts_needed(needs.soft, packed, min(most, MOST_SOFT_PARTS))
            parts[item] = max(own, hard, soft, parts_needed(needs.largest, MAX_MESSAGE_BYTES, most))
    return weights, parts


def _tell(
    world: RankGroup,
    stage_parts: Sequence[StagePart],
    exports: Sequence[Exports],
    mine: Sequence[dict[Export, int]],
) -> tuple[dict[tuple[int, int], dict[Export, int]], dict[tuple[int, int], bool]]:
    """Tell every neighbour where its boxes lie, and be told."""
    asked = [
        [
            {
                export_of(p): mine[item][export_of(p)]
                for p in stage_part.step.pieces
                if p.sender == world.rank and p.receiver == peer != world.rank
            }
            for item, stage_part in enumerate(stage_parts)
        ]
        for peer in world.node.ranks
    ]
    offsets: dict[tuple[int, int], dict[Export, int]] = {}
    gives: dict[tuple[int, int], bool] = {}
    told = world.gather_on_node(([bool(own.boxes) for own in exports], asked))
    for peer, (given, answers) in zip(world.node.ranks, told, strict=True):
        for item, places in enumerate(answers[world.node.place]):
            gives[peer, item] = given[item]
            offsets[peer, item] = mine[item] if peer == world.rank else places
    return offsets, gives
