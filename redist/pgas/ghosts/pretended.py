"""Ranks that are not there: programs are explained for a machine that one does not have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redist.layout.array_type import ArrayType
from redist.layout.tiles import tile_shapes
from redist.pgas.ghosts.stand_ins import pretend
from redist.pgas.global_array import Array


@dataclass(frozen=True, slots=True)
class PretendedRanks:
    """Stands in for a communicator as far as nothing passes between its ranks."""

    size: int
    rank: int = 0


def pretended_array(t: ArrayType, ranks: Any) -> Array:
    """**Local.** An array of any size without memory: only to be captured with."""
    shape = tile_shapes(t).get(ranks.rank)
    made = Array(t, ranks, None)
    made.tile = None if shape is None else pretend(shape, t.dtype.to_numpy())
    return made
