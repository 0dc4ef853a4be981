"""Global arrays with tiles on GPUs.

Runs of one program follow each other: the first one compiles the kernels for all.
"""

from __future__ import annotations

import pytest

from tests.programs.gpu.jobs import must_succeed, needs_gpu, needs_mpi

pytestmark = needs_mpi


@pytest.mark.xdist_group("functions on GPUs")
@needs_gpu
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_functions_on_gpus(ranks: int) -> None:
    said = must_succeed("globals", ranks, "--seed", str(ranks))
    assert f"agree on GPUs ({ranks} ranks" in said


@pytest.mark.xdist_group("order on GPUs")
@needs_gpu
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_order_and_indices_on_gpus(ranks: int) -> None:
    must_succeed("pgas.order_on_gpus", ranks, "--cuda")


@pytest.mark.xdist_group("parts on GPUs")
@needs_gpu
@pytest.mark.parametrize("ranks", [2, 4])
def test_parts_between_ranks_of_a_gpu(ranks: int) -> None:
    must_succeed("parts", ranks, "--real", "--n", "40")


@pytest.mark.xdist_group("checkpoints on GPUs")
@needs_gpu
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_checkpoints_on_gpus(ranks: int) -> None:
    must_succeed("storing", ranks)


@pytest.mark.xdist_group("one-sided on GPUs")
@needs_gpu
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_one_sided_access_on_gpus(ranks: int) -> None:
    for program, args in (
        ("onesided", ("--n", "20")),
        ("reaching", ()),
        ("reaching", ("--nodes",)),
    ):
        must_succeed(f"pgas.{program}", ranks, "--cuda", *args)


@pytest.mark.xdist_group("visits on GPUs")
@needs_gpu
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_visits_on_gpus(ranks: int) -> None:
    must_succeed("visiting", ranks)


@pytest.mark.xdist_group("matrices on GPUs")
@needs_gpu
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_matrices_on_gpus(ranks: int) -> None:
    must_succeed("pgas.matrices_on_gpus", ranks, "--cuda")


@pytest.mark.xdist_group("halos on GPUs")
@needs_gpu
@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_halos_on_gpus(ranks: int) -> None:
    said = must_succeed("mpi.halos", ranks, "--real", "--n", "20")
    assert f"20 halos, 0 wrong ({ranks} ranks)" in said
