"""A rank that is killed while files are in use: the job ends, and leaves no spill file and no half one."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
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


@one_worker
@pytest.mark.slow("an MPI job for itself")
@pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")
def test_a_rank_killed_while_a_file_is_written_leaves_the_old_one(tmp_path: Path) -> None:
    with job("tests.programs.pgas.writing", 3, "kill", str(tmp_path)) as started:
        started.until(lambda said: "running" in said, 60)
        done = started.end(SOON_S)
    assert done.status != 0 and not done.left
    assert np.load(tmp_path / "old.npy").tolist() == [0, 1, 2]
    others = [path.name for path in tmp_path.iterdir() if path.name != "old.npy"]
    assert all(name.startswith(".old.npy.") and name.endswith(".tmp") for name in others), others
