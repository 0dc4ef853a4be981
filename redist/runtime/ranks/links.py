"""Find out how ranks are joined: who shares a node, and what messages between nodes cost.

A node is known from the start. What its link carries is not; the first large transfer between nodes
measures it, once for the same ranks in a job, in a fraction of a second.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mpi4py import MPI

from redist.plan.rates import FAR_LEVEL, FLAT, ONE_NODE, PASSED_BYTE_FS, STEP_PS
from redist.plan.topology import Level, Topology
from redist.runtime.ranks.tokens import Tag
from redist.runtime.ranks.world import World

LARGE_BYTES = 2**20
"""A transfer of which a rank holds or gets this much measures the links before it is planned."""
SMALL_BYTES = 8
SMALL_TIMES = 5
STEP_MEETINGS = 2
"""A step meets before and after, and ranks come to it at different times: a slow meeting counts."""
MESSAGE_BYTES, IN_FLIGHT = 2**15, 4
"""Large data goes in messages of this size, this many at a time: the buffers fit any staging."""
MOST_TIMES = 2**9
ENOUGH_S = 0.03
"""Their number is doubled until they take this long; a measurement takes about five times as long."""

FLAT_NAME, NODES_NAME = "flat", "nodes"
NAMES = (FLAT_NAME, NODES_NAME)
"""What a caller may say in the place of a topology."""


@dataclass(frozen=True, slots=True)
class FoundTopology:
    """What a transfer is planned for, and where that comes from."""

    topology: Topology
    origin: str

    def __str__(self) -> str:
        """In one line: origin and levels, nearest first."""
        levels = []
        for level in self.topology.levels:
            size = "all ranks" if level.size is None else f"{level.size} ranks"
            rate = f"{1e6 / max(1, level.byte_fs):.3g} GB/s a rank"
            link = f", {1e6 / level.link_fs:.3g} GB/s a link" if level.link_fs else ""
            levels.append(f"{level.name} of {size}: {level.latency_ps / 1e6:.3g} us, {rate}{link}")
        return f"{self.origin} ({'; '.join(levels)})"


def find_topology(
    world: World, wanted: Topology | str | None, n_bytes: int, limit_bytes: int | str | None = None
) -> FoundTopology:
    """**Collective.** What to plan for: what is wanted, or nodes and their links as they are.

    ``n_bytes`` is what the busiest rank holds or gets: a large transfer between nodes measures their
    links first, unless that was done before, or a limit leaves no room for it.
    """
    if isinstance(wanted, Topology):
        return FoundTopology(wanted, "given")
    if wanted == FLAT_NAME:
        return FoundTopology(FLAT, "flat, as asked for")
    if wanted == NODES_NAME:
        return FoundTopology(nodes_topology(world), "nodes, built-in costs, as asked for")
    if world.one_node:
        return FoundTopology(nodes_topology(world), "one node, built-in costs")
    known, ranks = _measured_so_far(), _ranks_of(world)
    if ranks not in known and n_bytes >= LARGE_BYTES and limit_bytes is None:
        known[ranks] = measure_links(world)
    if ranks in known:
        return FoundTopology(known[ranks], "nodes, links measured")
    return FoundTopology(nodes_topology(world), "nodes, built-in costs: links were not measured")


def _measured_so_far() -> dict[Any, Topology]:
    """**Local.** What was measured in this job: by ranks, and by which of them share a node."""
    found: Any = MPI.COMM_WORLD.Get_attr(_KEY)
    if found is None:
        found = {}
        MPI.COMM_WORLD.Set_attr(_KEY, found)
    return found


def _ranks_of(world: World) -> Any:
    """**Local.** The ranks of a communicator in the whole job, in order, and their nodes."""
    group, everyone = world.comm.Get_group(), MPI.COMM_WORLD.Get_group()
    ranks = group.Translate_ranks(None, everyone)
    for one in (group, everyone):
        one.Free()
    return tuple(ranks), world.node.groups


_KEY = MPI.Comm.Create_keyval()


def ranks_of_a_node(world: World) -> int:
    """Ranks of every node if they are consecutive and all nodes are alike, else 1."""
    groups = world.node.groups
    size = groups.count(groups[0])
    return size if groups == tuple(r // size * size for r in range(world.size)) else 1


def nodes_topology(world: World) -> Topology:
    """**Local.** Nodes with built-in costs: within one a message is a copy, between them it is not."""
    if world.one_node:
        return ONE_NODE
    return _of_levels(world, FAR_LEVEL, STEP_PS)


def _of_levels(world: World, far: Level, step_ps: int) -> Topology:
    size = ranks_of_a_node(world)
    if size == 1 or size == world.size:
        return Topology((replace(far, link_fs=0),), step_ps)
    near = Level("node", size, 0, PASSED_BYTE_FS)
    return Topology((near, far), step_ps)


def measure_links(world: World) -> Topology:
    """**Collective.** Time messages between nodes: small ones, large ones of one rank a node, of all.

    Figures are those of the slowest, rounded to powers of two, so that plans do not change with every
    breath of a machine; they are the same on all ranks.
    """
    groups = world.node.groups
    some = min(groups.count(group) for group in groups)  # as many as every node has
    small = min(_exchange(world, some, SMALL_BYTES, 1) for _ in range(SMALL_TIMES))
    meetings = sorted(_meet(world) for _ in range(SMALL_TIMES))
    step = STEP_MEETINGS * meetings[-2]  # the slowest may be a hiccup of the machine
    times = 1
    alone = _exchange(world, 1, MESSAGE_BYTES, times)
    while alone < ENOUGH_S and times < MOST_TIMES:
        times *= 2
        alone = _exchange(world, 1, MESSAGE_BYTES, times)
    together = min(_exchange(world, some, MESSAGE_BYTES, times) for _ in range(2))
    alone = min(alone, _exchange(world, 1, MESSAGE_BYTES, times))  # connections are warm now
    fs = 1e15 / (MESSAGE_BYTES * times)
    byte_fs, shared = alone * fs, together * fs / some
    rates = map(power_of_two, (small * 1e12, byte_fs, shared))
    return _of_levels(world, Level(FAR_LEVEL.name, None, *rates), power_of_two(step * 1e12))


def power_of_two(value: float) -> int:
    """The power of two that is nearest by ratio, at least 1.

    >>> [power_of_two(x) for x in (0.2, 1, 2.7, 3, 1000)]
    [1, 1, 2, 4, 1024]
    """
    return 2 ** max(0, round(math.log2(max(value, 1.0))))


def _neighbour(world: World, shift: int) -> int:
    """The rank that has this one's place in another node, this many nodes on."""
    groups = world.node.groups
    heads = sorted(set(groups))
    head = heads[(heads.index(groups[world.rank]) + shift) % len(heads)]
    return [rank for rank, group in enumerate(groups) if group == head][world.node.place]


