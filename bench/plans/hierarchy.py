"""Do plans respect nodes? Modelled time against one direct step, entries per node, messages."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

import redist
from bench.problems.judge import judge
from bench.report.figures import geomean, most
from bench.report.report import Row, Table, Tables
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, prime_parts
from redist.layout.lower_bound import lower_bound_bytes
from redist.layout.mesh import Mesh
from redist.layout.tiles import Ints
from redist.plan.plan import Plan
from redist.plan.schedule import make_schedule
from redist.plan.steps import AllReduce, Slice
from redist.plan.topology import Level, Topology
from redist.plan.traffic import flow
from redist.text.progress import track

NODE = 8
DEVICES = 64
NODES = Topology((Level("node", NODE, 1_000_000, 10_000), Level("net", None, 1_000_000, 100_000)))
"""Eight devices a node at 100 GB/s, 10 GB/s between nodes, 1 us everywhere."""
MESHES = (
    *(Mesh(x=64), Mesh(x=8, y=8), Mesh(x=4, y=16), Mesh(x=16, y=4), Mesh(x=2, y=4, z=8)),
    *(Mesh(x=4, y=4, z=4), Mesh({"x": 8, "y": 8}, ranks=[8 * (d % 8) + d // 8 for d in range(64)])),
)
LARGE_ELEMS = 2**22
SMALL_ELEMS = 2**14
"""An array of f32 with tiles of 1 KiB where all 64 devices cut it."""
PERMUTED = ", ranks permuted"
SHOWN = 3
TARGETS = ("replicated", "partly replicated")
Pieces = tuple[Ints, Ints, Ints]
"""The block that each piece enters, and the start and end of its box."""


def most_entries(plan: Plan, topology: Topology) -> int:
    """How often any element enters any block of the nearest level, at most.

    >>> import redist
    >>> from redist.plan.topology import Level
    >>> two = Topology((Level("node", 2, 10**6, 10**4), Level("net", None, 10**6, 10**6)))
    >>> mesh = redist.Mesh(x=4)
    >>> def entries(strategy):
    ...     ends = "f32[64{x:(1)2}, 64]", "f32[64, 64]"
    ...     plan = redist.synthesize(*ends, mesh=mesh, strategy=strategy, topology=two)
    ...     return most_entries(plan, two)
    >>> entries("direct"), entries("auto")
    (2, 1)
    """
    pieces = [_entering(plan, number, topology) for number in range(len(plan.steps))]
    if not pieces:
        return 0
    block, lo, hi = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    if len(block) == 0:
        return 0
    # Between two neighbouring edges of boxes all elements are alike: one cell stands for them.
    edges = [np.unique(np.r_[lo[:, i], hi[:, i]]) for i in range(lo.shape[1])]
    count = np.zeros((int(block.max()) + 1, *(max(1, len(e) - 1) for e in edges)), dtype=np.int64)
    for i, edge in enumerate(edges):
        lo[:, i], hi[:, i] = np.searchsorted(edge, lo[:, i]), np.searchsorted(edge, hi[:, i])
    for number, start, end in zip(block, lo, hi, strict=True):
        count[(number, *(slice(a, b) for a, b in zip(start, end, strict=True)))] += 1
    return int(count.max())


def _entering(plan: Plan, number: int, topology: Topology) -> Pieces:
    """The pieces of a step that come from another block than their receiver's."""
    step, before = plan.steps[number], plan.types[number]
    size = topology.levels[0].size
    assert size is not None, "a topology with blocks"
    assert not isinstance(step.action, AllReduce), "a ring mixes elements: nothing to count"
    if isinstance(step.action, Slice):
        none = np.zeros((0, before.ndim), dtype=np.int64)
        return np.zeros(0, dtype=np.int64), none, none
    have, need = flow(step.action, before, step.after)
    schedule = make_schedule(have, need, topology)
    block = need.ranks[schedule.receiver] // size
    far = have.ranks[schedule.sender] // size != block
    dims = before.ndim
    return block[far], schedule.lo[far, :dims], schedule.hi[far, :dims]


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """The figures of our plan and of the direct one for the same request."""

    text: str
    kind: str
    time_ps: tuple[int, int]
    messages: tuple[int, int]
    entries: tuple[int, int]

    @property
    def speedup(self) -> float:
        """How much longer the direct plan takes."""
        return self.time_ps[1] / self.time_ps[0]


