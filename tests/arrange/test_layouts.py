"""Layouts of small programs against every choice, prices against the synthesizer, and known plans."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

import redist
from redist import ArrayType, Mesh
from redist.arrange.domain import TypeDomain, list_groupings
from redist.arrange.ein_graph import EinGraph, EinInput, EinNode
from redist.arrange.judge_layouts import judge_layouts
from redist.arrange.layout_plan import LayoutPlan
from redist.arrange.layouts import plan_layouts
from redist.arrange.price_book import price_moves
from redist.arrange.solving.network import FORBIDDEN
from redist.arrange.strategies import list_ways
from redist.errors import CheckError, RequestError
from redist.layout.axes import prime_parts, whole
from redist.layout.dtype import DType
from redist.plan.rates import DeviceCosts
from redist.plan.topology import Level, Topology
from tests.problems.layer_graph import layers
from tests.tiers import sample

F32 = DType.parse("f32")
STEPS = Topology((Level("all", None, 0, 100_000),), 20_000_000)
"""20 us a step and 10 GB/s, however many messages."""


@pytest.mark.parametrize(
    ("axes", "shape"),
    [({"x": 2, "y": 2}, (8, 16)), ({"x": 2, "y": 4}, (8, 64, 16)), ({"x": 2, "y": 3}, (12, 36))],
)
def test_moves_cost_what_the_synthesizer_says(axes: dict[str, int], shape: tuple[int, ...]) -> None:
    mesh = Mesh(axes)
    domain = TypeDomain.of(mesh, [whole(mesh, name) for name in axes], shape, F32, "sum")
    prices = price_moves(domain, STEPS)
    pairs = list(itertools.permutations(range(len(domain)), 2))
    compared = 0
    for a, b in Random(1).sample(pairs, min(len(pairs), sample(13, of=300))):
        source, target = domain.type(a), domain.type(b)
        added = set(target.pending_axes) - set(source.pending_axes)
        assert (prices[a, b] >= FORBIDDEN) == bool(added)
        if added:
            continue
        plan = redist.synthesize(source, target, topology=STEPS)
        assert int(prices[a, b]) == plan.time_ps + len(plan.steps), f"{source} -> {target}"
        compared += 1
    assert compared > 5


NODES = Topology(
    (Level("node", 4, 10**6, 20_000), Level("net", None, 2 * 10**7, 10**6, 400_000)), 10**7
)
"""Nodes of 4 ranks that share a link of 2.5 GB/s, of which one fills 1."""


@pytest.mark.parametrize("axes", [{"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2}])
def test_moves_across_nodes_cost_about_what_the_synthesizer_says(axes: dict[str, int]) -> None:
    """Mostly the same; senders with more to do than receivers, and plans of three steps, are left out."""
    mesh = Mesh(axes)
    domain = TypeDomain.of(mesh, [whole(mesh, name) for name in axes], (160, 640), F32, "sum")
    prices = price_moves(domain, NODES)
    pairs = [p for p in itertools.permutations(range(len(domain)), 2) if prices[p] < FORBIDDEN]
    ratios = []
    for a, b in Random(2).sample(pairs, min(len(pairs), sample(12, of=60))):
        source, target = domain.type(a), domain.type(b)
        plan = redist.synthesize(source, target, topology=NODES)
        exact = plan.time_ps + len(plan.steps)
        ratios.append(int(prices[a, b]) / exact)
    assert sorted(ratios)[len(ratios) // 2] == 1.0
    assert min(ratios) >= 0.4 and max(ratios) <= 1.6


def test_plans_across_nodes_have_the_synthesizers_prices() -> None:
    rng, mesh, device = Random(5), Mesh(x=2, y=4), DeviceCosts(2000, 10)
    parts = [whole(mesh, "x"), whole(mesh, "y")]

    texts = "f32[256{x}, 256{y}]", "f32[256{y}, 256{x}]"
    pins = {~k: ArrayType.parse(text, mesh) for k, text in enumerate(texts)}

    def exact(source: ArrayType, target: ArrayType) -> int:
        plan = redist.synthesize(source, target, topology=NODES)
        return plan.time_ps + len(plan.steps)

    moved = 0
    for _ in range(sample(2, of=20)):
        graph = random_graph(rng)
        plan = plan_layouts(graph, mesh, parts, NODES, device, pins)
        judge_layouts(plan, device, exact)
        moved += len(plan.moves)
    assert moved


def test_types_of_a_domain() -> None:
    mesh = Mesh(x=2, y=4)
    domain = TypeDomain.of(mesh, prime_parts(mesh), (8, 2), F32, "sum")
    texts = {str(domain.type(n)) for n in range(len(domain))}
    assert len(texts) == len(domain) and "f32[8{y}, 2{x}]" in texts
    assert "f32[8, 2] sum{x,y}" in texts and "f32[8, 2{x,y}]" not in texts
    for n in range(len(domain)):
        assert domain.find(domain.type(n)) == n
        assert domain.tile_bytes()[n] == domain.type(n).tile_bytes
    with pytest.raises(RequestError, match="join factors"):
        TypeDomain.of(Mesh(x=64), prime_parts(Mesh(x=64)), (64, 64, 64), F32, "sum")


def cheapest_by_hand(graph: EinGraph, mesh: Mesh, device: DeviceCosts) -> int:
    """The least cost by trying all types of all values, and all ways that make them."""
    parts = [whole(mesh, name) for name, _ in mesh.axes]
    domains = {
        value: TypeDomain.of(mesh, parts, graph.shape_of(value), F32, "sum" if value >= 0 else None)
        for value in (*range(-len(graph.inputs), 0), *range(len(graph.nodes)))
    }
    prices = {value: price_moves(domain, STEPS) for value, domain in domains.items()}
    homes = [value for value in domains if value < 0 or len(graph.readers(value)) > 1]
    ways = [
        list_ways(node, [domains[n] for n in node.operands], domains[number], device)
        for number, node in enumerate(graph.ein_nodes)
    ]
    best = FORBIDDEN
    for picked in itertools.product(*(range(len(one)) for one in ways)):
        fixed = sum(int(one.times[k]) for one, k in zip(ways, picked, strict=True))
        for value, domain in domains.items():
            made = None if value < 0 else int(ways[value].results[0][picked[value]])
            reads = [
                int(ways[reader].operands[place][picked[reader]])
                for reader, place in graph.readers(value)
            ]
            table = prices[value]
            if value in homes:
                fixed += min(
                    (0 if made is None else int(table[made, home]))
                    + sum(int(table[home, wanted]) for wanted in reads)
                    for home in range(len(domain))
                )
            else:
                assert made is not None
                fixed += sum(int(table[made, wanted]) for wanted in reads)
        best = min(best, fixed)
    return best


def price(source: ArrayType, target: ArrayType) -> int:
    """What the synthesizer says."""
    plan = redist.synthesize(source, target, topology=STEPS)
    return plan.time_ps + len(plan.steps)


def random_graph(rng: Random) -> EinGraph:
    """Two or three nodes on matrices."""
    nodes: list[EinNode] = []
    for n in range(rng.randint(2, 3)):
        notation, join = rng.choice(
            [("ij,jk->ik", "multiply"), ("ij,ij->ij", "add"), ("ij->ij", "exp"), ("ij->ij", "copy")]
        )
        known = [~0, ~1, *range(n)]
        operands = tuple(rng.choice(known) for _ in notation.split(","))
        nodes.append(EinNode(notation, operands, dict.fromkeys("ijk", 256), join))
    return EinGraph((EinInput((256, 256)),) * 2, tuple(nodes))


def test_plans_are_the_best_of_all() -> None:
    rng, mesh, device = Random(3), Mesh(x=4), DeviceCosts(2000, 10)
    for _ in range(sample(3, of=60)):
        graph = random_graph(rng)
        plan = plan_layouts(graph, mesh, [whole(mesh, "x")], STEPS, device)
        assert plan.search == "exact"
        assert plan.time_ps == cheapest_by_hand(graph, mesh, device)
        judge_layouts(plan, device, price)


DEVICE = DeviceCosts(elem_fs=5, byte_fs=1)


def planned(graph: EinGraph, axes: dict[str, int]) -> LayoutPlan:
    mesh = Mesh(axes)
    links = Topology((Level("all", None, 0, 3_300),), 20_000_000)
    return plan_layouts(graph, mesh, [whole(mesh, name) for name in axes], links, DEVICE)


def test_a_large_batch_is_cut_and_nothing_moves() -> None:
    plan = planned(layers(1, 8, 1024, 4096, 32, 11008), {"x": 2, "y": 4})
    assert plan.search == "exact" and not plan.moves
    assert all(str(t).startswith("f32[8{x,y}") for t in plan.made)
    assert "exact" in str(plan)
    judge_layouts(plan, DEVICE)


def test_heads_are_cut_where_the_batch_is_too_small() -> None:
    plan = planned(layers(1, 1, 4096, 4096, 32, 11008), {"x": 8})
    assert plan.search == "exact"
    scores = next(
        t for node, t in zip(plan.graph.ein_nodes, plan.made, strict=True) if "bhst" in node.kept
    )
    assert scores.dims[1] or scores.dims[2]  # heads, or the sequence: nothing else can be


WRONG: dict[str, Callable[[LayoutPlan], LayoutPlan]] = {
    "never becomes": lambda plan: replace(plan, moves=plan.moves[1:]),
    "cut otherwise": lambda plan: _made(plan, 1, "f32[64, 64{x}]"),
    "other axes are pending": lambda plan: _made(plan, 0, "f32[64, 64]"),
    "in two ways": lambda plan: _wanted(plan, 0, ("f32[64, 64{x}]", "f32[64, 64{x}]")),
    "work of": lambda plan: replace(plan, work_ps=plan.work_ps + 1),
    "a bound beyond": lambda plan: replace(plan, bound_ps=plan.time_ps + 1),
    "a move of": lambda plan: _dearer(plan),
}


def _made(plan: LayoutPlan, number: int, text: str) -> LayoutPlan:
    made = list(plan.made)
    made[number] = ArrayType.parse(text, plan.mesh)
    return replace(plan, made=tuple(made))


def _wanted(plan: LayoutPlan, number: int, texts: tuple[str, ...]) -> LayoutPlan:
    wanted, inputs = list(plan.wanted), list(plan.inputs)
    wanted[number] = tuple(ArrayType.parse(text, plan.mesh) for text in texts)
    for operand, t in zip(plan.graph.nodes[number].operands, wanted[number], strict=True):
        inputs[~operand] = t
    return replace(plan, wanted=tuple(wanted), inputs=tuple(inputs))


def _dearer(plan: LayoutPlan) -> LayoutPlan:
    first = replace(plan.moves[0], time_ps=plan.moves[0].time_ps + 5)
    return replace(plan, moves=(first, *plan.moves[1:]), time_ps=plan.time_ps + 5)


@pytest.mark.parametrize("what", WRONG)
def test_the_judge_sees_what_does_not_fit(what: str) -> None:
    mesh, sizes = Mesh(x=4), dict.fromkeys("ijk", 64)
    graph = EinGraph(
        (EinInput((64, 64)),) * 2,
        (EinNode("ij,jk->ik", (~0, ~1), sizes), EinNode("ik->ik", (0,), sizes, "exp")),
    )
    pins = {
        ~0: ArrayType.parse("f32[64, 64{x}]", mesh), ~1: ArrayType.parse("f32[64{x}, 64]", mesh),
        0: ArrayType.parse("f32[64, 64] sum{x}", mesh), 1: ArrayType.parse("f32[64{x}, 64]", mesh),
    }  # fmt: skip
    device = DeviceCosts(2000, 10)
    plan = plan_layouts(graph, mesh, [whole(mesh, "x")], STEPS, device, pins)
    judge_layouts(plan, device, price)
    with pytest.raises(CheckError, match=what):
        judge_layouts(WRONG[what](plan), device, price)


@pytest.mark.parametrize("notation", ["ab->", "ab,ab->", "ab,ba->a", "ab,bc->", "ab->a"])
def test_parts_of_one_axis_may_cut_several_labels(notation: str) -> None:
    """Both dims are cut by a part of ``y``: what is pending then is all of ``y``, however it is written."""
    mesh, device = Mesh(y=4), DeviceCosts(2_000_000, 10)
    terms = notation.partition("->")[0].split(",")
    graph = EinGraph(
        (EinInput((64, 64)),) * len(terms),
        (EinNode(notation, tuple(~k for k in range(len(terms))), dict.fromkeys("abc", 64)),),
    )
    halves = ArrayType.parse("f32[64{y:(1)2}, 64{y:(2)2}]", mesh)
    plan = plan_layouts(graph, mesh, prime_parts(mesh), STEPS, device, {~0: halves})
    judge_layouts(plan, device, price)
    assert plan.inputs[0] == halves


def test_the_judge_sees_an_axis_that_cuts_two_labels() -> None:
    """Also if it is all of it here and a part there, or if its parts come from different cuts."""
    mesh, device = Mesh(y=12), DeviceCosts(2_000_000, 10)
    sizes = dict.fromkeys("abc", 48)
    graph = EinGraph((EinInput((48, 48)),) * 2, (EinNode("ab,bc->a", (~0, ~1), sizes),))
    plan = plan_layouts(graph, mesh, [whole(mesh, "y")], STEPS, device)
    for texts, made, what in (
        (("f32[48{y}, 48]", "f32[48, 48{y:(1)2}]"), "f32[48{y}]", "cuts two labels"),
        (("f32[48, 48{y}]", "f32[48{y}, 48]"), "f32[48] sum{y:(1)6}", "other axes are pending"),
        (("f32[48{y:(1)2}, 48]", "f32[48, 48{y:(3)2}]"), "f32[48{y:(1)2}]", "in two ways"),
    ):
        wrong = _made(_wanted(replace(plan, moves=()), 0, texts), 0, made)
        with pytest.raises(CheckError, match=what):
            judge_layouts(wrong, device)


def test_pins_are_kept() -> None:
    mesh = Mesh(x=4)
    graph = EinGraph(
        (EinInput((64, 64)),) * 2,
        (EinNode("ij,jk->ik", (~0, ~1), dict.fromkeys("ijk", 64)),),
    )
    rows, columns = (ArrayType.parse(t, mesh) for t in ("f32[64{x}, 64]", "f32[64, 64{x}]"))
    plan = plan_layouts(
        graph, mesh, [whole(mesh, "x")], STEPS, pins={~0: columns, ~1: columns, 0: rows}
    )
    assert plan.inputs == (columns, columns) and plan.made == (rows,) and len(plan.moves) == 2
    other = ArrayType.parse("f32[64{x:(1)2}, 64]", mesh)
    with pytest.raises(RequestError, match="cannot pin"):
        plan_layouts(graph, mesh, [whole(mesh, "x")], STEPS, pins={~0: other})


def test_the_best_split_of_the_mesh_is_found() -> None:
    graph = EinGraph(
        (EinInput((4, 64)), EinInput((64, 64))),
        (EinNode("ij,jk->ik", (~0, ~1), {"i": 4, "j": 64, "k": 64}),),
    )
    mesh, device = Mesh(x=8), DeviceCosts(100_000, 10)
    single = plan_layouts(graph, mesh, [whole(mesh, "x")], STEPS, device)
    several = [plan_layouts(graph, mesh, parts, STEPS, device) for parts in list_groupings(mesh)]
    best = min(several, key=lambda plan: plan.time_ps)
    assert best.time_ps <= single.time_ps
    judge_layouts(best, device, price)


def test_mistakes_in_notation() -> None:
    for notation, sizes in (("ij,jk", "ijk"), ("ij->ik", "ijk"), ("ii->i", "i"), ("ij->ij", "i")):
        with pytest.raises(RequestError, match="cannot read"):
            EinNode(notation, (~0,) * len(notation.split(",")), dict.fromkeys(sizes, 4))
    given, sizes_ = (EinInput((2, 3)),), {"i": 2, "j": 3}
    with pytest.raises(RequestError, match="cannot aggregate"):
        EinNode("ij->i", (~0,), sizes_, agg="mean")
    one = EinNode("ij->ji", (~0,), sizes_)
    with pytest.raises(RequestError, match="comes later"):
        EinGraph(given, (EinNode("ij->ij", (0,), sizes_),))
    with pytest.raises(RequestError, match="of shape"):
        EinGraph(given, (one, EinNode("ij->ij", (0,), sizes_)))
