"""Typing rules: a step is allowed exactly where its collective can deliver the type after it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redist.errors import LayoutError, StepError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, whole
from redist.layout.mesh import Mesh
from redist.plan.rules import (
    added_axes,
    difference,
    kept_axes,
    resolved_axes,
    type_after,
    without,
)
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
from tests.problems import oracle
from tests.problems.strategies import (
    divisors,
    random_mesh,
    random_op,
    random_pair,
    random_shape,
    random_type,
    seeded,
)
from tests.tiers import sample

Parts = tuple[SubAxis, ...]


def outcome(action: Action, before: ArrayType) -> ArrayType | None:
    """The type after a step, None where the rule refuses; the message is one proper line."""
    try:
        return type_after(action, before)
    except StepError as error:
        assert str(error).startswith(f"cannot {OP_NAMES[type(action)]} {before}: ")
        assert "\n" not in str(error)
        return None


def appended(t: ArrayType, part: SubAxis, dim: int) -> ArrayType | None:
    """``part`` at the minor end of ``dim``, None where the type cannot exist."""
    dims = list(t.dims)
    dims[dim] = (*dims[dim], part)
    try:
        return t.with_dims(dims)
    except LayoutError:
        return None


def removed(t: ArrayType, part: SubAxis, dim: int) -> ArrayType | None:
    """The type without ``part``, None if it is not at the minor end: found by trying all splits."""
    last = t.dims[dim][-1:]
    for cut in range(1, last[0].size + 1) if last else ():
        if last[0].size % cut == 0:
            major = SubAxis(last[0].name, last[0].pre, cut)
            if part == SubAxis(last[0].name, major.end, last[0].size // cut):
                dims = [(*d[:-1], major) if i == dim else d for i, d in enumerate(t.dims)]
                return t.with_dims(dims)
    return None


def inside(fine: ArrayType, coarse: ArrayType) -> bool:
    """Whether on every device each dim of one box lies inside that of the other."""
    return all(
        set(a) <= set(b)
        for small, large in zip(oracle.boxes(fine), oracle.boxes(coarse), strict=True)
        for a, b in zip(small, large, strict=True)
    )


def gathers(fine: ArrayType, coarse: ArrayType, *parts: SubAxis) -> bool:
    """Whether the boxes of every group, put one after another, are the coarse box."""
    small, large = oracle.boxes(fine), oracle.boxes(coarse)
    for device, group in enumerate(oracle.groups(fine, parts)):
        for i, wanted in enumerate(large[device]):
            if fine.dims[i] == coarse.dims[i]:
                if small[device][i] != wanted:
                    return False
            else:
                found = [k for member in group for k in small[member][i]]
                if len(parts) > 1:  # then members are in the order of devices, not of the block
                    found.sort()
                if found != list(wanted):
                    return False
    return True


def type_and_part(rng: Random) -> tuple[ArrayType, SubAxis, int, int]:
    """A type, a part of an axis, and two dims; most often the part can leave the first dim."""
    mesh, shape = random_mesh(rng), random_shape(rng)
    while not shape:
        shape = random_shape(rng)
    t = random_type(rng, mesh, shape, random_op(rng))
    old, new = rng.randrange(t.ndim), rng.randrange(t.ndim)
    cut = [i for i, dim in enumerate(t.dims) if dim]
    kind = rng.random()
    if cut and kind < 0.5:
        old = rng.choice(cut)
        last = t.dims[old][-1]
        pre = last.pre * rng.choice(divisors(last.size)[:-1])
        return t, SubAxis(last.name, pre, last.end // pre), old, new
    free = difference((whole(mesh, name) for name, _ in mesh.axes), t.used)
    if free and kind < 0.8:
        return t, rng.choice(free), old, new
    if t.pending_axes and kind < 0.9:
        last = rng.choice(t.pending_axes)
        pre = last.pre * rng.choice(divisors(last.size)[:-1])
        return t, SubAxis(last.name, pre, rng.choice(divisors(last.end // pre))), old, new
    name, size = rng.choice(mesh.axes)
    pre = rng.choice(divisors(size))
    return t, SubAxis(name, pre, rng.choice(divisors(size // pre))), old, new


Case = tuple[ArrayType, SubAxis, int, int]


@settings(max_examples=sample(250, of=1000), deadline=None, derandomize=True)
@given(seeded(type_and_part))
def test_slice(case: Case) -> None:
    """Legal where the new box lies inside the old one on every device."""
    before, part, _, dim = case
    after = appended(before, part, dim)
    legal = after is not None and inside(after, before)
    assert outcome(Slice(((part, dim),)), before) == (after if legal else None)


@settings(max_examples=sample(250, of=1000), deadline=None, derandomize=True)
@given(seeded(type_and_part))
def test_all_gather(case: Case) -> None:
    """Legal where the boxes of a group tile the new box, in order."""
    before, part, dim, _ = case
    after = removed(before, part, dim)
    legal = after is not None and gathers(before, after, part)
    assert outcome(AllGather(((part, dim),)), before) == (after if legal else None)


@settings(max_examples=sample(250, of=1000), deadline=None, derandomize=True)
@given(seeded(type_and_part))
def test_all_to_all(case: Case) -> None:
    """Legal where the boxes of a group cover, dim by dim, the new box of each member."""
    before, part, old, new = case
    coarse = removed(before, part, old)
    after = None if coarse is None or old == new else appended(coarse, part, new)
    legal = (
        after is not None
        and coarse is not None
        and gathers(before, coarse, part)
        and inside(after, coarse)
    )
    assert outcome(AllToAll((((part,), old, new),)), before) == (after if legal else None)


def type_and_block(rng: Random) -> tuple[ArrayType, Parts, int, int]:
    """A type, axes at the minor end of a dim, in their order or not, and a dim for them."""
    while True:
        t, _, old, new = type_and_part(rng)
        if t.dims[old]:
            first = rng.randrange(len(t.dims[old]))
            part, *rest = t.dims[old][first:]
            pre = part.pre * rng.choice(divisors(part.size)[:-1])
            block = [SubAxis(part.name, pre, part.end // pre), *rest]
            if rng.random() < 0.2:
                rng.shuffle(block)
            return t, tuple(block), old, new


@settings(max_examples=sample(250, of=1000), deadline=None, derandomize=True)
@given(seeded(type_and_block))
def test_all_to_all_of_a_block(case: tuple[ArrayType, Parts, int, int]) -> None:
    """The same for neighbours that move as one axis, in their order."""
    before, block, old, new = case
    coarse: ArrayType | None = before
    for part in reversed(block):
        coarse = None if coarse is None else removed(coarse, part, old)
    after = None if old == new else coarse
    for part in block:
        after = None if after is None else appended(after, part, new)
    legal = (
        after is not None
        and coarse is not None
        and gathers(before, coarse, *block)
        and inside(after, coarse)
    )
    assert outcome(AllToAll(((block, old, new),)), before) == (after if legal else None)


@settings(max_examples=sample(250, of=1000), deadline=None, derandomize=True)
@given(seeded(lambda rng: (type_and_part(rng)[0], rng)))
def test_several_moves_are_one_after_another(case: tuple[ArrayType, Random]) -> None:
    """A fused all_to_all, a slice and an all_gather of many axes equal their parts in turn."""
    t, rng = case
    here: ArrayType | None = t
    moves: list[tuple[Parts, int, int]] = []
    for _ in range(rng.randint(1, 3)):
        ends = [i for i in range(t.ndim) if here is not None and here.dims[i]]
        if here is None or not ends:
            break
        old = rng.choice(ends)
        last = here.dims[old][-1]
        pre = last.pre * rng.choice(divisors(last.size)[:-1])
        moves.append(((SubAxis(last.name, pre, last.end // pre),), old, rng.randrange(t.ndim)))
        here = outcome(AllToAll((moves[-1],)), here)
    assert outcome(AllToAll(tuple(moves)), t) == (here if moves else None)

    free = list(difference((whole(t.mesh, name) for name, _ in t.mesh.axes), t.used))
    rng.shuffle(free)
    added = [(part, rng.randrange(t.ndim)) for part in free]
    sliced: ArrayType | None = t if added else None
    for pair in added:
        sliced = None if sliced is None else outcome(Slice((pair,)), sliced)
    if sliced is not None:
        assert outcome(Slice(tuple(added)), t) == sliced
        rng.shuffle(added)  # they come off the minor ends whatever the order they are named in
        assert outcome(AllGather(tuple(added)), sliced) == t


@settings(max_examples=sample(125, of=500), deadline=None, derandomize=True)
@given(seeded(lambda rng: random_pair(rng)))
def test_all_permute(pair: tuple[ArrayType, ArrayType]) -> None:
    """Legal where tiles have one shape: then every box of the target is a box of the source."""
    before, after = pair
    held = [max(len(box[i]) for box in oracle.boxes(before)) for i in range(before.ndim)]
    wanted = [max(len(box[i]) for box in oracle.boxes(after)) for i in range(after.ndim)]
    same = (before.pending_op, before.pending_axes) == (after.pending_op, after.pending_axes)
    legal = held == wanted and same and (before.pending_op is None or before.mesh == after.mesh)
    assert outcome(AllPermute(after), before) == (after if legal else None)
    if legal:
        boxes = [oracle.elements(box) for box in oracle.boxes(before)]
        assert all(not box or box in boxes for box in map(oracle.elements, oracle.boxes(after)))


@settings(max_examples=sample(125, of=500), deadline=None, derandomize=True)
@given(seeded(lambda rng: random_pair(rng, max_elems=60)), st.booleans())
def test_exchange_keeps_and_reduce_scatter_resolves(
    pair: tuple[ArrayType, ArrayType], alike: bool
) -> None:
    """Nothing is resolved where the target's coordinates tell the partial value of the source."""
    before, after = pair
    if alike and after.pending_op is not None and before.pending_op is not None:
        after = after.with_pending(before.pending_op, after.pending_axes)
    if before.pending_op is None:
        keeps = True
    elif before.mesh != after.mesh or before.pending_op != after.pending_op:
        keeps = False
    else:
        old, new = oracle.labels(before), oracle.labels(after)
        keeps = len({(new[rank], old[rank]) for rank in old}) == len(set(new.values()))
    assert outcome(Exchange(after), before) == (after if keeps else None)
    assert outcome(ReduceScatter(after), before) == (None if keeps else after)


