"""Theorem ``normal_form``: its counts, its middle and its bounds are those of the types of the program."""

from __future__ import annotations

import math
from random import Random

from redist.layout.axes import prime_parts
from redist.layout.lower_bound import lower_bound_bytes
from redist.plan.portable import exponent
from redist.synth.flat_steps import count_factors
from redist.synth.middles import Ends
from redist.synth.named_steps import common_pieces, split_dims
from tests.synth.test_normal_form import random_ends
from tests.tiers import sample


def test_a_type_is_even_where_counts_have_room() -> None:
    rng, seen = Random(1), set()
    for _ in range(sample(150, of=5_000)):
        for t in random_ends(rng, 60, uneven=True):
            counts = count_factors(split_dims(t, prime_parts(t.mesh, t.used)))
            room = all(
                count[p] <= exponent(p, n)
                for n, count in zip(t.shape, counts, strict=True)
                for p in count
            )
            assert t.is_even == room, str(t)
            seen.add(room)
    assert seen == {False, True}


def test_equal_counts_are_equal_tiles() -> None:
    rng = Random(2)
    for _ in range(sample(150, of=5_000)):
        a, b = random_ends(rng, 60)
        counts = [count_factors(split_dims(t, prime_parts(t.mesh, t.used))) for t in (a, b)]
        assert a.same_tiles(b) == (counts[0] == counts[1])


def test_the_middle_is_the_whole_over_the_least_common_multiple() -> None:
    rng = Random(3)
    for _ in range(sample(75, of=5_000)):
        source, target = random_ends(rng, 300)
        ends = Ends.of(source, target)
        middles = list(ends.middles())
        whole = source.global_elems * source.dtype.itemsize
        most = whole // math.lcm(math.prod(source.cuts), math.prod(target.cuts))
        assert {t.tile_bytes for t in ends.types(middles[0])} == {most}
        for middle in middles:
            start, end = ends.types(middle)
            assert start.is_even and end.is_even and start.tile_bytes == end.tile_bytes <= most
            rows = [count_factors(dims) for dims in middle]
            for p in {p for counts in rows for count in counts for p in count}:
                sums = [sum(count[p] for count in counts) for counts in rows]
                assert sums[0] == sums[1]


def test_devices_lack_a_third_or_nothing() -> None:
    rng, least = Random(4), 1.0
    for _ in range(sample(300, of=10_000)):
        source, target = random_ends(rng, 60)
        if common_pieces(source, target) is None:
            continue
        whole = target.tile_bytes * target.mesh.n_devices
        lacks = lower_bound_bytes(source, target)
        if lacks:
            assert 3 * lacks >= whole, f"{source} -> {target}"
            least = min(least, lacks / whole)
    assert least < 0.5
