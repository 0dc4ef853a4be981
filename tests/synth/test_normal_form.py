"""Normal form: every even redistribution by named collectives, below the larger end; and where it ends."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from redist import synthesize
from redist.errors import NoPlanError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, prime_parts
from redist.layout.lower_bound import lower_bound_bytes
from redist.layout.mesh import Mesh
from redist.plan.plan import Plan
from redist.plan.portable import larger_tile_reason
from redist.plan.rates import FLAT
from redist.plan.request import Request
from redist.plan.rules import type_after
from redist.plan.steps import OP_NAMES
from redist.runtime.simulator import is_correct, random_tiles, simulate
from redist.synth import find
from redist.synth.find import find_plan
from redist.synth.named_steps import Nesting, minor_end_moves, split_dims
from redist.synth.normal_form import by_whole_dims, crossing, least_limit_bytes, normal_form
from redist.synth.plan_figures import Path, Pricer
from redist.synth.routes import within_ends
from tests.tiers import sample

ORDER = ["slice", "reduce_scatter", "all_reduce", "flat", "all_gather", "slice"]


def random_mesh(rng: Random, most: int, names: str = "abcd") -> Mesh:
    while True:
        n_factors = [rng.randint(1, 3) for _ in range(rng.randint(1, len(names)))]
        sizes = [math.prod(rng.choices((2, 2, 3, 5, 7), k=n)) for n in n_factors]
        if math.prod(sizes) <= most:
            return Mesh(dict(zip(names, sizes, strict=False)))


def random_cuts(
    rng: Random, mesh: Mesh, n_dims: int, pending: float
) -> tuple[list[list[SubAxis]], list[SubAxis]]:
    dims: list[list[SubAxis]] = [[] for _ in range(n_dims)]
    late = []
    parts = list(prime_parts(mesh))
    rng.shuffle(parts)
    for part in parts:
        dim = rng.randint(-1, n_dims - 1)
        if rng.random() < pending:
            late.append(part)
        elif dim >= 0:
            dims[dim].append(part)
    return dims, late


def random_ends(
    rng: Random, most: int, pending: bool = False, uneven: bool = False, two: bool = False
) -> tuple[ArrayType, ArrayType]:
    """Two types of one array; four dims of ten have no room beyond what both ends need."""
    mesh = random_mesh(rng, most)
    other = random_mesh(rng, most, "uvwx") if two else mesh
    n_dims = rng.randint(1, 4)
    old, late = random_cuts(rng, mesh, n_dims, 0.3 if pending else 0)
    new, later = random_cuts(rng, other, n_dims, 0.3 if pending and rng.random() < 0.5 else 0)
    shape = []
    for a, b in zip(old, new, strict=True):
        both = math.lcm(*(math.prod(p.size for p in dim) for dim in (a, b)))
        size = both * (1 if rng.random() < 0.4 else rng.choice((1, 2, 3, 4, 6)))
        shape.append(max(1, size - (rng.choice((0, 0, 1, 1, 2)) if uneven else 0)))
    return (
        ArrayType.of(mesh, "f32", shape, old, {"sum": late} if late else None),
        ArrayType.of(other, "f32", shape, new, {"sum": later} if later else None),
    )


def check(source: ArrayType, target: ArrayType, path: Path) -> None:
    """The typing rules agree, tiles fall, stay and rise, and kinds of steps come in their order."""
    here, sizes, kinds = source, [source.tile_bytes], []
    for action, after in path:
        assert type_after(action, here) == after
        here = after
        sizes.append(after.tile_bytes)
        name = OP_NAMES[type(action)]
        kinds.append("flat" if name in ("all_to_all", "all_permute") else name)
    assert here == target
    assert max(sizes) <= max(sizes[0], sizes[-1]), (str(source), str(target))
    at = 0
    for kind in kinds:
        at = ORDER.index(kind, at)


def test_every_even_redistribution_has_a_normal_form() -> None:
    rng, ratios = Random(1), []
    for _ in range(sample(75, of=20_000)):
        source, target = random_ends(rng, 5_040 if rng.random() < 0.2 else 300)
        path = normal_form(source, target)
        assert path is not None
        check(source, target, path)
        assert len(path) <= 5
        middles = {after.tile_bytes for _, after in path[:-1]}
        assert len(middles) <= 1 and max(middles, default=0) <= min(
            source.tile_bytes, target.tile_bytes
        )
        bound = lower_bound_bytes(source, target)
        if bound:
            stops = [source, *(after for _, after in path)]
            received = sum(lower_bound_bytes(a, b) for a, b in itertools.pairwise(stops))
            ratios.append(received / bound)
    assert max(ratios) <= 9  # theorem: three times as many flat steps as there can be, at most
    assert math.exp(sum(map(math.log, ratios)) / len(ratios)) < 1.25


def as_plan(source: ArrayType, target: ArrayType, path: Path) -> Plan:
    """A route as a plan that the simulator runs."""
    plan = find_plan(Request(source, target, strategy="direct"))
    steps = Pricer(source, target, FLAT, None, False).steps(path)
    object.__setattr__(plan, "steps", steps)
    return plan


@pytest.mark.parametrize("kind", ["even", "pending", "uneven", "two"])
def test_they_carry_the_data(kind: str) -> None:
    rng, run = Random(2), 0
    options = {kind: True} if kind != "even" else {}
    while run < sample(5, of=250):
        source, target = random_ends(rng, 72 if kind == "even" else 24, **options)
        path = normal_form(source, target) or crossing(source, target)
        if path is None or source == target or source.global_elems > 50_000:
            continue
        check_within(source, target, path)
        tiles = random_tiles(source)
        plan = as_plan(source, target, path)
        assert is_correct(plan, tiles, simulate(plan, tiles).tiles), f"{source} -> {target}"
        run += 1


def check_within(source: ArrayType, target: ArrayType, path: Path) -> None:
    here = source
    for action, after in path:
        assert type_after(action, here) == after
        here = after
    assert here == target and within_ends(path, source, target)


# The bounds on steps are tight


TIGHT = {
    "a circle of moves": ("a=2,b=3", "f32[6{a}, 6{b}]", "f32[6{b}, 6{a}]", "A"),
    "b stands in the way at both ends": (
        "a=2,b=3,c=3", "f32[6{a,b}, 6{c}]", "f32[6{b}, 6{a,c}]", "PAP",
    ),
    "the same with room": ("a=2,b=3,c=3", "f32[18{a,b}, 18{c}]", "f32[18{b}, 18{a,c}]", "A"),
    "both at once": (
        "a=2,b=3,c=5,d=5", "f32[30{a,c}, 30{b,d}]", "f32[30{b,c}, 30{a,d}]", "PAP",
    ),
}  # fmt: skip


State = tuple[tuple[SubAxis, ...], ...]


def arrangements(t: ArrayType) -> list[State]:
    """Every way in which the factors that cut a type of two dims could cut it evenly."""
    parts = [part for dim in split_dims(t, prime_parts(t.mesh)) for part in dim]
    found: list[State] = []
    for order in itertools.permutations(parts):
        for first in range(len(order) + 1):
            state = order[:first], order[first:]
            if all(n % k == 0 for n, k in zip(t.shape, cuts_of(state), strict=True)):
                found.append(state)
    return found


def cuts_of(state: State) -> tuple[int, ...]:
    return tuple(math.prod(part.size for part in dim) for dim in state)


@pytest.mark.parametrize("name", TIGHT)
def test_flat_steps_that_no_plan_can_do_without(name: str) -> None:
    """All sequences of permutes and moves over all even arrangements of the factors."""
    mesh, old, new, fewest = TIGHT[name]
    source, target = (ArrayType.parse(t, Mesh.parse(mesh)) for t in (old, new))
    start, goal = (tuple(map(tuple, split_dims(t, prime_parts(t.mesh)))) for t in (source, target))
    every, nests = arrangements(source), Nesting(source.shape)

    def reach(here: set[State], step: str) -> set[State]:
        if step == "P":
            shapes = set(map(cuts_of, here))
            return {state for state in every if cuts_of(state) in shapes}
        found, waiting = set(here), list(here)
        while waiting:
            for _, after in minor_end_moves(nests, waiting.pop()):
                if after not in found and after in every:
                    found.add(after)
                    waiting.append(after)
        return found

    words = (w for n in range(1, 6) for w in map("".join, itertools.product("AP", repeat=n)))
    found = next(w for w in words if goal in functools.reduce(reach, w, {start}))
    assert found == fewest
    path = normal_form(source, target)
    assert path is not None and len(path) == len(fewest)


# What it is good for


def test_no_plan_of_collectives_leaves_the_cap() -> None:
    """Small problems that are searched, and those beyond the search; by bytes and by time."""
    rng = Random(3)
    for _ in range(sample(6, of=200)):
        source, target = random_ends(rng, rng.choice((24, 600)))
        for objective in ("bytes", "time"):
            plan = find_plan(Request(source, target, strategy="collectives", objective=objective))
            path = tuple((step.action, step.after) for step in plan.steps)
            assert within_ends(path, source, target), f"{source} -> {target} {objective}"


@pytest.mark.parametrize("objective", ["bytes", "time"])
def test_coprime_cuts_meet_in_the_middle(objective: str) -> None:
    plan = synthesize(
        "f32[6{a}]", "f32[6{b}]", mesh=Mesh(a=2, b=3), strategy="collectives", objective=objective
    )
    assert [step.op for step in plan.steps] == ["slice", "all_permute", "all_gather"]
    assert plan.received_bytes == 40


def test_a_block_of_neighbours_moves_at_once() -> None:
    plan = synthesize(
        "f32[4{x,y}, 4]", "f32[4, 4{x,y}]", mesh=Mesh(x=2, y=2), strategy="collectives"
    )
    assert [step.op for step in plan.steps] == ["all_to_all"]
    assert plan.received_bytes == plan.lower_bound_bytes == 48
    stored = json.loads(plan.to_json())
    assert stored["version"] == 2 and stored["steps"][0]["moves"] == [["x,y", 0, 1]]
    assert Plan.from_json(plan.to_json()) == plan


def test_least_limits_are_known_without_a_search() -> None:
    """The closed form against bisection by the exact search."""
    rng, met = Random(4), 0
    while met < sample(2, of=160):
        source, target = random_ends(rng, 24)
        if source == target or len(prime_parts(source.mesh, (*source.used, *target.used))) > 4:
            continue
        donate = rng.random() < 0.5
        least = least_limit_bytes(source, target, donate)
        high = 2 * (source.tile_bytes + target.tile_bytes) + least
        request = Request(source, target, 0, "bytes", "collectives", donate)
        assert find._least_limit(request, high, True) == least, f"{source} -> {target}"
        find_plan(replace(request, limit_bytes=least))
        with pytest.raises(NoPlanError, match=f"the least that would do is {least} bytes"):
            find_plan(replace(request, limit_bytes=least - 1))
        met += 1


# Where it ends


def test_uneven_dims_within_the_padding_rule() -> None:
    rng, without = Random(5), 0
    for _ in range(sample(30, of=1_000)):
        source, target = random_ends(rng, 48, uneven=True)
        reason = larger_tile_reason(source, target)
        path = normal_form(source, target)
        assert path is not None or reason
        if path is None:
            without += 1
            plan = find_plan(Request(source, target, strategy="collectives"))
            route = tuple((step.action, step.after) for step in plan.steps)
            assert within_ends(route, source, target) or reason in str(plan)
    assert without > 0


def test_two_meshes_within_their_criterion() -> None:
    """There is a way below the larger end if and only if a shape of both meshes is fine enough."""
    rng = Random(6)
    seen: Counter[bool] = Counter()
    for _ in range(sample(30, of=1_000)):
        source, target = random_ends(rng, 48, two=True)
        path = normal_form(source, target) or crossing(source, target)
        reason = larger_tile_reason(source, target)
        assert (path is None) == bool(reason), f"{source} -> {target}"
        seen[path is None] += 1
        if path is not None:
            check_within(source, target, path)
    assert min(seen.values()) > 5


def test_what_has_no_normal_form_says_why() -> None:
    mesh = Mesh(a=2, b=3)
    plan = synthesize("f32[10{a}]", "f32[10{b}]", mesh=mesh, strategy="collectives")
    assert [step.op for step in plan.steps] == ["all_gather", "slice"]
    said = "more than at both ends: dim 0 of size 10: its 2 tiles and its 3 tiles are not made of"
    assert said in str(plan)
    plan = synthesize(
        "f32[6{x}]", "f32[6{z}]", mesh=Mesh(x=2), target_mesh=Mesh(z=3), strategy="collectives"
    )
    assert "both meshes can cut the array alike into at most 1 tile," in str(plan)


def test_only_dims_that_do_not_nest_are_gathered() -> None:
    mesh = Mesh(x=2, y=2, z=4, w=3)
    ends = "i64[2, 10{z,y}, 6{x}, 59{w}]", "i64[2, 10{z}, 6{y}, 59]"
    source, target = (ArrayType.parse(t, mesh) for t in ends)
    path = by_whole_dims(source, target)
    assert path is not None and normal_form(source, target) is None
    assert path[0][1] == ArrayType.parse("i64[2, 10, 6{x}, 59{w}]", mesh)
    here = source
    for action, after in path:
        assert type_after(action, here) == after
        here = after
    assert here == target
