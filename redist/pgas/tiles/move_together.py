"""Move many global arrays as one operation, in one staging budget: weights from mesh to mesh."""

from __future__ import annotations

from collections.abc import Mapping

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.pgas.tiles.arranging import left_alone
from redist.pgas.tiles.devices import check_alike
from redist.pgas.tiles.layouts import parse_target
from redist.pgas.tiles.move import tile_shape
from redist.pgas.tiles.tiled import T
from redist.pgas.watch.seam import TileMove, traffic


@left_alone
def move_together(arrays: Mapping[str, T], types: Mapping[str, str | ArrayType]) -> dict[str, T]:
    """**Collective.** Move arrays, by name, each to its new type, also on another mesh, as one operation.

    ``new = pgas.move_together({"w": w, "b": b}, {"w": "{}, {x}", "b": "{x}"})``
    """
    if arrays.keys() != types.keys():
        odd = ", ".join(sorted(arrays.keys() ^ types.keys()))
        raise RequestError(f"cannot move {odd}: named as an array or as a type, not as both")
    check_alike("move_together", *arrays.values())
    targets = {name: parse_target(a.type, types[name]) for name, a in arrays.items()}
    moving = {name: a for name, a in arrays.items() if a.type != targets[name]}
    out = dict(arrays)
    if not moving:
        return out
    comm = next(iter(moving.values())).comm
    if any(a.comm != comm for a in moving.values()):
        raise RequestError("cannot move arrays of several communicators as one operation")
    moves = {
        name: TileMove(
            a.tile, a.type, targets[name], tile_shape(targets[name], comm.rank), a.memory
        )
        for name, a in moving.items()
    }
    tiles, _ = traffic().redistribute_together(moves, comm)
    for name, a in moving.items():
        out[name] = a.new(targets[name], tiles[name])
    return out
