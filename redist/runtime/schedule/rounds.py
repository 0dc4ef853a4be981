"""Rounds: which part of every piece passes through the staging buffer at a time.

Each piece is cut by itself, so in every round every rank has something to give and to take. Partial
values of one element lie at the same place in equal pieces, so they all pass in the same round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from redist.layout.cuts import EvenCut
from redist.plan.pieces import Piece, Shape
from redist.runtime.schedule.pieces import box_at
from redist.text.units import ceil_div

# Place pieces in the pools of a node: every rank publishes each box once, however many read it.


Export = tuple[Shape, Shape, tuple[tuple[int, int, int], ...]]
"""A box of a tile that neighbours read: where it starts, its shape, and the steps of its dims, if any."""


def export_of(piece: Piece) -> Export:
    """The box of the source that a piece is, the same for all pieces that are read from it."""
    return piece.src_lo, piece.shape, tuple((dim, src, 1) for dim, src, _ in piece.steps)


ALIGN = 64
ALIGN_FROM = 65536
"""Slots from this size on keep boxes on cache lines."""


@dataclass(frozen=True, slots=True)
class Exports:
    """The distinct boxes of one array that neighbours read from one rank, in order."""

    boxes: tuple[Export, ...]
    itemsize: int
    align: int

    @staticmethod
    def of(
        pieces: Sequence[Piece], rank: int, node: Sequence[int], itemsize: int, slot_bytes: int
    ) -> Exports:
        """The boxes of ``rank``."""
        boxes: dict[Export, None] = {}
        for p in pieces:
            if p.sender == rank and p.receiver != rank and p.receiver in node:
                boxes[export_of(p)] = None
        return Exports(tuple(boxes), itemsize, ALIGN if slot_bytes >= ALIGN_FROM else 1)

    def bytes_for(self, parts: int) -> int:
        """Bytes of a slot that one part of every box takes."""
        return sum(self._part_bytes(box, parts) for box in self.boxes)

    def offsets(self, parts: int, start: int) -> dict[Export, int]:
        """Where each box's part lies in a slot; the same for every part."""
        out = {}
        for box in self.boxes:
            out[box] = start
            start += self._part_bytes(box, parts)
        return out

    def _part_bytes(self, box: Export, parts: int) -> int:
        n_bytes = part_elems(box[1], parts) * self.itemsize
        return ceil_div(n_bytes, self.align) * self.align


def place_exports(
    exports: Sequence[Exports], weights: Sequence[int], parts: Sequence[int], rounds: Rounds
) -> tuple[list[dict[Export, int]], int]:
    """Where the boxes of every array lie in a slot, those of a round side by side, and the bytes of it."""
    starts = [0] * len(exports)
    for round_parts in rounds:
        at = 0
        for round_part in round_parts:
            starts[round_part.item] = at if round_part.number == 0 else starts[round_part.item]
            at += weights[round_part.item]
    placed = list(zip(exports, parts, starts, strict=True))
    n_bytes = max(start + own.bytes_for(k) for own, k, start in placed)
    return [own.offsets(k, start) for own, k, start in placed], n_bytes


@dataclass(frozen=True, slots=True)
class RoundPart:
    """Part ``number`` of ``parts`` of every piece of one array; between nodes, of those whose turn it is."""

    item: int
    parts: int
    number: int
    turn: int = 0
    turns: int = 1


Rounds = tuple[tuple[RoundPart, ...], ...]


def part_counts(shape: Sequence[int], parts: int) -> Shape:
    """Into how many each dim is cut, outer dims first, for at most ``parts`` boxes.

    >>> part_counts((4, 10), 3), part_counts((4, 10), 9)
    ((3, 1), (4, 2))
    """
    counts = []
    for n in shape:
        k = max(1, min(n, parts))
        counts.append(k)
        parts //= k
    return tuple(counts)


def place_at(number: int, counts: Sequence[int]) -> Shape:
    """Where a box stands along each dim, of this many, counted in C order.

    >>> place_at(5, (3, 2))
    (2, 1)
    """
    place = []
    for k in reversed(counts):
        place.append(number % k)
        number //= k
    return tuple(reversed(place))


