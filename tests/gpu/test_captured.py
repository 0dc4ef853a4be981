"""Programs of arrays on GPUs beside the functions that they are made of."""

from __future__ import annotations

import pytest

from tests.programs.gpu.jobs import needs_gpu, needs_mpi
from tests.programs.launch import run
from tests.tiers import sample

pytestmark = needs_mpi


@pytest.mark.xdist_group("programs on GPUs")
@needs_gpu
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_programs_on_gpus_give_the_same_bits(ranks: int) -> None:
    n = sample(4, of=150)
    words = ("--n", str(n), "--seed", str(ranks), "--device", "cuda")
    done = run("tests.programs.pgas.programs", ranks, *words, limit_s=400)
    assert done.status == 0 and " 0 do not" in done.output, done.output
