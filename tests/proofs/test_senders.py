"""The formulas of theorem senders are those of the schedule."""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random

import numpy as np

from proofs.theorems.senders import holder, key, load
from redist.layout.tiles import grid
from redist.plan.rates import FLAT
from redist.plan.schedule import _turns, choose_senders, make_schedule
from redist.plan.topology import Level, Topology
from tests.problems.strategies import random_pair
from tests.tiers import sample

NODES = Topology((Level("node", 3, 1, 1), Level("rack", 6, 2, 2), Level("all", None, 3, 3)))


def test_turns_count_equal_keys_before() -> None:
    rng = Random(1)
    for _ in range(500):
        keys = np.array([rng.randrange(4) for _ in range(rng.randrange(20))], dtype=np.int64)
        assert _turns(keys).tolist() == [list(keys[:i]).count(keys[i]) for i in range(len(keys))]


def test_loads_are_those_of_the_schedule() -> None:
    """Requests for one tile from one block: every holder serves what the theorem says."""
    rng = Random(2)
    loads = 0
    for topology in (FLAT, NODES):
        for _ in range(sample(500, of=1500)):
            source, target = random_pair(rng, pending=False, max_devices=24, max_elems=60)
            have, need = grid(source), grid(target)
            schedule = make_schedule(have, need, topology)
            served: dict[tuple[int, int, int], Counter[int]] = defaultdict(Counter)
            tile, blocks = have.shards(), int(max(have.ranks.max(), need.ranks.max())) + 1
            sizes = [blocks if level.size is None else level.size for level in topology.levels]
            for row, to, level in zip(
                schedule.sender, schedule.receiver, schedule.level, strict=True
            ):
                block = int(need.ranks[to]) // sizes[level]
                assert int(have.ranks[row]) // sizes[level] == block
                served[int(tile[row]), block, int(level)][int(have.ranks[row])] += 1
            for (wanted, block, level), by in served.items():
                holders = sorted(
                    int(rank)
                    for rank, held in zip(have.ranks, tile, strict=True)
                    if held == wanted and rank // sizes[level] == block
                )
                q, rest = divmod(sum(by.values()), len(holders))
                assert [by[rank] for rank in holders] == [
                    load(q, rest, x) for x in range(len(holders))
                ]
                loads += len(holders)
    assert loads > sample(3000, of=10000)


def test_the_holder_chosen_is_the_one_whose_turn_it_is() -> None:
    rng = Random(3)
    points = 0
    while points < sample(1000, of=3000):
        source, target = random_pair(rng, pending=False, max_devices=24, max_elems=60)
        have, need = grid(source), grid(target)
        schedule = make_schedule(have, need, FLAT)
        blocks = int(max(have.ranks.max(), need.ranks.max())) + 1
        wanted = have.shards()[schedule.sender]
        keys = [key(int(held), 0, blocks) for held in have.shards()]
        order = sorted(range(len(keys)), key=lambda row: (keys[row], have.ranks[row]))
        again, _ = choose_senders(
            have, have.index[schedule.sender], need.ranks[schedule.receiver], FLAT
        )
        turns: Counter[int] = Counter()
        for request, tile in enumerate(wanted):
            here = key(int(tile), 0, blocks)
            begin, h = sorted(keys).index(here), keys.count(here)
            assert again[request] == schedule.sender[request]
            assert order[holder(begin, turns[here], h)] == schedule.sender[request]
            turns[here] += 1
            points += 1
