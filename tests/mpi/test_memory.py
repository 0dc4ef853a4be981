"""The memory that ranks take is what the plan says, over every transport."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs.launch import default_mpi, run

pytestmark = [
    pytest.mark.skipif(default_mpi() is None, reason="needs mpirun"),
    pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux"),
]


def test_no_rank_takes_more_than_its_plan_says() -> None:
    done = run("memory", 4)
    assert done.status == 0, done.output
    assert re.search(r"^(\d+) of \1 ways keep the bound$", done.output, re.MULTILINE)
