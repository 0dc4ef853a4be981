"""Typing rules by example: the types after steps, and what refusals say."""

from __future__ import annotations

from typing import Any

import pytest

from redist.errors import StepError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, whole
from redist.layout.mesh import Mesh
from redist.plan.rules import (
    type_after,
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
from tests.plan.test_rules import outcome


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
