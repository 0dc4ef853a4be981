"""Parquet files under mpirun; without pyarrow, an error that says what to install."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from redist import ReadError, pgas
from tests.programs.checks import Job, Run, items, must_hold

HERE = find_spec("pyarrow") is not None
JOBS = [Job(n, (Run("pgas.reading_parquet"), Run("pgas.writing_parquet"))) for n in (1, 3)]


@pytest.mark.skipif(not HERE, reason="needs pyarrow: make learn has an environment with it")
@pytest.mark.parametrize(("job", "run", "check"), [*items(JOBS)])
def test_check(job: Job, run: Run, check: str) -> None:
    must_hold(job, run, check)


@pytest.mark.skipif(HERE, reason="pyarrow is installed")
def test_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="pip install pyarrow"):
        pgas.read_parquet(tmp_path / "any.parquet")
