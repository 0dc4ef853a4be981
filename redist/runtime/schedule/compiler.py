"""Compile one rank's share of a stage: what to publish, copy, read, combine and send in each round.

Addresses are not known here: programs name buffers by number, and a table of base addresses comes
with every run. So a program is made once for a kind of request and serves every array after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import IntEnum

from redist.layout.dtype import DType
from redist.plan.pieces import Piece
from redist.runtime.copies.addresses import Addresses, address_of
from redist.runtime.copies.copy_list import BufferCopy, CopyList
from redist.runtime.copies.kernels import kernels
from redist.runtime.copies.reduce import combine_into, kernel_code
from redist.runtime.copies.strided import Strided, c_strides, canonical
from redist.runtime.schedule.rounds import Export, RoundPart, Rounds, export_of, part_of, turn_of
from redist.runtime.schedule.stages import StagePart


class TileAt(IntEnum):
    """Where a rank of this node finds the tile of another."""

    NOTHING = 0
    """Nowhere: nobody asks for it."""
    POOL = 1
    """In its pool, round by round."""
    SHARED = 2
    """In place, in shared memory."""
    PRIVATE = 3
    """In place, in private memory, through the kernel of the system."""


STREAM_BYTES = 2**22
"""Tiles from this size on are written past the cache."""

JOINED_BYTES, DEALT_BYTES = 2**12, 2**20
"""Boxes of shorter runs are copied together where the kernel finds that they interleave, in the
destination or in the source, as in copy.c; others one after another, each rank from another source."""

MOST_ROUNDS = 64
"""Programs of more rounds are not kept: their tables would outgrow the staging that rounds save."""

Strides = tuple[int, ...]
End = tuple[int, int, Strides]
"""Where a part lies, or its bytes: in which buffer, from where on, with which strides."""


@dataclass(frozen=True, slots=True, eq=False)
class Combine:
    """Copies that combine what they bring with what is there, in order."""

    op: str
    dtype: DType
    moves: CopyList

    def run(self, bases: Addresses) -> None:
        """Combine; ``bases`` has the address of every buffer."""
        compiled, code = kernels(), kernel_code(self.op, self.dtype)
        if compiled is not None and code is not None:
            compiled.combine(*self.moves.pointer, address_of(bases), code)
            return
        for to, of in self.moves.views(bases, self.dtype.to_numpy()):
            combine_into(self.op, self.dtype, to, of)


@dataclass(frozen=True, slots=True)
class Message:
    """Bytes to or from another node: at a place in a buffer, and how many.

    With ``forms``, the bytes are not in one piece but strided: (base, offset, form) each.
    """

    peer: int
    base: int
    offset: int
    n_bytes: int
    forms: tuple[tuple[int, int, Strided], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """What a rank does in one round, in this order.

    ``publish`` copies its own data into its pool; ``pack`` into what it sends; ``copies`` and
    ``reads`` (by rank) fetch from its node; ``unpack`` takes received data apart; ``combines`` come
    last, in ascending order of the partial values.
    """

    publish: CopyList
    pack: CopyList
    sends: tuple[Message, ...]
    receives: tuple[Message, ...]
    copies: CopyList
    reads: tuple[tuple[int, CopyList], ...]
    unpack: CopyList
    combines: tuple[Combine, ...]


class Bases:
    """Numbers of the buffers of a stage: targets, sources, neighbours' tiles, and staging."""

    def __init__(self, n_items: int, node: Sequence[int]) -> None:
        self.n_items = n_items
        self.place = {rank: k for k, rank in enumerate(node)}
        self.send = (2 + 2 * len(node)) * n_items
        self.receive = self.send + 1
        self.pool = self.send + 2
        self.size = self.send + 3

    def target(self, item: int) -> int:
        """The tile that is written."""
        return item

    def source(self, item: int) -> int:
        """This rank's own tile."""
        return self.n_items + item

    def neighbour(self, rank: int, item: int) -> int:
        """The tile, or the pool, of a rank of this node."""
        return (2 + self.place[rank]) * self.n_items + item

    def open_target(self, rank: int, item: int) -> int:
        """The tile of a rank of this node that others write."""
        return (2 + len(self.place) + self.place[rank]) * self.n_items + item


