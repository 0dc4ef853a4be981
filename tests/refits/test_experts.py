"""Placements of experts: the fewest moves, beside all permutations."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

import redist
from redist.errors import ArgumentError
from redist.refits.experts import assign, place_experts, placed


@pytest.mark.parametrize("seed", range(40))
def test_assignment_is_the_least(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    cost = rng.integers(0, 10, (n, n))
    found = assign(cost)
    assert sorted(found) == list(range(n))
    least = min(sum(cost[r, c] for r, c in enumerate(p)) for p in itertools.permutations(range(n)))
    assert sum(cost[r, c] for r, c in enumerate(found)) == least


@pytest.mark.parametrize("seed", range(20))
def test_the_fewest_experts_move_and_the_refit_moves_just_these(seed: int) -> None:
    rng = random.Random(seed)
    n, slots, experts = rng.randint(1, 5), rng.randint(1, 4), rng.randint(4, 9)
    now, wanted = ([rng.sample(range(experts), slots) for _ in range(n)] for _ in range(2))
    held = {e for own in now for e in own}
    wanted = [[e for e in own if e in held] for own in wanted]
    found = place_experts(now, wanted)
    assert sorted(map(sorted, found.experts)) == sorted(map(sorted, wanted))
    least = min(
        sum(len(set(group) - set(own)) for own, group in zip(now, order, strict=True))
        for order in itertools.permutations(wanted)
    )
    assert found.moved == least
    of = {"experts.{e}.w": "u8[10]"}
    plan = redist.refit(placed(now).weights(of), found.weights(of))
    assert plan.received_bytes == 10 * least == plan.lower_bound_bytes


def test_what_stays_keeps_its_slot() -> None:
    assert place_experts([[7, 3, 5]], [[5, 7, 1]]).experts == ((7, 1, 5),)


def test_bytes_count_where_experts_differ() -> None:
    found = place_experts([[0, 1], [2, 3]], [[0, 2], [1, 3]], sizes=[1, 100, 100, 1])
    assert found.experts == ((3, 1), (0, 2)) or found.group_of == (1, 0)


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="1 groups for 2 ranks"):
        place_experts([[0], [1]], [[0, 1]])
    with pytest.raises(ArgumentError, match="rank 0 has one of"):
        place_experts([[0, 0]], [[0, 1]])