@settings(max_examples=sample(125, of=500), deadline=None, derandomize=True)
@given(seeded(lambda rng: random_pair(rng, one_mesh=True, max_elems=1)), st.booleans())
def test_resolved_kept_and_added_axes(pair: tuple[ArrayType, ArrayType], alike: bool) -> None:
    before, after = pair
    if alike and after.pending_op is not None and before.pending_op is not None:
        after = after.with_pending(before.pending_op, after.pending_axes)
    resolved, kept = resolved_axes(before, after), kept_axes(before, after)
    added = added_axes(before, after)
    old = oracle.labels(before)

    def determines(parts: Parts, wanted: dict[int, tuple[int, ...]]) -> bool:
        by = oracle.labels(before, parts)
        return len({(by[r], wanted[r]) for r in by}) == len(set(by.values()))

    assert determines((*resolved, *kept), old)
    assert determines((*kept, *added), oracle.labels(after))
    assert determines(before.pending_axes, oracle.labels(before, resolved))
    assert determines(before.pending_axes, oracle.labels(before, kept))
    assert determines(after.pending_axes, oracle.labels(before, kept))
    assert determines(after.pending_axes, oracle.labels(before, added))


@settings(max_examples=sample(125, of=500), deadline=None, derandomize=True)
@given(seeded(type_and_part))
def test_all_reduce(case: Case) -> None:
    """Legal where the part is one of a split of a pending axis; the rest stays pending."""
    before, part, _, _ = case
    after = outcome(AllReduce((part,)), before)
    held = [
        p
        for p in before.pending_axes
        if p.name == part.name
        and part.pre % p.pre == 0
        and p.end % part.end == 0
        and part.pre >= p.pre
        and part.end <= p.end
    ]
    if part.size == 1:
        return
    assert (after is not None) == bool(held)
    if after is not None:
        assert after.dims == before.dims
        both = ArrayType(
            before.mesh,
            before.dtype,
            before.shape,
            before.dims,
            before.pending_op,
            (*after.pending_axes, part),
        )
        assert both == before


