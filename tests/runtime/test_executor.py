"""Executors: what becomes of a donated tile."""

from __future__ import annotations

import mmap
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from redist.runtime.host.executor import HostExecutor


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="pages cannot be given back here")
@pytest.mark.parametrize("also", ["nothing", "another array", "a result", "part of it"])
def test_a_donated_array_stays_where_another_tile_of_the_call_lies_in_it(also: str) -> None:
    """As where one array is given under two names, and one result is the array itself."""
    array = np.ones(4 * mmap.PAGESIZE, np.uint8)
    rest = {
        "nothing": [],
        "another array": [np.ones_like(array)],
        "a result": [np.ones_like(array), array],
        "part of it": [array[-3:]],
    }[also]
    executor: Any = SimpleNamespace()
    HostExecutor.free(executor, array, rest, is_source=True)
    assert (array.min() == 1) == (also in ("a result", "part of it"))


def test_tiles_that_still_exist_are_looked_at() -> None:
    freed = []
    own, same = np.zeros(3), np.zeros(3)
    parts = [SimpleNamespace(item=item, source=0, target=1) for item in (0, 1)]
    executor: Any = SimpleNamespace(
        schedule=SimpleNamespace(stages=[parts, []], last=lambda item: 2),
        donates=True,
        keeps_tiles=False,
        free=lambda array, rest, is_source: freed.append((array, list(rest))),
    )
    tiles: dict[tuple[int, int], Any] = {(0, 0): own, (0, 2): None, (1, 0): None, (1, 2): same}
    assert not HostExecutor._free_tiles(executor, 0, tiles, False)
    ((array, rest),) = freed
    assert array is own and len(rest) == 1 and rest[0] is same
    assert set(tiles) == {(0, 2), (1, 2)}
