"""Array types: canonical form, validity, sizes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redist.errors import LayoutError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, merge_parts, prime_parts, refined_parts, whole
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from tests.problems import oracle
from tests.problems.strategies import meshes, types
from tests.tiers import sample

F32 = DType.parse("f32")


def split(data: st.DataObject, mesh: Mesh, part: SubAxis) -> list[SubAxis]:
    """One part as several that follow each other, with parts of size 1 between."""
    out = [SubAxis(part.name, part.pre, 1)] if data.draw(st.booleans()) else []
    pre, left = part.pre, part.size
    while left > 1:
        step = data.draw(st.sampled_from([k for k in range(2, left + 1) if left % k == 0]))
        out.append(SubAxis(part.name, pre, step))
        pre, left = pre * step, left // step
    return out


@settings(max_examples=sample(25, of=100), deadline=None, derandomize=True)
@given(st.data(), types())
def test_other_spellings_are_the_same_type(data: st.DataObject, t: ArrayType) -> None:
    dims = tuple(tuple(p for part in dim for p in split(data, t.mesh, part)) for dim in t.dims)
    pending = tuple(p for part in t.pending_axes for p in split(data, t.mesh, part))
    if len(pending) > 1:
        pending = tuple(data.draw(st.permutations(pending)))
    again = ArrayType(t.mesh, t.dtype, t.shape, dims, t.pending_op, pending)
    assert again == t
    assert hash(again) == hash(t)
    assert str(again) == str(t)


@settings(max_examples=sample(25, of=100), deadline=None, derandomize=True)
@given(types())
def test_canonical_form(t: ArrayType) -> None:
    for parts in (*t.dims, t.pending_axes):
        assert all(part.size > 1 for part in parts)
        for major, minor in itertools.pairwise(parts):
            assert (major.name, major.end) != (minor.name, minor.pre)
        assert merge_parts(parts) == parts
    assert list(t.pending_axes) == sorted(t.pending_axes)
    assert (t.pending_op is None) == (t.pending_axes == ())
    assert eval(repr(t), {"ArrayType": ArrayType, "Mesh": Mesh}) == t


@settings(max_examples=sample(25, of=100), deadline=None, derandomize=True)
@given(types())
def test_sizes_are_those_of_the_oracle(t: ArrayType) -> None:
    boxes = oracle.boxes(t)
    for i, n in enumerate(t.shape):
        assert t.tile_shape[i] == max(len(box[i]) for box in boxes)
        index = {oracle.shard_index(t.mesh, t.dims[i], at) for at in oracle.devices(t.mesh)}
        assert {cuts for _, cuts in index} == {t.cuts[i]}
        assert len(index) == t.cuts[i]
        assert (n % t.cuts[i] == 0) == (len({len(box[i]) for box in boxes}) == 1)
    assert t.ndim == len(t.shape)
    assert t.global_elems == math.prod(t.shape)
    assert t.tile_bytes == max(len(oracle.elements(box)) for box in boxes) * t.dtype.itemsize
    assert t.is_even == all(len({len(box[i]) for box in boxes}) == 1 for i in range(t.ndim))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(types())
def test_with_dims_and_with_pending(t: ArrayType) -> None:
    assert t.with_dims(t.dims) == t
    assert t.with_pending(t.pending_op, t.pending_axes) == t
    assert t.with_pending(t.pending_op, ()).pending_op is None
    assert t.with_dims(() for _ in t.shape).cuts == (1,) * t.ndim


@settings(max_examples=60, deadline=None, derandomize=True)
@given(meshes(ranks=False))
def test_prime_parts_make_up_the_axes(mesh: Mesh) -> None:
    parts = prime_parts(mesh)
    assert all(part.size in (2, 3, 5) for part in parts)
    assert merge_parts(parts) == tuple(whole(mesh, name) for name, size in mesh.axes if size > 1)


def test_refined_parts() -> None:
    mesh = Mesh(x=24, y=2)
    parts = refined_parts(mesh, [SubAxis("x", 2, 6), SubAxis("x", 4, 3)])
    assert [part.text(mesh) for part in parts] == ["x:(1)2", "x:(2)2", "x:(4)3", "x:(12)2", "y"]
    assert prime_parts(Mesh(x=12), [SubAxis("x", 3, 4)])[0] == SubAxis("x", 1, 3)


def test_of_plain_data() -> None:
    mesh = Mesh(x=2, y=6)
    t = ArrayType.of(mesh, "f32", [8, 9], [["x", SubAxis("y", 1, 2)], []])
    assert str(t) == "f32[8{x,y:(1)2}, 9]"
    assert ArrayType.of(mesh, F32, (8, 9)) == ArrayType.parse("f32[8, 9]", mesh)
    assert ArrayType.of(mesh, F32, (*np.array([8, 9]),)) == ArrayType.parse("f32[8, 9]", mesh)
    assert ArrayType.of(mesh, "f32", ()) == ArrayType.parse("f32[]", mesh)
    assert str(ArrayType.of(mesh, "f32", (4,), [[]], {"max": ["y"]})) == "f32[4] max{y}"


def test_size_one_axes_vanish() -> None:
    mesh = Mesh(x=1, y=2)
    plain = ArrayType.parse("f32[8{y}]", mesh)
    assert ArrayType.parse("f32[8{x,y}] sum{x}", mesh) == plain
    assert ArrayType.parse("f32[8{x,y:(2)1,y,x:(1)1}]", mesh) == plain


def test_pending_axes_have_no_order_but_cutting_axes_do() -> None:
    mesh = Mesh(x=2, y=2)
    assert ArrayType.parse("f32[8] sum{x,y}", mesh) == ArrayType.parse("f32[8] sum{y,x}", mesh)
    assert ArrayType.parse("f32[8{x,y}]", mesh) != ArrayType.parse("f32[8{y,x}]", mesh)


X = SubAxis("x", 1, 6)
HALF: Any = [0.5]
F32_FIRST: Any = "f32"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: ArrayType(m, F32, (8,), ()), "1 dim but axes for 0"),
        (lambda m: ArrayType(m, F32, (8,), ((), ())), "1 dim but axes for 2"),
        (lambda m: ArrayType(m, F32, (-1,), ((),)), "dim of size -1; need an int >= 0"),
        (
            lambda m: ArrayType.of(F32_FIRST, "f32", (8,)),
            r"'f32' is not a Mesh; write ArrayType.of\(mesh",
        ),
        (lambda m: ArrayType.of(m, "f32", HALF), "dim of size 0.5; need an int >= 0"),
        (lambda m: ArrayType(m, F32, (True,), ((),)), "dim of size True; need an int >= 0"),
        (lambda m: ArrayType(m, F32, (2**40, 2**40), ((), ())), r"exceeds 2\*\*63 bytes"),
        (lambda m: ArrayType(m, F32, (2**70, 0), ((), ())), r"exceeds 2\*\*63 bytes"),
        (
            lambda m: ArrayType(m, F32, (8,), ((X, X),)),
            "cannot use axis x twice: an axis can cut one dim",
        ),
        (lambda m: ArrayType(m, F32, (8, 8), ((X,), (X,))), "axis x twice"),
        (lambda m: ArrayType(m, F32, (8,), ((X,),), "sum", (X,)), "axis x twice"),
        (lambda m: ArrayType(m, F32, (8,), ((),), "mean", (X,)), "unknown reduction 'mean'"),
        (lambda m: ArrayType(m, F32, (8,), ((),), None, (X,)), "without a reduction"),
        (lambda m: ArrayType.of(m, "f32", (8,), [["z"]]), "has no axis 'z'"),
        (lambda m: ArrayType.of(m, "f33", (8,)), "unknown dtype 'f33'"),
        (
            lambda m: ArrayType.of(m, "f32", (8,), [[]], {"sum": ["x"], "max": ["y"]}),
            "one reduction can be pending, not several",
        ),
        (
            lambda m: ArrayType.of(m, "f32", (8,), [[SubAxis("x", 1, 4)]]),
            r"cannot use x:\(1\)4: 1 x 4 does not divide axis x=6",
        ),
        (
            lambda m: ArrayType.of(m, "f32", (8,), [[SubAxis("x", 0, 2)]]),
            r"cannot use x:\(0\)2: 0 x 2 does not divide axis x=6",
        ),
        (
            lambda m: ArrayType.of(m, "f32", (8,), [[SubAxis("x", 1, 2), SubAxis("x", 1, 3)]]),
            r"cannot use axis x twice: x:\(1\)2 and x:\(1\)3 overlap",
        ),
        (
            lambda m: ArrayType.of(m, "f32", (8,), [[SubAxis("x", 3, 2), SubAxis("x", 1, 2)]]),
            r"cannot use x:\(1\)2 and x:\(3\)2 in one type: they come from different cuts",
        ),
    ],
)
def test_types_that_cannot_exist(make: Any, message: str) -> None:
    with pytest.raises(LayoutError, match=message) as caught:
        make(Mesh(x=6, y=2))
    assert "\n" not in str(caught.value)


@settings(max_examples=sample(25, of=100), deadline=None, derandomize=True)
@given(st.integers(1, 24), st.data())
def test_parts_of_one_axis_come_from_one_chain(size: int, data: st.DataObject) -> None:
    """Two parts may stand together if and only if some split of the axis has both."""
    parts = []
    for _ in range(2):
        pre = data.draw(st.sampled_from([k for k in range(1, size + 1) if size % k == 0]))
        left = size // pre
        length = data.draw(st.sampled_from([k for k in range(1, left + 1) if left % k == 0]))
        parts.append(SubAxis("x", pre, length))
    a, b = sorted(parts)
    legal = 1 in (a.size, b.size) or b.pre % a.end == 0
    try:
        ArrayType(Mesh(x=size), F32, (8, 8), ((parts[0],), (parts[1],)))
    except LayoutError:
        assert not legal
    else:
        assert legal


def test_a_type_does_not_change() -> None:
    t = ArrayType.parse("f32[8]", Mesh(x=2))
    with pytest.raises(AttributeError):
        t.shape = (9,)  # type: ignore[misc]
