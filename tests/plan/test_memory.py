"""The memory model: events, live bytes rank by rank, staging and rounds."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.plan.memory import (
    MIB,
    default_staging_bytes,
    fixed_live_bytes,
    holder_classes,
    live_bytes,
    rounds_for,
    side,
    source_events,
    staging_for,
    step_events,
)
from redist.plan.steps import Event
from tests.problems import oracle
from tests.problems.strategies import random_mesh, random_op, random_shape, random_type, seeded
from tests.tiers import sample


def chain(rng: Random) -> tuple[ArrayType, ...]:
    """Types of a plan of up to four steps: on the source's mesh, then on the target's."""
    meshes = [random_mesh(rng, 12)] * rng.randint(1, 3)
    other = meshes[0] if rng.random() < 0.4 else random_mesh(rng, 12)
    meshes += [other] * rng.randint(0, 2)
    shape = random_shape(rng, 60)
    return tuple(random_type(rng, mesh, shape, random_op(rng)) for mesh in meshes)


def all_events(types: Sequence[ArrayType], donate: bool, staging: Sequence[int]) -> list[Event]:
    steps = [e for k, size in enumerate(staging) for e in step_events(types, k, size)]
    return [*source_events(types, donate), *steps]


def full_bytes(t: ArrayType) -> int:
    """Bytes of the fullest tile."""
    return max(len(held) for held in oracle.holdings(t).values()) * t.dtype.itemsize


def ranks_of(t: ArrayType) -> set[int]:
    return set(t.mesh.ranks)


@settings(max_examples=sample(100, of=400), deadline=None, derandomize=True)
@given(seeded(lambda rng: (chain(rng), rng)), st.booleans())
def test_live_bytes_are_a_simulation_rank_by_rank(
    case: tuple[tuple[ArrayType, ...], Random], donate: bool
) -> None:
    """Allocate and free as the steps run: the source, every result, staging while a step runs."""
    types, rng = case
    n_steps = len(types) - 1
    staging = [4 * rng.randint(0, 20) for _ in range(n_steps)]
    events = all_events(types, donate, staging)
    classes = holder_classes(types[0].mesh, types[-1].mesh)
    source, target = ranks_of(types[0]), ranks_of(types[-1])
    for moment in range(max(1, n_steps)):
        worst = 0
        for rank in source | target:
            live = 0
            if rank in source and (moment == 0 or not donate):
                live += full_bytes(types[0])
            if n_steps == 0:
                live += 0 if donate or rank not in target else full_bytes(types[0])
            else:
                live += staging[moment]
                if moment > 0 and rank in ranks_of(types[moment]):
                    live += full_bytes(types[moment])  # what the step reads
                if rank in ranks_of(types[moment + 1]):
                    live += full_bytes(types[moment + 1])  # what it makes
            worst = max(worst, live)
        assert live_bytes(events, moment, classes) == worst


@settings(max_examples=sample(50, of=200), deadline=None, derandomize=True)
@given(seeded(chain), st.booleans())
def test_fixed_live_bytes_leave_staging_out(types: tuple[ArrayType, ...], donate: bool) -> None:
    n_steps = len(types) - 1
    events = all_events(types, donate, [0] * n_steps)
    classes = holder_classes(types[0].mesh, types[-1].mesh)
    moments = range(max(1, n_steps))
    assert fixed_live_bytes(types, donate) == tuple(live_bytes(events, m, classes) for m in moments)
    kept, donated = max(fixed_live_bytes(types, False)), max(fixed_live_bytes(types, True))
    assert donated <= kept


@settings(max_examples=sample(50, of=200), deadline=None, derandomize=True)
@given(seeded(chain))
def test_kinds_of_ranks(types: tuple[ArrayType, ...]) -> None:
    source, target = types[0], types[-1]
    a, b = ranks_of(source), ranks_of(target)
    expected = {"both" if rank in a & b else "source" if rank in a else "target" for rank in a | b}
    assert set(holder_classes(source.mesh, target.mesh)) == expected
    for t in types:
        where = side(t, source, target)
        if where == "both":
            assert a == b == ranks_of(t)
        else:
            assert ranks_of(t) == (a if where == "source" else b)


def parse(text: str, mesh: Mesh) -> ArrayType:
    return ArrayType.parse(text, mesh)


def test_events_of_a_plan() -> None:
    mesh = Mesh(x=2, y=2)
    texts = ["f32[8{x}, 8]", "f32[8{x,y}, 8]", "f32[8{x}, 8{y}]", "f32[8, 8{y}]"]
    types = [parse(text, mesh) for text in texts]
    assert source_events(types, donate=False) == (Event("source", 128, 0, 2, "both"),)
    assert source_events(types, donate=True) == (Event("source", 128, 0, 0, "both"),)
    assert step_events(types, 0, 0) == (
        Event("middle", 64, 0, 1, "both"),
        Event("staging", 0, 0, 0, "both"),
    )
    assert step_events(types, 1, 40) == (
        Event("middle", 64, 1, 2, "both"),
        Event("staging", 40, 1, 1, "both"),
    )
    assert step_events(types, 2, 8) == (
        Event("target", 128, 2, 2, "both"),
        Event("staging", 8, 2, 2, "both"),
    )
    # Source kept: source + target + the middle; donated: the source goes after the first step.
    assert fixed_live_bytes(types, donate=False) == (192, 256, 320)
    assert fixed_live_bytes(types, donate=True) == (192, 128, 192)


def test_one_step_needs_both_ends_either_way() -> None:
    mesh = Mesh(x=2)
    types = [parse("f32[8{x}]", mesh), parse("f32[8]", mesh)]
    assert fixed_live_bytes(types, donate=True) == fixed_live_bytes(types, donate=False) == (48,)


def test_no_step_needs_a_copy_unless_donated() -> None:
    t = parse("f32[8{x}]", Mesh(x=2))
    assert fixed_live_bytes([t], donate=False) == (32,)
    assert fixed_live_bytes([t], donate=True) == (16,)


def test_ranks_of_two_meshes_count_apart() -> None:
    source = parse("f32[8{x}]", Mesh(x=2))
    away = parse("f32[8]", Mesh({"z": 2}, ranks=[2, 3]))
    across = parse("f32[8]", Mesh({"z": 2}, ranks=[1, 2]))
    assert fixed_live_bytes([source, away], donate=False) == (32,)
    assert fixed_live_bytes([source, across], donate=False) == (48,)
    assert holder_classes(source.mesh, away.mesh) == ("source", "target")
    assert holder_classes(source.mesh, across.mesh) == ("both", "source", "target")


@pytest.mark.parametrize(
    ("text", "staging"),
    [
        ("f32[0]", 0),
        ("f32[1]", 0),  # half of one element is none
        ("f32[3]", 4),
        ("f32[262144]", MIB // 2),
        ("f32[524288]", MIB),
        ("f32[1048576]", MIB),
        ("f32[4194304]", 2 * MIB),
        ("c128[3]", 16),
        ("S5[7]", 15),
    ],
)
def test_default_staging(text: str, staging: int) -> None:
    """Half a tile, up to a MiB; an eighth of large tiles; always whole elements."""
    mesh = Mesh(x=2)
    t = parse(text, mesh)
    small = ArrayType.of(mesh, t.dtype, t.shape, [["x"]] if t.ndim else [])
    assert default_staging_bytes(t, small) == default_staging_bytes(small, t) == staging


@settings(max_examples=sample(75, of=300), deadline=None, derandomize=True)
@given(st.integers(0, 1000), st.integers(-10, 5000), st.sampled_from([1, 2, 4, 5, 16]))
def test_staging_and_rounds(received_elems: int, budget: int, itemsize: int) -> None:
    """Rounds fill one half for sending and one for receiving until the busiest rank is done."""
    received = received_elems * itemsize
    staging = staging_for(received, budget, itemsize)
    assert 0 <= staging <= max(0, budget)
    assert staging <= 2 * received
    assert staging % itemsize == 0
    if budget >= 2 * received:
        assert staging == 2 * received
    rounds = rounds_for(received, staging)
    assert rounds >= 1
    if staging:
        assert rounds * staging >= 2 * received
        assert rounds == 1 or (rounds - 1) * staging < 2 * received
    else:
        assert rounds == 1


def test_where_values_live() -> None:
    a, b = Mesh(x=2), Mesh({"z": 2}, ranks=[4, 5])
    types = [parse("f32[8{x}]", a), parse("f32[8]", a), parse("f32[8]", b)]
    assert [e.at for e in source_events(types, False)] == ["source"]
    assert [e.at for k in range(2) for e in step_events(types, k, 4)] == [
        "source",
        "both",
        "target",
        "both",
    ]
