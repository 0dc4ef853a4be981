"""Device and pinned memory that ranks take is what the plan says, by IPC and through the host."""

from __future__ import annotations

import re

import pytest

from tests.programs.gpu.jobs import must_succeed, needs_gpu, needs_mpi

pytestmark = needs_mpi


@needs_gpu
@pytest.mark.parametrize("ranks", [2, 4])
def test_no_rank_takes_more_than_its_plan_says(ranks: int) -> None:
    said = must_succeed("memory", ranks)
    assert re.search(r"^(\d+) of \1 ways keep the bound$", said, re.MULTILINE)


@needs_gpu
def test_donated_sources_are_given_up_in_time() -> None:
    assert "donated sources go in time (4 ranks)" in must_succeed("donating", 4)
