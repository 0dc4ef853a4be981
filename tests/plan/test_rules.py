"""Typing rules: a step is allowed exactly where its collective can deliver the type after it."""

from __future__ import annotations

from random import Random

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
