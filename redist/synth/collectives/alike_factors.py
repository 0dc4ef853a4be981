"""Which factors are alike, so that types which differ by their names alone need not be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from redist.layout.tiles import Ints
from redist.synth.chains import Chain
from redist.synth.collectives.blocks import Beside, Within
from redist.synth.type_space import TypeSpace

Kinds = tuple[tuple[int, ...], ...]
"""For every mesh, the kind of each factor; those of one kind are alike."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Blocks of the levels that are told apart, the last of which spans all ranks."""

    nearer: tuple[Within | Beside, ...]
    every: Within

    @property
    def last(self) -> Blocks:
        """Only that which spans all ranks."""
        return Blocks((), self.every)


def kinds_of_factors(space: TypeSpace, blocks: Blocks) -> Kinds:
    """Factors of one size are alike if the blocks of the topology do not tell them apart."""
    return tuple(
        _numbered(
            [
                (part.size, *(mark for block in blocks.nearer for mark in block.marks(mesh, f)))
                for f, part in enumerate(parts)
            ]
        )
        for mesh, parts in enumerate(space.factors)
    )


def told_apart(kinds: Kinds, mesh: int, factors: frozenset[int]) -> Kinds:
    """The same, but some factors of a mesh are like no other."""
    own = [(kind, f if f in factors else -1) for f, kind in enumerate(kinds[mesh])]
    return (*kinds[:mesh], _numbered(own), *kinds[mesh + 1 :])


def _numbered(marks: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    order = sorted(set(marks))
    return tuple(order.index(mark) for mark in marks)


def words_of(chains: tuple[Chain, ...], kinds: Kinds) -> tuple[Ints, int]:
    """The number of the word of every chain, and how many words there are."""
    mesh, factors = _columns(chains)
    width = factors.shape[1]
    each = np.zeros((len(kinds), width + 1), dtype=np.int64)
    for m, own in enumerate(kinds):
        each[m, : len(own)] = np.array(own, dtype=np.int64) + 1
    key = mesh
    for place in range(width):
        key = key * (width + 1) + each[mesh, factors[:, place]]
    found, words = np.unique(key, return_inverse=True)
    return words, len(found)


@lru_cache(maxsize=64)
def _columns(chains: tuple[Chain, ...]) -> tuple[Ints, Ints]:
    """The mesh of every chain, and its factors in columns; -1 where it has fewer."""
    width = max((len(chain) for _, chain in chains), default=0)
    factors = np.full((len(chains), width), -1, dtype=np.int64)
    for c, (_, chain) in enumerate(chains):
        factors[c, : len(chain)] = chain
    return np.array([m for m, _ in chains], dtype=np.int64), factors
