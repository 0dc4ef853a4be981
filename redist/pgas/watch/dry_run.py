"""Traffic that does not happen: plans are made and noted, and the tiles have made-up values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

import numpy as np

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.pgas.memory import Tile, TileMemory
from redist.pgas.watch.call_site import calling_line
from redist.pgas.watch.seam import (
    ElementExchange,
    R,
    RankTraffic,
    TileMove,
    WrappedTraffic,
    plan_move,
)
from redist.pgas.watch.trace import Move
from redist.runtime.ranks.world import Comm
from redist.runtime.transfer import Transfer


class DryRun(WrappedTraffic):
    """Notes in ``moves`` what would pass between ranks."""

    def __init__(self, inner: RankTraffic) -> None:
        super().__init__(inner)
        self.moves: list[Move] = []

    def redistribute(
        self, move: TileMove, comm: Comm, limit_bytes: int | None
    ) -> tuple[Tile | None, Transfer | None]:
        """Plan the move, note it, and make its result up."""
        plan = plan_move(move.source, move.target, comm, limit_bytes)
        most = sum(step.received_range_bytes[1] for step in plan.steps)
        self.moves.append(Move.of(plan, calling_line(), most))
        tile = move.new_tile()
        return (None if tile is None else make_up(tile, move.memory)), None

    def redistribute_together(
        self, moves: Mapping[str, TileMove], comm: Comm
    ) -> tuple[dict[str, Tile | None], Transfer | None]:
        """Plan each of the moves."""
        return {name: self.redistribute(move, comm, None)[0] for name, move in moves.items()}, None

    def perform(
        self,
        exchange: ElementExchange,
        work: Callable[[], tuple[R, int]],
        instead: Callable[[], R] | None = None,
        expected_bytes: Callable[[], int] = lambda: 0,
    ) -> R:
        """Note the exchange, and give the result without it."""
        assert instead is not None, "work that needs data asks for it first"
        what, source, target = exchange
        move = Move(calling_line(), str(source), str(target), what, expected_bytes())
        self.moves.append(move)
        return instead()

    def require_data(self, what: str, why: str) -> NoReturn:
        """There are no data: refuse."""
        raise RequestError(f"cannot explain {what}: {why}")

    def warn_of_gather(self, source: ArrayType, target: ArrayType, rank: int) -> None:
        """Say nothing: nothing is gathered."""


def make_up(tile: Tile, memory: TileMemory) -> Tile:
    """**Local.** Fill a tile with noise between 0.5 and 1.5 (integers and truth values: with zeros)."""
    if tile.dtype.kind in "fc":
        tile[...] = memory.asarray(0.5 + np.random.default_rng(0).random(tile.shape))
    else:
        tile.fill(0)
    return tile
