"""Random problems between real GPU arrays, and two streams at once, on 1, 2 and 4 ranks."""

from __future__ import annotations

import pytest

from tests.gpu.jobs import must_succeed, needs_gpu, needs_mpi

pytestmark = [needs_gpu, needs_mpi]
N = 60
WAYS: tuple[tuple[str, ...], ...] = ((), ("--transport", "mpi"), ("--node-size", "2"))
IDS = ["ipc", "mpi", "pretended nodes of 2"]


@pytest.mark.parametrize("args", WAYS, ids=IDS)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_agree_with_the_simulator(ranks: int, args: tuple[str, ...]) -> None:
    said = must_succeed("fuzz", ranks, "--n", str(N), "--seed", str(ranks), *args)
    assert f"{N} of {N} GPU cases agree ({ranks} ranks)" in said


@pytest.mark.parametrize("args", WAYS, ids=IDS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_two_streams_at_once(ranks: int, args: tuple[str, ...]) -> None:
    said = must_succeed("streams", ranks, *args)
    assert f"two streams at once agree ({ranks} ranks)" in said
