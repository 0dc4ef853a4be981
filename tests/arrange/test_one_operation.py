"""The layout of one operation: by the rule of a program, from any layout of its operands."""

from __future__ import annotations

import numpy as np
import pytest

from redist.arrange.ein_graph import EinGraph, EinInput, EinNode
from redist.arrange.layouts import plan_layouts
from redist.arrange.one_operation import NEAR, PlacedOperation, place_operation
from redist.arrange.strategies import compute_ps
from redist.layout.array_type import ArrayType
from redist.layout.axes import prime_parts
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.plan.rates import CPU, FLAT, GPU, ONE_NODE
from redist.plan.topology import Topology
from tests.tiers import sample

F64 = DType.parse("f64")
MESHES = (Mesh(x=2), Mesh(x=4), Mesh(x=2, y=2), Mesh(x=2, y=3), Mesh(x=8))
FORMS = ("ij,jk->ik", "ij,kj->ik", "bij,bjk->bik", "ij,ij->i", "ij,j->i")
STEPS_FREE = Topology(ONE_NODE.levels)


def product(form: str, sizes: dict[str, int]) -> EinNode:
    used = {label: sizes[label] for label in sizes if label in form}
    return EinNode(form, (~0, ~1), used, "product", dtype=F64)


def draw_types(rng: np.random.Generator, node: EinNode, mesh: Mesh) -> tuple[ArrayType, ...]:
    """Types whose parts come in the order of the mesh, as a plan lists them."""
    out = []
    for term in node.terms:
        places = rng.integers(-1, len(term), len(prime_parts(mesh)))
        dims = [
            tuple(part for part, at in zip(prime_parts(mesh), places, strict=True) if at == dim)
            for dim in range(len(term))
        ]
        out.append(ArrayType(mesh, F64, tuple(node.sizes[n] for n in term), tuple(dims)))
    return tuple(out)


@pytest.mark.parametrize("seed", range(sample(12, of=200)))
def test_an_operation_by_itself_is_placed_as_the_only_one_of_a_program(seed: int):
    rng = np.random.default_rng(seed)
    mesh = MESHES[rng.integers(len(MESHES))]
    sizes = dict(zip("bijk", (24 * rng.choice([1, 2, 8, 40], 4)).tolist(), strict=True))
    node = product(str(rng.choice(FORMS)), sizes)
    types = draw_types(rng, node, mesh)
    topology = (ONE_NODE, STEPS_FREE)[rng.integers(2)]
    device = (CPU, GPU)[rng.integers(2)]
    graph = EinGraph(tuple(EinInput(t.shape, F64) for t in types), (node,))
    parts = prime_parts(mesh)
    pins = {~k: t for k, t in enumerate(types)}
    plan = plan_layouts(graph, mesh, parts, topology, device, pins, ends=(0,))
    found = place_operation(node, types, topology, device)
    assert found.time_ps <= plan.time_ps + plan.time_ps // NEAR, (types, found)
    if found.result.pending_op is None:  # a sum is finished in any order of axes, plans know one
        assert plan.time_ps <= found.time_ps, (types, found)


def place(form: str, mesh: Mesh, *texts: str, free_bytes: int | None = None) -> PlacedOperation:
    types = tuple(ArrayType.parse(text, mesh) for text in texts)
    terms = form.partition("->")[0].split(",")
    pairs = [pair for term, t in zip(terms, types, strict=True) for pair in zip(term, t.shape)]  # noqa: B905
    sizes = dict(pairs)
    return place_operation(product(form, sizes), types, ONE_NODE, CPU, free_bytes)


@pytest.mark.parametrize(
    ("a", "b", "made"),
    [
        ("f64[64{y,x}, 64]", "f64[64, 64]", "f64[64{y,x}, 64]"),  # axes in another order
        ("f64[2{x,y}, 64]", "f64[64, 64]", "f64[2{x,y}, 64]"),  # more tiles than indices
        ("f64[64, 64{x}]", "f64[64{x}, 64{y}]", "f64[64, 64{y}] sum{x}"),
        ("f64[64{x}, 64]", "f64[64, 64{y}]", "f64[64{x}, 64{y}]"),
    ],
)
def test_operands_of_small_products_stay_where_they_are(a: str, b: str, made: str):
    found = place("ij,jk->ik", Mesh(x=2, y=2), a, b)
    assert [str(t) for t in found.operands] == [a, b]
    assert str(found.result) == made


def test_of_ways_that_take_as_long_the_one_that_moves_least_is_taken():
    wide = "f64[65536{x}, 4096]", "f64[4096, 65536{x}]"
    found = place("ij,jk->ik", Mesh(x=4), *wide)
    assert str(found.result) == "f64[65536{x:(1)2}, 65536{x:(2)2}]"


def test_a_limit_comes_in_boundary_pairs():
    operands = "f64[1024{x}, 1024]", "f64[1024{x}, 1024]"
    free = place("ij,jk->ik", Mesh(x=4), *operands)
    held = free.result.tile_bytes
    for text, t in zip(operands, free.operands, strict=True):
        own = ArrayType.parse(text, Mesh(x=4))
        held += min(t.tile_bytes, 2 * own.tile_bytes) if t != own else 0
    assert place("ij,jk->ik", Mesh(x=4), *operands, free_bytes=held) == free
    assert place("ij,jk->ik", Mesh(x=4), *operands, free_bytes=held - 1) != free


def test_times_of_computing_do_not_overflow():
    work = np.array([65536**3, 65536**3 // 64, 2**62], dtype=np.int64)
    times = compute_ps(work, np.zeros(3, dtype=np.int64), CPU.of("product", "f64"), CPU.byte_fs)
    assert times[0] == 65536**3 * 60
    assert times[1] == 65536**3 // 64 * 60
    assert times[2] >= times[0]


def test_messages_count_where_they_cost():
    near = place_operation(
        product("ij,jk->ik", {"i": 8, "j": 8, "k": 8}),
        tuple(ArrayType.parse(t, Mesh(x=8)) for t in ("f64[8{x}, 8]", "f64[8{x}, 8]")),
        FLAT,
        CPU,
    )
    assert near.time_ps > FLAT.levels[0].latency_ps
