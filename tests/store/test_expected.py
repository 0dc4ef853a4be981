"""What a load is expected to read, move and hold, beside indices that are listed one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.layout.tiles import indices_of
from redist.store.expected import expected_load
from redist.store.save import rows_type
from redist.store.stored import stored
from tests.cli.test_convert_command import write

SHAPE = (2048, 40)
TYPES = {
    "{x}, {}": "slices",
    "{}, {}": "slices",
    "{}, {x}": "once",
    "{}, {x,y}": "once",
    "{y}, {x}": "once",
    "1024{x}+2*512{x}, {y}": "once",
    "{}, {y/3}": "once",
}
"""Types, and how they are read."""


def elements(t: ArrayType, rank: int) -> NDArray[np.int64]:
    """The numbers of a tile's elements in the whole array."""
    rows, columns = indices_of(t, rank)
    return (rows[:, None] * SHAPE[1] + columns).ravel()


@pytest.mark.parametrize(("text", "way"), TYPES.items())
def test_figures_of_every_rank(tmp_path: Path, text: str, way: str) -> None:
    path = tmp_path / "w.safetensors"
    write(path, {f"{n}.w": np.zeros(SHAPE, "f4") for n in range(2)}, {})
    found = expected_load(stored(path), {"*.w": text}, Mesh(x=2, y=2))
    assert found.ranks == (0, 1, 2, 3)
    one = found.plan.wanted[0]
    assert one.read == way
    for rank, (read, received, held) in zip(found.ranks, found.figures, strict=True):
        tile = elements(one.type, rank)
        own = tile if one.read == "slices" else elements(rows_type(one.type), rank)
        assert read == 2 * 4 * len(own)
        assert received == 2 * 4 * len(np.setdiff1d(tile, own))
        assert held == 2 * 4 * len(tile)
