"""Tiles that reach into their neighbours: faces, edges and corners, all at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from redist.errors import ArgumentError
from redist.layout.tiles import tile_index
from redist.pgas.tiles.budget import staging_room
from redist.pgas.tiles.select import new_tile
from redist.pgas.tiles.tiled import Tile, Tiled
from redist.pgas.watch.seam import ElementExchange, traffic
from redist.runtime.cuda.arrays import fill_with
from redist.runtime.halo import STAGING_BYTES
from redist.runtime.schedule.halos import Halo

WRAP = "wrap"


def with_halo(x: Tiled, reach: Mapping[int, int], edges: float | str) -> Tile | None:
    """**Collective.** The tile of an array with parts of its neighbours' on both sides of some dims.

    It is new, unless nothing is reached. Beyond the ends of the array it has the number ``edges``, or, with
    ``"wrap"``, the other end.
    """
    t = x.type
    for dim, n in reach.items():
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise ArgumentError(
                f"cannot reach {n!r} elements far along dim {dim}: need an int >= 0"
            )
        sizes = np.diff(t.cut(dim).edges())
        if sizes.min(initial=n) < n:
            raise ArgumentError(
                f"cannot reach {n} elements far along dim {dim} of {t}: a tile has {sizes.min()}"
            )
    if not any(reach.values()):
        return x.tile
    halo = Halo(t, tuple(reach.get(dim, 0) for dim in range(t.ndim)), edges == WRAP)
    out = x.new(halo.grown, new_tile(x, halo.grown))
    rank = x.comm.rank

    def work(x: Tiled, out: Tiled) -> tuple[Tile | None, int]:
        room = staging_room(x, STAGING_BYTES)
        if out.tile is not None and not halo.wraps:
            _fill_edges(out.tile, halo, tile_index(halo.type, x.comm.rank), edges)
        of = x.memory.on_device
        return out.tile, traffic().halo(x.comm, halo, x.tile, out.tile, of, room)

    traffic().perform(
        ElementExchange("halo", t, halo.grown),
        work,
        (x, out),
        lambda: out.tile,
        lambda: halo.received_bytes(rank),
        into=out,
    )
    return out.tile


def _fill_edges(tile: Tile, halo: Halo, index: tuple[int, ...], edges: Any) -> None:
    """**Local.** Write a number where a tile reaches beyond the ends of the array."""
    for dim, (n, place, cuts) in enumerate(zip(halo.reach, index, halo.type.cuts, strict=True)):
        before = (slice(None),) * dim
        if n and place == 0:
            fill_with(tile[(*before, slice(n))], edges)
        if n and place == cuts - 1:
            fill_with(tile[(*before, slice(-n, None))], edges)
