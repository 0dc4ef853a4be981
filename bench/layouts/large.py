"""Layouts of 32 layers on machines that are not here: time to plan them, and plans as people choose them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from bench.layouts.by_hand import hand_plans, hand_time_ps
from bench.problems.judge import WrongPlanError
from bench.report.figures import met
from bench.report.report import Report, Table, Value
from redist.arrange.ein_graph import EinGraph
from redist.arrange.groupings import list_groupings
from redist.arrange.judge_layouts import judge_layouts
from redist.arrange.layout_plan import LayoutPlan
from redist.arrange.layouts import plan_layouts
from redist.arrange.strategies import BUILT_IN
from redist.errors import RequestError
from redist.layout.axes import SubAxis, whole
from redist.layout.mesh import Mesh
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


def run(n: int = N_LAYERS, seed: int = 0) -> Report:
    """Plan ``n`` layers (32 at most) for every mesh and both kinds of network."""
    n_layers = min(n, N_LAYERS)
    planned: list[tuple[Value, ...]] = []
    compared: list[tuple[Value, ...]] = []
    for case in track(CASES, len(CASES), "large meshes"):
        mesh = Mesh(case.axes)
        graph = layers(n_layers, case.batch, case.length, WIDTH, HEADS, HIDDEN)
        what = f"{case.batch} x {case.length} on {mesh}"
        parts = [whole(mesh, name) for name in case.axes]
        for words, topology in (("flat", FLAT_GPUS), ("nodes of 8", GPU_NODES)):
            own, own_s = _timed(partial(plan_layouts, graph, mesh, parts, topology, BUILT_IN))
            best, all_s = _timed(partial(_best_of_groupings, graph, mesh, topology))
            judge_layouts(own, BUILT_IN)
            judge_layouts(best, BUILT_IN)
            planned.append(
                (
                    f"{what}, {words}", own_s, case.aim_s, met(own_s <= case.aim_s),
                    len(list_groupings(mesh)), all_s, ALL_AIM_S, met(all_s <= ALL_AIM_S), best.search,
                )
            )  # fmt: skip
            name, hand_ps = _best_by_hand(graph, mesh, parts, topology)
            if best.time_ps > own.time_ps:
                raise WrongPlanError(f"{what}: all groupings are worse than one of them")
            compared.append(
                (
                    f"{what}, {words}", name, hand_ps / 1e9, best.time_ps / 1e9,
                    best.time_ps / hand_ps, met(best.time_ps <= hand_ps), _moves(best),
                    best.compute_ps / 1e9,
                )
            )  # fmt: skip
    made = f"{n_layers} layers of width {WIDTH}, {HEADS} heads, hidden {HIDDEN}"
    return Report(
        "large",
        (
            Table(
                f"Time to plan {made}",
                (
                    "batch, mesh, network", "own axes s", "aim s", "reached", "groupings",
                    "all groupings s", "their aim s", "theirs reached", "search",
                ),
                tuple(planned),
                ("processor time of one core; own axes: every axis of the mesh is one factor",),
                "planning",
            ),
            Table(
                f"Modelled time of {made}, planned and as people plan them",
                (
                    "batch, mesh, network", "best by hand", "by hand ms", "planned ms",
                    "planned / by hand", "not worse", "planned moves", "computing alone ms",
                ),
                tuple(compared),
                (
                    "by hand: one cut for all operations, the best of batch, heads, sequence and pairs",
                    "a rough GPU; arguments lie where each plan wants them",
                ),
                "by-hand",
            ),
        ),
    )  # fmt: skip


def _best_by_hand(
    graph: EinGraph, mesh: Mesh, parts: list[SubAxis], topology: Topology
) -> tuple[str, int]:
    found = []
    for name, cuts in hand_plans(parts).items():
        time_ps = hand_time_ps(graph, mesh, parts, cuts, topology, BUILT_IN)
        if time_ps is not None:
            found.append((time_ps, name))
    least, name = min(found)
    return name, least


def _moves(plan: LayoutPlan) -> int:
    return len(plan.moves)


def _best_of_groupings(graph: EinGraph, mesh: Mesh, topology: Topology) -> LayoutPlan:
    """The best plan over all ways to split the mesh into few factors."""
    found = []
    for parts in list_groupings(mesh):
        with suppress(RequestError):  # more types than can be listed
            found.append(plan_layouts(graph, mesh, parts, topology, BUILT_IN))
    return min(found, key=lambda plan: plan.time_ps)


def _timed(work: Callable[[], LayoutPlan]) -> tuple[LayoutPlan, float]:
    start = time.process_time()
    made = work()
    return made, time.process_time() - start
