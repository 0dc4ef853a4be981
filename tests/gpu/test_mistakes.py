"""Wrong calls with arrays of GPUs, on a real one."""

from __future__ import annotations

import pytest

from tests.programs.gpu.jobs import must_succeed, needs_gpu, needs_mpi

pytestmark = needs_mpi


@needs_gpu
@pytest.mark.parametrize("ranks", [2, 3])
def test_on_a_gpu(ranks: int) -> None:
    assert "mistakes are told alike" in must_succeed("mistakes", ranks)
