"""Memory: what was allocated is what is found."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from mpi4py import MPI

from redist.measure import memory, pages

MIB = 2**20

pytestmark = pytest.mark.skipif(not pages.can_measure(), reason="this system does not tell")


def test_peak_counts_what_a_call_takes_on_the_way() -> None:
    comm = MPI.COMM_SELF
    assert memory.can_measure(comm)
    base = memory.held_bytes(comm)
    source, target = np.ones(8 * MIB, np.uint8), np.empty(8 * MIB, np.uint8)

    def call() -> None:
        between = np.ones(16 * MIB, np.uint8)
        np.add(source, between[: 8 * MIB], out=target)

    call()
    peak = memory.peak_bytes(comm, call) - base
    assert 31 * MIB < peak < 35 * MIB
    held = memory.held_bytes(comm) - base
    assert 15 * MIB < held < 19 * MIB


def test_what_is_free_again_is_not_held() -> None:
    comm = MPI.COMM_SELF
    base = memory.held_bytes(comm)
    many = [np.ones(MIB, np.uint8) for _ in range(16)]
    assert memory.held_bytes(comm) - base > 15 * MIB
    del many
    assert memory.held_bytes(comm) - base < 2 * MIB


def test_looking_takes_no_memory_that_a_peak_would_count() -> None:
    pages.held_bytes()
    tracemalloc.start()
    pages.held_bytes()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MIB // 4


def test_system_without_proc_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(pages, "PROC", tmp_path)
    assert not pages.can_measure()
