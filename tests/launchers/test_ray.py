"""Ranks in actors of Ray: the examples as they are, in a placement group."""

from __future__ import annotations

import pytest

from tests.launchers.expected import COUNTS, must_equal_mpirun, python, results_of
from tests.programs.launch import one_worker

pytestmark = one_worker


@pytest.mark.parametrize("size", COUNTS)
def test_examples_print_what_they_print_under_mpirun(size: int) -> None:
    command = python("-m", "tests.programs.joined.on_ray", str(size))
    must_equal_mpirun(results_of(command, {"RAY_USAGE_STATS_ENABLED": "0"}), size)
