"""The formulas of theorem tiles are those that the program runs, and types mean what it says."""

from __future__ import annotations

from random import Random

import numpy as np

from proofs.engine.symbols import end, holds, is_tile, quotient, start
from proofs.theorems.tiles import digit, number
from redist.layout.axes import SubAxis, coordinates
from redist.layout.cuts import EvenCut
from redist.text.units import ceil_div
from tests.problems.oracle import devices, digits, holdings
from tests.problems.strategies import divisors, random_mesh, random_op, random_shape, random_type

POINTS = 5000


def test_tiles_are_those_of_the_layout() -> None:
    rng = Random(1)
    for _ in range(POINTS):
        most = rng.choice([3, 20, 10**6])
        n, k = rng.randrange(most), rng.randint(1, rng.choice([3, 20, 10**4]))
        c = ceil_div(n, k)
        assert all(is_tile(n, k, c))
        assert not all(is_tile(n, k, c + 1)) and not all(is_tile(n, k, c - 1))
        i = rng.randrange(k)
        cut = EvenCut(n, k)
        (lo,), (hi,) = cut.ranges_of(np.array([i]))
        assert (start(n, c, i), end(n, c, i)) == (lo, hi) == cut.range_of(i)
        j = rng.randrange(max(1, n))
        assert holds(n, c, i, j) == (lo <= j < hi)
        if n:
            q, r = cut.place_of(j)
            assert all(quotient(j, c, q, r)) and holds(n, c, q, j)
            assert cut.tile_of(j) == q == cut.tile_of(np.array([j]))[0]


def test_digits_are_those_of_the_layout() -> None:
    rng = Random(2)
    points = 0
    while points < POINTS:
        mesh = random_mesh(rng, 60)
        strides = {name: 1 for name, _ in mesh.axes}
        for at, (name, _) in enumerate(mesh.axes):
            for _, size in mesh.axes[at + 1 :]:
                strides[name] *= size
        parts = []
        for name, size in mesh.axes:
            pre = rng.choice(divisors(size))
            parts.append(SubAxis(name, pre, rng.choice(divisors(size // pre))))
        rng.shuffle(parts)
        found = coordinates(mesh, parts)
        for device in range(mesh.n_devices):
            here = 0
            for part in parts:
                rest = mesh.size(part.name) // part.end
                here = number(here, part.size, digit(device, strides[part.name], rest, part.size))
            assert here == found[device]
            points += 1


def test_who_holds_what_follows_from_the_digits() -> None:
    """The statement itself, by brute force: cover, the same box, no index in common."""
    rng = Random(3)
    pairs = 0
    for _ in range(300):
        mesh, shape = random_mesh(rng, 12), random_shape(rng, 60)
        t = random_type(rng, mesh, shape, random_op(rng))
        held = list(holdings(t).values())
        assert set().union(*held) == set(np.ndindex(*shape))
        used = [part for dim in t.dims for part in dim]
        place = [digits(mesh, used, at) for at in devices(mesh)]
        for a in range(len(held)):
            for b in range(a):
                same = place[a] == place[b]
                assert held[a] == held[b] if same else not held[a] & held[b]
                pairs += 1
    assert pairs > 2000
