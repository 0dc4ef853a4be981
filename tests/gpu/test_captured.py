"""Programs of arrays on GPUs beside the functions that they are made of."""

from __future__ import annotations

import pytest

from tests.programs.gpu.jobs import must_succeed, needs_gpu, needs_mpi
from tests.tiers import sample

pytestmark = needs_mpi


@pytest.mark.xdist_group("programs on GPUs")
@needs_gpu
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_programs_on_gpus_give_the_same_bits(ranks: int) -> None:
    n = sample(4, of=150)
    words = ("--n", str(n), "--seed", str(ranks), "--device", "cuda")
    assert " 0 do not" in must_succeed("pgas.programs", ranks, *words, limit_s=400)
