"""Control pages: ranks of a node map each other's memory, or all of them know that they cannot."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from redist.errors import TransferError
from redist.runtime.ranks import control_page
from redist.runtime.ranks.control_page import ControlPages
from redist.runtime.shm.segments import attach, can_share
from tests.fakes.ranks import ThreadWorld, worlds

pytestmark = pytest.mark.skipif(not can_share(), reason="needs memory that processes share")


def try_to_map(world: ThreadWorld) -> str | None:
    """What a rank is told that maps the pages of its node."""
    pages = ControlPages(world.node)
    try:
        pages.map(world)
    except TransferError as error:
        return str(error)
    assert sorted(pages.by_rank) == list(world.node.ranks)
    return None


def test_what_one_rank_cannot_map_is_an_error_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(try_to_map, worlds([0, 0, 0]))) == [None] * 3
        calls: list[Any] = []

        def fails_once(handle: Any, *args: Any) -> Any:
            calls.append(handle)
            if len(calls) == 1:
                raise OSError("no such memory")
            return attach(handle, *args)

        monkeypatch.setattr(control_page, "attach", fails_once)
        assert list(pool.map(try_to_map, worlds([0, 0, 0]))) == ["no such memory"] * 3