@settings(max_examples=sample(125, of=500), deadline=None, derandomize=True)
@given(seeded(type_and_part), st.sampled_from(["sum", "max"]))
def test_slice_into_pending(case: Case, op: str) -> None:
    """An unused axis, or the minor-most of a dim whose tiles nest, becomes pending for nothing."""
    t, part, _, _ = case
    if part.size == 1:
        return
    after = outcome(Slice((), op, (part,)), t)
    try:
        ArrayType(t.mesh, t.dtype, t.shape, t.dims, op, (*t.pending_axes, part))
        free = True
    except LayoutError:
        free = False
    at = [i for i in range(t.ndim) if removed(t, part, i) is not None]
    coarse = removed(t, part, at[0]) if at else t
    assert coarse is not None
    legal = t.pending_op in (None, op) and (free or bool(at))
    legal = legal and (not at or gathers(t, coarse, part))
    assert (after is not None) == legal
    if after is not None:
        assert after.dims == coarse.dims
        assert after.pending_op == op
        assert added_axes(t, after) == (part,)


@settings(max_examples=sample(25, of=100), deadline=None, derandomize=True)
@given(st.data(), st.integers(1, 36))
def test_without_and_difference(data: st.DataObject, size: int) -> None:
    parts = []
    pre = 1
    while pre < size:
        left = size // pre
        step = data.draw(st.sampled_from([k for k in range(2, left + 1) if left % k == 0]))
        parts.append(SubAxis("x", pre, step))
        pre *= step
    gone = data.draw(st.sets(st.sampled_from(parts))) if parts else set()
    stay = [part for part in parts if part not in gone]
    mesh = Mesh(x=size)
    left_over = difference([SubAxis("x", 1, size)], gone)
    assert ArrayType.of(mesh, "f32", (), [], {"sum": left_over}) == ArrayType.of(
        mesh, "f32", (), [], {"sum": stay}
    )
    if parts:
        assert without([SubAxis("x", 1, size)], parts[-1]) == (
            (SubAxis("x", 1, parts[-1].pre),) if parts[-1].pre > 1 else ()
        )
        if len(parts) > 1:
            assert without([SubAxis("x", 1, size)], parts[0]) is None
    assert without([], SubAxis("x", 1, size)) is None


