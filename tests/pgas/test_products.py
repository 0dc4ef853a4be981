"""The program ``tests.programs.pgas.products`` under mpirun."""

from __future__ import annotations

import pytest

from tests.programs.launch import default_mpi, run

pytestmark = pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")


@pytest.mark.parametrize(("ranks", "n"), [(1, 40), (2, 12), (3, 12), (4, 10), (6, 2)])
def test_agrees_with_numpy(ranks: int, n: int) -> None:
    done = run("tests.programs.pgas.products", ranks, "--n", str(n), "--seed", str(ranks))
    assert done.status == 0, done.output
    assert ", 0 do not" in done.output
