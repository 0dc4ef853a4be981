"""What no plan is quicker than: computing alone, and the bytes that contractions must bring to a device.

**One contraction, any algorithm.** Let its operands and its result each lie once over the devices, 1/p on
each, at the start and at the end. Some device works on 1/p of the points or more. What it needs of operands
and does not hold it receives; what it adds to parts of the result that it does not hold it sends. Both
together are at least the least access (:func:`least_access`) less what it holds.

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
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from redist.arrange.ein_graph import AskedNode, EinGraph, EinNode
from redist.arrange.layout_plan import LayoutPlan
from redist.arrange.strategies import least_time_ps
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.plan.rates import FLAT, GPU, DeviceCosts
from redist.plan.topology import Topology
from redist.text.columns import table
from redist.text.units import format_bytes, format_time

Reals = NDArray[np.float64]
Terms = tuple[tuple[str, Fraction], ...]
"""Labels of arrays, and bytes for each of their elements."""
SLACK = 1e-10
"""Share by which sums in floating point may be too high; it is taken off."""
SHARPEST = 1e11
"""How far walls are pushed back, at last."""
MOST_STEPS = 20
FINE = 2**20
"""Roots are rounded down to a part of this."""


def least_access(
    sizes: Mapping[str, int], terms: Sequence[tuple[str, Fraction | int]], n_devices: int
) -> float:
    """A tight lower bound on the data that a device accesses if it computes 1/n of the points.

    ``terms`` has the labels of every array, and the bytes of an element.

    Let S be the points of an operation that a device works on, at least 1/p of all. It needs the
    projections of S onto the labels of every array. For every way to cover all labels by arrays and labels
    (weights s of arrays and t of labels, at least 1 together wherever a label is), |S| is at most the
    product of all |projection|^s and size^t (Loomis-Whitney, Shearer, Finner). By duality of linear
    programs the smallest sum of projections within all of these bounds is that of a block with real sides,
    between 1 and the size of the label, whose volume is the share. So the least over all sets, of any form,
    is a small convex program. It is solved by an interior-point walk; the result is the bound by a tangent
    at its end, so it holds even where the walk has not converged.

        >>> sizes = {"i": 100, "j": 100, "k": 100}
        >>> round(least_access(sizes, [("ij", 1), ("jk", 1), ("ik", 1)], 8), 3)
        7500.0
    """
    terms = [(labels, weight) for labels, weight in terms if weight > 0]
    labels = [label for label, size in sizes.items() if size > 1]
    if not terms:
        return 0.0
    tops = np.array([math.log(sizes[label]) for label in labels])
    total = float(tops.sum()) - math.log(n_devices)
    logs = np.array([math.log(weight) for _, weight in terms])
    has = np.array([[float(label in own) for label in labels] for own, _ in terms])
    if total <= 0:
        found = float(_log_sum(logs)[0])
    elif n_devices == 1:
        found = float(_log_sum(logs + has @ tops)[0])
    else:
        found = _walk(logs, has.reshape(len(terms), len(labels)), tops, total)
    return math.exp(found) * (1 - SLACK)


def _log_sum(logs: Reals) -> tuple[float, Reals]:
    """The logarithm of a sum, and the share of each term."""
    most = float(logs.max())
    parts = np.exp(logs - most)
    return most + math.log(float(parts.sum())), parts / parts.sum()


def _walk(logs: Reals, has: Reals, tops: Reals, total: float) -> float:
    """The best bound by a tangent on a walk from the middle towards the walls."""
    sides = tops * (total / float(tops.sum()))
    best, push = -math.inf, 10.0
    while push <= SHARPEST:
        for _ in range(MOST_STEPS):
            step = _newton_step(logs, has, tops, sides, push)
            outward = np.where(step > 0, (tops - sides) / np.maximum(step, 1e-300), np.inf)
            inward = np.where(step < 0, sides / np.maximum(-step, 1e-300), np.inf)
            length = min(1.0, 0.9 * float(min(outward.min(), inward.min())))
            sides = sides + length * step
            if float(np.abs(step / np.minimum(sides, tops - sides)).max()) < 1e-3:
                break
        value, bound = _tangent_bound(logs, has, tops, total, sides)
        best, push = max(best, bound), push * 30
        if value - best < SLACK:
            break
    return best


def _newton_step(logs: Reals, has: Reals, tops: Reals, sides: Reals, push: float) -> Reals:
    """Where to go next; the volume stays."""
    n = len(sides)
    _, shares = _log_sum(logs + has @ sides)
    slope = has.T @ shares
    bend = (has.T * shares) @ has - np.outer(slope, slope)
    left, right = 1 / sides, 1 / (tops - sides)
    matrix = np.zeros((n + 1, n + 1))
    matrix[:n, :n] = push * bend + np.diag(left**2 + right**2)
    matrix[n, :n] = matrix[:n, n] = 1
    against = np.append(-(push * slope - left + right), 0.0)
    scale = 1 / np.sqrt(np.append(np.diag(matrix)[:n], 1.0))
    solved: Reals = np.linalg.solve(matrix * np.outer(scale, scale), against * scale) * scale
    return solved[:n]


def _tangent_bound(
    logs: Reals, has: Reals, tops: Reals, total: float, sides: Reals
) -> tuple[float, float]:
    """What the sum is here, and at least: the least of a tangent, for which cheap labels are filled first."""
    value, shares = _log_sum(logs + has @ sides)
    slope = has.T @ shares
    left, least = total, 0.0
    for at in np.argsort(slope, kind="stable"):
        taken = min(left, float(tops[at]))
        least += float(slope[at]) * taken
        left -= taken
    return value, value + least - float(slope @ sides)


def product_access(sides: tuple[int, int, int], n_devices: int) -> Fraction:
    """The least elements that a device needs for 1/n of a product of matrices, in closed form.

    By the published bound with its three regimes: blocks are cut along one, two or all three sides. Roots
    are rounded down.

    >>> [int(product_access((400, 100, 20), p)) for p in (4, 16, 512)]
    [14000, 4500, 403]
    """
    k, n, m = sorted(sides)
    p = n_devices
    if p * n <= m:
        return Fraction(m * n + m * k, p) + n * k
    if p * k * k <= m * n:
        root = math.isqrt(4 * m * n * k * k * FINE**2 // p)
        return Fraction(root, FINE) + Fraction(m * n, p)
    return Fraction(_cube_root(27 * (m * n * k) ** 2 * FINE**3 // p**2), FINE)


def _cube_root(n: int) -> int:
    """The largest whole number whose cube is at most n."""
    low, high = 0, 1 << (n.bit_length() // 3 + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**3 <= n else (low, middle - 1)
    return low


@lru_cache(maxsize=4096)
def least_lack_bytes(terms: Terms, sizes: tuple[tuple[str, int], ...], n_devices: int) -> int:
    """What a device needs at least of arrays that lie once over all, less what it holds; rounded down."""
    of = dict(sizes)
    elems = [weight * math.prod(of[label] for label in term) for term, weight in terms]
    held = sum(elems, Fraction(0)) / n_devices
    if _is_product(terms, of):
        m, n, k = of.values()
        access = terms[0][1] * product_access((m, n, k), n_devices)
    else:
        access = Fraction(least_access(of, terms, n_devices))
    return max(0, math.floor(access - held))


def _is_product(terms: Terms, sizes: Mapping[str, int]) -> bool:
    """Whether it is a product of matrices: three labels, in two of three arrays each that count alike."""
    several = Counter("".join(term for term, _ in terms))
    return (
        len(terms) == len(sizes) == len(several) == 3
        and set(several.values()) == {2}
        and all(len(term) == 2 for term, _ in terms)
        and len({weight for _, weight in terms}) == 1
    )


@dataclass(frozen=True, slots=True)
class NodeBound:
    """What a node takes at least: computing, and bytes that must be moved for it.

    ``alone_bytes`` holds if its operands and its result lie once over the devices; ``program_bytes`` holds
    in a program, where that is known only of some of them.
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
            bounds = map(format_bytes, (one.alone_bytes, one.program_bytes))
            rows.append((str(number), one.what, format_time(one.compute_ps), *bounds))
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


