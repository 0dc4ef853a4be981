"""Moves that only seem to happen: their plans are noted, and the tiles have made-up values."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.pgas.memory import Tile, TileMemory
from redist.pgas.watch.call_site import Line, calling_line
from redist.plan.plan import Plan


class Noting(Protocol):
    """Who wants to know which moves there would be."""

    def note(self, plan: Plan, line: Line) -> None:
        """There would be a move."""

    def saw(self, move: Any) -> None:
        """There would be an exchange without a plan."""


PRETENDING: list[Noting] = []
"""While someone is here, nothing moves."""


def pretended(plan: Plan, shape: tuple[int, ...] | None, memory: TileMemory) -> Tile | None:
    """**Local.** Note a move; the tile that it would give, with values that compute without trouble."""
    for who in PRETENDING:
        who.note(plan, calling_line())
    return None if shape is None else made_up(shape, plan.target, memory)


def made_up(shape: tuple[int, ...], t: ArrayType, memory: TileMemory) -> Tile:
    """A tile of noise between 0.5 and 1.5 (integers and truth values: of zeros)."""
    dtype = t.dtype.to_numpy()
    tile = memory.empty(shape, dtype, t.tile_bytes)
    if dtype.kind in "fc":
        tile[...] = memory.asarray(0.5 + np.random.default_rng(0).random(shape))
    else:
        tile.fill(0)
    return tile


def refuse_writing(what: str) -> None:
    """**Local.** An error where an expression would change arrays while nothing moves."""
    if PRETENDING:
        raise RequestError(
            f"cannot explain {what}: it changes an array in place; explain an expression without effects"
        )
