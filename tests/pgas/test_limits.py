"""The memory limit of global arrays, on several ranks."""

from __future__ import annotations

import pytest

from tests.programs.launch import default_mpi, run

pytestmark = pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")


@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_the_limit_is_kept_and_refused_alike(ranks: int) -> None:
    done = run("tests.programs.pgas.limits", ranks)
    assert done.status == 0, done.output
    assert f"checks of limits hold ({ranks} ranks)" in done.output
