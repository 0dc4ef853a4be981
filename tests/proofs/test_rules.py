"""What theorem rules says of the rules is what the rules and the simulator do."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

from proofs.theorems.rules import nested_at
from redist.errors import StepError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.cuts import EvenCut
from redist.layout.lower_bound import lower_bound_bytes
from redist.layout.mesh import Mesh
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.plan.rules import added_axes, kept_axes, resolved_axes, type_after
from redist.plan.steps import (
    OP_NAMES,
    Action,
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    Exchange,
    ReduceScatter,
    Slice,
)
from redist.runtime.simulator import is_correct, random_tiles, simulate
from redist.synth.plan_figures import Pricer
from redist.text.units import ceil_div
from tests.problems.oracle import labels
from tests.problems.strategies import divisors, random_mesh, random_op, random_shape, random_type
from tests.tiers import sample


def one_step(action: Action, before: ArrayType, after: ArrayType) -> Plan:
    """The plan of one step, with all its figures."""
    steps = Pricer(before, after, FLAT, None, False).steps(((action, after),))
    return Plan(before, after, steps, lower_bound_bytes(before, after), 0, 0)


def test_nested_is_that_of_the_rules() -> None:
    rng = Random(1)
    seen: Counter[bool] = Counter()
    for _ in range(5000):
        n, k, g = rng.randrange(rng.choice([30, 3000])), rng.randint(1, 12), rng.randint(1, 12)
        c, f = ceil_div(n, k), ceil_div(n, k * g)
        said = all(nested_at(n, c, f, g, i) for i in range(k))
        assert EvenCut(n, k * g).nests_in(EvenCut(n, k)) == said
        seen[said] += 1
    assert min(seen.values()) > 500


def test_gathered_indices_come_from_the_digit_that_the_theorem_names() -> None:
    rng = Random(2)
    points = 0
    while points < 3000:
        k, g, n = rng.randint(1, 4), rng.randint(2, 4), rng.randint(1, 40)
        if not EvenCut(n, k * g).nests_in(EvenCut(n, k)):
            continue
        mesh = Mesh(x=k, y=g)
        before = ArrayType.of(mesh, "i32", (n,), [["x", "y"]])
        action = AllGather(((SubAxis("y", 1, g), 0),))
        plan = one_step(action, before, type_after(action, before))
        tiles = {rank: np.full_like(tile, rank) for rank, tile in random_tiles(before).items()}
        c, f = ceil_div(n, k), ceil_div(n, k * g)
        for rank, tile in simulate(plan, tiles).tiles.items():
            i = rank // g
            for at, sender in enumerate(tile):
                assert sender == i * g + (i * c + at) // f - i * g
                points += 1


def random_part(rng: Random, t: ArrayType) -> SubAxis:
    """Most often a used part or its minor piece, else any part of any axis."""
    if t.used and rng.random() < 0.75:
        part = rng.choice(t.used)
        size = rng.choice(divisors(part.size)[1:])
        return SubAxis(part.name, part.end // size, size)
    name, size = rng.choice(t.mesh.axes)
    pre = rng.choice(divisors(size))
    return SubAxis(name, pre, rng.choice(divisors(size // pre)))


def random_action(rng: Random, t: ArrayType, other: ArrayType) -> Action:
    """Any action on t, most of which the rules refuse."""

    def parts(most: int) -> list[SubAxis]:
        return [random_part(rng, t) for _ in range(rng.randint(1, most))]

    def dim() -> int:
        return rng.randrange(max(1, t.ndim))

    match rng.randrange(8):
        case 0:
            return Slice(tuple((part, dim()) for part in parts(2)))
        case 1:
            moves = tuple((part, dim()) for part in parts(2) if rng.random() < 0.4)
            return Slice(moves, t.pending_op or rng.choice(["sum", "max"]), tuple(parts(2)))
        case 2:
            return AllGather(tuple((part, dim()) for part in parts(2)))
        case 3:
            return AllToAll(tuple(((part,), dim(), dim()) for part in parts(3)))
        case 4:
            return AllPermute(other)
        case 5:
            return Exchange(other)
        case 6:
            return ReduceScatter(other)
        case _:
            return AllReduce(tuple(parts(2)))


def accepted(seed: int, tries: int) -> list[tuple[Action, ArrayType, ArrayType]]:
    """Random actions that the rules accept, with the types before and after."""
    rng = Random(seed)
    out = []
    for _ in range(tries):
        mesh, shape, op = random_mesh(rng, 16), random_shape(rng, 60), random_op(rng)
        before = random_type(rng, mesh, shape, op)
        other_mesh = mesh if rng.random() < 0.8 else random_mesh(rng, 16)
        other = random_type(rng, other_mesh, shape, rng.choice([op, random_op(rng)]))
        action = random_action(rng, before, other)
        try:
            after = type_after(action, before)
        except StepError:
            continue
        out.append((action, before, after))
    return out


def test_whatever_step_the_rules_accept_keeps_the_array() -> None:
    seen: Counter[str] = Counter()
    for action, before, after in accepted(3, sample(750, of=9000)):
        plan = one_step(action, before, after)
        tiles = random_tiles(before)
        run = simulate(plan, tiles)
        assert is_correct(plan, tiles, run.tiles), (action, before, after)
        assert sum(run.received_bytes.values()) == plan.received_bytes >= plan.lower_bound_bytes
        name = OP_NAMES[type(action)]
        seen[f"{name} to pending" if isinstance(action, Slice) and action.pending else name] += 1
    assert set(seen) == {*OP_NAMES.values(), "slice to pending"}
    assert min(seen.values()) >= sample(1, of=15), seen


def test_a_slice_that_cuts_along_what_it_makes_pending_is_refused() -> None:
    before = ArrayType.of(Mesh(x=2), "i32", (4,))
    part = SubAxis("x", 1, 2)
    with pytest.raises(StepError):
        type_after(Slice(((part, 0),), "sum", (part,)), before)


def test_pending_axes_split_into_resolved_kept_and_added_ones() -> None:
    """Devices agree on a set of pending axes if they agree on the two sets it is split into."""
    rng = Random(4)
    pairs = 0
    while pairs < 5000:
        mesh, shape = random_mesh(rng, 12), random_shape(rng, 20)
        before, after = (random_type(rng, mesh, shape, "sum") for _ in range(2))
        resolved, kept, added = (
            split(before, after) for split in (resolved_axes, kept_axes, added_axes)
        )
        for whole, one, two, t in (
            (before.pending_axes, resolved, kept, before),
            (after.pending_axes, added, kept, after),
        ):
            places = list(
                zip(*(labels(t, axes).values() for axes in (whole, one, two)), strict=True)
            )
            for a in places:
                for b in places:
                    assert (a[0] == b[0]) == (a[1] == b[1] and a[2] == b[2])
                    pairs += 1