def _exchange(world: World, ranks: int, n_bytes: int, times: int) -> float:
    """**Collective.** Seconds until this many ranks of each node have sent messages to the next node."""
    comm = world.comm
    sent, got = np.zeros((2, min(times, IN_FLIGHT), n_bytes), np.uint8)
    _meet(world)
    start = time.perf_counter()
    if world.node.place < ranks:
        to, of = _neighbour(world, 1), _neighbour(world, -1)
        for begin in range(0, times, IN_FLIGHT):
            rows = range(min(IN_FLIGHT, times - begin))
            receives = [comm.Irecv(got[row], of, Tag.LINKS) for row in rows]
            world.wait_for_messages(
                [*receives, *(comm.Isend(sent[row], to, Tag.LINKS) for row in rows)]
            )
    return _longest_since(world, start)


def _meet(world: World) -> float:
    """**Collective.** Seconds of the slowest to meet all others, politely."""
    seen = np.zeros(2, np.int64)
    start = time.perf_counter()
    world.all_max(seen)
    return _longest_since(world, start)


def _longest_since(world: World, start: float) -> float:
    """**Collective.** Seconds since a moment, of the rank that took longest."""
    took = np.array([time.perf_counter() - start])
    world.wait([world.comm.Iallreduce(MPI.IN_PLACE, took, op=MPI.MAX)])
    return float(took[0])
