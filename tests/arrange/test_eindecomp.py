"""The published model: its figures, and what its algorithm loses on graphs that are no trees."""

from __future__ import annotations

from random import Random

import pytest

from redist.arrange.ein_graph import EinGraph, EinInput, EinNode, chain_of_products
from redist.arrange.eindecomp import (
    cost_of,
    cut_by_roots,
    decompose,
    decompose_by_trees,
    list_cuts,
    network_of,
)
from redist.arrange.solving.network import try_all
from redist.errors import RequestError
from tests.tiers import sample

SIDE = 1000
SQUARE = chain_of_products(SIDE, SIDE, SIDE, SIDE, SIDE)
SKEWED = chain_of_products(SIDE, SIDE // 10, SIDE, SIDE // 10, 10 * SIDE)
PUBLISHED = {
    "square": (SQUARE, {4: (14.0, 17.0), 16: (26.0, 35.0), 64: (43.0, 71.0)}),
    "skewed": (SKEWED, {4: (14.3, 26.9), 16: (16.5, 53.9), 64: (20.7, 107.9)}),
}


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("parts", [4, 16, 64])
def test_the_published_figures(name: str, parts: int) -> None:
    graph, figures = PUBLISHED[name]
    best, usual = figures[parts]
    found = decompose(graph, parts)
    assert found.cost / SIDE**2 == best and cost_of(graph, found.cuts) == found.cost
    assert cut_by_roots(graph, parts).cost / SIDE**2 == usual
    assert decompose_by_trees(graph, parts).cost == found.cost  # the chain is a tree


def random_graph(rng: Random) -> EinGraph:
    """Products and sums of square matrices, values read once or more."""
    nodes: list[EinNode] = []
    for n in range(rng.randint(2, 6)):
        notation = rng.choice(["ij,jk->ik", "ij,ij->ij", "ij,jk->ik", "ij->ij"])
        if notation == "ij->ij":
            operands: tuple[int, ...] = (rng.choice([~0, *range(n)]),)
        else:
            operands = tuple(rng.choice([~0, *range(n), *range(n)]) for _ in range(2))
        nodes.append(EinNode(notation, operands, dict.fromkeys("ijk", 64)))
    return EinGraph((EinInput((64, 64)),), tuple(nodes))


def test_the_best_cuts_are_found_on_any_graph_and_trees_lose() -> None:
    rng, losses = Random(5), []
    for _ in range(sample(15, of=200)):
        graph = random_graph(rng)
        found = decompose(graph, 4)
        every = try_all(network_of(graph, [list_cuts(node, 4) for node in graph.ein_nodes]))
        assert cost_of(graph, found.cuts) == found.cost == every.cost
        loss = decompose_by_trees(graph, 4).cost / found.cost
        assert loss >= 1
        losses.append(loss)
    assert max(losses) > 1


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
    with pytest.raises(RequestError, match="powers of two"):
        decompose(EinGraph(given, (one,)), 6)
    with pytest.raises(RequestError, match="into 64 parts"):
        decompose(EinGraph(given, (one,)), 64)
