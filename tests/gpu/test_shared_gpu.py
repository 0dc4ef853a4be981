"""What ranks that share a GPU tell each other about their tiles, without a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from redist.errors import RequestError
from redist.runtime.cuda.transports import shared_gpu
from redist.runtime.cuda.transports.opened_memory import WORDS, OpenedMemory
from redist.runtime.cuda.transports.shared_gpu import Descriptions
from redist.runtime.ranks.control_page import DESCRIPTION
from redist.runtime.schedule.compiler import TileAt


@dataclass
class Tile:
    """As much of an array as is told."""

    number: int
    offset: int = 0
    strides: tuple[int, ...] = (32, 4)
    size: int = 1


@pytest.fixture(autouse=True)
def places(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(array: Tile, what: str) -> OpenedMemory:
        if array.number < 0:
            raise RequestError(f"cannot share the {what}")
        return OpenedMemory(bytes(64), array.number, array.offset)

    monkeypatch.setattr(shared_gpu, "check_shareable", check)


def told(descriptions: Descriptions, *tiles: Any) -> Any:
    """The rows that neighbours find."""
    rows = np.full((2, DESCRIPTION), 7, np.int64)
    descriptions.write(rows, tiles[:1], tiles[1:])
    return rows


def test_rows_say_where_tiles_lie_and_how() -> None:
    row = told(Descriptions(), Tile(5, 64))[0]
    assert row[0] == TileAt.SHARED and row[1:3].tolist() == [5, 64]
    assert row[1 + WORDS : 3 + WORDS].tolist() == [32, 4]


@pytest.mark.parametrize("nothing", [None, Tile(5, size=0)])
def test_rows_say_that_there_is_no_tile(nothing: Tile | None) -> None:
    assert told(Descriptions(), Tile(1), nothing)[1, 0] == TileAt.NOTHING


def test_rows_are_written_though_nothing_is_new() -> None:
    descriptions = Descriptions()
    first = told(descriptions, Tile(1), Tile(2))
    assert np.array_equal(told(descriptions, Tile(1), Tile(2)), first)


def test_tiles_are_new_until_the_neighbours_have_read() -> None:
    descriptions = Descriptions()
    told(descriptions, Tile(1))
    assert descriptions.are_new
    descriptions.note_read()
    assert not descriptions.are_new


@pytest.mark.parametrize("moved", [Tile(2), Tile(1, 64), Tile(1, 0, (4, 32))])
def test_a_tile_elsewhere_is_new(moved: Tile) -> None:
    descriptions = Descriptions()
    told(descriptions, Tile(1))
    descriptions.note_read()
    told(descriptions, moved)
    assert descriptions.are_new


def test_a_tile_of_a_refused_call_stays_new() -> None:
    descriptions = Descriptions()
    told(descriptions, Tile(1))
    descriptions.note_read()
    told(descriptions, Tile(2))  # nobody has read this
    told(descriptions, Tile(2))
    assert descriptions.are_new


def test_memory_that_cannot_be_shared_changes_nothing() -> None:
    descriptions = Descriptions()
    told(descriptions, Tile(1))
    descriptions.note_read()
    with pytest.raises(RequestError, match="source tile"):
        told(descriptions, Tile(-1))
    assert not descriptions.are_new
