"""Random problems between real GPU arrays on 1 to 8 ranks, and two streams at once."""

from __future__ import annotations

import pytest

from tests.programs.gpu.jobs import must_succeed, needs_gpu, needs_mpi
from tests.tiers import sample

pytestmark = [needs_gpu, needs_mpi]
WAYS: tuple[tuple[str, ...], ...] = ((), ("--transport", "mpi"), ("--node-size", "2"))
IDS = ["ipc", "mpi", "pretended nodes of 2"]
OTHERS = (*WAYS[1:], ("--segments",), ("--segments", "--node-size", "2"))


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_ranks_agree_with_the_simulator(ranks: int) -> None:
    n = sample(30, of=300)
    said = must_succeed("fuzz", ranks, "--n", str(n), limit_s=600)
    assert f"{n} of {n} GPU cases agree ({ranks} ranks)" in said


@pytest.mark.parametrize("args", OTHERS, ids=[*IDS[1:], "segments", "segments, nodes of 2"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_other_ways_agree_too(ranks: int, args: tuple[str, ...]) -> None:
    n = sample(12, of=60)
    said = must_succeed("fuzz", ranks, "--n", str(n), "--seed", str(ranks), *args)
    assert f"{n} of {n} GPU cases agree ({ranks} ranks)" in said


@pytest.mark.parametrize("args", WAYS, ids=IDS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_two_streams_at_once(ranks: int, args: tuple[str, ...]) -> None:
    said = must_succeed("streams", ranks, *args)
    assert f"two streams at once agree ({ranks} ranks)" in said