def part_of(piece: Piece, round_part: RoundPart) -> Piece | None:
    """The part of a piece that passes in a round; None if nothing does.

    >>> piece = Piece(0, 1, 0, (2, 0), (0, 4), (4, 3), (8, 3), (4, 8))
    >>> part = part_of(piece, RoundPart(0, 2, 1))
    >>> part.src_lo, part.dst_lo, part.shape
    ((4, 0), (2, 4), (2, 3))
    """
    if round_part.parts == 1:
        return piece
    counts = part_counts(piece.shape, round_part.parts)
    if round_part.number >= math.prod(counts):
        return None
    lo, shape = box_at(piece.shape, counts, place_at(round_part.number, counts))
    if 0 in shape:
        return None
    return replace(
        piece,
        src_lo=tuple(a + b for a, b in zip(piece.src_lo, lo, strict=True)),
        dst_lo=tuple(a + b for a, b in zip(piece.dst_lo, lo, strict=True)),
        shape=shape,
    )


def part_elems(shape: Sequence[int], parts: int) -> int:
    """Elements of the largest part."""
    counts = part_counts(shape, parts)
    return math.prod(EvenCut(n, k).tile_size for n, k in zip(shape, counts, strict=True))


def parts_needed(need: Callable[[int], int], limit: int, most: int) -> int:
    """A number of parts for which ``need`` falls to the limit, the least or little more, or ``most``.

    >>> parts_needed(lambda k: ceil_div(100, k), 30, 100)
    4
    """
    parts = max(1, min(most, ceil_div(need(1), max(1, limit))))
    while parts < most and need(parts) > limit:
        parts = min(most, max(parts + 1, parts * 9 // 8))
    return parts


def make_rounds(weights: Sequence[int], parts: Sequence[int], slot_bytes: int) -> Rounds:
    """Put arrays into rounds: several together while their weights fit a slot, large ones in parts.

    >>> [[(t.item, t.number) for t in r] for r in make_rounds([10, 20, 90, 5], [1, 1, 3, 1], 32)]
    [[(0, 0), (1, 0)], [(2, 0)], [(2, 1)], [(2, 2)], [(3, 0)]]
    """
    rounds: list[list[RoundPart]] = []
    used = slot_bytes + 1
    for item, (weight, k) in enumerate(zip(weights, parts, strict=True)):
        for number in range(k):
            if k > 1 or used + weight > slot_bytes:
                rounds.append([])
                used = 0
            rounds[-1].append(RoundPart(item, k, number))
            used += weight if k == 1 else slot_bytes + 1
    return tuple(tuple(round_parts) for round_parts in rounds)


def turn_of(sender: int, receiver: int, is_near: bool, turns: int) -> int:
    """In which turn a piece passes: by how far on its receiver is; within a node always in the first.

    So a rank sends to as many others in a turn as it receives from, and no two send to one first.

    >>> [turn_of(6, receiver, False, 4) for receiver in (7, 0, 1, 2)]
    [1, 2, 3, 0]
    """
    return 0 if is_near else (receiver - sender) % turns


def take_turns(rounds: Rounds, turns: Sequence[int]) -> Rounds:
    """Let arrays that have rounds of their own pass in this many turns, all parts of one after another.

    >>> rounds = take_turns(make_rounds([10, 90, 5], [1, 2, 1], 32), [1, 2, 1])
    >>> [[(t.item, t.turn, t.number) for t in r] for r in rounds]
    [[(0, 0, 0)], [(1, 0, 0)], [(1, 0, 1)], [(1, 1, 0)], [(1, 1, 1)], [(2, 0, 0)]]
    """
    out: list[tuple[RoundPart, ...]] = []
    for round_parts in rounds:
        item, parts, many = round_parts[0].item, round_parts[0].parts, turns[round_parts[0].item]
        if many == 1:
            out.append(round_parts)
        elif round_parts[0].number == 0:
            assert len(round_parts) == 1, "arrays that take turns have rounds of their own"
            places = ((turn, number) for turn in range(many) for number in range(parts))
            out += [(RoundPart(item, parts, number, turn, many),) for turn, number in places]
    return tuple(out)


def whole(n_items: int) -> Rounds:
    """One round that takes everything: nothing passes through staging."""
    return (tuple(RoundPart(item, 1, 0) for item in range(n_items)),)
