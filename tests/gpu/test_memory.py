"""Device and pinned memory that ranks take is what the plan says, by IPC and through the host."""

from __future__ import annotations

import re

import pytest

from tests.gpu.jobs import needs_gpu
from tests.mpi.launch import run

pytestmark = needs_gpu


@pytest.mark.parametrize("ranks", [2, 4])
def test_no_rank_takes_more_than_its_plan_says(ranks: int) -> None:
    done = run("tests.gpu.memory", ranks)
    assert done.status == 0, done.output
    assert re.search(r"^(\d+) of \1 ways keep the bound$", done.output, re.MULTILINE)