def bound_layouts(
    graph: EinGraph,
    mesh: Mesh,
    topology: Topology = FLAT,
    device: DeviceCosts | None = None,
    pins: Mapping[int, ArrayType] | None = None,
) -> LayoutBounds:
    """What a program takes at least on a mesh if the types of ``pins`` are given; the module says how.

    >>> from redist.arrange.ein_graph import EinInput
    >>> product = EinNode("ij,jk->ik", (~0, ~1), dict.fromkeys("ijk", 64))
    >>> bound_layouts(EinGraph((EinInput((64, 64)),) * 2, (product,)), Mesh(x=8)).nodes[0].alone_bytes
    6144
    """
    device, p = device or GPU, mesh.n_devices
    once = frozenset(value for value, t in (pins or {}).items() if lies_once(t))
    nodes, shared = [], 0
    for number, node in enumerate(graph.nodes):
        if isinstance(node, AskedNode):
            nodes.append(NodeBound(node.name, 0, 0, 0))
            continue
        sizes = tuple((label, node.sizes[label]) for label in _counting(node, node.labels))
        alone, own, split = (
            least_lack_bytes(_terms(graph, number, node, *how), sizes, p)
            for how in ((None, False), (once, False), (once, True))
        )
        what = node.name or node.notation
        nodes.append(NodeBound(what, least_time_ps(node, p, device), alone, own))
        shared += split
    compute = sum(one.compute_ps for one in nodes)
    moved = max([shared, *(one.program_bytes for one in nodes)])
    return LayoutBounds(tuple(nodes), compute, moved, compute + _least_move_ps(topology, moved))


def bounds_beside(
    plan: LayoutPlan, topology: Topology = FLAT, device: DeviceCosts | None = None
) -> LayoutBounds:
    """Bounds that no plan beats if its inputs and results have the types that they have in this plan."""
    pins = {~k: t for k, t in enumerate(plan.inputs)}
    pins |= {n: t for n, t in enumerate(plan.made) if not plan.graph.readers(n)}
    return bound_layouts(plan.graph, plan.mesh, topology, device, pins)


def _least_move_ps(topology: Topology, n_bytes: int) -> int:
    """What bytes take at least that a device receives: at the best rate, as one message of one step."""
    if not n_bytes:
        return 0
    return topology.step_ps + topology.cheapest.time_ps(1, n_bytes)


def _terms(
    graph: EinGraph, number: int, node: EinNode, once: Collection[int] | None, of_all_readers: bool
) -> Terms:
    """The arrays of a node that count, all or those that lie ``once``, and bytes for each of their elements.

    An array that is read in several places, of the node or of all nodes, counts as their mean: what is
    needed for all of them is no less.
    """
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
