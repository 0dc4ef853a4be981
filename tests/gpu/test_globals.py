"""Global arrays with tiles on GPUs."""

from __future__ import annotations

import pytest

from tests.programs.gpu.jobs import must_succeed, needs_gpu, needs_mpi

pytestmark = needs_mpi


@needs_gpu
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_functions_on_gpus(ranks: int) -> None:
    said = must_succeed("globals", ranks, "--seed", str(ranks))
    assert f"agree on GPUs ({ranks} ranks" in said


@needs_gpu
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_checkpoints_on_gpus(ranks: int) -> None:
    must_succeed("storing", ranks)
