"""The formulas of theorem factors are those that the program runs, and types mean what it says."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest

import redist
from proofs.engine.symbols import quotient
from proofs.theorems.factors import block_start, clip, place
from proofs.theorems.tiles import number
from redist.check.segment_indices import is_covered, owners_of
from redist.layout.axes import SubAxis
from redist.layout.segments import Factor, _simplify
from redist.layout.spans import _factor_runs
from redist.layout.tiles import indices_of, spans_in
from tests.problems.segments import KINDS, Dim, Layout, Number, random_pair
from tests.tiers import sample

POINTS = 2000


def axis(n_tiles: int) -> tuple[SubAxis, ...]:
    return (SubAxis("x", 1, n_tiles),)


def owner_of_each(factor: Factor) -> list[int]:
    edges, owners = _factor_runs(factor)
    return [int(tile) for tile in np.repeat(owners, np.diff(edges))]


def random_deal(rng: Random) -> tuple[int, int, int, int]:
    """Size, tiles, block and offset."""
    return rng.randrange(40), rng.randint(2, 5), rng.randint(1, 9), rng.randrange(30)


def test_blocks_of_a_deal_are_those_of_the_layout() -> None:
    rng = Random(1)
    for _ in range(POINTS):
        n, k, c, f = random_deal(rng)
        owners = owner_of_each(Factor(n, axis(k), c, f))
        first, last = f // c, -(-(f + n) // c)
        edges = [block_start(n, c, f, e) for e in range(first, last + 1)]
        assert (edges[0], edges[-1]) == (0, n) and edges == sorted(edges)
        listed = [
            e % k for e in range(first, last) for _ in range(edges[e - first], edges[e - first + 1])
        ]
        assert owners == listed
        for j, tile in enumerate(owners):
            e, s = divmod(j + f, c)
            assert all(quotient(j + f, c, e, s)) and e % k == tile
            assert block_start(n, c, f, e) <= j < block_start(n, c, f, e + 1)


def test_a_deal_within_one_turn_has_the_lengths_of_the_formula() -> None:
    rng = Random(2)
    seen = 0
    for _ in range(POINTS):
        n, k, c, f = random_deal(rng)
        written = _simplify(Factor(n, axis(k), c, f))
        owners = owner_of_each(Factor(n, axis(k), c, f))
        if f % (c * k) + n <= c * k and len(written) == 1:
            edges = [block_start(n, c, f % (c * k), tile) for tile in range(k + 1)]
            lengths = [b - a for a, b in itertools.pairwise(edges)]
            assert lengths == [owners.count(tile) for tile in range(k)]
            assert owner_of_each(written[0]) == owners
            seen += 1
        elif len(written) == 3:
            turns, dealt, each = (factor.size for factor in written)
            assert (turns * dealt * each, dealt, each) == (n, k, c)
            assert owners == [x for _ in range(turns) for x in range(k) for _ in range(c)]
    assert seen > POINTS // 20
    assert [clip(at, 5) for at in (-1, 0, 5, 6)] == [0, 0, 5, 5]


def test_owners_of_a_product_are_numbers_of_those_of_its_digits() -> None:
    rng = Random(3)
    for _ in range(300):
        a, b, k, m = rng.randint(1, 9), rng.randint(1, 9), rng.randint(2, 3), rng.randint(2, 3)
        mesh = redist.Mesh(x=k, y=m)
        t = redist.ArrayType.parse(f"i32[{a}{{x}}*{b}{{y/2@1}}]", mesh)
        major = owner_of_each(Factor(a, axis(k)))
        minor = owner_of_each(Factor(b, axis(m), 2, 1))
        ((_, owners),) = owners_of(t, 0)
        held = [indices_of(t, rank)[0].tolist() for rank in range(k * m)]
        for j in range(a * b):
            q, r = divmod(j, b)
            assert owners[j] == number(major[q], m, minor[r])
            assert j in held[owners[j]]
        assert sum(map(len, held)) == a * b


@pytest.mark.parametrize("kind", KINDS)
def test_the_tile_of_a_rank_is_its_parts_of_the_segments_in_order(kind: str) -> None:
    """The statement by brute force: the tree of the text, index by index, against the type."""
    tiles = 0
    for seed in range(sample(6, of=200)):
        for n_ranks in (2, 4, 6):
            for layout in random_pair(seed, n_ranks, kind):
                mesh = redist.Mesh(dict(layout.mesh))
                t = redist.ArrayType.parse(layout.text("i32"), mesh)
                assert is_covered(t)
                for device in range(n_ranks):
                    wanted = layout.indices(device)
                    assert [own.tolist() for own in indices_of(t, device)] == wanted
                    for dim, indices in enumerate(wanted):
                        spans = next(s for s in spans_in(t, dim) if indexed(s) == indices)
                        places = [place(lo, at, j) for lo, hi, at in spans for j in range(lo, hi)]
                        assert places == [*range(len(indices))]
                        tiles += 1
    assert tiles > 100


def indexed(spans: np.ndarray) -> list[int]:  # type: ignore[type-arg]
    return [int(j) for lo, hi, _ in spans for j in range(lo, hi)]


def cut(size: int, block: int = 0, first: int = 0, lengths: tuple[int, ...] = ()) -> Number:
    return Number(size, (("x", 1, 3 if len(lengths) == 3 else 2),), block, first, lengths)


TWINS: dict[str, tuple[Dim, Dim]] = {
    "factors swapped": (((Number(32), cut(2)),), ((cut(2), Number(32)),)),
    "across an uneven cut": (((cut(33), Number(32)),), ((cut(1056),),)),
    "without the offset": (((cut(4096, 48, 100),),), ((cut(4096, 48),),)),
    "block and count swapped": (((cut(24, 4),),), ((Number(4), cut(2), Number(3)),)),
    "lengths as edges": (
        ((cut(1000, lengths=(300, 400, 300)),),),
        ((cut(1000, lengths=(300, 100, 600)),),),
    ),
}
"""What a type says, and what a wrong variant of the theorem reads."""


@pytest.mark.parametrize("name", TWINS)
def test_the_oracle_contradicts_the_wrong_variants(name: str) -> None:
    n_ranks = 3 if name == "lengths as edges" else 2
    right, wrong = (Layout((("x", n_ranks),), (dim,)) for dim in TWINS[name])
    assert right.shape == wrong.shape
    mesh = redist.Mesh(x=n_ranks)
    types = [redist.ArrayType.parse(layout.text("i32"), mesh) for layout in (right, wrong)]
    assert types[0] != types[1]
    for layout, t in zip((right, wrong), types, strict=True):
        for device in range(n_ranks):
            assert indices_of(t, device)[0].tolist() == layout.indices(device)[0]
    assert any(right.indices(device) != wrong.indices(device) for device in range(n_ranks))
