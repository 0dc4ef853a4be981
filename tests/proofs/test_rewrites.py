"""Theorem rewrites speaks of what runs: nesting, digits, and peaks of routes joined and taken apart."""

from __future__ import annotations

from random import Random

import numpy as np

from proofs.theorems.rewrites import nests
from redist.errors import StepError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, coordinates, merge_parts, prime_parts
from redist.layout.cuts import EvenCut
from redist.layout.tiles import common, grid, overlaps, same_layout
from redist.plan.memory import fixed_live_bytes
from redist.plan.rates import FLAT
from redist.plan.rules import type_after
from redist.plan.steps import AllGather, AllToAll, Exchange
from redist.plan.traffic import traffic_of
from redist.synth.named_steps import Nesting, minor_end_moves, name_step, split_dims
from redist.synth.normal_form import normal_form
from redist.synth.plan_figures import Path, Pricer
from redist.synth.routes import axis_by_axis
from tests.problems.strategies import divisors, random_mesh, random_pair, random_shape, random_type
from tests.tiers import sample


def test_tiles_nest_where_every_tile_does() -> None:
    rng = Random(1)
    answers = [0, 0]
    for _ in range(sample(1000, of=6000)):
        n, coarse, g = rng.randrange(rng.choice([3, 20, 300])), rng.randint(1, 8), rng.randint(1, 6)
        every = all(nests(n, coarse, g, i) for i in range(coarse))
        assert every == EvenCut(n, coarse * g).nests_in(EvenCut(n, coarse))
        answers[every] += 1
    assert min(answers) > sample(76, of=500)


def test_split_axes_say_the_same() -> None:
    """Digits, and so tile numbers, of an axis and of its factors, as chains of the search spell them."""
    rng = Random(2)
    for _ in range(sample(500, of=3000)):
        size = rng.randint(1, 24)
        stride, pre = rng.randint(1, 4), rng.choice(divisors(size))
        mesh = random_mesh(rng, 6, ranks=False)
        mesh = type(mesh)({"first": stride, "axis": size, "last": rng.randint(1, 3)})
        whole = SubAxis("axis", pre, rng.choice(divisors(size // pre)))
        parts = [p for p in prime_parts(mesh, [whole]) if p.inside(whole)]
        assert np.array_equal(coordinates(mesh, [whole]), coordinates(mesh, parts))
        assert merge_parts(parts) == merge_parts([whole])
        if len(parts) > 1 and parts[0].size != parts[1].size:
            wrong = [parts[1], parts[0], *parts[2:]]
            assert not np.array_equal(coordinates(mesh, [whole]), coordinates(mesh, wrong))


def test_moves_can_be_walked_backwards() -> None:
    rng = Random(3)
    moves = 0
    while moves < sample(350, of=2000):
        mesh, shape = random_mesh(rng, 12), random_shape(rng)
        t = random_type(rng, mesh, shape)
        pieces = prime_parts(mesh, t.used)
        state = tuple(map(tuple, split_dims(t, pieces)))
        nests = Nesting(shape)
        for (block, i, j), after in minor_end_moves(nests, state):
            back = dict(minor_end_moves(nests, after))
            assert back[block, j, i] == state
            there = type_after(AllToAll(((block, i, j),)), t)
            assert there == t.with_dims(after)
            moves += 1


def test_spellings_of_one_layout_have_one_tile() -> None:
    rng = Random(4)
    same = 0
    for _ in range(sample(1000, of=6000)):
        a, b = random_pair(rng, pending=False, max_devices=4, max_elems=9)
        if a.global_elems and same_layout(a, b):
            assert a.tile_shape == b.tile_shape
            same += a != b
    assert same > sample(7, of=50)


def test_naming_changes_no_byte() -> None:
    rng = Random(5)
    named = 0
    while named < sample(70, of=400):
        a, b = random_pair(rng, one_mesh=True, pending=False, max_devices=12)
        action = name_step(a, b) if a != b else None
        if action is None or not a.global_elems:
            continue
        as_named, general = (traffic_of(x, a, b, FLAT) for x in (action, Exchange(b)))
        if as_named.received_elems == 0 == general.received_elems:
            continue
        assert as_named.received_elems == general.received_elems
        assert as_named.received_range == general.received_range
        have, need = grid(a), grid(b)
        ia, ib = common(have, need)
        assert general.received_elems == int(
            need.volumes().sum() - overlaps(have, ia, need, ib).sum()
        )
        named += 1


def peak(source: ArrayType, route: Path, donate: bool) -> int:
    """Bytes of tiles at the worst step."""
    target = route[-1][1]
    types = Pricer(source, target, FLAT, None, donate).types(route)
    return max(fixed_live_bytes(types, donate))


def test_routes_taken_apart_cost_a_middle_tile_at_most() -> None:
    rng = Random(6)
    apart = 0
    while apart < sample(25, of=150):
        mesh = random_mesh(rng, 24)
        shape = (mesh.n_devices,) * rng.choice([2, 3])  # so that all tiles are even
        source, target = (random_type(rng, mesh, shape) for _ in range(2))
        if source == target:
            continue
        route = normal_form(source, target)
        assert route is not None
        pieces = axis_by_axis(source, route)
        if pieces == route:
            continue
        assert pieces[-1][1] == target
        middle = max(after.tile_bytes for _, after in pieces[:-1])
        for donate in (False, True):
            assert peak(source, pieces, donate) <= peak(source, route, donate) + middle
        apart += 1


def test_joined_gathers_and_slices_do_not_raise_the_peak() -> None:
    rng = Random(7)
    joined = 0
    while joined < sample(50, of=300):
        source = random_type(rng, random_mesh(rng, 12), random_shape(rng))
        steps: list[tuple[AllGather, ArrayType]] = []
        here = source
        for dim, parts in enumerate(source.dims):
            for part in reversed(
                [p for q in parts for p in prime_parts(source.mesh, [q]) if p.inside(q)]
            ):
                action = AllGather(((part, dim),))
                try:
                    here = type_after(action, here)
                except StepError:
                    break
                steps.append((action, here))
        if len(steps) < 2 or not source.global_elems:
            continue
        one: Path = ((Exchange(here), here),)
        back: Path = tuple((Exchange(t), t) for t in [*(t for _, t in steps[-2::-1]), source])
        for donate in (False, True):
            assert peak(source, one, donate) <= peak(source, tuple(steps), donate)
            assert peak(here, ((Exchange(source), source),), donate) <= peak(here, back, donate)
        joined += 1
