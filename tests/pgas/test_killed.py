"""A rank that is killed while a program larger than memory runs: the job ends, and no file is left."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs.launch import default_mpi, job, one_worker

SOON_S = 30.0


@one_worker
@pytest.mark.slow("an MPI job for itself")
@pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")
def test_a_rank_killed_in_the_middle_of_a_read_leaves_no_file(tmp_path: Path) -> None:
    with job("tests.programs.pgas.spill_faults", 3, "kill", str(tmp_path)) as started:
        started.until(lambda said: said.count("running") == 3, 60)
        done = started.end(SOON_S)
    assert done.status != 0 and not done.left
    assert re.search(r"(?i)killed|signal 9|exit code: 9|died", done.output), done.output
    assert not list(tmp_path.iterdir())
