"""Rounds: every element of every piece passes once, and no slot overflows."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from redist.plan.pieces import Piece
from redist.runtime.schedule.rounds import (
    RoundPart,
    make_rounds,
    part_counts,
    part_elems,
    part_of,
    parts_needed,
    whole,
)
from tests.problems.strategies import seeded
from tests.tiers import sample

SHAPES = st.lists(st.integers(1, 9), max_size=4).map(tuple)


def piece_of(shape: tuple[int, ...]) -> Piece:
    lo = tuple(range(len(shape)))
    tile = tuple(n + 5 for n in shape)
    return Piece(0, 1, 0, lo, lo[::-1], shape, tile, tile)


@given(SHAPES, st.integers(1, 400))
@settings(max_examples=sample(38, of=300), deadline=None)
def test_parts_cover_a_piece_exactly_once(shape: tuple[int, ...], parts: int) -> None:
    piece = piece_of(shape)
    seen = np.zeros(shape, int)
    for number in range(parts):
        part = part_of(piece, RoundPart(0, parts, number))
        if part is None:
            continue
        assert 0 not in part.shape and math.prod(part.shape) <= part_elems(shape, parts)
        moved = [a - b for a, b in zip(part.src_lo, piece.src_lo, strict=True)]
        assert moved == [a - b for a, b in zip(part.dst_lo, piece.dst_lo, strict=True)]
        seen[tuple(slice(a, a + n) for a, n in zip(moved, part.shape, strict=True))] += 1
        assert (part.sender, part.receiver, part.order) == (0, 1, 0)
        assert (part.src_shape, part.dst_shape) == (piece.src_shape, piece.dst_shape)
    assert (seen == 1).all()
    assert math.prod(part_counts(shape, parts)) <= parts


@given(SHAPES)
@settings(max_examples=sample(13, of=100), deadline=None)
def test_the_largest_part_reaches_one_element(shape: tuple[int, ...]) -> None:
    assert part_elems(shape, 1) == math.prod(shape)
    assert part_elems(shape, math.prod(shape)) == 1


@given(SHAPES, st.integers(1, 200), st.integers(1, 8))
@settings(max_examples=sample(25, of=200), deadline=None)
def test_parts_needed_keep_the_limit(shape: tuple[int, ...], limit: int, itemsize: int) -> None:
    most = math.prod(shape)

    def need(parts: int) -> int:
        return part_elems(shape, parts) * itemsize

    parts = parts_needed(need, limit, most)
    assert 1 <= parts <= most
    assert need(parts) <= limit or parts == most
    if need(1) <= limit:
        assert parts == 1


@given(seeded(lambda rng: rng))
@settings(max_examples=sample(25, of=200), deadline=None)
def test_rounds_take_every_part_of_every_array_once_and_in_order(rng: Random) -> None:
    n, slot = rng.randint(1, 12), rng.randint(1, 50)
    weights = [rng.choice((0, 1, 5, 20, 60, 200)) for _ in range(n)]
    parts = [1 if weight <= slot else rng.randint(2, 9) for weight in weights]
    rounds = make_rounds(weights, parts, slot)
    round_parts = [round_part for round_parts in rounds for round_part in round_parts]
    assert round_parts == sorted(
        round_parts, key=lambda round_part: (round_part.item, round_part.number)
    )
    assert Counter(round_part.item for round_part in round_parts) == Counter(dict(enumerate(parts)))
    for together in rounds:
        assert together
        if len(together) > 1:
            assert all(round_part.parts == 1 for round_part in together)
            assert sum(weights[round_part.item] for round_part in together) <= slot


def test_small_arrays_share_a_round() -> None:
    assert len(make_rounds([1] * 10, [1] * 10, 10)) == 1
    assert len(make_rounds([1] * 11, [1] * 11, 10)) == 2


def test_whole_is_one_round_of_everything() -> None:
    assert whole(3) == ((RoundPart(0, 1, 0), RoundPart(1, 1, 0), RoundPart(2, 1, 0)),)
    piece = piece_of((2, 3))
    assert part_of(piece, whole(1)[0][0]) == piece
