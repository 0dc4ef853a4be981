"""Place pieces in the pools of a node: every rank publishes each box once, however many read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redist.plan.pieces import Piece, Shape
from redist.runtime.schedule.rounds import Rounds, part_elems
from redist.text.units import ceil_div

Export = tuple[Shape, Shape]
"""A box of a tile that neighbours read: where it starts, and its shape."""

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
                boxes[p.src_lo, p.shape] = None
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
