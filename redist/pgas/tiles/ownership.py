"""Which part of a global array this rank holds."""

from __future__ import annotations

from redist.layout.tiles import Box, box_of
from redist.pgas.tiles.tiled import Tiled


def own_box(x: Tiled) -> Box:
    """Start and end of indices along every dim, on a rank that has a tile of the array."""
    box = box_of(x.type, x.comm.rank)
    assert box is not None
    return box
