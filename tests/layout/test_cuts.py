"""Cuts say which tile holds which index; the oracle counts them out."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from redist.layout.cuts import EvenCut, cut_dim
from tests.problems import oracle
from tests.tiers import sample

SIZES, COUNTS = st.integers(0, 40), st.integers(1, 50)


@settings(max_examples=sample(50, of=200), deadline=None, derandomize=True)
@given(SIZES, COUNTS)
def test_tiles_cover_the_dim_in_order(n: int, n_tiles: int) -> None:
    cut = cut_dim(n, n_tiles)
    lo, hi = cut.ranges_of(np.arange(n_tiles))
    tiles = [oracle.tile(n, n_tiles, tile) for tile in range(n_tiles)]
    covered: list[int] = []
    for tile, expected in enumerate(tiles):
        start, end = cut.range_of(tile)
        assert (start, end) == (lo[tile], hi[tile])
        assert list(range(start, end)) == list(expected)
        covered += expected
    assert covered == list(range(n))
    assert cut.edges().tolist() == [*lo.tolist(), n]
    assert cut.tile_size == max(map(len, tiles))
    assert cut.n_filled == sum(bool(tile) for tile in tiles)
    assert cut.is_even == (len({len(tile) for tile in tiles}) == 1)


@settings(max_examples=sample(50, of=200), deadline=None, derandomize=True)
@given(SIZES, COUNTS)
def test_every_index_is_found_in_its_tile(n: int, n_tiles: int) -> None:
    cut = cut_dim(n, n_tiles)
    found = cut.tile_of(np.arange(n))
    for index in range(n):
        tile, place = cut.place_of(index)
        assert oracle.tile(n, n_tiles, tile)[place] == index
        assert cut.tile_of(index) == tile == found[index]


@settings(max_examples=sample(50, of=200), deadline=None, derandomize=True)
@given(SIZES, COUNTS, st.data())
def test_tiles_that_meet_a_range(n: int, n_tiles: int, data: st.DataObject) -> None:
    lo = data.draw(st.integers(0, n))
    hi = data.draw(st.integers(lo, n))
    first, count = cut_dim(n, n_tiles).tiles_meeting(np.array([lo]), np.array([hi]))
    tiles = [set(oracle.tile(n, n_tiles, tile)) for tile in range(n_tiles)]
    meeting = [tile for tile in range(n_tiles) if tiles[tile] & set(range(lo, hi))]
    assert count.tolist() == [len(meeting)]
    assert not meeting or list(range(first[0], first[0] + count[0])) == meeting


@settings(max_examples=sample(125, of=500), deadline=None, derandomize=True)
@given(SIZES, st.integers(1, 6), st.integers(1, 8))
def test_nesting(n: int, coarse: int, fine: int) -> None:
    answer = cut_dim(n, fine).nests_in(cut_dim(n, coarse))
    if fine % coarse:
        assert not answer
        return
    ratio = fine // coarse
    assert answer == all(
        set(oracle.tile(n, fine, i)) <= set(oracle.tile(n, coarse, i // ratio)) for i in range(fine)
    )


@settings(max_examples=sample(75, of=300), deadline=None, derandomize=True)
@given(SIZES, st.integers(1, 12), st.integers(1, 12))
def test_same_tiles(n: int, k: int, m: int) -> None:
    mine, others = ({oracle.tile(n, c, i) for i in range(c)} - {range(0)} for c in (k, m))
    assert EvenCut(n, k).same_tiles(EvenCut(n, m)) == (mine == others)
