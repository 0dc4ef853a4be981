"""Layouts of 32 layers on machines that are not here: time to plan them, and plans as people choose them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from bench.problems.judge import WrongPlanError
from bench.report.figures import met, timed
from bench.report.report import Row, Table, Tables
from redist.arrange.domain import list_groupings
from redist.arrange.ein_graph import EinGraph, EinNode
from redist.arrange.judge_layouts import judge_layouts, node_time_ps
from redist.arrange.layout_plan import LayoutPlan
from redist.arrange.layouts import plan_layouts
from redist.arrange.price_book import PriceBook
from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, whole
from redist.layout.mesh import Mesh
from redist.plan.rates import GPU, DeviceCosts
from redist.plan.topology import Level, Topology
from redist.text.progress import track
from tests.problems.layer_graph import layers

N_LAYERS, WIDTH, HEADS, HIDDEN = 32, 4096, 32, 11008
FLAT_GPUS = Topology((Level("all", None, 0, 3_300),), 20_000_000)
"""300 GB/s for every GPU, and 20 us a step."""
GPU_NODES = Topology(
    (Level("node", 8, 10**6, 3_300), Level("network", None, 4 * 10**6, 20_000, 2_500)), 20_000_000
)
"""Nodes of 8 GPUs with 300 GB/s inside; outside 50 GB/s for a GPU, 400 GB/s for a node."""
ALL_AIM_S = 20.0
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


@dataclass(frozen=True, slots=True)
class LargeCase:
    """A batch of sequences on a mesh, and the aim for planning it over the mesh's own axes."""

    batch: int
    length: int
    axes: dict[str, int]
    aim_s: float


CASES = (
    LargeCase(8, 1024, {"x": 2, "y": 2, "z": 2}, 2.0),
    LargeCase(8, 1024, {"x": 8, "y": 8}, 2.0),
    LargeCase(1, 8192, {"x": 8, "y": 8}, 2.0),
    LargeCase(64, 4096, {"x": 8, "y": 8, "z": 16}, 5.0),
    LargeCase(16, 16384, {"x": 8, "y": 8, "z": 16}, 5.0),
)


def run(n: int = N_LAYERS) -> Tables:
    """Plan ``n`` layers (32 at most) for every mesh and both kinds of network."""
    n_layers = min(n, N_LAYERS)
    planned: list[Row] = []
    compared: list[Row] = []
    for case in track(CASES, len(CASES), "large meshes"):
        mesh = Mesh(case.axes)
        graph = layers(n_layers, case.batch, case.length, WIDTH, HEADS, HIDDEN)
        parts = [whole(mesh, name) for name in case.axes]
        for words, topology in (("flat", FLAT_GPUS), ("nodes of 8", GPU_NODES)):
            what: Row = {"batch, mesh, network": f"{case.batch} x {case.length} on {mesh}, {words}"}
            asked = partial(plan_layouts, graph, mesh, parts, topology, GPU)
            own_s, own = timed(asked, time.process_time)
            asked = partial(_best_of_groupings, graph, mesh, topology)
            all_s, best = timed(asked, time.process_time)
            judge_layouts(own, GPU)
            judge_layouts(best, GPU)
            if best.time_ps > own.time_ps:
                raise WrongPlanError(f"{what}: all groupings are worse than one of them")
            planned.append(
                {
                    **what, "own axes s": own_s, "aim s": case.aim_s, "reached": met(own_s <= case.aim_s),
                    "groupings": len(list_groupings(mesh)), "all groupings s": all_s,
                    "their aim s": ALL_AIM_S, "theirs reached": met(all_s <= ALL_AIM_S),
                    "search": best.search,
                }
            )  # fmt: skip
            name, hand_ps = _best_by_hand(graph, mesh, parts, topology)
            compared.append(
                {
                    **what, "best by hand": name, "by hand ms": hand_ps / 1e9,
                    "planned ms": best.time_ps / 1e9, "planned / by hand": best.time_ps / hand_ps,
                    "not worse": met(best.time_ps <= hand_ps), "planned moves": len(best.moves),
                    "computing alone ms": best.compute_ps / 1e9,
                }
            )  # fmt: skip
    made = f"{n_layers} layers of width {WIDTH}, {HEADS} heads, hidden {HIDDEN}"
    title = f"Modelled time of {made}, planned and as people plan them"
    own_axes = "processor time of one core; own axes: every axis of the mesh is one factor"
    by_hand = "by hand: one cut for all operations, the best of batch, heads, sequence and pairs"
    rough = "a rough GPU; arguments lie where each plan wants them"
    return (
        Table.of("planning", f"Time to plan {made}", planned, own_axes),
        Table.of("by-hand", title, compared, by_hand, rough),
    )


def _best_by_hand(
    graph: EinGraph, mesh: Mesh, parts: list[SubAxis], topology: Topology
) -> tuple[str, int]:
    plans = hand_plans(parts)
    times = {name: hand_time_ps(graph, mesh, parts, plans[name], topology, GPU) for name in plans}
    least, name = min((ps, name) for name, ps in times.items() if ps is not None)
    return name, least


def _best_of_groupings(graph: EinGraph, mesh: Mesh, topology: Topology) -> LayoutPlan:
    """The best plan over all ways to split the mesh into few factors."""
    found = []
    for parts in list_groupings(mesh):
        with suppress(RequestError):  # more types than can be listed
            found.append(plan_layouts(graph, mesh, parts, topology, GPU))
    return min(found, key=lambda plan: plan.time_ps)
