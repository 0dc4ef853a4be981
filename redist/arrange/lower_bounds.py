"""What no plan is quicker than: computing alone, and the bytes that contractions must bring to a device.

**One contraction, any algorithm.** Let its operands and its result each lie once over the devices, 1/p on
each, at the start and at the end. Some device works on 1/p of the points or more. What it needs of operands
and does not hold it receives; what it adds to parts of the result that it does not hold it sends. Both
together are at least the least access (:mod:`redist.arrange.least_access`) less what it holds.

**One contraction in a plan.** Types cut labels like a grid, so the average device's block has real sides
``size / cuts``. On average a device receives at least the block of each operand less 1/p of it; of g partial
values of each element of the result g - 1 must be received, which is at least the block of the result less
1/p of it if no work is done twice; if it is, a smaller block has the same result. The busiest device of a
move receives at least as much as the average one. So the bytes of the busiest devices, added up over the
moves of these values, are at least the bound, whether tiles are even or not.

**A program.** Values inside may be computed where they are needed, from others that are smaller, or be summed
up further before anybody needs them. So a node counts only operands that are pinned to lie once, and its
result only if it, or what is made of it element by element, is. Nodes may share the moves of what they read:
counted in equal parts by all readers, the bounds of nodes add up. The bound of a program is this sum, or the
largest of the nodes' own. The model adds moves to computing, so the bound does, too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction

from redist.arrange.ein_graph import AskedNode, EinGraph, EinNode
from redist.arrange.layout_plan import LayoutPlan
from redist.arrange.least_access import Terms, least_lack_bytes
from redist.arrange.strategies import least_time_ps
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.plan.rates import FLAT, GPU, DeviceCosts
from redist.plan.topology import Topology
from redist.text.columns import table
from redist.text.units import format_bytes, format_time


@dataclass(frozen=True, slots=True)
class NodeBound:
    """What a node takes at least: computing, and bytes that must be moved for it.

    ``alone_bytes`` if its operands and its result lie once over the devices; ``program_bytes`` in a
    program, where that is known of some of them only.
    """

    what: str
    compute_ps: int
    alone_bytes: int
    program_bytes: int


@dataclass(frozen=True, slots=True)
class LayoutBounds:
    """What a program takes at least, whatever its types are; prints as a table."""

    nodes: tuple[NodeBound, ...]
    compute_ps: int
    moved_bytes: int
    time_ps: int

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("node", "what", "computing", "bytes alone", "in program")]
        for number, one in enumerate(self.nodes):
            rows.append(
                (
                    str(number),
                    one.what,
                    format_time(one.compute_ps),
                    format_bytes(one.alone_bytes),
                    format_bytes(one.program_bytes),
                )
            )
        head = (
            f"at least {format_time(self.time_ps)}: computing {format_time(self.compute_ps)}, "
            f"{format_bytes(self.moved_bytes)} moved"
        )
        return "\n".join([head, *table(rows, left=(0, 1))])


def lies_once(t: ArrayType) -> bool:
    """Whether every element lies on one device only, and no other has a part of it.

    >>> mesh = Mesh(x=2, y=2)
    >>> [lies_once(ArrayType.parse(text, mesh)) for text in ("f32[8{x}, 8{y}]", "f32[8{x}, 8]")]
    [True, False]
    """
    return math.prod(t.cuts) == t.mesh.n_devices and not t.pending_axes


def contraction_bytes(graph: EinGraph, number: int, n_devices: int) -> int:
    """The bytes that some device must send and receive for a node whose arrays lie once over all.

    >>> sizes = {"i": 64, "j": 64, "k": 64}
    >>> from redist.arrange.ein_graph import EinInput
    >>> given = (EinInput((64, 64)),) * 2
    >>> contraction_bytes(EinGraph(given, (EinNode("ij,jk->ik", (~0, ~1), sizes),)), 0, 8)
    6144
    """
    return least_lack_bytes(_terms(graph, number), _sizes(_node(graph, number)), n_devices)


def bound_layouts(
    graph: EinGraph,
    mesh: Mesh,
    topology: Topology = FLAT,
    device: DeviceCosts | None = None,
    pins: Mapping[int, ArrayType] | None = None,
) -> LayoutBounds:
    """What a program takes at least on a mesh if the types of ``pins`` are given; see the module."""
    device, p = device or GPU, mesh.n_devices
    once = frozenset(value for value, t in (pins or {}).items() if lies_once(t))
    nodes, shared = [], 0
    for number, node in enumerate(graph.nodes):
        if isinstance(node, AskedNode):
            nodes.append(NodeBound(node.name, 0, 0, 0))
            continue
        alone, own, split = (
            _terms(graph, number),
            _terms(graph, number, once),
            _terms(graph, number, once, of_all_readers=True),
        )
        sizes = _sizes(node)
        nodes.append(
            NodeBound(
                node.name or node.notation,
                least_time_ps(node, p, device),
                least_lack_bytes(alone, sizes, p),
                least_lack_bytes(own, sizes, p),
            )
        )
        shared += least_lack_bytes(split, sizes, p)
    compute = sum(one.compute_ps for one in nodes)
    moved = max([shared, *(one.program_bytes for one in nodes)])
    return LayoutBounds(tuple(nodes), compute, moved, compute + _least_move_ps(topology, moved))


def bounds_beside(
    plan: LayoutPlan, topology: Topology = FLAT, device: DeviceCosts | None = None
) -> LayoutBounds:
    """What no plan is quicker than whose inputs and results have the types that they have in this one."""
    pins = {~k: t for k, t in enumerate(plan.inputs)}
    pins |= {n: t for n, t in enumerate(plan.made) if not plan.graph.readers(n)}
    return bound_layouts(plan.graph, plan.mesh, topology, device, pins)


def _least_move_ps(topology: Topology, n_bytes: int) -> int:
    """What bytes take at least that a device receives: at the best rate, as one message of one step."""
    if not n_bytes:
        return 0
    return topology.step_ps + topology.cheapest.time_ps(1, n_bytes)


def _terms(
    graph: EinGraph,
    number: int,
    once: Collection[int] | None = None,
    of_all_readers: bool = False,
) -> Terms:
    """The arrays of a node that count, all or those that lie ``once``, and bytes for each of their elements.

    An array that is read in several places, of the node or of all nodes, counts as their mean: what is
    needed for all of them is no less.
    """
    node = _node(graph, number)
    weights: dict[str, Fraction] = {}
    if 0 in node.sizes.values():
        return ()
    for whole, value in zip(node.terms, node.operands, strict=True):
        term = _counting(node, whole)
        if once is None or value in once:
            places = len(graph.readers(value)) if of_all_readers else node.operands.count(value)
            weight = Fraction(graph.dtype_of(value).itemsize, places)
            weights[term] = weights.get(term, Fraction(0)) + weight
    if once is None or _ends_once(graph, graph.results_of(number)[0], once):
        kept = _counting(node, node.kept)
        weights[kept] = weights.get(kept, Fraction(0)) + node.dtype.itemsize
    return tuple(weights.items())


def _node(graph: EinGraph, number: int) -> EinNode:
    node = graph.nodes[number]
    assert isinstance(node, EinNode)
    return node


def _sizes(node: EinNode) -> tuple[tuple[str, int], ...]:
    return tuple((label, node.sizes[label]) for label in _counting(node, node.labels))


def _counting(node: EinNode, labels: str) -> str:
    """The labels that have more than one index."""
    return "".join(label for label in labels if node.sizes[label] > 1)


def _ends_once(graph: EinGraph, value: int, once: Collection[int]) -> bool:
    """Whether a result is pinned to lie once, or what is made of it alone, element by element."""
    if value in once:
        return True
    for reader, _ in graph.readers(value):
        node = graph.nodes[reader]
        if isinstance(node, AskedNode):
            continue
        is_map = len(node.operands) == 1 and len(node.kept) == len(node.labels)
        if is_map and _ends_once(graph, graph.results_of(reader)[0], once):
            return True
    return False