def part(text: str) -> SubAxis:
    """``x:1:2`` as a part: name, pre, size."""
    name, pre, size = text.split(":")
    return SubAxis(name, int(pre), int(size))


X, Y, Z = SubAxis("x", 1, 2), SubAxis("y", 1, 2), SubAxis("z", 1, 6)
MESH = Mesh(x=2, y=2, z=6)


def to(text: str) -> ArrayType:
    return ArrayType.parse(text, MESH)


@pytest.mark.parametrize(
    ("before", "action", "after"),
    [
        ("f32[8{x}]", Slice(((Y, 0),)), "f32[8{x,y}]"),
        ("f32[8, 8]", Slice(((Y, 1), (X, 1))), "f32[8, 8{y,x}]"),
        ("f32[8{x}]", Slice((), "sum", (Y,)), "f32[8{x}] sum{y}"),
        ("f32[8{x}]", Slice((), "sum", (X,)), "f32[8] sum{x}"),
        ("f32[8] sum{x}", Slice((), "sum", (Y,)), "f32[8] sum{x,y}"),
        ("f32[8{x,y}]", Slice((), "sum", (X, Y)), "f32[8] sum{x,y}"),
        ("f32[8{x}, 8{y}]", Slice((), "max", (X, Y)), "f32[8, 8] max{x,y}"),
        ("f32[12{z}]", Slice((), "max", (part("z:2:3"),)), "f32[12{z:(1)2}] max{z:(2)3}"),
        ("f32[8]", Slice(((X, 0),), "sum", (Y,)), "f32[8{x}] sum{y}"),
        ("f32[7]", Slice(((Y, 0),)), "f32[7{y}]"),
        ("f32[1{x}]", Slice(((Y, 0),)), "f32[1{x,y}]"),
        ("f32[7{x}]", Slice(((Y, 0),)), "f32[7{x,y}]"),
        ("f32[8{x,y}]", AllGather(((Y, 0),)), "f32[8{x}]"),
        ("f32[8{x,y}]", AllGather(((X, 0), (Y, 0))), "f32[8]"),
        ("f32[12{z}]", AllGather(((part("z:2:3"), 0),)), "f32[12{z:(1)2}]"),
        ("f32[8{x}, 8]", AllToAll((((X,), 0, 1),)), "f32[8, 8{x}]"),
        ("f32[8{x}, 8{y}]", AllToAll((((X,), 0, 1), ((Y,), 1, 0))), None),
        ("f32[8{x}, 8{y}]", AllToAll((((X,), 0, 1), ((X,), 1, 0))), "f32[8{x}, 8{y}]"),
        ("f32[8{x}, 8, 8]", AllToAll((((X,), 0, 1), ((X,), 1, 2))), "f32[8, 8, 8{x}]"),
        ("f32[8{x}]", AllPermute(to("f32[8{y}]")), "f32[8{y}]"),
        ("f32[10{x}]", Exchange(to("f32[10{x,y}]")), "f32[10{x,y}]"),
        ("f32[8] sum{x}", Exchange(to("f32[8{y}] sum{x}")), "f32[8{y}] sum{x}"),
        ("f32[8]", Exchange(to("f32[8] sum{x}")), "f32[8] sum{x}"),
        ("f32[8] sum{x}", ReduceScatter(to("f32[8{x}]")), "f32[8{x}]"),
        ("f32[8] sum{x,y}", ReduceScatter(to("f32[8{y}] sum{x}")), "f32[8{y}] sum{x}"),
        ("f32[8] sum{x}", ReduceScatter(to("f32[8] max{x}")), "f32[8] max{x}"),
        ("f32[8] sum{x,y}", AllReduce((X,)), "f32[8] sum{y}"),
        ("f32[8] sum{z}", AllReduce((part("z:2:3"),)), "f32[8] sum{z:(1)2}"),
        ("f32[8] sum{x,y}", AllReduce((Y, X)), "f32[8]"),
    ],
)
def test_types_after(before: str, action: Action, after: str | None) -> None:
    assert outcome(action, to(before)) == (to(after) if after else None)


