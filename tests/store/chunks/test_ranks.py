"""Rechunks under mpirun."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.programs.checks import Job, Run, items, must_hold

HERE = find_spec("zarr") is not None and find_spec("h5py") is not None
JOBS = [Job(n, (Run("pgas.rechunking"),)) for n in (1, 2, 3)]


@pytest.mark.skipif(not HERE, reason="needs zarr and h5py: make store has them")
@pytest.mark.parametrize(("job", "run", "check"), [*items(JOBS)])
def test_check(job: Job, run: Run, check: str) -> None:
    must_hold(job, run, check)
