"""Wrong calls with arrays of GPUs, on a real GPU and on pretended ones."""

from __future__ import annotations

import pytest

from tests.programs.gpu.jobs import must_succeed, needs_gpu, needs_linux, needs_mpi

pytestmark = needs_mpi


@needs_linux
@pytest.mark.parametrize("way", ["ipc", "apart"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_pretended(ranks: int, way: str) -> None:
    assert "mistakes are told alike" in must_succeed("mistakes", ranks, "--pretend", way)


@needs_gpu
@pytest.mark.parametrize("ranks", [2, 3])
def test_on_a_gpu(ranks: int) -> None:
    assert "mistakes are told alike" in must_succeed("mistakes", ranks)
