"""What every device holds, against the oracle."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redist
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, coordinates
from redist.layout.mesh import Mesh
from redist.layout.tiles import (
    box_of,
    boxes_of,
    common,
    grid,
    overlaps,
    same_layout,
    tile_index,
    tile_shapes,
    total,
)
from tests.problems import oracle
from tests.problems.strategies import (
    pairs,
    random_mesh,
    random_op,
    random_pair,
    random_shape,
    random_type,
    seeded,
    types,
)
from tests.tiers import sample


def any_type(rng: Random) -> ArrayType:
    return random_type(rng, random_mesh(rng), random_shape(rng), random_op(rng))


@settings(max_examples=sample(62, of=250), deadline=None, derandomize=True)
@given(st.one_of(types(), seeded(any_type), seeded(any_type)))
def test_boxes_are_those_of_the_oracle(t: ArrayType) -> None:
    g = grid(t)
    lo, hi = g.boxes()
    for device, at in enumerate(oracle.devices(t.mesh)):
        expected = oracle.box(t, at)
        for i, indices in enumerate(expected):
            assert list(range(lo[device, i], hi[device, i])) == list(indices)
            assert g.index[device, i] == oracle.shard_index(t.mesh, t.dims[i], at)[0]
        assert g.volumes()[device] == math.prod(map(len, expected))
    assert tuple(cut.tile_size for cut in g.dims) == t.tile_shape
    assert tuple(cut.n_tiles for cut in g.dims) == t.cuts
    assert boxes_of(t) == {
        rank: tuple((int(lo[row, i]), int(hi[row, i])) for i in range(t.ndim))
        for row, rank in enumerate(t.mesh.ranks)
    }
    for row, rank in enumerate(t.mesh.ranks):
        assert box_of(t, rank) == boxes_of(t)[rank]
        assert tile_index(t, rank) == tuple(g.index[row].tolist())
        assert tile_shapes(t)[rank] == tuple((hi - lo)[row].tolist())
    assert g.ranks.tolist() == list(t.mesh.ranks)
    assert bool(g.holds.all())


@settings(max_examples=sample(50, of=200), deadline=None, derandomize=True)
@given(seeded(any_type))
def test_shards_tell_tiles_apart(t: ArrayType) -> None:
    shards = grid(t).shards().tolist()
    place = [
        tuple(oracle.shard_index(t.mesh, parts, at)[0] for parts in t.dims)
        for at in oracle.devices(t.mesh)
    ]
    assert len(set(zip(shards, place, strict=True))) == len(set(shards)) == len(set(place))


@settings(max_examples=sample(50, of=200), deadline=None, derandomize=True)
@given(seeded(any_type))
def test_extra_dims_and_devices_that_hold_nothing(t: ArrayType) -> None:
    """Partial values as one more dim: each is held where its coordinate says, or at 0 only."""
    size = math.prod(part.size for part in t.pending_axes)
    g = grid(t, [(size, t.pending_axes)], at_zero=t.pending_axes)
    lo, hi = g.boxes()
    volume = grid(t).volumes()
    for device, at in enumerate(oracle.devices(t.mesh)):
        label = oracle.shard_index(t.mesh, t.pending_axes, at)[0]
        assert g.index[device, -1] == label
        assert bool(g.holds[device]) == (label == 0)
        assert g.volumes()[device] == (volume[device] if label == 0 else 0)
        if label != 0:
            assert lo[device].tolist() == hi[device].tolist()


@settings(max_examples=sample(100, of=400), deadline=None, derandomize=True)
@given(seeded(random_pair))
def test_overlaps_go_by_rank(pair: tuple[ArrayType, ArrayType]) -> None:
    a, b = map(grid, pair)
    ia, ib = common(a, b)
    held = [oracle.holdings(t) for t in pair]
    ranks = a.ranks[ia].tolist()
    assert ranks == b.ranks[ib].tolist()
    assert sorted(ranks) == sorted(held[0].keys() & held[1].keys())
    expected = [len(held[0][rank] & held[1][rank]) for rank in ranks]
    assert overlaps(a, ia, b, ib).tolist() == expected


@settings(max_examples=sample(62, of=250), deadline=None, derandomize=True)
@given(st.one_of(pairs(), seeded(random_pair), seeded(random_pair)))
def test_same_layout_of_any_pair(pair: tuple[ArrayType, ArrayType]) -> None:
    a, b = pair
    assert same_layout(a, b) == same_layout(b, a) == oracle.same_layout(a, b)
    assert same_layout(a, a) and same_layout(b, b)


@settings(max_examples=sample(125, of=500), deadline=None, derandomize=True)
@given(seeded(lambda rng: (any_type(rng), rng)))
def test_same_layout_of_close_relatives(case: tuple[ArrayType, Random]) -> None:
    """The axes of the mesh or of a dim in another order, two ranks that change places."""
    t, rng = case
    order = rng.sample(range(len(t.mesh.axes)), len(t.mesh.axes))
    axes = [t.mesh.axes[k] for k in order]
    cube = np.array(t.mesh.ranks).reshape([size for _, size in t.mesh.axes])
    ranks = cube.transpose(order).ravel().tolist()
    if rng.random() < 0.5:
        i, j = rng.randrange(len(ranks)), rng.randrange(len(ranks))
        ranks[i], ranks[j] = ranks[j], ranks[i]
    mesh = Mesh(axes, ranks=ranks)
    dims = [tuple(rng.sample(dim, len(dim))) if rng.random() < 0.2 else dim for dim in t.dims]
    other = ArrayType(mesh, t.dtype, t.shape, tuple(dims), t.pending_op, t.pending_axes)
    assert same_layout(t, other) == same_layout(other, t) == oracle.same_layout(t, other)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("f32[8{x,y}]", "f32[8{x,y}]", True),
        ("f32[8{x,y}]", "f32[8{y,x}]", False),
        ("f32[8{x}]", "f32[8{y}]", False),
        ("f32[0{x}]", "f32[0{y}]", True),
        ("f32[0{x}]", "f32[0]", True),
        ("f32[0, 5]", "f32[0, 5{x}]", True),
        ("f32[0{x}]", "f64[0{x}]", False),
        ("f32[0]", "f32[0, 1]", False),
        ("f32[1{x}]", "f32[1{x:(1)2}]", False),
        ("f32[1{x:(1)2,y}]", "f32[1{x:(1)2,y}]", True),
        ("f32[2{x:(1)2,x:(2)2}]", "f32[2{x}]", True),
        ("f32[8] sum{x}", "f32[8]", False),
        ("f32[8] sum{x}", "f32[8] max{x}", False),
        ("f32[8] sum{x}", "f32[8] sum{y}", False),
        ("f32[0] sum{x}", "f32[0] sum{y}", True),
    ],
)
def test_same_layout_examples(a: str, b: str, same: bool) -> None:
    mesh = Mesh(x=4, y=2)
    ta, tb = ArrayType.parse(a, mesh), ArrayType.parse(b, mesh)
    assert same_layout(ta, tb) == oracle.same_layout(ta, tb) == same


def test_same_layout_across_meshes() -> None:
    row = ArrayType.parse("f32[8{x,y}]", Mesh(x=2, y=3))
    assert same_layout(row, ArrayType.parse("f32[8{z}]", Mesh(z=6)))
    assert not same_layout(row, ArrayType.parse("f32[8{z}]", Mesh({"z": 6}, ranks=range(1, 7))))
    turned = Mesh({"y": 3, "x": 2}, ranks=[0, 3, 1, 4, 2, 5])
    assert same_layout(row, ArrayType.parse("f32[8{x,y}]", turned))
    # Tiles of 2: ranks 4 and 5 of six hold nothing and may as well be absent.
    assert same_layout(row, ArrayType.parse("f32[8{z}]", Mesh(z=4)))


def test_same_layout_when_the_numbers_of_partial_values_change_in_one_tile() -> None:
    """Partial values combine in any order: who shares one matters, not what it is called."""
    a = ArrayType.parse("f32[2{x}] sum{y}", Mesh(x=2, y=2))
    b = ArrayType.parse("f32[2{x}] sum{y}", Mesh({"x": 2, "y": 2}, ranks=[1, 0, 2, 3]))
    assert same_layout(a, b)
    c = ArrayType.parse("f32[2] sum{y}", Mesh(x=2, y=2))
    d = ArrayType.parse("f32[2] sum{y}", Mesh({"x": 2, "y": 2}, ranks=[1, 0, 2, 3]))
    assert not same_layout(c, d)


def test_sums_do_not_overflow() -> None:
    values = np.array([2**62, 2**62, 2**62, 5], dtype=np.int64)
    assert total(values) == 3 * 2**62 + 5
    assert total(np.zeros(0, dtype=np.int64)) == 0


def test_a_mesh_of_a_million_devices() -> None:
    mesh = Mesh(a=1024, b=1024)
    t = ArrayType.parse("f32[4194304{b}, 1048576{a:(2)512,a:(1)2}]", mesh)
    g = grid(t)
    assert total(g.volumes()) == 4194304 * 1048576
    assert coordinates(mesh, [SubAxis("a", 2, 512)])[-1] == 511


def test_text_has_no_box() -> None:
    with pytest.raises(redist.LayoutError, match=r"need an ArrayType"):
        redist.box_of("f64[16{x}, 16]", 0)  # type: ignore[arg-type]
