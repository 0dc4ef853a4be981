"""What ranks receive and send in many steps at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from redist.layout.tiles import Ints
from redist.synth.chains import Bools


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """Messages and elements that every rank (column) receives and sends in every step (row)."""

    messages_in: Ints
    elems_in: Ints
    messages_out: Ints
    elems_out: Ints

    def less(self, nearer: Moved) -> Moved:
        """What is left for a level if nearer levels move that much."""
        return Moved(
            self.messages_in - nearer.messages_in,
            self.elems_in - nearer.elems_in,
            self.messages_out - nearer.messages_out,
            self.elems_out - nearer.elems_out,
        )

    def ask(self, rows: Ints, found: Bools, sizes: Ints, turns: Ints | int) -> None:
        """Put what permutes move instead, if whole tiles are found and their holders have ``turns``."""
        self.messages_in[rows] = found
        self.elems_in[rows] = np.where(found, sizes, 0)
        self.messages_out[rows] = turns
        self.elems_out[rows] = turns * sizes

    def busiest(self) -> tuple[Ints, Ints]:
        """Messages and elements of the busiest rank, receiving or sending, in every step."""
        return (
            np.maximum(self.messages_in.max(axis=1), self.messages_out.max(axis=1)),
            np.maximum(self.elems_in.max(axis=1), self.elems_out.max(axis=1)),
        )


@dataclass(slots=True, eq=False)
class Requests:
    """Rows that are permutes, and which ranks still wait for a tile in them."""

    rows: Ints
    open: Bools
