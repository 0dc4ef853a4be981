"""Bounds against every set of points, every even partition, the closed form, and exact plans."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from redist import ArrayType, Mesh
from redist.arrange.ein_graph import EinGraph, EinInput, EinNode
from redist.arrange.layouts import plan_layouts
from redist.arrange.lower_bounds import (
    bound_layouts,
    bounds_beside,
    least_access,
    lies_once,
    product_access,
)
from redist.layout.axes import whole
from redist.layout.dtype import DType
from redist.plan.rates import DeviceCosts
from redist.plan.topology import Level, Topology
from tests.tiers import sample

BYTES = Topology((Level("all", None, 0, 1000),))
"""A picosecond a byte, and nothing else: times are bytes, and one for every step."""
SHAPES = [
    ("ij", "jk", "ik"),
    ("ij", "j", "i"),
    ("ij", "ik", "jk", "ijk"),
    ("i", "j", "ij"),
    ("ik", "jk"),
]


@pytest.mark.parametrize("terms", SHAPES)
def test_no_set_of_points_needs_less(terms: tuple[str, ...]) -> None:
    """All subsets of a small space of points."""
    labels = "".join(sorted(set("".join(terms))))
    sizes = dict(zip(labels, (2, 3, 2), strict=False))
    points = list(itertools.product(*(range(n) for n in sizes.values())))
    sets = np.arange(2 ** len(points))
    access = np.zeros(len(sets), dtype=np.int64)
    for term in terms:
        at = [labels.index(label) for label in term]
        for image in {tuple(point[i] for i in at) for point in points}:
            mask = sum(
                1 << n for n, point in enumerate(points) if tuple(point[i] for i in at) == image
            )
            access += (sets & mask) != 0
    n_points = sum((sets >> n) & 1 for n in range(len(points)))
    for p in (1, 2, 3, 4, 6):
        least = int(access[n_points * p >= len(points)].min())
        bound = least_access(sizes, [(term, 1) for term in terms], p)
        assert 0.5 * least < bound <= least


def test_no_even_partition_needs_less() -> None:
    rng, tight = Random(1), 0
    for _ in range(sample(40, of=400)):
        terms = rng.choice(SHAPES)
        sizes = {label: 2 ** rng.randint(0, 6) for label in set("".join(terms))}
        p = 2 ** rng.randint(1, 5)
        weights = [(term, rng.choice([2, 4, 8])) for term in terms]
        every = [
            sum(w * math.prod(sizes[x] // cuts[x] for x in term) for term, w in weights)
            for several in itertools.product(*([2**k for k in range(6)] for _ in sizes))
            for cuts in [dict(zip(sizes, several, strict=True))]
            if math.prod(several) == p and all(sizes[x] % cuts[x] == 0 for x in sizes)
        ]
        bound = least_access(sizes, weights, p)
        if every:
            assert bound <= min(every)
            tight += bound > 0.999 * min(every)
    assert tight > 5


def test_products_have_a_closed_form() -> None:
    rng, regimes = Random(2), set()
    terms = [("ij", 1), ("jk", 1), ("ik", 1)]
    for _ in range(sample(40, of=400)):
        sides = rng.choices([2, 3, 10, 64, 1000, 4096, 100_000], k=3)
        p = rng.choice([2, 3, 8, 64])
        if p > math.prod(sides):
            continue
        k, n, m = sorted(sides)
        regimes.add("1-D" if p * n <= m else "2-D" if p * k * k <= m * n else "3-D")
        closed = product_access((sides[0], sides[1], sides[2]), p)
        found = least_access(dict(zip("ijk", sides, strict=True)), terms, p)
        assert found == pytest.approx(float(closed), rel=1e-6)
        if p == 8 and regimes == {"3-D"}:
            assert found <= closed
    assert regimes == {"1-D", "2-D", "3-D"}
    assert product_access((64, 64, 64), 8) == 3 * 32**2
    assert product_access((4, 1024, 1024), 16) == 2 * 256 * 4 + 256 * 256


def test_what_a_node_reads_twice_counts_once() -> None:
    sizes, given = dict.fromkeys("ijk", 64), (EinInput((64, 64)),) * 2
    own = EinGraph(given, (EinNode("ij,ij->ij", (~0, ~0), sizes),))
    assert _alone_bytes(own) == 0
    gram = EinGraph(given, (EinNode("ij,kj->ik", (~0, ~0), sizes),))
    both = EinGraph(given, (EinNode("ij,kj->ik", (~0, ~1), sizes),))
    assert 0 < _alone_bytes(gram) < _alone_bytes(both) == 4 * 1536
    half = replace(both.ein_nodes[0], dtype=DType.parse("f16"))
    assert _alone_bytes(EinGraph(given, (half,))) < 4 * 1536


def _alone_bytes(graph: EinGraph) -> int:
    (node,) = bound_layouts(graph, Mesh(x=8)).nodes
    return node.alone_bytes


def random_case(rng: Random, mesh: Mesh) -> tuple[EinGraph, dict[int, ArrayType]]:
    """A few operations on matrices and vectors; what is given and what comes out lies once."""
    sizes = {label: rng.choice([8, 16, 24, 9]) for label in "abc"}
    shapes = ["ab", "bc", rng.choice(["ab", "ac", "b"])]
    values = list(enumerate(shapes))
    values = [(~k, labels) for k, labels in values]
    nodes: list[EinNode] = []

    def add(notation: str, operands: tuple[int, ...], join: str) -> None:
        nodes.append(EinNode(notation, operands, sizes, join))
        values.append((len(nodes) - 1, notation.partition("->")[2]))

    for _ in range(rng.randint(1, 3)):
        (one, first), (two, second) = rng.choice(values), rng.choice(values)
        every = "".join(dict.fromkeys(first + second))
        kept = "".join(x for x in every if rng.random() < 0.5) or every[0]
        if rng.random() < 0.3:
            add(f"{first}->{first}", (one,), "exp")
        else:
            add(f"{first},{second}->{kept}", (one, two), "multiply")
    for n in range(len(nodes)):  # sums that are pending come to rest
        if not any(n in node.operands for node in nodes):
            add(f"{nodes[n].kept}->{nodes[n].kept}", (n,), "copy")
    given = tuple(EinInput(tuple(sizes[x] for x in labels)) for labels in shapes)
    graph = EinGraph(given, tuple(nodes))
    pins = {}
    for value in (*range(-len(given), 0), *range(len(nodes))):
        if value < 0 or not graph.readers(value):
            pins[value] = once_over(rng, mesh, graph.shape_of(value))
    return graph, pins


def once_over(rng: Random, mesh: Mesh, shape: tuple[int, ...]) -> ArrayType:
    """A type that puts every axis on some dim."""
    while True:
        dims: list[list[str]] = [[] for _ in shape]
        for name, _ in mesh.axes:
            rng.choice(dims).append(name)
        t = ArrayType.of(mesh, "f32", shape, dims)
        if all(cut <= n for cut, n in zip(t.cuts, shape, strict=True)):
            return t


def test_plans_are_never_below_their_bounds() -> None:
    rng, device, bounds_above_0 = Random(3), DeviceCosts(20, 1), 0
    for number in range(sample(25, of=400)):
        mesh = Mesh(x=2, y=2) if number % 3 else Mesh(x=2, y=3)
        graph, pins = random_case(rng, mesh)
        parts = [whole(mesh, name) for name, _ in mesh.axes]
        plan = plan_layouts(graph, mesh, parts, BYTES, device, pins)
        bounds = bound_layouts(graph, mesh, BYTES, device, pins)
        assert all(lies_once(t) for t in pins.values())
        assert bounds.compute_ps == plan.compute_ps <= plan.work_ps
        assert bounds.moved_bytes <= plan.time_ps - plan.work_ps
        assert bounds.time_ps <= plan.time_ps
        assert bounds == bounds_beside(plan, BYTES, device)
        bounds_above_0 += bounds.moved_bytes > 0
    assert bounds_above_0 > 3


def test_a_product_in_three_dims_is_near_its_bound() -> None:
    mesh, sizes = Mesh(x=2, y=2, z=2), dict.fromkeys("ijk", 64)
    graph = EinGraph(
        (EinInput((64, 64)),) * 2,
        (EinNode("ij,jk->ik", (~0, ~1), sizes), EinNode("ik->ik", (0,), sizes, "copy")),
    )
    pins = {
        ~0: ArrayType.parse("f32[64{x,z}, 64{y}]", mesh),
        ~1: ArrayType.parse("f32[64{y}, 64{x,z}]", mesh),
        1: ArrayType.parse("f32[64{x,y}, 64{z}]", mesh),
    }
    parts = [whole(mesh, name) for name in "xyz"]
    plan = plan_layouts(graph, mesh, parts, BYTES, DeviceCosts(10_000, 1), pins)
    bounds = bounds_beside(plan, BYTES, DeviceCosts(10_000, 1))
    assert bounds.moved_bytes == 4 * 3 * (32**2 - 64**2 // 8) == 6144
    assert bounds.moved_bytes <= plan.time_ps - plan.work_ps < 1.34 * bounds.moved_bytes
    text = str(bounds)
    assert text.startswith("at least") and "6 KiB moved" in text and "ij,jk->ik" in text


def test_values_inside_a_program_are_not_counted() -> None:
    """An outer product may be computed where it is read, a sum before it is brought together."""
    mesh, sizes = Mesh(x=4), dict.fromkeys("ijk", 64)
    graph = EinGraph(
        (EinInput((64,)), EinInput((64,)), EinInput((64, 64))),
        (
            EinNode("i,j->ij", (~0, ~1), sizes),
            EinNode("ij,jk->ik", (0, ~2), sizes),
            EinNode("ik->i", (1,), sizes),
        ),
    )
    vector, matrix = (ArrayType.parse(t, mesh) for t in ("f32[64{x}]", "f32[64, 64{x}]"))
    bounds = bound_layouts(graph, mesh, pins={~0: vector, ~1: vector, ~2: matrix, 2: vector})
    product = bounds.nodes[1]
    assert product.program_bytes == 0 < product.alone_bytes
    free = bound_layouts(graph, mesh)
    assert free.moved_bytes == 0 and free.time_ps == free.compute_ps
