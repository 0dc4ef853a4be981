"""Patterns: alike factors may change places, and nothing costs more or less."""

from __future__ import annotations

import random

import numpy as np

from redist import ArrayType, Mesh
from redist.layout.tiles import Ints
from redist.plan.rates import FLAT
from redist.plan.request import Request
from redist.plan.topology import Level, Topology
from redist.synth.collectives.alike_factors import kinds_of_factors, told_apart
from redist.synth.collectives.blocks import Beside
from redist.synth.collectives.pattern_bounds import Patterns
from tests.synth.test_bounded_search import edges_of, search_of, searches
from tests.tiers import sample

NODES = Topology((Level("node", 4, 10**6, 10**5), Level("net", None, 10**7, 10**6)))


def patterns_of(topology: Topology, mesh: Mesh, source: str, target: str) -> Patterns:
    ends = ArrayType.parse(source, mesh), ArrayType.parse(target, mesh)
    search = search_of(Request(*ends, strategy="collectives", topology=topology))
    assert search is not None
    blocks = search.edges.narrowing.blocks
    kinds = kinds_of_factors(search.prices.space, blocks)
    every = np.arange(len(search.prices.space), dtype=np.int64)
    return Patterns.of(search.prices, blocks, kinds, every)


def test_factors_of_one_size_are_alike_within_a_node_and_between_nodes():
    mesh = Mesh(x=4, y=4)
    flat = patterns_of(FLAT, mesh, "f32[16{x}, 16{y}]", "f32[16{y}, 16{x}]")
    nodes = patterns_of(NODES, mesh, "f32[16{x}, 16{y}]", "f32[16{y}, 16{x}]")
    assert flat.kinds == ((0, 0, 0, 0),)
    assert nodes.kinds == ((0, 0, 1, 1),)
    # So many twos cut each dim; within a node and between nodes, in any order.
    assert len(flat) == 15
    assert len(nodes) > len(flat)
    assert told_apart(flat.kinds, 0, frozenset({2})) == ((0, 0, 1, 0),)


def test_where_blocks_end_inside_a_factor_those_are_alike_that_the_first_block_does_not_touch():
    mesh = Mesh(x=8, y=3)
    found = patterns_of(NODES, mesh, "f32[24{x}, 24{y}]", "f32[24{y}, 24{x}]")
    # Ranks 0 to 3 differ on the last two of x and on y.
    assert found.kinds == ((0, 0, 1, 2),)
    beside = found.blocks.nearer[0]
    assert isinstance(beside, Beside)
    digits = [found.prices.space.table.place(0, (p,)) for p in found.prices.space.factors[0]]
    for rank in found.ranks(0):
        assert np.all(digits[0][beside.mates[rank]] == digits[1][beside.mates[rank]])


def test_a_step_costs_the_same_if_alike_factors_change_places():
    rng = random.Random(5)
    compared = 0
    for problem, search in searches(sample(4, of=80), seed=17):
        space, edges = search.prices.space, search.edges
        kinds = kinds_of_factors(space, edges.narrowing.blocks)
        mates = any(isinstance(block, Beside) for block in edges.narrowing.blocks.nearer)
        if mates or len(space.like) > 1 or search.prices.resolved:
            continue
        moved = list(range(len(kinds[0])))
        for kind in set(kinds[0]):
            own = [f for f in moved if kinds[0][f] == kind]
            for f, other in zip(own, rng.sample(own, len(own)), strict=True):
                moved[f] = other
        there = renamed(search.prices.space.rows, space.table.chains, moved)
        places = {row.tobytes(): v for v, row in enumerate(space.rows)}
        image = np.array([places[row.tobytes()] for row in there])
        limit = search.prices.request.limit_bytes
        for u in rng.sample(range(len(space)), min(3, len(space))):
            ids, low, known = edges_of(search, u)
            # Joined factors of an axis move together, so that not every step has an image.
            legal = np.isin(image[ids], edges_of(search, int(image[u]))[0])
            ids, low, known = ids[legal], low[legal], known[legal]
            if limit is None and len(ids):
                again, sure = edges.prices(int(image[u]), image[ids])
                assert np.array_equal(again[known & sure], low[known & sure]), str(problem)
                compared += int((known & sure).sum())
    assert compared > sample(45, of=1000)


def renamed(rows: Ints, chains: tuple[tuple[int, tuple[int, ...]], ...], moved: list[int]) -> Ints:
    """Rows of chains with every factor replaced by another."""
    number = {chain: c for c, chain in enumerate(chains)}
    image = [number[mesh, tuple(moved[f] for f in chain)] for mesh, chain in chains]
    return np.array(image, dtype=np.int64)[rows]
