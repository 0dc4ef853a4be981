"""Theorem rounds speaks of what runs: plans passed on in rounds arrive, and wrong variants do not."""

from __future__ import annotations

import math
from random import Random

import numpy as np

import redist
from proofs.evidence.passing import passed, pieces_of, pooled
from proofs.theorems.rounds import rounded_down, too_few
from redist.plan.memory import rounds_for
from redist.plan.steps import AllReduce
from redist.runtime.schedule.pieces import box_at
from redist.runtime.schedule.rounds import part_counts, part_elems, part_of, parts_needed, place_at
from redist.runtime.simulator import random_tiles, simulate
from tests.problems.strategies import random_pair
from tests.tiers import sample


def test_dims_are_cut_one_after_another() -> None:
    """The inductions over dims: counts, places and largest parts of many dims from those of one."""
    rng = Random(1)
    for _ in range(4000):
        shape = tuple(rng.randint(1, rng.choice([3, 9, 60])) for _ in range(rng.randint(1, 4)))
        parts = rng.randint(1, rng.choice([4, 30, 4000]))
        counts = part_counts(shape, parts)
        left, elems = parts, 1
        for n, k in zip(shape, counts, strict=True):
            assert (k,) == part_counts((n,), left)
            elems *= part_elems((n,), left)
            left //= k
        assert elems == part_elems(shape, parts)
        assert math.prod(counts) <= parts
        number = rng.randrange(math.prod(counts))
        place, total = place_at(number, counts), 0
        for i, k in zip(place, counts, strict=True):
            total = total * k + i
        assert total == number
        lo, size = box_at(shape, counts, place)
        each = [box_at((n,), (k,), (i,)) for n, k, i in zip(shape, counts, place, strict=True)]
        assert (lo, size) == tuple(
            tuple(half[0] for half in side) for side in zip(*each, strict=True)
        )


def test_parts_needed_ends_where_the_theorem_says() -> None:
    rng = Random(2)
    for _ in range(3000):
        most, limit = rng.randint(1, 300), rng.randint(0, 50)
        needs = sorted((rng.randint(0, 400) for _ in range(most)), reverse=True)
        asked: list[int] = []

        def need(k: int, asked: list[int] = asked, needs: list[int] = needs) -> int:
            asked.append(k)
            return needs[k - 1]

        found = parts_needed(need, limit, most)
        assert 1 <= found <= most and (found == most or needs[found - 1] <= limit)
        assert asked[1:] == sorted(set(asked[1:])) and all(k <= most for k in asked)


def test_plans_of_one_step_arrive_in_any_number_of_rounds() -> None:
    rng = Random(3)
    tried = 0
    while tried < sample(8, of=120):
        source, target = random_pair(rng, pending=False, max_devices=8, max_elems=60)
        plan = redist.synthesize(source, target, strategy="direct")
        if len(plan.steps) != 1 or isinstance(plan.steps[0].action, AllReduce):
            continue
        tried += 1
        before = random_tiles(plan.source)
        right = simulate(plan, before)
        most = max((math.prod(p.shape) for p in pieces_of(plan)), default=1)
        for parts in {1, 2, rng.randint(1, most), most}:
            got, moved = passed(plan, parts, parts, part_of)
            assert all(np.array_equal(got[rank], right.tiles[rank]) for rank in right.tiles)
            assert moved * 4 == sum(right.received_bytes.values()) == plan.received_bytes
            if source.ndim == 1:
                got, intact = pooled(plan, parts, 2)
                assert all(np.array_equal(got[rank], right.tiles[rank]) for rank in right.tiles)
                assert intact == moved


def test_wrong_variants_differ_from_the_program() -> None:
    rng = Random(4)
    boxes = rounds = 0
    for _ in range(2000):
        n, k = rng.randint(1, 40), rng.randint(1, 9)
        right = [box_at((n,), (k,), (i,)) for i in range(k)]
        wrong = [rounded_down(n, k, i) for i in range(k)]
        assert (wrong == [(lo[0], size[0]) for lo, size in right]) == (n % k == 0)
        boxes += n % k > 0
        busiest, staging = rng.randint(1, 400), rng.randint(1, 90)
        assert too_few(busiest, staging) <= rounds_for(busiest, staging)
        rounds += too_few(busiest, staging) < rounds_for(busiest, staging)
    assert min(boxes, rounds) > 500
