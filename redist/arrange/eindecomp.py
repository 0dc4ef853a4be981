"""The published model of layouts, for comparison: every operation is cut into exactly p parts.

A cut of an operation says into how many parts each of its labels is cut, powers of two whose product is p.
Costs are elements: those that every part of a join reads, those that partial results add, and those that a
result moves to be cut as its reader wants it. Inputs are free, however they are cut. (EinDecomp, arXiv
2410.02682.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from redist.arrange.ein_graph import EinGraph, EinNode
from redist.arrange.solving.elimination import eliminate
from redist.arrange.solving.network import CostNetwork, CostTable
from redist.errors import RequestError

Cut = dict[str, int]


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A cut for every node, and what they cost together."""

    cuts: tuple[Cut, ...]
    cost: int


def list_cuts(node: EinNode, parts: int) -> list[Cut]:
    """The ways to cut a node into so many parts.

    >>> node = EinNode("ij,jk->ik", (~0, ~1), {"i": 4, "j": 4, "k": 1})
    >>> [tuple(cut.values()) for cut in list_cuts(node, 4)]
    [(1, 4, 1), (2, 2, 1), (4, 1, 1)]
    """
    bits = parts.bit_length() - 1
    if parts != 2**bits:
        raise RequestError(f"cannot cut into {parts} parts: the model knows powers of two only")
    labels = node.labels
    found = []
    for split in itertools.product(range(bits + 1), repeat=len(labels)):
        cut = {label: 2**k for label, k in zip(labels, split, strict=True)}
        if sum(split) == bits and all(cut[label] <= node.sizes[label] for label in labels):
            found.append(cut)
    if not found:
        raise RequestError(f"cannot cut {node.notation!r} of {node.sizes} into {parts} parts")
    return found


def node_cost(node: EinNode, cut: Cut) -> int:
    """Elements that all parts of a join read, and those that their partial results add.

    >>> node = EinNode("ij,jk->ik", (~0, ~1), {"i": 8, "j": 8, "k": 8})
    >>> node_cost(node, {"i": 2, "j": 1, "k": 2}) // 64, node_cost(node, {"i": 1, "j": 4, "k": 1}) // 64
    (4, 5)
    """
    read = sum(
        node.n_elems(term) * math.prod(n for label, n in cut.items() if label not in term)
        for term in node.terms
    )
    partials = math.prod(n for label, n in cut.items() if label not in node.kept)
    return read + node.n_elems(node.kept) * (partials - 1)


def moved(n_elems: int, before: Sequence[int], after: Sequence[int]) -> int:
    """Elements that move when an array that is cut one way shall be cut another way.

    >>> moved(100, (2, 2), (2, 2)), moved(100, (2, 2), (4, 1)), moved(100, (2, 2), (4, 2))
    (0, 300, 200)
    """
    if tuple(before) == tuple(after):
        return 0
    pairs = list(zip(before, after, strict=True))
    finer = math.prod(max(a, b) // a for a, b in pairs)
    coarser = math.prod(max(a, b) // b for a, b in pairs)
    return finer * n_elems + (coarser - 1) * n_elems


def decompose(graph: EinGraph, parts: int) -> Decomposition:
    """The best cuts of all nodes under the published model, exactly, whatever the graph is like."""
    options = [list_cuts(node, parts) for node in graph.ein_nodes]
    found = eliminate(network_of(graph, options))
    if found is None:
        raise RequestError("cannot decompose: the graph is too tangled for tables of this size")
    cuts = tuple(own[value] for own, value in zip(options, found.values, strict=True))
    return Decomposition(cuts, found.cost)


def decompose_by_trees(graph: EinGraph, parts: int) -> Decomposition:
    """The published algorithm: one tree after another, each the best for what was chosen before it.

    A tree ends where a value has several readers; on a graph that is a tree it is exact.
    """
    chosen: dict[int, Cut] = {}
    several = [n for n in range(len(graph.ein_nodes)) if len(graph.readers(n)) > 1]
    roots = [*several, *(n for n in range(len(graph.ein_nodes)) if not graph.readers(n))]
    for root in roots:
        own = _tree_of(graph, root, set(several) - {root}, chosen)
        options: list[list[Cut]] = [
            [chosen[n]] if n in chosen else list_cuts(node, parts) if n in own else [{}]
            for n, node in enumerate(graph.ein_nodes)
        ]
        found = eliminate(network_of(graph, options, own))
        assert found is not None  # a tree never is too tangled
        chosen |= {n: options[n][found.values[n]] for n in own}
    cuts = tuple(chosen[n] for n in range(len(graph.ein_nodes)))
    return Decomposition(cuts, cost_of(graph, cuts))


def cut_by_roots(graph: EinGraph, parts: int) -> Decomposition:
    """The usual layout: every label is cut into as many parts as a square mesh has rows."""
    side = math.isqrt(parts)
    cuts = tuple(dict.fromkeys(node.labels, side) for node in graph.ein_nodes)
    return Decomposition(cuts, cost_of(graph, cuts))


def cost_of(graph: EinGraph, cuts: Sequence[Cut]) -> int:
    """What cuts of all nodes cost together."""
    total = 0
    for node, cut in zip(graph.ein_nodes, cuts, strict=True):
        total += node_cost(node, cut)
        for operand, term in zip(node.operands, node.terms, strict=True):
            if operand >= 0:
                total += _edge_cost(graph.ein_nodes[operand], cuts[operand], node, cut, term)
    return total


def _edge_cost(maker: EinNode, made: Cut, reader: EinNode, read: Cut, term: str) -> int:
    before, after = [made[label] for label in maker.kept], [read[label] for label in term]
    return moved(maker.n_elems(maker.kept), before, after)


def network_of(
    graph: EinGraph, options: Sequence[Sequence[Cut]], only: set[int] | None = None
) -> CostNetwork:
    """Tables of all nodes, or of some, and of what moves to them."""
    tables = []
    for n, node in enumerate(graph.ein_nodes):
        if only is not None and n not in only:
            continue
        own = [node_cost(node, cut) for cut in options[n]]
        tables.append(CostTable((n,), np.array(own, dtype=np.int64)))
        for operand, term in zip(node.operands, node.terms, strict=True):
            if operand < 0:
                continue
            maker = graph.ein_nodes[operand]
            edge = [
                [_edge_cost(maker, made, node, read, term) for read in options[n]]
                for made in options[operand]
            ]
            tables.append(CostTable((operand, n), np.array(edge, dtype=np.int64)))
    return CostNetwork(tuple(map(len, options)), tuple(tables))


def _tree_of(graph: EinGraph, root: int, ends: set[int], chosen: dict[int, Cut]) -> set[int]:
    """The nodes that only a root needs, itself among them, down to those that were chosen before."""
    own: set[int] = set()
    left = [root]
    while left:
        n = left.pop()
        if n in own or n in chosen or n in ends:
            continue
        own.add(n)
        left += [operand for operand in graph.ein_nodes[n].operands if operand >= 0]
    return own
