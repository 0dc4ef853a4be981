"""GPU arrays of other libraries, taken in without a copy."""

from __future__ import annotations

import pytest

from tests.programs.gpu.jobs import must_succeed, needs_gpu, needs_mpi

pytestmark = [needs_gpu, needs_mpi]


@pytest.mark.parametrize("ranks", [1, 2])
def test_arrays_of_others(ranks: int) -> None:
    assert "arrays of others agree: interface, DLPack" in must_succeed("foreign", ranks)
