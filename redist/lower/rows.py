"""Set pieces of a step in rows: in a row every device sends one and gets one at most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from redist.plan.pieces import Piece, Shape


def in_rows(pieces: Iterable[Piece]) -> tuple[tuple[Piece, ...], ...]:
    """Divide pieces into rows in which all have one shape, and no device sends or gets twice.

    What is combined later stands in a later row.
    """
    rows: list[_Row] = []
    for one in sorted(pieces, key=_place):
        row = next((row for row in rows if row.takes(one)), None)
        if row is None:
            row = _Row(one.shape, one.order)
            rows.append(row)
        row.add(one)
    return tuple(tuple(row.pieces) for row in rows)


@dataclass(slots=True)
class _Row:
    shape: Shape
    order: int
    senders: set[int] = field(default_factory=set)
    receivers: set[int] = field(default_factory=set)
    pieces: list[Piece] = field(default_factory=list)

    def takes(self, one: Piece) -> bool:
        """Whether a piece has room beside the others."""
        is_alike = (one.shape, one.order) == (self.shape, self.order)
        return is_alike and one.sender not in self.senders and one.receiver not in self.receivers

    def add(self, one: Piece) -> None:
        self.senders.add(one.sender)
        self.receivers.add(one.receiver)
        self.pieces.append(one)


def _place(one: Piece) -> tuple[int, int, int]:
    """Neighbours at the same distance come together, so that rows are full."""
    return one.order, one.sender ^ one.receiver, one.sender
