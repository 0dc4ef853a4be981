"""Refits between tiles on a real GPU, whose memory ranks map by CUDA IPC."""

from __future__ import annotations

import pytest

from tests.programs.gpu.jobs import must_succeed, needs_gpu, needs_mpi
from tests.tiers import sample

pytestmark = [needs_gpu, needs_mpi]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_random_refits(ranks: int) -> None:
    n = sample(24, of=200)
    assert f"{n} refits agree ({ranks} ranks)" in must_succeed("refitting", ranks, "--n", str(n))