def run(n: int = 2000, seed: int = 0) -> Tables:
    """``n // 20`` sources for each kind of target, for large tiles and for tiles of 1 KiB."""
    each = max(len(MESHES), n // 20)
    tables = []
    for name, elems in (("large tiles", LARGE_ELEMS), ("1 KiB tiles", SMALL_ELEMS)):
        pairs = [(t, *pair) for t in TARGETS for pair in _pairs(t, each, elems, seed)]
        cases = [measure_plans(*pair) for pair in track(pairs, len(pairs), f"hierarchy, {name}")]
        tables.append(_table(name, cases))
    return tuple(tables)


def measure_plans(target: str, a: ArrayType, b: ArrayType) -> NodeFigures:
    """Find our plan for the least time and the direct one, and judge both."""
    ours, direct = (
        judge(redist.synthesize(a, b, strategy=strategy, topology=NODES), NODES)
        for strategy in ("auto", "direct")
    )
    in_order = isinstance(a.mesh.ranks, range)
    return NodeFigures(
        f"{a} -> {b} on {a.mesh}",
        target if in_order else f"{target}{PERMUTED}",
        (ours.time_ps, direct.time_ps),
        (ours.messages, direct.messages),
        (most_entries(ours, NODES), most_entries(direct, NODES)),
    )


def _pairs(target: str, n: int, elems: int, seed: int) -> list[tuple[ArrayType, ArrayType]]:
    """Distinct requests that need traffic, the meshes in turn; rank 1 to 3, axes at random."""
    rng = random.Random(f"{target} {seed}")
    found: dict[tuple[ArrayType, ArrayType], None] = {}
    while len(found) < n:
        mesh = MESHES[len(found) % len(MESHES)]
        shape = _shape(rng.randint(1, 3), elems)
        a = _random_type(rng, mesh, shape, 0.8)
        b = _random_type(rng, mesh, shape, 0.0 if target == TARGETS[0] else 0.5)
        whole = math.prod(b.cuts) == 1
        replicated = whole if target == TARGETS[0] else not whole and math.prod(b.cuts) < DEVICES
        if replicated and lower_bound_bytes(a, b) > 0:
            found[a, b] = None
    return list(found)


def _shape(rank: int, elems: int) -> tuple[int, ...]:
    """So many elements as dims, the last of 64, the first as long as needed.

    >>> _shape(3, 2**14), _shape(2, 2**22)
    ((64, 4, 64), (65536, 64))
    """
    dims: list[int] = []
    for left in range(rank - 1, -1, -1):
        dims.insert(0, elems if left == 0 else min(DEVICES, elems // DEVICES))
        elems //= dims[0]
    return tuple(dims)


def _random_type(rng: random.Random, mesh: Mesh, shape: tuple[int, ...], share: float) -> ArrayType:
    """Each axis, or each factor two of it, cuts some dim with this chance."""
    pieces = [SubAxis(name, 1, size) for name, size in mesh.axes]
    if len(pieces) == 1 or rng.random() < 0.3:
        pieces = list(prime_parts(mesh))
    dims: list[list[SubAxis]] = [[] for _ in shape]
    for piece in rng.sample(pieces, len(pieces)):
        room = [i for i, n in enumerate(shape) if n >= DEVICES]
        if rng.random() < share:
            dims[rng.choice(room)].append(piece)
    return ArrayType.of(mesh, "f32", shape, dims)


def _table(name: str, cases: Sequence[NodeFigures]) -> Table:
    rows: list[Row] = []
    for kind in (f"{target}{order}" for order in ("", PERMUTED) for target in TARGETS):
        some = [case for case in cases if case.kind == kind]
        speedups = [case.speedup for case in some]
        rows.append(
            {
                "target": kind,
                "cases": len(some),
                "speedup": geomean(speedups),
                "most": most(speedups),
                "least": min(speedups),
                "entries": max(case.entries[0] for case in some),
                "over 1": sum(case.entries[0] > 1 for case in some),
                "entries direct": max(case.entries[1] for case in some),
                "messages": geomean(case.messages[0] for case in some),
                "messages direct": geomean(case.messages[1] for case in some),
                "most messages": max(case.messages[0] for case in some),
                "most direct": max(case.messages[1] for case in some),
            }
        )
    notes = (
        "speedup: modelled time of direct over ours (geomean, most, least)",
        "entries: how often any element enters any node, at most; over 1: in how many cases",
        "messages: of the busiest rank, geomean and most",
        *_twice(cases),
    )
    title = f"8 nodes of 8 devices, {name}: time plans against one direct step"
    return Table.of(name.replace(" ", "-"), title, rows, *notes)


def _twice(cases: Iterable[NodeFigures]) -> list[str]:
    often = sorted((case for case in cases if case.entries[0] > 1), key=lambda c: -c.entries[0])
    return [f"enters a node {case.entries[0]} times: {case.text}" for case in often[:SHOWN]]
