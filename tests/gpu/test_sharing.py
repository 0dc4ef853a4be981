"""Ranks that share a GPU, without one: memory is mapped, copies and streams are pretended."""

from __future__ import annotations

import pytest

from tests.programs.gpu.jobs import needs_linux, needs_mpi
from tests.programs.launch import run

pytestmark = [needs_mpi, needs_linux]


@pytest.mark.parametrize(
    ("ranks", "gpus", "n"), [(2, 1, 40), (4, 1, 40), (4, 2, 20), (3, 2, 20), (4, 3, 20)]
)
def test_one_rank_moves_for_all_on_its_gpu(ranks: int, gpus: int, n: int) -> None:
    done = run("tests.programs.gpu.sharing", ranks, "--gpus", str(gpus), "--n", str(n))
    assert done.status == 0, done.output
    assert f"{n} of {n} GPU cases agree ({ranks} ranks)" in done.output
