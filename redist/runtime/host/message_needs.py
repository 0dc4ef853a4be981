"""What the messages of one array between nodes take in staging, by the number of parts and turns."""

from __future__ import annotations

from collections.abc import Sequence

from redist.plan.pieces import Piece
from redist.runtime.copies.strided import is_run
from redist.runtime.schedule.rounds import part_elems, turn_of
from redist.runtime.schedule.stages import StagePart


class MessageNeeds:
    """Bytes that one array's messages between nodes take in staging, by the number of parts."""

    def __init__(
        self, stage_part: StagePart, rank: int, node: Sequence[int], packs_all: bool = False
    ) -> None:
        self.itemsize = stage_part.itemsize
        self.between = [
            p
            for p in stage_part.step.pieces
            if rank in (p.sender, p.receiver) and (p.sender in node) != (p.receiver in node)
        ]
        given = [p for p in stage_part.step.pieces if p.sender == rank and p.receiver not in node]
        self.sent = [p for p in given if not is_run(p.shape, p.src_shape, stage_part.itemsize)]
        got = [p for p in stage_part.step.pieces if p.receiver == rank and p.sender not in node]
        self.combined = got if packs_all else [p for p in got if p.order]
        self.given = given if packs_all else []
        self.received = [
            p for p in got if p.order or not is_run(p.shape, p.dst_shape, stage_part.itemsize)
        ]

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
        """Bytes that are better packed, in the fullest of so many turns."""
        sizes = [[0] * turns, [0] * turns]
        for side, pieces in enumerate((self.sent, self.received)):
            for p in pieces:
                turn = turn_of(p.sender, p.receiver, False, turns)
                sizes[side][turn] += part_elems(p.shape, parts) * self.itemsize
        return max(*sizes[0], *sizes[1])

    def _bytes(self, pieces: list[Piece], parts: int) -> int:
        return sum(part_elems(p.shape, parts) for p in pieces) * self.itemsize
