"""Whom a rank tells that it has given up: nobody who may be gone."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from redist.errors import PeerError
from redist.runtime.ranks.control_page import STATUS
from redist.runtime.ranks.world import MpiFailure


def told_by(error: BaseException, neighbour: int) -> tuple[list[int], str | None, int]:
    """Whom rank 0 of four tells, whose node has rank 1 too; why it is broken, and what its page says."""
    told: list[int] = []
    comm: Any = SimpleNamespace(size=4, isend=lambda reason, rank, tag: told.append(rank))
    node: Any = SimpleNamespace(rank=0, ranks=(0, 1), pids={0: os.getpid(), 1: neighbour})
    page = SimpleNamespace(memory=np.zeros(8192, np.uint8), control=np.zeros(32, np.int64))
    failure = MpiFailure(comm, node, SimpleNamespace(own=page), None)  # type: ignore[arg-type]
    failure.abort(error)
    return told, failure.broken, int(page.control[STATUS])


def test_an_error_of_this_rank_is_told_to_other_nodes() -> None:
    error = MemoryError("no room")
    assert told_by(error, os.getpid()) == ([2, 3], "MemoryError: no room", 1)


@pytest.mark.parametrize("text", ["other ranks did not come within 3 s", "rank 2 failed: no room"])
def test_nothing_is_sent_where_another_node_may_be_gone(text: str) -> None:
    assert told_by(PeerError(text), os.getpid()) == ([], f"PeerError: {text}", 1)


def test_a_death_on_this_node_is_told_to_other_nodes() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    told, _, _ = told_by(PeerError("rank 1 died"), ended.pid)
    assert told == [2, 3]
