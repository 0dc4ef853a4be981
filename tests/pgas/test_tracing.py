"""Traces, explanations and warnings, on several ranks."""

from __future__ import annotations

import pytest

from tests.programs.launch import default_mpi, run

pytestmark = pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")


@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_traces_say_what_happens_and_plans_are_kept(ranks: int) -> None:
    done = run("tests.programs.pgas.tracing", ranks)
    assert done.status == 0, done.output
    assert f"checks of traces hold ({ranks} ranks)" in done.output
