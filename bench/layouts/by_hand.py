"""Layouts of many layers as people choose them: one way to cut labels for all operations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from redist.arrange.ein_graph import EinGraph, EinNode
from redist.arrange.judge_layouts import node_time_ps
from redist.arrange.price_book import PriceBook
from redist.arrange.strategies import DeviceCosts
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.mesh import Mesh
from redist.plan.topology import Topology

Cuts = Mapping[str, Sequence[SubAxis]]
"""Which factors of the mesh cut a label."""


def hand_plans(parts: Sequence[SubAxis]) -> dict[str, Cuts]:
    """Batch, heads, sequence; and batch with each of the others, however the factors are split."""
    every = tuple(parts)
    named: dict[str, Cuts] = {
        "batch": {"b": every},
        "heads": {"h": every, "f": every},
        "sequence": {"s": every},
    }
    for k in range(1, len(every)):
        major, minor = every[:k], every[k:]
        rest = math.prod(part.size for part in minor)
        named[f"batch x heads of {rest}"] = {"b": major, "h": minor, "f": minor}
        named[f"batch x sequence of {rest}"] = {"b": major, "s": minor}
        named[f"sequence x heads of {rest}"] = {"s": major, "h": minor, "f": minor}
    return named


def hand_time_ps(
    graph: EinGraph,
    mesh: Mesh,
    parts: Sequence[SubAxis],
    cuts: Cuts,
    topology: Topology,
    device: DeviceCosts,
) -> int | None:
    """The modelled time of such layouts; None if a label is too small for its factors.

    Inputs lie as they are first wanted. What a node makes is brought once to every type that is wanted.
    """
    book = PriceBook(mesh, tuple(parts), topology)
    made: dict[int, ArrayType] = {}
    wanted: dict[int, list[ArrayType]] = {}
    time = 0
    for number, node in enumerate(graph.ein_nodes):
        if any(
            math.prod(p.size for p in cuts.get(one, ())) > node.sizes[one] for one in node.labels
        ):
            return None
        operands = [
            ArrayType(mesh, graph.dtype_of(value), graph.shape_of(value), _dims(term, cuts))
            for term, value in zip(node.terms, node.operands, strict=True)
        ]
        for value, t in zip(node.operands, operands, strict=True):
            wanted.setdefault(value, []).append(t)
        made[number] = _result(node, graph.shape_of(number), mesh, cuts)
        time += node_time_ps(node, tuple(operands), made[number], device)
    for value, types in wanted.items():
        here = made.get(value, types[0])
        time += sum(book.exact_price(here, t) for t in dict.fromkeys(types) if t != here)
    return time


def _dims(term: str, cuts: Cuts) -> tuple[tuple[SubAxis, ...], ...]:
    return tuple(tuple(cuts.get(label, ())) for label in term)


def _result(node: EinNode, shape: tuple[int, ...], mesh: Mesh, cuts: Cuts) -> ArrayType:
    t = ArrayType(mesh, node.dtype, shape, _dims(node.kept, cuts))
    kept = {part for label in node.kept for part in cuts.get(label, ())}
    labels = dict.fromkeys(label for term in node.terms for label in term)
    lost = [part for label in labels for part in cuts.get(label, ()) if label not in node.kept]
    pending = tuple(sorted(part for part in dict.fromkeys(lost) if part not in kept))
    return t.with_pending(node.agg, pending) if pending else t