@pytest.mark.parametrize(
    ("before", "action", "reason"),
    [
        (
            "f32[10{x}]",
            Slice(((Y, 0),)),
            "dim 0 of size 10: tiles of 3 do not nest in tiles of 5; use exchange",
        ),
        (
            "f32[10{x,y}]",
            AllGather(((Y, 0),)),
            "dim 0 of size 10: tiles of 3 do not nest in tiles of 5; use exchange",
        ),
        (
            "f32[10{x,y}, 8]",
            AllToAll((((Y,), 0, 1),)),
            "dim 0 of size 10: tiles of 3 do not nest in tiles of 5; use exchange",
        ),
        (
            "f32[8{y}, 10{x}]",
            AllToAll((((Y,), 0, 1),)),
            "dim 1 of size 10: tiles of 3 do not nest in tiles of 5; use exchange",
        ),
        ("f32[8]", Slice(((Y, 1),)), "there is no dim 1; the array has 1 dim"),
        ("f32[8]", Slice(((Y, -1),)), "there is no dim -1; the array has 1 dim"),
        ("f32[]", Slice(((Y, 0),)), "there is no dim 0; the array has 0 dims"),
        ("f32[8{x}]", AllGather(((X, 1),)), "there is no dim 1; the array has 1 dim"),
        ("f32[8{x}]", AllToAll((((X,), 0, 1),)), "there is no dim 1; the array has 1 dim"),
        ("f32[8{x}]", AllToAll((((X,), 1, 0),)), "there is no dim 1; the array has 1 dim"),
        (
            "f32[8{x}]",
            Slice(((X, 0),)),
            "cannot use axis x twice: an axis can cut one dim, or be pending, once",
        ),
        (
            "f32[8] sum{x}",
            Slice(((X, 0),)),
            "cannot use axis x twice: an axis can cut one dim, or be pending, once",
        ),
        (
            "f32[8{z:(1)2}]",
            Slice(((part("z:1:3"), 0),)),
            "cannot use axis z twice: z:(1)2 and z:(1)3 overlap",
        ),
        ("f32[8]", Slice(((part("w:1:2"), 0),)), "the mesh x=2,y=2,z=6 has no axis 'w'"),
        ("f32[8{x,y}, 8]", Slice((), "sum", (X,)), "x is not at the minor end of its dim"),
        ("f32[8] max{x}", Slice((), "sum", (Y,)), "a max is pending already; resolve it first"),
        ("f32[8]", Slice((), None, (Y,)), "cannot make a type: pending axes without a reduction"),
        ("f32[8]", Slice(()), "no axis is named"),
        ("f32[8{x}]", AllGather(()), "no axis is named"),
        ("f32[8{x}]", AllToAll(()), "no axis is named"),
        ("f32[8{x,y}]", AllGather(((X, 0),)), "x is not at the minor end of dim 0 (x,y)"),
        ("f32[8]", AllGather(((X, 0),)), "x is not at the minor end of dim 0 (not cut)"),
        ("f32[8{x,y}]", AllGather(((Y, 0), (Y, 0))), "y is not at the minor end of dim 0 (x)"),
        (
            "f32[12{z}]",
            AllGather(((part("z:1:2"), 0),)),
            "z:(1)2 is not at the minor end of dim 0 (z)",
        ),
        ("f32[8{x,y}, 8]", AllToAll((((X,), 0, 1),)), "x is not at the minor end of dim 0 (x,y)"),
        ("f32[8{x}, 8]", AllToAll((((X,), 0, 0),)), "x moves from dim 0 to itself"),
        (
            "f32[8{x}, 8{y}]",
            AllPermute(to("f32[8{x,y}, 8]")),
            "f32[8{x,y}, 8] has tiles (2, 8), not (4, 4)",
        ),
        (
            "f32[8] sum{x}",
            AllPermute(to("f32[8] sum{y}")),
            "f32[8] sum{y} has other pending axes",
        ),
        (
            "f32[8]",
            AllPermute(to("f32[9]")),
            "f32[9] is another array; shape and dtype must agree",
        ),
        ("f32[8]", Exchange(to("i32[8]")), "i32[8] is another array; shape and dtype must agree"),
        (
            "f32[8] sum{x}",
            ReduceScatter(to("f32[4, 2]")),
            "f32[4, 2] is another array; shape and dtype must agree",
        ),
        (
            "f32[8] sum{x}",
            Exchange(to("f32[8{x}]")),
            "f32[8{x}] resolves pending axes; use reduce_scatter",
        ),
        (
            "f32[8] sum{x}",
            Exchange(to("f32[8] max{x}")),
            "f32[8] max{x} resolves pending axes; use reduce_scatter",
        ),
        (
            "f32[8]",
            ReduceScatter(to("f32[8{x}]")),
            "nothing pending is resolved by f32[8{x}]; use exchange",
        ),
        (
            "f32[8] sum{x}",
            ReduceScatter(to("f32[8{y}] sum{x}")),
            "nothing pending is resolved by f32[8{y}] sum{x}; use exchange",
        ),
        (
            "f32[8] sum{x}",
            Exchange(ArrayType.parse("f32[8] sum{x}", Mesh(x=2, y=2))),
            "a pending reduction cannot change meshes; resolve it",
        ),
        (
            "f32[8] sum{x}",
            AllPermute(ArrayType.parse("f32[8] sum{x}", Mesh(x=2, y=2))),
            "a pending reduction cannot change meshes; resolve it",
        ),
        ("f32[8{x}]", AllReduce((X,)), "nothing is pending"),
        ("f32[8] sum{x}", AllReduce(()), "nothing is pending"),
        ("f32[8] sum{x}", AllReduce((Y,)), "y is not pending"),
        ("f32[8] sum{x}", AllReduce((X, X)), "x,x is not pending"),
        ("f32[8] sum{x}", AllReduce((X, Y)), "x,y is not pending"),
        ("f32[8] sum{z:(1)2}", AllReduce((Z,)), "z is not pending"),
        ("f32[8] sum{z:(1)2}", AllReduce((part("z:1:3"),)), "z:(1)3 is not pending"),
    ],
)
def test_refusals_say_why(before: str, action: Action, reason: str) -> None:
    t = to(before)
    with pytest.raises(StepError) as caught:
        type_after(action, t)
    assert str(caught.value) == f"cannot {OP_NAMES[type(action)]} {t}: {reason}"
    assert "\n" not in str(caught.value)


