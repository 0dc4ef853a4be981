"""The program ``tests.programs.pgas.spectra`` under mpirun."""

from __future__ import annotations

import pytest

from tests.programs.launch import default_mpi, run

pytestmark = pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")


@pytest.mark.parametrize(("ranks", "n"), [(1, 40), (2, 15), (3, 15), (4, 12), (6, 4)])
def test_agrees_with_numpy(ranks: int, n: int) -> None:
    done = run("tests.programs.pgas.spectra", ranks, "--n", str(n), "--seed", str(ranks))
    assert done.status == 0, done.output
    assert ", 0 do not" in done.output
