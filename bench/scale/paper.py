"""Machines and cases on paper, and the three ways to move: directly, level by level, and naively."""

from __future__ import annotations

import math
from dataclasses import dataclass

import redist
from bench.scale.machine import Machine
from bench.scale.transfer import simulate
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.plan.plan import Plan
from redist.plan.rates import FLAT

GB = 1e9
FAT_TREE = Machine(
    "fat tree", ranks_per_node=8, rank_rate=25 * GB, node_rate=25 * GB, nodes_per_pod=32,
    pod_rate=32 * 25 * GB / 2, latency_s=1.5e-6, far_latency_s=2.5e-6, hop_s=3e-6,
    node_meeting_s=1e-6, call_s=30e-6, stage_s=60e-6, round_s=20e-6, message_s=2e-6,
    copy_rate=8 * GB, near_rate=8 * GB, combine_rate=5 * GB, fresh_rate=4 * GB,
    memory_bytes=16 * 2**30,
)  # fmt: skip
"""8 ranks a node, 200 Gbit/s a node, pods of 32 nodes, 2:1 oversubscribed above them."""
NVLINK = Machine(
    "NVLink and InfiniBand", ranks_per_node=8, rank_rate=50 * GB, node_rate=8 * 50 * GB,
    nodes_per_pod=32, pod_rate=32 * 8 * 50 * GB, latency_s=4e-6, far_latency_s=6e-6, hop_s=4e-6,
    node_meeting_s=10e-6, call_s=30e-6, stage_s=80e-6, round_s=40e-6, message_s=2e-6,
    copy_rate=1200 * GB, near_rate=450 * GB, combine_rate=800 * GB, memory_bytes=80 * 2**30,
    is_gpu=True,
)  # fmt: skip
"""8 GPUs a node at 450 GB/s each, a 50 GB/s network card each, pods of 32 nodes, nothing oversubscribed."""
MACHINES = {"fat-tree": FAT_TREE, "gpus": NVLINK}
RANKS = (64, 512, 4096, 65536)
SIZES = (2**20, 2**26)
"""Bytes of the larger of a rank's two tiles."""


@dataclass(frozen=True, slots=True)
class PaperCase:
    """A redistribution of f64 elements on so many ranks."""

    name: str
    source: ArrayType
    target: ArrayType

    @property
    def everywhere(self) -> ArrayType:
        """The whole array on every rank that takes part."""
        meshes = {self.source.mesh, self.target.mesh}
        n_ranks = sum(mesh.n_devices for mesh in meshes)
        whole = f"f64[{', '.join(map(str, self.source.shape))}]"
        return ArrayType.parse(whole, Mesh(x=n_ranks))


def cases_of(n_ranks: int, tile_bytes: int) -> list[PaperCase]:
    """Every case on so many ranks, a power of two, of which none holds more than a tile of these bytes.

    >>> [str(case.source) for case in cases_of(64, 2**20)][:2]
    ['f64[4096{x}, 2048]', 'f64[131072{x}]']
    """
    mesh, half = Mesh(x=n_ranks), n_ranks // 2
    here, there = (Mesh({"x": half}, ranks=range(k, k + half)) for k in (0, half))
    elems = tile_bytes // 8
    bits = int(math.log2(elems // n_ranks))
    rows, columns = n_ranks << (bits + 1) // 2, n_ranks << bits // 2
    long = half * elems

    def case(name: str, source: str, target: str, a: Mesh = mesh, b: Mesh = mesh) -> PaperCase:
        return PaperCase(name, ArrayType.parse(source, a), ArrayType.parse(target, b))

    tiles, whole, sums = f"f64[{elems}{{x}}]", f"f64[{elems}]", f"f64[{elems}] sum{{x}}"
    return [
        case("rows to columns", f"f64[{rows}{{x}}, {columns}]", f"f64[{rows}, {columns}{{x}}]"),
        case("gather", tiles, whole),
        case("two meshes", f"f64[{long}{{x}}]", f"f64[{long}{{x}}]", here, there),
        case("reduce_scatter", sums, tiles),
        case("all-reduce", sums, whole),
    ]


@dataclass(frozen=True, slots=True)
class Ways:
    """Seconds of the three ways, for naive the reason where it is not there; the plan level by level."""

    direct_s: float
    levels_s: float
    naive_s: float | str
    plan: Plan

    @property
    def best(self) -> str:
        """The quickest; both where they are the same plan, or as quick to 2 %."""
        ratio = self.direct_s / self.levels_s
        first = "level by level" if ratio > 1.02 else "direct" if ratio < 0.98 else "either"
        least = min(self.direct_s, self.levels_s)
        naive_wins = isinstance(self.naive_s, float) and self.naive_s < 0.98 * least
        return "naive" if naive_wins else first


def ways_of(case: PaperCase, machine: Machine, n_ranks: int) -> Ways:
    """Plan and simulate a case in all three ways."""
    direct = redist.synthesize(case.source, case.target, topology=FLAT, strategy="direct")
    levels = redist.synthesize(case.source, case.target, topology=machine.topology())
    direct_s, levels_s = (
        simulate(plan, machine, n_ranks, by_class=True).seconds for plan in (direct, levels)
    )
    return Ways(direct_s, levels_s, _naive(case, machine, n_ranks), levels)


def _naive(case: PaperCase, machine: Machine, n_ranks: int) -> float | str:
    """Bring everything everywhere, or add it up everywhere, and keep one's own part; or why not."""
    if case.target.tile_bytes == case.everywhere.tile_bytes:
        return "is direct"
    need = case.everywhere.tile_bytes + case.source.tile_bytes + case.target.tile_bytes
    if need > machine.memory_bytes:
        return "does not fit"
    plan = redist.synthesize(case.source, case.everywhere, topology=FLAT, strategy="direct")
    seconds = simulate(plan, machine, n_ranks, by_class=True).seconds
    return seconds + case.target.tile_bytes / machine.copy_rate
