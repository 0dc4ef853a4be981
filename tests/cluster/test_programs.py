"""Transfers between emulated hosts: random problems, wrong requests, failures, memory; an item a check."""

from __future__ import annotations

import pytest

from tests.programs.checks import Job, Run, items, must_hold
from tests.tiers import sample

MORE = "on more hosts, or once more another way"
MPI_BYTES = ("--mpi-bytes", str(2**20))
"""Pages that MPI takes for messages by TCP; what redist allocates is counted without them."""

JOBS = [
    Job(8, (Run("mpi.fuzz", ("--n", str(sample(9, of=45)), "--seed", "84"), slow=MORE),), hosts=4),
    Job(
        8,
        (
            Run("mpi.fuzz", ("--n", str(sample(9, of=45)), "--seed", "88"), slow=MORE),
            Run("mpi.mixing", ("--n", "20"), slow=MORE),
            Run("mpi.mismatches", ("--n", "12", "--seed", "5"), slow=MORE),
        ),
        hosts=8,
    ),
    Job(
        4,
        (
            Run("mpi.links"),
            Run("mpi.fuzz", ("--n", "9", "--seed", "44")),
            Run("mpi.mismatches", ("--n", str(sample(2, of=25)))),
            Run("mpi.faults", slow=MORE),
            Run("mpi.failures", ("raise",), slow=MORE),
            Run("mpi.failures", ("late",), slow=MORE),
            Run("pgas.onesided", ("--n", "20", "--seed", "4"), slow=MORE),
        ),
        hosts=2,
    ),
    Job(4, (Run("mpi.memory", ("--only", "own", *MPI_BYTES), slow=MORE),), hosts=4),
    Job(4, (Run("mpi.memory", ("--only", "uneven", *MPI_BYTES), slow=MORE),), hosts=2),
    Job(4, (Run("mpi.fuzz", ("--n", "9", "--seed", "42"), slow=MORE),), library="openmpi", hosts=2),
]


@pytest.mark.parametrize(("job", "run", "check"), [*items(JOBS)])
def test_check(job: Job, run: Run, check: str) -> None:
    must_hold(job, run, check)
