"""Operations without a rule: asked type by type, priced, planned and judged like others."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random

import pytest

from redist import ArrayType, Mesh
from redist.arrange.domain import TypeDomain, places_of
from redist.arrange.ein_graph import AskedNode, EinGraph, EinInput, EinNode, WayTaken
from redist.arrange.judge_layouts import judge_layouts
from redist.arrange.layouts import plan_layouts
from redist.arrange.price_book import PriceBook, finish_prices
from redist.arrange.solving.network import FORBIDDEN
from redist.errors import CheckError, RequestError
from redist.layout.axes import SubAxis, whole
from redist.layout.dtype import DType
from redist.plan.rates import DeviceCosts
from redist.plan.topology import Level, Topology

F32 = DType.parse("f32")
MESH = Mesh(x=2, y=2)
PARTS = (whole(MESH, "x"), whole(MESH, "y"))
STEPS = Topology((Level("all", None, 0, 100_000),), 20_000_000)
DEVICE = DeviceCosts(10, 1)
SIZE = (256, 256)


def parse(text: str) -> ArrayType:
    return ArrayType.parse(text, MESH)


def by_rows(types: tuple[ArrayType, ...]) -> WayTaken | None:
    """Something along dim 1, which must be whole: it moves to rows by itself; no partial values."""
    (t,) = types
    if t.pending_op is not None:
        return None
    rows = t.with_dims((t.dims[0], ())) if t.dims[1] else t
    return WayTaken((rows, rows), 1000, () if rows == t else ((t, rows),))


def graph_with(only: tuple[tuple[ArrayType, ...], ...] = ()) -> EinGraph:
    sizes = {"i": 256, "j": 256, "k": 256}
    made = EinInput(SIZE), EinInput(SIZE)
    return EinGraph(
        (EinInput(SIZE), EinInput(SIZE)),
        (
            EinNode("ij,jk->ik", (~0, ~1), sizes, "product"),
            AskedNode("along", (0,), made, by_rows, "along", only),
            EinNode("ij,ij->ij", (1, 2), sizes, "each maximum"),
        ),
    )


def test_a_node_that_is_asked_is_done_where_it_moves_nothing() -> None:
    pins = {~0: parse("f32[256{x}, 256]"), ~1: parse("f32[256, 256{y}]")}
    plan = plan_layouts(graph_with(), MESH, PARTS, STEPS, DEVICE, pins)
    assert plan.search == "exact" and len(plan.made) == 4
    assert plan.made[1] == plan.made[2] and not plan.made[1].dims[1]
    judge_layouts(plan, DEVICE)
    book = PriceBook(MESH, PARTS, STEPS)
    judge_layouts(plan, DEVICE, book.price)
    for moves in (plan.moves[:-1], plan.moves + plan.moves[-1:]):
        if moves != plan.moves:
            with pytest.raises(CheckError):
                judge_layouts(replace(plan, moves=moves), DEVICE)
    wrong = (plan.made[0], parse("f32[256, 256{x}]"), *plan.made[2:])
    with pytest.raises(CheckError):
        judge_layouts(replace(plan, made=wrong), DEVICE)


def test_what_it_moves_by_itself_counts() -> None:
    only = ((parse("f32[256, 256{x,y}]"),),)
    pins = {~0: parse("f32[256{x}, 256]"), ~1: parse("f32[256, 256{y}]")}
    plan = plan_layouts(graph_with(only), MESH, PARTS, STEPS, DEVICE, pins)
    assert [str(move.source) for move in plan.inner] == ["f32[256, 256{x,y}]"]
    judge_layouts(plan, DEVICE)
    with pytest.raises(CheckError, match="by itself"):
        judge_layouts(replace(plan, inner=()), DEVICE)
    with pytest.raises(RequestError, match="none of the types"):
        plan_layouts(graph_with(((parse("f32[256, 256] sum{x}"),),)), MESH, PARTS, STEPS, DEVICE)


def test_a_loop_ends_where_it_begins() -> None:
    sizes = {"i": 256, "j": 256, "k": 256}
    graph = EinGraph(
        (EinInput(SIZE), EinInput(SIZE)),
        (
            EinNode("ij,jk->ik", (~0, ~1), sizes, "product"),
            EinNode("ij->ij", (0,), sizes, "each exp"),
        ),
    )
    plan = plan_layouts(graph, MESH, PARTS, STEPS, DEVICE, loops={1: ~0})
    back = [move for move in plan.moves if move.reader == len(graph.nodes)]
    assert (plan.made[1] == plan.inputs[0]) == (not back)
    free = plan_layouts(graph, MESH, PARTS, STEPS, DEVICE)
    assert free.time_ps <= plan.time_ps
    rows = {~1: parse("f32[256{x,y}, 256]")}
    pinned = plan_layouts(graph, MESH, PARTS, STEPS, DEVICE, rows, loops={1: ~0})
    once = plan_layouts(graph, MESH, PARTS, STEPS, DEVICE, rows | {~0: plan.inputs[0]})
    assert once.time_ps <= pinned.time_ps + sum(move.time_ps for move in back)


def test_partial_results_cost_what_finishes_them() -> None:
    sizes = {"i": 256, "j": 256, "k": 256}
    graph = EinGraph(
        (EinInput(SIZE), EinInput(SIZE)), (EinNode("ij,jk->ik", (~0, ~1), sizes, "product"),)
    )
    pins = {~0: parse("f32[256, 256{x,y}]"), ~1: parse("f32[256{x,y}, 256]")}
    free = plan_layouts(graph, MESH, PARTS, STEPS, DEVICE, pins)
    ends = plan_layouts(graph, MESH, PARTS, STEPS, DEVICE, pins, ends=(0,))
    assert free.made[0].pending_op == "sum" and free.later_ps == 0
    assert ends.time_ps > free.time_ps and (ends.later_ps > 0) == (
        ends.made[0].pending_op is not None
    )
    judge_layouts(ends, DEVICE)


def test_types_in_other_orders_have_prices() -> None:
    """A cut by y, then x: no type of the ordered factors, but known by name, and priced like others."""
    book = PriceBook(MESH, PARTS, STEPS)
    odd, usual = parse("f32[256{y,x}, 256]"), parse("f32[256{x,y}, 256]")
    domain = book.domain(SIZE, F32, None, (odd, usual))
    assert domain.others == (odd,) and domain.type(len(domain) - 1) == odd == domain.others[0]
    assert domain.find(odd) == len(domain) - 1 and domain.find(usual) < len(domain) - 1  # type: ignore[operator]
    assert book.price(odd, usual) == book.price(usual, odd) > 0 == book.price(odd, odd)
    assert book.price(odd, parse("f32[256, 256]")) == book.price(usual, parse("f32[256, 256]"))
    finer = ArrayType.parse("f32[256{x:(1)2}, 256]", Mesh(x=4))
    assert places_of(finer, [whole(Mesh(x=4), "x")]) is None
    assert book.price(finer, finer) == FORBIDDEN
    pins = {~0: odd}
    graph = EinGraph(
        (EinInput(SIZE),), (EinNode("ij->ij", (~0,), {"i": 256, "j": 256}, "each exp"),)
    )
    plan = plan_layouts(graph, MESH, PARTS, STEPS, DEVICE, pins)
    judge_layouts(plan, DEVICE, book.price)
    assert plan.inputs == (odd,)


def test_places_of_types() -> None:
    rng = Random(3)
    parts = [SubAxis("x", 1, 2), SubAxis("x", 2, 2), SubAxis("y", 1, 3)]
    mesh = Mesh(x=4, y=3)
    domain = TypeDomain.of(mesh, parts, (24, 24), F32, "sum")
    for number in rng.sample(range(len(domain)), 20):
        assert domain.places[number].tolist() == list(places_of(domain.type(number), parts) or ())
        assert domain.find(domain.type(number)) == number
    prices = PriceBook(mesh, tuple(parts), STEPS)
    finish = finish_prices(domain, prices.prices(domain))
    for number, row in itertools.islice(enumerate(domain.places.tolist()), 0, None, 7):
        assert (finish[number] == 0) == (-2 not in row)
