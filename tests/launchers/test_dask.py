"""Ranks in the workers of a Dask cluster: the examples as they are, by ``client.run``."""

from __future__ import annotations

import pytest

from tests.launchers.expected import COUNTS, must_equal_mpirun, python, results_of
from tests.programs.launch import one_worker

pytestmark = one_worker


@pytest.mark.parametrize("size", COUNTS)
def test_examples_print_what_they_print_under_mpirun(size: int) -> None:
    must_equal_mpirun(results_of(python("-m", "tests.programs.joined.on_dask", str(size))), size)
