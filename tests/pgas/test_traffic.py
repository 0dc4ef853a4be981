"""The program ``tests.programs.pgas.traffic`` under mpirun: by whose elements arrive, and by messages."""

from __future__ import annotations

import pytest

from tests.programs.launch import default_mpi, run

pytestmark = pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")


@pytest.mark.parametrize("way", [(), ("--messages",)], ids=["owners", "messages"])
@pytest.mark.parametrize("ranks", [3, 4])
def test_nothing_moves_more_than_its_plan_says(ranks: int, way: tuple[str, ...]) -> None:
    done = run("tests.programs.pgas.traffic", ranks, *way)
    assert done.status == 0, done.output
    assert "keep to their bytes" in done.output
