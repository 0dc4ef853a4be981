"""The lower bound, against an element-by-element count and against known figures."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from redist.layout.array_type import ArrayType
from redist.layout.axes import whole
from redist.layout.lower_bound import lower_bound_bytes
from redist.layout.mesh import Mesh
from redist.layout.tiles import same_layout
from tests.problems import oracle
from tests.problems.strategies import pairs, random_pair, seeded
from tests.tiers import sample

Pair = tuple[ArrayType, ArrayType]


def check(source: ArrayType, target: ArrayType) -> int:
    """The bound in elements, which the oracle confirms."""
    bound = lower_bound_bytes(source, target)
    assert bound == oracle.lower_bound(source, target) * source.dtype.itemsize
    return bound // source.dtype.itemsize


def ways(source: ArrayType, target: ArrayType) -> int:
    """In how many ways partial values can be shared out; the oracle tries them all."""
    g = math.prod(part.size for part in source.pending_axes)
    h = math.prod(part.size for part in target.pending_axes)
    return int(h**g)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(pairs(max_devices=24, max_elems=150))
def test_any_pair(pair: Pair) -> None:
    assume(ways(*pair) <= 1000)
    bound = check(*pair)
    if same_layout(*pair):
        assert bound == 0


@settings(max_examples=sample(150, of=600), deadline=None, derandomize=True)
@given(seeded(lambda rng: random_pair(rng, pending=False, max_devices=36)))
def test_without_pending(pair: Pair) -> None:
    bound = check(*pair)
    assert bound == sum(oracle.lacking(*pair).values())
    assert (bound == 0) or not same_layout(*pair)


@settings(max_examples=sample(125, of=500), deadline=None, derandomize=True)
@given(seeded(lambda rng: (random_pair(rng, max_elems=60), rng.choice(["sum", "min"]))))
def test_pending_resolved(case: tuple[Pair, str]) -> None:
    (source, target), op = case
    used = {part.name for part in source.used}
    free = [whole(source.mesh, name) for name, _ in source.mesh.axes if name not in used]
    if source.pending_op is None and free:
        source = source.with_pending(op, free[:1])
    check(source, target.with_pending(None, ()))


@settings(max_examples=sample(150, of=600), deadline=None, derandomize=True)
@given(seeded(lambda rng: random_pair(rng, max_devices=18, max_elems=30)), st.booleans())
def test_pending_left(pair: Pair, alike: bool) -> None:
    """With one operation at both ends partial values may stay where they are."""
    source, target = pair
    if alike and source.pending_op is not None and target.pending_op is not None:
        target = target.with_pending(source.pending_op, target.pending_axes)
    assume(ways(source, target) <= 1000)
    bound = check(source, target)
    assert (bound == 0) or not same_layout(source, target)


PAPER = Mesh(x1=2, x2=2, y1=3, y2=2)


@pytest.mark.parametrize(
    ("mesh", "source", "target", "worst"),
    [
        (PAPER, "f32[12{x2,x1}, 12{y2,y1}]", "f32[12{y2,y1}, 12{x2,x1}]", 6),
        (PAPER, "f32[12{x2}, 12{y2,y1}]", "f32[12{y1}, 12{x2,x1}]", 12),
        (PAPER, "f32[12{y1}, 12{x2,x1}]", "f32[12{x2}, 12{y2,y1}]", 12),
        (
            Mesh(x1=2, x2=3, y1=3, y2=2),
            "f32[12{x2,x1}, 12{y2,y1}]",
            "f32[12{y2}, 12{x1,x2}]",
            12,
        ),
        (Mesh(x=2, y=3), "f32[6{x}]", "f32[6{y}]", 2),
    ],
)
def test_known_figures(mesh: Mesh, source: str, target: str, worst: int) -> None:
    a, b = ArrayType.parse(source, mesh), ArrayType.parse(target, mesh)
    check(a, b)
    assert max(oracle.lacking(a, b).values()) == worst


@pytest.mark.parametrize(
    ("mesh", "source", "target", "elems"),
    [
        # Two passes of one known planner do not finish on this one.
        (Mesh(x=2, y=3, z=5), "f32[12{y}, 15{z}, 20{x}]", "f32[12, 15{y}, 20{z,x}]", 3456),
        # Another replicates everything on this one.
        (Mesh(x=4, y=2), "f32[16{y}, 16, 16{x}]", "f32[16, 16{x,y}, 16]", 3584),
        # Parts of one axis that cannot stand in one type.
        (Mesh(x=6), "f32[6{x:(1)2}]", "f32[6{x:(1)3}]", 2),
        (Mesh(x=1, y=2, z=1), "f32[8{x,y}, 3{z}]", "f32[8, 3{x}]", 24),
        (Mesh(x=1, y=2, z=1), "f32[8{x,y}, 3{z}]", "f32[8{y,z}, 3]", 0),
        (Mesh(x=2, y=2), "f32[0{x}, 4{y}]", "f32[0, 4]", 0),
        (Mesh(x=2, y=2), "f32[1{x,y}]", "f32[1{y}]", 1),
        (Mesh(x=2, y=2), "f32[1{x}]", "f32[1{y}]", 1),
        (Mesh(x=2, y=4), "f32[3{x,y}]", "f32[3{y,x}]", 2),
        (Mesh(x=2, y=2), "f32[10{x}]", "f32[10{x,y}]", 1),
        (Mesh(x=2), "f32[]", "f32[]", 0),
    ],
)
def test_known_traps(mesh: Mesh, source: str, target: str, elems: int) -> None:
    assert check(ArrayType.parse(source, mesh), ArrayType.parse(target, mesh)) == elems


@pytest.mark.parametrize(
    ("mesh", "source", "target", "elems"),
    [
        ("x=4", "f32[8] sum{x}", "f32[8]", 8 * 2 * 3),  # all_reduce: 2(g-1)
        ("x=4", "f32[8] sum{x}", "f32[8{x}]", 8 * 3),  # reduce_scatter: g-1
        ("x=4,y=2", "f32[8] sum{x}", "f32[8]", 8 * (4 + 8 - 2)),
        ("x=4,y=2", "f32[8] sum{x}", "f32[8{x}]", 8 * (4 + 2 - 2)),
        ("x=4,y=2", "f32[8] sum{x,y}", "f32[8{x,y}]", 8 * (8 + 1 - 2)),
        ("x=4,y=2", "f32[8] sum{x}", "f32[8{x}] sum{y}", 8 * 3),
        ("x=4,y=2", "f32[8]", "f32[8] sum{x}", 0),  # replicated to pending is free
        ("x=4,y=2", "f32[8{x}]", "f32[8] sum{x}", 0),  # each keeps its part among identities
        ("x=4,y=2", "f32[8{x}]", "f32[8{y}] sum{x}", 0),
        ("x=4,y=2", "f32[8{x}]", "f32[8] sum{y}", 8 * (4 - 1)),
        ("x=2,y=2,z=2", "f32[8{x}]", "f32[8] sum{z}", 8 * (4 - 2)),  # two of four have it
        ("x=2,y=2,z=2", "f32[8{x}] sum{z}", "f32[8] sum{z}", 8 * (2 + 2)),
        ("x=4,y=2", "f32[8] sum{x}", "f32[8] sum{x,y}", 0),
        ("x=4,y=2", "f32[8] sum{x}", "f32[8] max{x}", 8 * (4 + 2 - 2)),  # resolved first
        ("x=2,y=2", "f32[8] sum{x,y}", "f32[8] sum{x}", 8 * 4),
        ("x=4", "f32[0] sum{x}", "f32[0]", 0),
        ("x=1", "f32[8] sum{x}", "f32[8]", 0),
    ],
)
def test_pending_figures(mesh: str, source: str, target: str, elems: int) -> None:
    on = Mesh.parse(mesh)
    assert check(ArrayType.parse(source, on), ArrayType.parse(target, on)) == elems


def test_between_meshes_by_rank() -> None:
    a, b = Mesh(x=2, y=2), Mesh({"z": 3}, ranks=[8, 9, 10])
    whole = ArrayType.parse("f32[12{x,y}]", a)
    assert check(whole, ArrayType.parse("f32[12{z}]", b)) == 12
    assert check(whole, ArrayType.parse("f32[12]", b)) == 36
    assert check(whole, ArrayType.parse("f32[12{x,y}]", Mesh(x=2, y=2, ranks=[3, 2, 1, 0]))) == 12
    assert check(whole, ArrayType.parse("f32[12{z}]", Mesh({"z": 3}, ranks=[1, 2, 3]))) == 6
    pending = ArrayType.parse("f32[12] sum{x}", a)
    assert check(pending, ArrayType.parse("f32[12{z}]", b)) == 12 * 2


def test_bytes_follow_the_dtype() -> None:
    mesh = Mesh(x=2)
    for dtype, itemsize in (("u8", 1), ("bf16", 2), ("c128", 16), ("S5", 5)):
        source, target = (ArrayType.parse(f"{dtype}[8{c}]", mesh) for c in ("{x}", ""))
        assert lower_bound_bytes(source, target) == 8 * itemsize


def test_huge_arrays_do_not_overflow() -> None:
    mesh = Mesh(x=1024, y=1024)
    source = ArrayType.parse("u8[1073741824{x}, 4294967296{y}]", mesh)
    target = ArrayType.parse("u8[1073741824, 4294967296]", mesh)
    n = 2**30 * 2**32
    assert lower_bound_bytes(source, target) == 2**20 * n - n
