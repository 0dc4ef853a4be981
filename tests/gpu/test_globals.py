"""Global arrays with tiles on GPUs, and the same program with NumPy in the place of CuPy."""

from __future__ import annotations

import pytest

from tests.programs.gpu.jobs import must_succeed, needs_gpu, needs_mpi

pytestmark = needs_mpi


@pytest.mark.parametrize(
    "ranks", [1, 3, pytest.param(4, marks=pytest.mark.slow("every function on 4 ranks too"))]
)
def test_all_functions_with_numpy_for_cupy(ranks: int) -> None:
    said = must_succeed("globals", ranks, "--without-gpu", "--all-kinds", "--seed", str(ranks))
    assert f"agree on GPUs ({ranks} ranks" in said


@needs_gpu
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_functions_on_gpus(ranks: int) -> None:
    said = must_succeed("globals", ranks, "--seed", str(ranks))
    assert f"agree on GPUs ({ranks} ranks" in said
