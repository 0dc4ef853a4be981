"""One rank's share of a stage, compiled: what to stage, copy, read, combine and send, round by round.

Addresses are not known here: programs name buffers by number, and a table of base addresses comes
with every run. So a program is made once for a kind of request and serves every array after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.layout.dtype import DType
from redist.runtime.moves import Addresses, Move, Moves, array_at
from redist.runtime.phases import Phase, Piece, Shape
from redist.runtime.reduce import combine_into
from redist.runtime.rounds import Slab, part_of
from redist.runtime.strided import Strided, c_strides, canonical

NOTHING, POOL, SHARED, READ = range(4)
"""Where a neighbour's tile is found: nobody asks for it, in its pool, in its shared memory, or in
its private memory through the kernel."""

Strides = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One array of a stage."""

    phase: Phase
    dtype: DType

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Combine:
    """Combine a box of one buffer into a box of another."""

    op: str
    dtype: DType
    shape: Shape
    dst: int
    dst_offset: int
    dst_strides: Strides
    src: int
    src_offset: int
    src_strides: Strides

    def run(self, bases: Addresses) -> None:
        """Do it."""
        real = self.dtype.to_numpy()
        a = array_at(int(bases[self.dst]) + self.dst_offset, self.shape, self.dst_strides, real)
        b = array_at(int(bases[self.src]) + self.src_offset, self.shape, self.src_strides, real)
        combine_into(self.op, self.dtype, a, b)


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

    ``stage`` copies its own data into its pool; ``pack`` into what it sends; ``copies`` and
    ``reads`` (by rank) fetch from its node; ``unpack`` takes received data apart; ``combines`` come
    last, in ascending order of the partial values.
    """

    stage: Moves
    pack: Moves
    sends: tuple[Message, ...]
    receives: tuple[Message, ...]
    copies: Moves
    reads: tuple[tuple[int, Moves], ...]
    unpack: Moves
    combines: tuple[Combine, ...]


class Bases:
    """Numbers of the buffers of a stage: targets, sources, neighbours' tiles, and staging."""

    def __init__(self, n_items: int, node: Sequence[int]) -> None:
        self.n_items = n_items
        self.place = {rank: k for k, rank in enumerate(node)}
        self.send = (2 + len(node)) * n_items
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


def compile_round(
    rank: int,
    parts: Sequence[Part],
    slabs: Sequence[Slab],
    bases: Bases,
    kinds: dict[tuple[int, int], int],
    src_strides: Sequence[Strides],
    dst_strides: Sequence[Strides],
    room: tuple[int, int],
) -> Round:
    """The round that takes ``slabs`` across.

    ``kinds`` says where the tile of (rank, item) is found, ``room`` how many bytes can be packed to
    send and to receive; what has no room there goes from tile to tile by MPI's own datatypes.
    """
    stage: list[Move] = []
    copies: list[Move] = []
    reads: dict[int, list[Move]] = {}
    combines: list[tuple[int, Combine]] = []
    outgoing: dict[int, list[tuple[int, Piece]]] = {}
    incoming: dict[int, list[tuple[int, Piece]]] = {}
    for slab in slabs:
        item = slab.item
        part = parts[item]
        if kinds.get((rank, item), NOTHING) == POOL:
            stage.append(staging_move(part, slab, bases, src_strides[item], rank))
        for whole_piece in part.phase.pieces:
            piece = part_of(whole_piece, slab)
            if piece is None:
                continue
            if piece.receiver != rank:
                if piece.receiver not in bases.place:
                    outgoing.setdefault(piece.receiver, []).append((item, piece))
                continue
            if piece.sender == rank:
                base = bases.source(item)
                strides, offset = src_strides[item], _offset(piece.src_lo, src_strides[item])
                kind = SHARED
            elif piece.sender not in bases.place:
                incoming.setdefault(piece.sender, []).append((item, piece))
                continue
            else:
                kind = kinds[piece.sender, item]
                base = bases.neighbour(piece.sender, item)
                strides, offset = _found(kind, piece, slab, part.itemsize)
            if piece.order == 0:
                move = _move(piece, part, bases, dst_strides[item], item, base, offset, strides)
                (reads.setdefault(piece.sender, []) if kind == READ else copies).append(move)
            else:
                combines.append(
                    (
                        piece.order,
                        _combine(
                            piece, part, bases, dst_strides[item], item, base, offset, strides
                        ),
                    )
                )
    pack, sends = _messages(parts, outgoing, bases, src_strides, room[0], sending=True)
    unpack, receives = _messages(parts, incoming, bases, dst_strides, room[1], sending=False)
    unpacked: list[Move] = []
    for move, piece, item in unpack:
        if piece.order == 0:
            unpacked.append(move)
        else:
            strides = c_strides(piece.shape, parts[item].itemsize)
            combines.append(
                (
                    piece.order,
                    _combine(
                        piece,
                        parts[item],
                        bases,
                        dst_strides[item],
                        item,
                        move.src,
                        move.src_offset,
                        strides,
                    ),
                )
            )
    combines.sort(key=lambda entry: entry[0])
    return Round(
        Moves.of(stage),
        Moves.of(move for move, _, _ in pack),
        tuple(sends),
        tuple(receives),
        Moves.of(copies),
        tuple((peer, Moves.of(moves)) for peer, moves in reads.items()),
        Moves.of(unpacked),
        tuple(entry for _, entry in combines),
    )


