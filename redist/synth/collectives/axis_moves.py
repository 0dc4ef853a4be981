"""Which types an all_to_all joins: those that moves of minor-most axes lead to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from redist.layout.axes import merge_parts
from redist.layout.tiles import Ints
from redist.synth.type_space import TypeSpace


def move_classes(space: TypeSpace) -> Ints:
    """A number for every type; equal where minor-end moves lead from one to the other.

    On the way they may pass types that are not in the space: only the net effect happens.
    """
    label = np.arange(len(space.every.chains), dtype=np.int64)
    pairs = _single_moves(space)
    while True:
        new = label.copy()
        for here, there in pairs:
            # No two types lead to the same one by the same move.
            new[there] = np.minimum(new[there], new[here])
            new[here] = np.minimum(new[here], new[there])
        new = new[new]
        if bool(np.all(new == label)):
            return label[space.kept_rows]
        label = new


def _runs(space: TypeSpace) -> Iterator[tuple[Ints, Ints]]:
    """For every axis made of factors: each chain without it at its minor end, and with it."""
    for mesh, parts in enumerate(space.factors):
        for start, stop in combinations(range(len(parts) + 1), 2):
            run = tuple(range(start, stop))
            if len(merge_parts(parts[start:stop])) > 1:
                continue
            shorter = np.full(len(space.table), -1, dtype=np.int64)
            longer = np.full(len(space.table), -1, dtype=np.int64)
            for c, (m, chain) in enumerate(space.table.chains):
                if m == mesh and chain[len(chain) - len(run) :] == run:
                    shorter[c] = space.chain_number(m, chain[: len(chain) - len(run)])
                    longer[shorter[c]] = c
            yield shorter, longer


def _single_moves(space: TypeSpace) -> list[tuple[Ints, Ints]]:
    """Pairs of types that one move of a minor-most axis joins, tiles nesting all the way."""
    n_chains, n_dims = len(space.table), space.n_dims
    sizes = np.array([n_chains**i for i in reversed(range(n_dims))], dtype=np.int64)
    keys = space.every.chains @ sizes
    prefixes = [space.table.nested_prefix(i) for i in range(n_dims)]
    pairs = []
    every = np.arange(n_chains, dtype=np.int64)
    for shorter, longer in _runs(space):
        gives = [(shorter >= 0) & prefix[shorter, every] for prefix in prefixes]
        takes = [(longer >= 0) & prefix[every, longer] for prefix in prefixes]
        for i in range(n_dims - 1):
            rows = np.flatnonzero(gives[i][space.every.chains[:, i]])
            old = space.every.chains[rows, i]
            left = keys[rows] + (shorter[old] - old) * sizes[i]
            for j in range(i + 1, n_dims):
                other = space.every.chains[rows, j]
                here = np.flatnonzero(takes[j][other])
                key = left[here] + (longer[other[here]] - other[here]) * sizes[j]
                at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
                found = keys[at] == key
                pairs.append((rows[here[found]], at[found]))
    return pairs