def test_all_reduce_of_a_part_that_only_looks_pending() -> None:
    """4 x 2 and 3 x 2 of an axis of 24 overlap, and neither lies inside the other."""
    t = ArrayType.parse("f32[4] sum{x:(4)2}", Mesh(x=24))
    with pytest.raises(StepError, match=r"x:\(3\)2 is not pending"):
        type_after(AllReduce((SubAxis("x", 3, 2),)), t)


def test_a_permute_may_change_meshes() -> None:
    before = ArrayType.parse("f32[8{x}]", Mesh(x=2))
    after = ArrayType.parse("f32[8{z}]", Mesh({"z": 2}, ranks=[7, 5]))
    assert type_after(AllPermute(after), before) == after
    assert type_after(Exchange(after), before) == after
    pending = ArrayType.parse("f32[8] sum{x}", Mesh(x=2))
    assert type_after(ReduceScatter(after), pending) == after


def test_every_step_has_a_name() -> None:
    names = {"slice", "all_gather", "all_to_all", "all_permute", "exchange"}
    assert set(OP_NAMES.values()) == names | {"reduce_scatter", "all_reduce"}
    everything: Any = Action
    assert set(everything.__args__) == set(OP_NAMES)


def test_a_slice_cannot_cut_along_the_axis_that_it_makes_pending() -> None:
    t = ArrayType.parse("i32[4]", Mesh(x=4))
    x, minor = whole(t.mesh, "x"), SubAxis("x", 2, 2)
    for part in (x, minor):
        with pytest.raises(StepError, match="cannot both cut and be pending"):
            type_after(Slice(((x, 0),), "sum", (part,)), t)