def _found(kind: int, piece: Piece, slab: Slab, itemsize: int) -> tuple[Strides, int]:
    """Strides and offset of a piece in a neighbour's tile, or in its pool."""
    if kind == POOL:
        lo, shape = slab.box(piece.src_shape)
        strides = c_strides(shape, itemsize)
        relative = tuple(a - b for a, b in zip(piece.src_lo, lo, strict=True))
        return strides, slab.offset + _offset(relative, strides)
    strides = c_strides(piece.src_shape, itemsize)
    return strides, _offset(piece.src_lo, strides)


def staging_move(part: Part, slab: Slab, bases: Bases, strides: Strides, rank: int) -> Move:
    """The copy of a slab of this rank's tile into its pool."""
    tile = next((p.src_shape for p in part.phase.pieces if p.sender == rank), None)
    assert tile is not None
    lo, shape = slab.box(tile)
    form = canonical(shape, part.itemsize, c_strides(shape, part.itemsize), strides)
    source = bases.source(slab.item)
    return Move(bases.pool, slab.offset, source, _offset(lo, strides), form)


def _move(
    piece: Piece,
    part: Part,
    bases: Bases,
    dst_strides: Strides,
    item: int,
    base: int,
    offset: int,
    strides: Strides,
) -> Move:
    form = canonical(piece.shape, part.itemsize, dst_strides, strides)
    return Move(bases.target(item), _offset(piece.dst_lo, dst_strides), base, offset, form)


def _combine(
    piece: Piece,
    part: Part,
    bases: Bases,
    dst_strides: Strides,
    item: int,
    base: int,
    offset: int,
    strides: Strides,
) -> Combine:
    assert part.phase.op is not None
    return Combine(
        part.phase.op,
        part.dtype,
        piece.shape,
        bases.target(item),
        _offset(piece.dst_lo, dst_strides),
        dst_strides,
        base,
        offset,
        strides,
    )


def _messages(
    parts: Sequence[Part],
    pieces: dict[int, list[tuple[int, Piece]]],
    bases: Bases,
    strides: Sequence[Strides],
    room: int,
    sending: bool,
) -> tuple[list[tuple[Move, Piece, int]], list[Message]]:
    """One message per peer, with the copies that pack or unpack it.

    A message that is one contiguous part of a tile goes from there, or there, without a copy.
    """
    moves: list[tuple[Move, Piece, int]] = []
    messages: list[Message] = []
    staging = bases.send if sending else bases.receive
    used = 0
    to_write = {peer: all(p.order == 0 for _, p in own) for peer, own in pieces.items()}
    for peer in sorted(pieces, key=lambda peer: (to_write[peer], peer)):
        at = used
        packing: list[tuple[Move, Piece, int]] = []
        forms: list[tuple[int, int, Strided]] = []
        for item, piece in pieces[peer]:
            itemsize = parts[item].itemsize
            packed = c_strides(piece.shape, itemsize)
            tile = bases.source(item) if sending else bases.target(item)
            place = _offset(piece.src_lo if sending else piece.dst_lo, strides[item])
            form = canonical(piece.shape, itemsize, strides[item], packed)
            move = Move(tile, place, staging, at, form)
            if sending:
                form = canonical(piece.shape, itemsize, packed, strides[item])
                move = Move(staging, at, tile, place, form)
            packing.append((move, piece, item))
            forms.append((tile, place, canonical(piece.shape, itemsize, strides[item], packed)))
            at += form.n_bytes
        direct = sending or to_write[peer]
        if len(forms) == 1 and not forms[0][2].dims and direct:
            tile, place, _ = forms[0]
            messages.append(Message(peer, tile, place, at - used))
        elif direct and at > room:
            messages.append(Message(peer, staging, 0, at - used, tuple(forms)))
        else:
            messages.append(Message(peer, staging, used, at - used))
            moves += packing
            used = at
    return moves, messages


def _offset(lo: Iterable[int], strides: Iterable[int]) -> int:
    return sum(a * s for a, s in zip(lo, strides, strict=True))


def table(bases: Bases) -> Addresses:
    """An empty table of base addresses."""
    out: np.ndarray[Any, np.dtype[np.uintp]] = np.zeros(bases.size, dtype=np.uintp)
    return out
