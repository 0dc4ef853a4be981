"""Ranks that share a GPU, without one: memory is mapped, copies and streams are pretended."""

from __future__ import annotations

import pytest

from tests.programs.gpu.jobs import needs_linux, needs_mpi
from tests.programs.launch import run
from tests.tiers import sample

pytestmark = [needs_mpi, needs_linux]
SEVERAL = pytest.mark.slow("more ranks on fewer or more GPUs")


@pytest.mark.parametrize(
    ("ranks", "gpus", "n"),
    [
        (2, 1, sample(10, of=40)),
        pytest.param(4, 1, 40, marks=SEVERAL),
        (4, 2, sample(10, of=20)),
        (3, 2, sample(10, of=20)),
        pytest.param(4, 3, 20, marks=SEVERAL),
    ],
)
def test_one_rank_moves_for_all_on_its_gpu(ranks: int, gpus: int, n: int) -> None:
    done = run("tests.programs.gpu.sharing", ranks, "--gpus", str(gpus), "--n", str(n))
    assert done.status == 0, done.output
    assert f"{n} of {n} GPU cases agree ({ranks} ranks)" in done.output
