"""A lower bound over all types of prime factors where there are too many to list: from their shapes.

A few hundred shapes stand for all types, one type each. Which factor cuts what is forgotten: an all_to_all
may lead to any shape with as many tiles. That allows more than there is, so the bound holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.plan.request import Request
from redist.synth.chains import ChainTable
from redist.synth.collectives.blocks import near_factors
from redist.synth.collectives.prices import CollectivePrices
from redist.synth.collectives.shape_bounds import Shapes
from redist.synth.objective_costs import Prices
from redist.synth.plan_figures import Pricer
from redist.synth.type_space import TypeRows, TypeSpace

MOST_FACTORS = 6
"""With more there are too many chains of factors."""
Counts = tuple[tuple[int, ...], ...]
"""For every kind of factor: how many of them cut each dim."""


def floor_over_primes(
    request: Request,
    pricer: Pricer,
    factors: tuple[SubAxis, ...],
    kept: tuple[SubAxis, ...],
    start: ArrayType,
    goal: ArrayType,
) -> int:
    """No sequence of named collectives over types of these factors of one mesh costs less; 0 if unknown."""
    if len(factors) > MOST_FACTORS or not goal.ndim or not goal.global_elems:
        return 0
    kinds = _kinds(request, start, factors, kept)
    shapes = list(_shapes(kinds, goal.ndim))
    table = ChainTable.of((start,), (factors,))
    number = {chain: i for i, chain in enumerate(table.chains)}
    chains = np.array([[number[0, c] for c in _chains(kinds, counts)] for counts in shapes])
    every = TypeRows(table, chains, np.zeros(len(shapes), dtype=np.int64))
    space = TypeSpace(
        (start,),
        (factors,),
        table,
        every,
        np.arange(len(shapes), dtype=np.int64),
        chains,
        every.mesh_of,
        every.tile_elems(),
        number,
    )
    at = [shapes.index(_counts(kinds, factors, t)) for t in (start, goal)]
    prices = Prices(request, space, pricer, (), *at)
    blocks = CollectivePrices.of(prices, kept).aligned()
    n_tiles = np.array(table.n_tiles, dtype=np.int64)[chains].prod(axis=1)
    every_shape = Shapes.of(prices, blocks)
    floors = every_shape.edge_floors(n_tiles, request.strategy == "collectives")
    return int(every_shape.floor_to_goal(floors)[at[0]])


def _kinds(
    request: Request, start: ArrayType, factors: tuple[SubAxis, ...], kept: tuple[SubAxis, ...]
) -> list[list[int]]:
    """Factors of one size that the blocks of the topology tell apart alike."""
    near = [
        near_factors(start.mesh, factors, kept, level.size) or frozenset()
        for level in request.topology.levels[:-1]
        if level.size is not None
    ]
    found: dict[tuple[int, ...], list[int]] = {}
    for f, part in enumerate(factors):
        found.setdefault((part.size, *(f in own for own in near)), []).append(f)
    return list(found.values())


def _shapes(kinds: Sequence[Sequence[int]], n_dims: int) -> Iterator[Counts]:
    """All ways to share out the factors of every kind among dims, or to leave them idle."""
    choices = [
        [
            row
            for row in itertools.product(range(len(kind) + 1), repeat=n_dims)
            if sum(row) <= len(kind)
        ]
        for kind in kinds
    ]
    yield from itertools.product(*choices)


def _chains(kinds: Sequence[Sequence[int]], counts: Counts) -> list[tuple[int, ...]]:
    """A type of a shape: the factors of every dim, in order."""
    left = [iter(kind) for kind in kinds]
    return [
        tuple(sorted(next(left[k]) for k, own in enumerate(counts) for _ in range(own[dim])))
        for dim in range(len(counts[0]))
    ]


def _counts(kinds: Sequence[Sequence[int]], factors: tuple[SubAxis, ...], t: ArrayType) -> Counts:
    """The shape of a type."""
    return tuple(
        tuple(sum(any(factors[f].inside(part) for part in dim) for f in kind) for dim in t.dims)
        for kind in kinds
    )
