"""How a global array prints: shape, dtype, type, and a corner of this rank's tile."""

from __future__ import annotations

import numpy as np

from redist.pgas.tiles.devices import name_of
from redist.pgas.tiles.tiled import Tiled

CORNER = 3
"""Elements shown along each dim."""


def format_array(a: Tiled) -> str:
    """Show an array in a few lines, without a message: every rank shows what it has."""
    where = f", {name_of(a)}" if a._memory.on_device else ""
    head = f"pgas.Array {a.type} on {a.mesh}{where}"
    if a.tile is None:
        return f"{head}\n  rank {a.comm.rank} holds nothing of it"
    corner = a._memory.host(a.tile[(slice(CORNER),) * a.tile.ndim])
    body = np.array2string(corner, precision=4, separator=", ", threshold=50)
    more = "" if corner.shape == a.tile.shape else " ..."
    what = "partial values" if a.type.pending_op else "tile"
    lines = [f"{head}", f"  rank {a.comm.rank}, {what} {list(a.tile.shape)}:{more}"]
    return "\n".join([*lines, *(f"    {line}" for line in body.splitlines())])
