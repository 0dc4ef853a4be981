"""Dask arrays as global arrays and back: under mpirun, and where the workers of a cluster are the ranks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redist.launch.launcher import environment
from tests.foreign.alone import must_pass_alone
from tests.programs.checks import Job, Run, items, must_hold
from tests.programs.launch import one_worker


def jobs() -> Iterator[Job]:
    for ranks in (1, 2, 4):
        yield Job(ranks, (Run("foreign.dask_arrays"),))
    yield Job(2, (Run("foreign.dask_arrays"),), ("REDIST_CHECK_CALLS",))


@pytest.mark.parametrize(("job", "run", "check"), [*items(jobs())])
def test_check(job: Job, run: Run, check: str) -> None:
    must_hold(job, run, check)


@one_worker
@pytest.mark.parametrize("size", [1, 2, 4])
def test_workers_are_ranks(size: int) -> None:
    said = must_pass_alone("dask_cluster", size, environment())
    assert said.count("well") == 3, said