@dataclass(frozen=True, slots=True)
class Compiler:
    """Turns the parts of a round into copies and messages for one rank.

    ``kinds`` says where the tile of (rank, item) is found; ``offsets`` where a box of (rank, item)
    lies in a pool slot; ``room`` how many bytes can be packed to send and to receive: what has no
    room there goes from tile to tile by MPI's own datatypes. With ``packs_all`` everything has.
    ``far_strides`` has the strides of neighbours' tiles that are not in C order. ``opened`` has the
    (rank, item) of targets that senders write themselves; these are in C order. With ``letters`` nothing is
    sent: what passes between nodes lies in them, by rank so many bytes behind :attr:`Bases.send` and
    :attr:`Bases.receive`.
    """

    rank: int
    parts: Sequence[StagePart]
    bases: Bases
    kinds: Mapping[tuple[int, int], TileAt]
    offsets: Mapping[tuple[int, int], Mapping[Export, int]]
    src_strides: Sequence[Strides]
    dst_strides: Sequence[Strides]
    room: tuple[int, int]
    packs_all: bool = False
    far_strides: Mapping[tuple[int, int], Strides] = field(default_factory=dict)
    opened: Set[tuple[int, int]] = frozenset()
    letters: Mapping[int, int] = field(default_factory=dict)

    def program(self, rounds: Rounds) -> Iterable[Round]:
        """All rounds: compiled and kept in a tuple, or, if these are many, one at a time."""
        program = (self.round(round_parts) for round_parts in rounds)
        return program if len(rounds) > MOST_ROUNDS else tuple(program)

    def publish(
        self, round_parts: Iterable[RoundPart], staying: Sequence[BufferCopy] = ()
    ) -> CopyList:
        """The copies of this rank's data into its pool, and with them those of what stays on it.

        So memory is read in order, without gaps.
        """
        moves = list(staying)
        for round_part in round_parts:
            item = round_part.item
            if self.kinds.get((self.rank, item)) != TileAt.POOL or round_part.turn:
                continue
            for (lo, shape, steps), offset in self.offsets[self.rank, item].items():
                whole = Piece(0, 0, 0, lo, lo, shape, shape, shape, steps)
                part = part_of(whole, round_part)
                if part is not None:
                    slot = self._packed(self.bases.pool, offset, item, part)
                    moves.append(self._copy(item, part, slot, self._source(item, part)))
        _sort(moves)
        return CopyList.of(moves)

    def _deals(self, round_part: RoundPart) -> bool:
        """Whether what stays is copied while the rest is published: not before ranks have met once."""
        item = round_part.item
        is_pooled = self.kinds.get((self.rank, item)) == TileAt.POOL and not self.packs_all
        return is_pooled and round_part.number > 0 and self.parts[item].step.is_brought

    def _passes(self, piece: Piece, round_part: RoundPart) -> bool:
        """Whether it is a piece's turn."""
        near = piece.sender in self.bases.place and piece.receiver in self.bases.place
        turn = turn_of(piece.sender, piece.receiver, near, round_part.turns)
        return turn == round_part.turn

    def round(self, round_parts: Sequence[RoundPart]) -> Round:
        """Compile all that a round asks of this rank."""
        copies: list[BufferCopy] = []
        staying: list[BufferCopy] = []
        reads: dict[int, list[BufferCopy]] = {}
        combines: list[tuple[int, int, BufferCopy]] = []
        outgoing: dict[int, list[tuple[int, Piece]]] = {}
        incoming: dict[int, list[tuple[int, Piece]]] = {}
        for round_part in round_parts:
            item = round_part.item
            for piece in self.parts[item].step.pieces:
                part = part_of(piece, round_part) if self._passes(piece, round_part) else None
                if part is None:
                    continue
                if piece.receiver != self.rank:
                    if piece.receiver not in self.bases.place:
                        outgoing.setdefault(piece.receiver, []).append((item, part))
                    elif (piece.receiver, item) in self.opened:
                        there = self._in_opened(item, part)
                        copies.append(self._copy(item, part, there, self._source(item, part)))
                elif piece.sender not in self.bases.place:
                    incoming.setdefault(piece.sender, []).append((item, part))
                elif piece.sender == self.rank or (self.rank, item) not in self.opened:
                    found, kind = self._find(piece, part, item)
                    move = self._copy(item, part, self._target(item, part), found)
                    if piece.order:
                        combines.append((piece.order, item, move))
                    elif kind == TileAt.PRIVATE:
                        reads.setdefault(piece.sender, []).append(move)
                    elif piece.sender == self.rank and self._deals(round_part):
                        staying.append(move)
                    else:
                        copies.append(move)
        pack, sends = self._messages({} if self.letters else outgoing, sending=True)
        unpack, receives = self._messages(incoming, sending=False)
        unpacked = [move for move, part, _ in unpack if part.order == 0]
        combines += [(part.order, item, move) for move, part, item in unpack if part.order]
        combines.sort(key=lambda entry: entry[0])
        streams = not combines and self._is_large()
        _sort(copies)
        return Round(
            self.publish(round_parts, staying),
            CopyList.of(move for move, _, _ in pack),
            tuple(sends),
            tuple(receives),
            CopyList.of(copies, streams),
            tuple((peer, CopyList.of(moves)) for peer, moves in reads.items()),
            CopyList.of(unpacked, streams),
            self._combines(combines),
        )

    def _is_large(self) -> bool:
        """Whether the tiles that are written are too large to stay in the cache."""
        written = (
            self._bytes(item, p)
            for item, one in enumerate(self.parts)
            for p in one.step.pieces
            if p.receiver == self.rank and not p.order
        )
        return sum(written) >= STREAM_BYTES

    # Where parts lie

    def _source(self, item: int, part: Piece) -> End:
        """In this rank's own tile."""
        strides = part.src_strides(self.src_strides[item])
        return self.bases.source(item), _offset(part.src_lo, strides), strides

    def _target(self, item: int, part: Piece) -> End:
        """In the tile that this rank writes."""
        strides = part.dst_strides(self.dst_strides[item])
        return self.bases.target(item), _offset(part.dst_lo, strides), strides

    def _in_opened(self, item: int, part: Piece) -> End:
        """In the tile of a neighbour that this rank writes."""
        strides = part.dst_strides(c_strides(part.dst_shape, self.parts[item].itemsize))
        base = self.bases.open_target(part.receiver, item)
        return base, _offset(part.dst_lo, strides), strides

    def _packed(self, base: int, offset: int, item: int, part: Piece) -> End:
        """In one piece, at a place of a pool or of staging."""
        return base, offset, c_strides(part.shape, self.parts[item].itemsize)

    def _find(self, piece: Piece, part: Piece, item: int) -> tuple[End, TileAt]:
        """In a neighbour's tile or pool, or in the own tile."""
        if piece.sender == self.rank:
            return self._source(item, part), TileAt.SHARED
        kind = self.kinds[piece.sender, item]
        base = self.bases.neighbour(piece.sender, item)
        if kind == TileAt.POOL:
            offset = self.offsets[piece.sender, item][export_of(piece)]
            return self._packed(base, offset, item, part), kind
        known = self.far_strides.get((piece.sender, item))
        strides = part.src_strides(known or c_strides(piece.src_shape, self.parts[item].itemsize))
        return (base, _offset(part.src_lo, strides), strides), kind

    def _copy(self, item: int, part: Piece, to: End, of: End) -> BufferCopy:
        form = canonical(part.shape, self.parts[item].itemsize, to[2], of[2])
        return BufferCopy(to[0], to[1], of[0], of[1], form)

    def _combines(self, moves: Sequence[tuple[int, int, BufferCopy]]) -> tuple[Combine, ...]:
        """What is to be combined, array by array; within an array in the order of partial values."""
        out = []
        for item in dict.fromkeys(item for _, item, _ in moves):
            whole_part = self.parts[item]
            assert whole_part.step.op is not None
            own = CopyList.of(move for _, of, move in moves if of == item)
            out.append(Combine(whole_part.step.op, whole_part.dtype, own))
        return tuple(out)

    def _messages(
        self, parts: Mapping[int, list[tuple[int, Piece]]], sending: bool
    ) -> tuple[list[tuple[BufferCopy, Piece, int]], list[Message]]:
        """One message per peer, with the copies that pack or unpack it.

        A message that is one contiguous part of a tile goes from there, or there, without a copy. What is
        enclosed in letters has copies alone.
        """
        if self.letters:
            return self._enclosed(parts, sending), []
        moves: list[tuple[BufferCopy, Piece, int]] = []
        messages: list[Message] = []
        staging = self.bases.send if sending else self.bases.receive
        room = self.room[0 if sending else 1]
        used = 0
        order = self._in_turn(parts, sending)
        for number, peer in enumerate(order):
            own = parts[peer]
            n_bytes = sum(self._bytes(item, part) for item, part in own)
            places = [self._place(item, part, sending) for item, part in own]
            combined = [not sending and part.order > 0 for _, part in own]
            tile, place, form = places[0]
            if len(own) == 1 and not form.dims and not combined[0] and not self.packs_all:
                messages.append(Message(peer, tile, place, n_bytes))
                continue
            later = 0
            if not sending:  # partial values of later peers must find room: they are combined there
                rest = (one for other in order[number + 1 :] for one in parts[other])
                later = sum(self._bytes(item, part) for item, part in rest if part.order)
            packs = self.packs_all or used + n_bytes + later <= room
            start, forms = used, []
            for (item, part), (tile, place, form), must in zip(own, places, combined, strict=True):
                if packs or must:
                    form = Strided(form.n_bytes, ())
                    moves.append((self._packing(item, part, used, sending), part, item))
                    tile, place, used = staging, used, used + form.n_bytes
                    assert used <= room, "partial values find no room in staging"
                forms.append((tile, place, form))
            messages.append(Message(peer, staging, start, n_bytes, () if packs else tuple(forms)))
        return moves, messages

    def letter_to(self, rank: int) -> CopyList:
        """The copies into the letter to a rank."""
        own = [
            (item, piece)
            for item, part in enumerate(self.parts)
            for piece in part.step.pieces
            if (piece.sender, piece.receiver) == (self.rank, rank)
        ]
        return CopyList.of(move for move, _, _ in self._enclosed({rank: own}, sending=True))

    def _enclosed(
        self, parts: Mapping[int, list[tuple[int, Piece]]], sending: bool
    ) -> list[tuple[BufferCopy, Piece, int]]:
        """The copies into letters, or out of them."""
        moves = []
        for peer, own in parts.items():
            at = self.letters[peer]
            for item, part in own:
                moves.append((self._packing(item, part, at, sending), part, item))
                at += self._bytes(item, part)
        return moves

    def _in_turn(self, peers: Iterable[int], sending: bool) -> list[int]:
        """Peers in such an order that ranks do not all send to the same one first.

        Where everything is packed, in the order of their numbers: groups of ranks gather it so.
        """
        if self.packs_all:
            return sorted(peers)
        up = [peer for peer in sorted(peers) if peer > self.rank]
        down = [peer for peer in sorted(peers) if peer < self.rank]
        return [*up, *down] if sending else [*reversed(down), *reversed(up)]

    def _bytes(self, item: int, part: Piece) -> int:
        return math.prod(part.shape) * self.parts[item].itemsize

    def _place(self, item: int, part: Piece, sending: bool) -> tuple[int, int, Strided]:
        """Where a part lies in this rank's tile, walked in C order as MPI's datatypes walk it.

        Both ends of a message must walk alike.
        """
        tile, place, strides = (self._source if sending else self._target)(item, part)
        itemsize = self.parts[item].itemsize
        packed = c_strides(part.shape, itemsize)
        return tile, place, canonical(part.shape, itemsize, packed, strides).swapped()

    def _packing(self, item: int, part: Piece, at: int, sending: bool) -> BufferCopy:
        """The copy of a part into staging, or out of it."""
        if sending:
            packed = self._packed(self.bases.send, at, item, part)
            return self._copy(item, part, packed, self._source(item, part))
        packed = self._packed(self.bases.receive, at, item, part)
        return self._copy(item, part, self._target(item, part), packed)


def _sort(copies: list[BufferCopy]) -> None:
    """Order boxes of short runs by their places where they interleave, so that the kernel sees it."""
    longest = max((move.form.block for move in copies), default=0)
    if len({move.src for move in copies}) == 1 and longest < DEALT_BYTES:
        copies.sort(key=lambda move: move.src_offset)
    elif longest < JOINED_BYTES:
        copies.sort(key=lambda move: (move.dst, move.dst_offset))


def _offset(lo: Iterable[int], strides: Iterable[int]) -> int:
    return sum(a * s for a, s in zip(lo, strides, strict=True))
