"""Blocks in Ray's object store as global arrays, and tiles as blocks, in actors that are ranks."""

from __future__ import annotations

import pytest

from redist.launch.launcher import environment
from tests.foreign.alone import must_pass_alone
from tests.programs.launch import one_worker


@one_worker
@pytest.mark.parametrize("size", [1, 2, 4])
def test_actors_are_ranks(size: int) -> None:
    said = must_pass_alone("ray_ranks", size, {**environment(), "RAY_USAGE_STATS_ENABLED": "0"})
    assert said.count("well") == 6, said
