"""Theorem memory speaks of what runs: its meshes stand for all, its closed forms hold of real plans."""

from __future__ import annotations

from random import Random
from typing import Any

import redist
from proofs.evidence.weighing import saying
from proofs.theorems.memory import MESHES, tile, wanted
from redist.layout.mesh import Mesh
from redist.plan.memory import fixed_live_bytes, holder_classes, hop_live_bytes, live_bytes
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.runtime.simulator import random_tiles, simulate
from redist.synth.normal_form import normal_form
from redist.synth.plan_figures import Pricer
from tests.problems.strategies import random_mesh, random_pair
from tests.tiers import sample


def relation(a: Mesh, b: Mesh) -> str:
    """Which of the five cases two meshes are."""
    here, there = set(a.ranks), set(b.ranks)
    if a.ranks == b.ranks:
        return "one set of ranks"
    if not here & there:
        return "no rank in both"
    if here >= there:
        return "target within source"
    return "source within target" if here <= there else "some ranks in both"


def test_five_pairs_of_meshes_stand_for_all() -> None:
    rng = Random(1)
    seen: dict[str, int] = {}
    for _ in range(4000):
        a, b = random_mesh(rng, 6), random_mesh(rng, 6)
        b = a if rng.random() < 0.2 else b
        kind = relation(a, b)
        if kind == "target within source" and set(a.ranks) == set(b.ranks):
            continue  # the same ranks in another order: no rank is in one mesh only
        c, d = MESHES[kind]
        assert holder_classes(a, b) == holder_classes(c, d)
        sizes = [rng.randrange(100) for _ in range(4)]
        sides = [0, 1, rng.randrange(2), rng.randrange(2)]
        first, donate = rng.random() < 0.5, rng.random() < 0.5

        def live(meshes: tuple[Mesh, Mesh], sizes: Any = sizes, sides: Any = sides) -> int:
            a, b, c, d = (tile(n, meshes[at]) for n, at in zip(sizes, sides, strict=True))
            return hop_live_bytes(a, b, c, d, first, donate)  # noqa: B023

        assert live((a, b)) == live((c, d))
        seen[kind] = seen.get(kind, 0) + 1
    assert set(seen) == set(MESHES) and min(seen.values()) > 50


def test_same_ranks_in_another_order_are_one_kind_of_rank() -> None:
    a, b = Mesh({"x": 2}, ranks=[0, 1]), Mesh({"x": 2}, ranks=[1, 0])
    assert holder_classes(a, b) == ("both",)
    source, target, before, after = (
        tile(n, mesh) for n, mesh in ((1, a), (10, b), (100, a), (1000, b))
    )
    assert hop_live_bytes(source, target, before, after, False, False) == 1101


def closed_form(plan: Plan) -> int:
    """The bound of any plan, from the tiles alone, without staging."""
    source, target = plan.source.tile_bytes, plan.target.tile_bytes
    middle = max((t.tile_bytes for t in plan.types[1:-1]), default=0)
    if len(plan.steps) == 1:
        return source + target
    if plan.donate:
        return max(source, middle) + max(target, middle)
    return source + max(target, middle) + middle


def test_real_plans_stay_within_the_closed_form() -> None:
    rng = Random(2)
    plans = several = 0
    while plans < sample(20, of=300):
        source, target = random_pair(rng, max_devices=8)
        strategy = rng.choice(["auto", "collectives", "no_permute"])
        plan = redist.synthesize(source, target, strategy=strategy, donate=rng.random() < 0.5)
        if not plan.steps:
            continue
        plans += 1
        several += len(plan.steps) > 1
        staging = max(step.staging_bytes for step in plan.steps)
        assert plan.peak_bytes <= closed_form(plan) + staging
        classes = holder_classes(source.mesh, target.mesh)
        for number, step in enumerate(plan.steps):
            assert live_bytes(plan.events, number, classes) == step.peak_bytes
    assert several > sample(3, of=50)


def test_normal_forms_stay_within_theirs() -> None:
    rng = Random(3)
    found = 0
    while found < sample(40, of=400):
        source, target = random_pair(rng, one_mesh=True, pending=False, max_devices=12)
        if source == target or not source.global_elems:
            continue
        route = normal_form(source, target)
        if route is None:
            continue
        types = Pricer(source, target, FLAT, None, False).types(route)
        even = all(t.is_even for t in types)
        ops = [type(action).__name__ for action, _ in route]
        order = ("Slice", "AllToAll", "AllPermute", "AllGather")
        if not even or ops != sorted(ops, key=lambda op: (0, 1, 1, 2)[order.index(op)]):
            continue
        found += 1
        sizes = [t.tile_bytes for t in types]
        ends, middle = sizes[0] + sizes[-1], max(sizes[1:-1], default=0)
        assert middle <= min(sizes[0], sizes[-1]) and len(set(sizes[1:-1])) <= 1
        assert max(fixed_live_bytes(types, False)) <= ends + middle
        assert max(fixed_live_bytes(types, True)) <= ends


def test_understated_plans_understate_and_nothing_else() -> None:
    for values in (
        {"rows": 1, "columns": 3, "x": 2, "y": 3},
        {"rows": 2, "columns": 1, "x": 3, "y": 2},
    ):
        plan = wanted(values).plan()
        wrong = saying(plan, plan.peak_bytes - 1)
        assert wrong.peak_bytes == plan.peak_bytes - 1
        held = [simulate(p, random_tiles(p.source)).held_bytes for p in (plan, wrong)]
        assert held[0] == held[1] and max(held[0].values()) == plan.peak_bytes
