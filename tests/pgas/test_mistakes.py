"""The program ``tests.programs.pgas.mistakes`` under mpirun."""

from __future__ import annotations

import pytest

from tests.programs.launch import default_mpi, run

pytestmark = pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_wrong_calls_are_refused_alike(ranks: int) -> None:
    done = run("tests.programs.pgas.mistakes", ranks)
    assert done.status == 0, done.output
    assert "mistakes, 0 not told well" in done.output
