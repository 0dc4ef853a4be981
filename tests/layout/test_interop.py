"""Types as partition specs and as placements: nothing is lost, or it is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redist.errors import ConversionError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.layout.specs_and_placements import (
    Partial,
    Placement,
    RaggedShard,
    Replicate,
    Shard,
    StridedShard,
    from_partition_spec,
    from_placements,
    nested_bounds,
    to_partition_spec,
    to_placements,
)
from tests.problems import oracle
from tests.problems.strategies import NO_OP, meshes, shapes, types
from tests.tiers import sample

XYZ = Mesh(x=2, y=4, z=3)


def torch_chunk(indices: list[int], k: int) -> list[list[int]]:
    """``torch.chunk``: chunks of ceil(n / k), fewer than k if they run out; then empty ones."""
    size = -(-len(indices) // k)
    chunks = [indices[at : at + size] for at in range(0, len(indices), size)] if size else []
    return chunks + [[] for _ in range(k - len(chunks))]


def torch_boxes(placements: Sequence[Placement], mesh: Mesh, shape: tuple[int, ...]) -> Any:
    """What each device holds when every mesh axis cuts what the axes before it left."""
    out = []
    for at in oracle.devices(mesh):
        held = [list(range(n)) for n in shape]
        for (name, size), placement in zip(mesh.axes, placements, strict=True):
            if isinstance(placement, Shard):
                held[placement.dim] = torch_chunk(held[placement.dim], size)[at[name]]
        out.append(held)
    return out


def our_boxes(t: ArrayType) -> Any:
    return [[list(indices) for indices in box] for box in oracle.boxes(t)]


@settings(max_examples=sample(30, of=120), deadline=None, derandomize=True)
@given(types(ops=NO_OP, whole=True))
def test_partition_specs_of_whole_axes_round_trip(t: ArrayType) -> None:
    spec = to_partition_spec(t)
    assert len(spec) == t.ndim
    assert from_partition_spec(spec, t.mesh, t.dtype, t.shape) == t
    assert from_partition_spec(list(spec), t.mesh, str(t.dtype), t.shape) == t
    while spec and spec[-1] is None:
        spec = spec[:-1]
    assert from_partition_spec(spec, t.mesh, t.dtype, t.shape) == t


@settings(max_examples=sample(30, of=120), deadline=None, derandomize=True)
@given(types())
def test_partition_specs_refuse_exactly_what_they_cannot_say(t: ArrayType) -> None:
    parts = any(part.size != t.mesh.size(part.name) for part in t.used)
    try:
        spec = to_partition_spec(t)
    except ConversionError as error:
        assert parts or t.pending_op is not None
        assert "\n" not in str(error)
    else:
        assert not parts and t.pending_op is None
        assert from_partition_spec(spec, t.mesh, t.dtype, t.shape) == t


@settings(max_examples=sample(30, of=120), deadline=None, derandomize=True)
@given(types(whole=True))
def test_placements_refuse_exactly_what_they_cannot_say(t: ArrayType) -> None:
    names = [name for name, _ in t.mesh.axes]
    placements: list[Placement] = [Replicate() for _ in names]
    for i, dim in enumerate(t.dims):
        for part in dim:
            placements[names.index(part.name)] = Shard(i)
    for part in t.pending_axes:
        op = "product" if t.pending_op == "prod" else str(t.pending_op)
        placements[names.index(part.name)] = Partial(op)
    means_the_same = torch_boxes(placements, t.mesh, t.shape) == our_boxes(t)
    in_order = all(
        [part.name for part in dim] == [n for n in names if n in {part.name for part in dim}]
        for dim in t.dims
    )
    try:
        out = to_placements(t)
    except ConversionError as error:
        assert not (in_order and means_the_same)
        assert "\n" not in str(error)
    else:
        assert means_the_same or not in_order
        assert (out == tuple(placements)) == in_order
        assert any(isinstance(one, StridedShard) for one in out) != in_order
        assert from_placements(out, t.mesh, t.dtype, t.shape) == t


@settings(max_examples=sample(25, of=100), deadline=None, derandomize=True)
@given(types())
def test_placements_of_any_type_round_trip_or_are_refused(t: ArrayType) -> None:
    try:
        out = to_placements(t)
    except ConversionError as error:
        assert "\n" not in str(error)
    else:
        assert all(part.size == t.mesh.size(part.name) for part in t.used)
        assert from_placements(out, t.mesh, t.dtype, t.shape) == t


@settings(max_examples=sample(30, of=120), deadline=None, derandomize=True)
@given(meshes(), shapes(), st.data())
def test_from_placements_means_what_pytorch_means(
    mesh: Mesh, shape: tuple[int, ...], data: st.DataObject
) -> None:
    op = data.draw(st.sampled_from(["sum", "product", "max", "min"]))
    choices: list[Placement] = [Replicate(), Partial(op), *map(Shard, range(len(shape)))]
    placements = [data.draw(st.sampled_from(choices)) for _ in mesh.axes]
    expected = torch_boxes(placements, mesh, shape)
    given_ = [
        Shard(p.dim - len(shape)) if isinstance(p, Shard) and data.draw(st.booleans()) else p
        for p in placements
    ]
    dims = [
        [name for (name, _), p in zip(mesh.axes, placements, strict=True) if p == Shard(i)]
        for i in range(len(shape))
    ]
    at_once = ArrayType.of(mesh, "f32", shape, dims)
    try:
        t = from_placements(given_, mesh, "f32", shape)
    except ConversionError as error:
        assert our_boxes(at_once) != expected
        assert "\n" not in str(error)
        return
    assert our_boxes(t) == expected
    assert t.dims == at_once.dims
    waiting = [
        name
        for (name, size), p in zip(mesh.axes, placements, strict=True)
        if isinstance(p, Partial) and size > 1
    ]
    assert sorted(part.name for part in t.pending_axes) == sorted(waiting)
    assert t.pending_op == (("prod" if op == "product" else op) if waiting else None)
    again = to_placements(t)
    assert from_placements(again, mesh, "f32", shape) == t


@settings(max_examples=sample(30, of=120), deadline=None, derandomize=True)
@given(st.integers(0, 40), st.lists(st.integers(1, 5), max_size=3))
def test_nested_bounds(n: int, sizes: list[int]) -> None:
    tiles = [list(range(n))]
    for k in sizes:
        tiles = [chunk for tile in tiles for chunk in torch_chunk(tile, k)]
    lo, hi = nested_bounds(n, sizes)
    found = [list(range(a, b)) for a, b in zip(lo.tolist(), hi.tolist(), strict=True)]
    assert found == tiles


class PartitionSpec:
    """A partition spec of another library: iterable, no tuple."""

    def __init__(self, *entries: object, unreduced: frozenset[str] = frozenset()) -> None:
        self.entries = entries
        self.unreduced = unreduced

    def __iter__(self) -> Iterator[object]:
        return iter(self.entries)


def foreign(name: str, **fields: object) -> object:
    """An object of a class called ``name`` that is none of ours."""
    return type(name, (), {**fields, "__repr__": lambda self: f"their {name}"})()


def test_an_axis_that_cuts_what_later_ones_have_cut() -> None:
    def strided(factor: int) -> object:
        return foreign("_StridedShard", dim=0, split_factor=factor)

    cut, none = foreign("Shard", dim=0), foreign("Replicate")
    for first, axes in ((1, "x,y,z"), (4, "y,x,z"), (12, "y,z,x")):
        t = from_placements([strided(first), cut, cut], XYZ, "f32", (24, 5))
        assert str(t) == f"f32[24{{{axes}}}, 5]"
    t = from_placements([strided(3), none, cut], XYZ, "f32", (24, 5))
    assert str(t) == "f32[24{z,x}, 5]"
    with pytest.raises(ConversionError, match="that cut dim 0 do not cut it into 5"):
        from_placements([strided(5), cut, cut], XYZ, "f32", (24, 5))
    with pytest.raises(ConversionError, match="when cut by z, then x"):
        from_placements([strided(3), none, cut], XYZ, "f32", (10, 5))


def test_objects_of_other_libraries() -> None:
    spec = PartitionSpec(("x", "z"), None)
    assert str(from_partition_spec(spec, XYZ, "f32", (12, 8, 5))) == "f32[12{x,z}, 8, 5]"
    with pytest.raises(ConversionError, match="it has unreduced axes; reduce them first"):
        from_partition_spec(PartitionSpec(unreduced=frozenset({"x"})), XYZ, "f32", (8,))
    theirs = [foreign("Partial", reduce_op="max"), foreign("Shard", dim=-2), foreign("Replicate")]
    assert str(from_placements(theirs, XYZ, "f32", (8, 6))) == "f32[8{y}, 6] max{x}"
    with pytest.raises(ConversionError, match="axis x: _RaggedShard is not known; use Shard"):
        from_placements([foreign("_RaggedShard", dim=0)], Mesh(x=2), "f32", (8,))
    with pytest.raises(ConversionError, match="axis x: dim None is not an int"):
        from_placements([foreign("Shard")], Mesh(x=2), "f32", (8,))
    with pytest.raises(ConversionError, match="axis x: None cannot be pending"):
        from_placements([foreign("Partial")], Mesh(x=2), "f32", (8,))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("f32[8{x}] sum{y}", "cannot say that a sum is pending; resolve it first"),
        ("f32[8{y:(1)2}]", r"y:\(1\)2 is a part of axis y; split y into axes of its own"),
        ("f32[8{y:(2)2,y:(1)2}]", r"y:\(2\)2 is a part of axis y"),
    ],
)
def test_types_that_no_partition_spec_can_say(text: str, reason: str) -> None:
    t = ArrayType.parse(text, XYZ)
    with pytest.raises(ConversionError, match=reason) as caught:
        to_partition_spec(t)
    assert str(caught.value).startswith(f"cannot convert {t} to a partition spec: ")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ((None, None, None), "3 entries for 2 dims; give at most one per dim"),
        (("w",), "unknown axis 'w'; the mesh has x, y, z"),
        ((("x", "w"),), "unknown axis 'w'"),
        (("x", "x"), "axis 'x' is used twice"),
        ((("x", "x"),), "axis 'x' is used twice"),
        (("x", ("y", "x")), "axis 'x' is used twice"),
        ((1,), "entry 0 is 1; write None, an axis or a tuple of axes"),
        ((None, ("x", None)), "entry 1 has None; name an axis"),
        (("x:(1)2",), r"unknown axis 'x:\(1\)2'"),
        ("xy", "it is not a sequence; write one entry per dim"),
        (None, "it is not a sequence; write one entry per dim"),
    ],
)
def test_bad_partition_specs(spec: Any, reason: str) -> None:
    with pytest.raises(ConversionError, match=reason) as caught:
        from_partition_spec(spec, XYZ, "f32", (8, 8))
    assert str(caught.value).startswith(f"cannot read partition spec {spec!r}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("f32[8{y:(1)2}]", r"y:\(1\)2 is a part of axis y; split y into axes of its own"),
        ("f32[8] sum{y:(1)2}", r"y:\(1\)2 is a part of axis y"),
        ("f32[8{x}+8{x}]", r"dim 0, 2\*8\{x\}, is not cut into even ranges"),
        ("f32[10{x/3}]", r"dim 0, 10\{x/3\}, is not cut into even ranges"),
        (
            "f32[3, 10{x,y}]",
            "tile 2 of dim 1 is 4:5 when cut by x, then y, but 4:6 when cut into 8",
        ),
        ("f32[10{x,z}]", "tile 2 of dim 0 is 4:5 when cut by x, then z, but 4:6 when cut into 6"),
    ],
)
def test_types_that_no_placements_can_say(text: str, reason: str) -> None:
    t = ArrayType.parse(text, XYZ)
    with pytest.raises(ConversionError, match=reason) as caught:
        to_placements(t)
    assert str(caught.value).startswith(f"cannot convert {t} to placements: ")


@pytest.mark.parametrize(
    ("placements", "reason"),
    [
        ((), r"0 placements for 3 mesh dims \(x, y, z\); give one per dim"),
        ((Shard(0), Shard(1)), "2 placements for 3 mesh dims"),
        ((Shard(0), Shard(1), Replicate(), Replicate()), "4 placements for 3 mesh dims"),
        ((Shard(2), Replicate(), Replicate()), "axis x: there is no dim 2; the array has 2 dims"),
        ((Shard(-3), Replicate(), Replicate()), "axis x: there is no dim -3; the array has 2 dims"),
        ((Shard(True), Replicate(), Replicate()), "axis x: dim True is not an int"),
        ((Replicate(), Partial("avg"), Replicate()), "axis y: 'avg' .*; take the sum, then divide"),
        (
            (Replicate(), Replicate(), Partial("band")),
            "axis z: 'band' cannot be pending; known: sum, product, max, min",
        ),
        ((Partial("prod"), Replicate(), Replicate()), "'prod' cannot be pending; known: sum, prod"),
        ((Partial("sum"), Partial("max"), Replicate()), "sum and max are both pending; resolve"),
        ((None, Replicate(), Replicate()), "axis x: NoneType is not known; use Shard"),
        ((Shard, Replicate(), Replicate()), "axis x: type is not known; use Shard"),
        (
            (Shard(1), Replicate(), Shard(-1)),
            "tile 2 of dim 1 is 4:5 when cut by x, then z, but 4:6 when cut into 6 at once; "
            "use a multiple of 6, cut another dim by z, or replicate over z",
        ),
        ("Shard", "it is not a sequence; give one per mesh axis"),
        (Shard(0), "it is not a sequence; give one per mesh axis"),
    ],
)
def test_bad_placements(placements: Any, reason: str) -> None:
    with pytest.raises(ConversionError, match=reason) as caught:
        from_placements(placements, XYZ, "f32", (8, 10))
    assert str(caught.value).startswith(f"cannot read placements {placements!r}: ")
    assert "\n" not in str(caught.value)


def test_axes_of_size_one() -> None:
    mesh = Mesh(one=1, x=2)
    t = ArrayType.parse("f32[8{x}]", mesh)
    assert to_placements(t) == (Replicate(), Shard(0))
    for first in (Replicate(), Shard(0), Partial("max")):
        assert from_placements((first, Shard(0)), mesh, "f32", (8,)) == t
    pending = from_placements((Partial("max"), Partial("sum")), mesh, "f32", (8,))
    assert pending == ArrayType.parse("f32[8] sum{x}", mesh)
    assert from_partition_spec((("one", "x"),), mesh, "f32", (8,)) == t
    assert to_partition_spec(t) == ("x",)
    with pytest.raises(ConversionError, match="axis 'one' is used twice"):
        from_partition_spec((("one", "one"),), mesh, "f32", (8,))


def test_scalars_and_meshes_without_axes() -> None:
    assert from_partition_spec((), XYZ, "f32", ()) == ArrayType.parse("f32[]", XYZ)
    assert to_partition_spec(ArrayType.parse("f32[]", XYZ)) == ()
    assert from_placements((), Mesh(), "f32", (8,)) == ArrayType.parse("f32[8]", Mesh())
    assert to_placements(ArrayType.parse("f32[] sum{y}", XYZ))[1] == Partial("sum")
    with pytest.raises(ConversionError, match="there is no dim 0; the array has 0 dims"):
        from_placements((Shard(0),), Mesh(x=2), "f32", ())


def test_uneven_tiles_that_nest_are_fine() -> None:
    """7 cut by 8 at once, and by 2 and then 4: tiles of one element, the last empty."""
    mesh = Mesh(x=2, y=4)
    t = ArrayType.parse("f32[7{x,y}]", mesh)
    assert to_placements(t) == (Shard(0), Shard(0))
    assert from_placements((Shard(0), Shard(0)), mesh, "f32", (7,)) == t


def test_defaults_and_values() -> None:
    assert Partial() == Partial("sum")
    assert len({Shard(0), Shard(0), Shard(1), Replicate(), Replicate(), Partial()}) == 4


def test_neither_library_is_imported() -> None:
    code = (
        "import sys, redist.layout.specs_and_placements\n"
        "assert not {'jax', 'torch', 'mpi4py', 'z3', 'cupy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# Axes out of the mesh's order, ragged dims


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("f32[16{y,x}, 3]", (StridedShard(0, 4), Shard(0), Replicate())),
        ("f32[24{z,y,x}]", (StridedShard(0, 12), StridedShard(0, 3), Shard(0))),
        ("f32[24{y,z,x}]", (StridedShard(0, 12), Shard(0), Shard(0))),
        ("f32[3, 10{x=3;7}]", (RaggedShard((1,), (3, 7)), Replicate(), Replicate())),
        ("f32[12{x=8;4}, 4{y}]", (RaggedShard((0,), (2, 1)), Shard(1), Replicate())),
    ],
)
def test_placements_that_say_an_order_or_lengths(text: str, found: tuple[Any, ...]) -> None:
    mesh = Mesh(x=2, y=4, z=3)
    t = ArrayType.parse(text, mesh)
    assert to_placements(t) == found
    if t.shape[0] != 3:  # veScale cuts the first dims
        assert from_placements(found, mesh, "f32", t.shape) == t


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (RaggedShard((0, 1), (3, 4)), "48 elements are not a multiple of 7 units"),
        (RaggedShard((0, 1), (5, 7)), r"tiles of \(20, 28\) elements end within a row of 6"),
        (RaggedShard((1,), (1, 2)), "dims before dim 1 have more than one index"),
        (RaggedShard((0,), (1, 2, 1)), r"3 units \(1, 2, 1\) for 2 devices"),
        (RaggedShard((0, 2), (1, 1)), r"dims \(0, 2\) do not follow each other"),
    ],
)
def test_ragged_shards_that_no_type_can_say(item: RaggedShard, reason: str) -> None:
    with pytest.raises(ConversionError, match=reason):
        from_placements((item,), Mesh(x=2), "f32", (8, 6))
