"""Ranks as threads: what each would prepare for a step, without MPI."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier
from typing import Any

import numpy as np

from redist.layout.tiles import tile_shapes
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.runtime.copies.strided import c_strides
from redist.runtime.host.staging import BY_MPI, Packing, Staging
from redist.runtime.ranks.node import Node
from redist.runtime.schedule.compiler import Bases, Compiler, Round, TileAt
from redist.runtime.schedule.pieces import StepPieces, pieces_of_step
from redist.runtime.schedule.rounds import Rounds
from redist.runtime.schedule.stages import StagePart


class Meeting:
    """Values of some ranks, given by all and seen by all."""

    def __init__(self, n: int) -> None:
        self.barrier = Barrier(n, timeout=20)
        self.values: list[Any] = [None] * n

    def gather(self, place: int, value: Any) -> list[Any]:
        self.values[place] = value
        self.barrier.wait()
        seen = list(self.values)
        self.barrier.wait()
        return seen


class ThreadWorld:
    """As much of a world as preparing needs; ``groups`` has the node of every rank."""

    def __init__(self, rank: int, groups: Sequence[int], all_: Meeting, near: Meeting) -> None:
        self.rank, self.size = rank, len(groups)
        near_ranks = tuple(r for r, group in enumerate(groups) if group == groups[rank])
        self.node = Node(rank, near_ranks, tuple(groups), {}, None)
        self.one_node = len(near_ranks) == self.size
        self._all, self._near = all_, near

    def all_max(self, values: Any) -> None:
        values[:] = np.max(self._all.gather(self.rank, values.copy()), axis=0)

    def gather_on_node(self, value: Any) -> list[Any]:
        return self._near.gather(self.node.place, value)

    def wait_on_node(self) -> None:
        self._near.barrier.wait()


def worlds(groups: Sequence[int]) -> list[ThreadWorld]:
    """The worlds of all ranks."""
    all_ = Meeting(len(groups))
    near = {group: Meeting(list(groups).count(group)) for group in set(groups)}
    return [ThreadWorld(rank, groups, all_, near[group]) for rank, group in enumerate(groups)]


def random_groups(rng: Random, n: int) -> list[int]:
    """Nodes: one, one for each rank, blocks, or anyhow; each is called by its first rank."""
    kind = rng.randrange(4)
    nodes = [
        [0] * n,
        list(range(n)),
        [rank // 2 for rank in range(n)],
        [rng.randrange(3) for _ in range(n)],
    ][kind]
    return [nodes.index(node) for node in nodes]


def phase_of(plan: Plan, number: int, again: int, rank: int) -> StepPieces:
    """One phase of a step of a plan, as a rank sees it."""
    return pieces_of_step(plan.steps[number], plan.types[number], rank, FLAT)[again]


def staged(
    stage_parts: Sequence[Sequence[StagePart]],
    groups: Sequence[int],
    staging_bytes: int,
    limited: bool,
    packing: Packing = BY_MPI,
) -> list[Staging]:
    """What every rank prepares."""
    with ThreadPoolExecutor(len(groups)) as pool:
        return list(
            pool.map(
                lambda world: Staging.of(
                    world, stage_parts[world.rank], staging_bytes, limited, packing
                ),
                worlds(groups),
            )
        )


def compiled(
    plan: Plan,
    number: int,
    again: int,
    groups: Sequence[int],
    staging_bytes: int,
    packing: Packing = BY_MPI,
) -> tuple[Rounds, list[list[Round]]]:
    """The rounds of one phase of a step, and what every rank does in them, pools within nodes."""
    ranks = range(len(groups))
    dtype = plan.source.dtype
    stage_parts = [[StagePart(phase_of(plan, number, again, rank), dtype)] for rank in ranks]
    staging = staged(stage_parts, groups, staging_bytes, False, packing)
    before, after = (tile_shapes(plan.types[number + k]) for k in (again, 1))
    out = []
    for rank, world in enumerate(worlds(groups)):
        got = staging[rank]
        compiler = Compiler(
            rank,
            stage_parts[rank],
            Bases(1, world.node.ranks),
            dict.fromkeys(((r, 0) for r in world.node.ranks), TileAt.POOL),
            got.offsets,
            [c_strides(before.get(rank, ()), dtype.itemsize)],
            [c_strides(after.get(rank, ()), dtype.itemsize)],
            (got.send_bytes, got.receive_bytes),
        )
        out.append([compiler.round(round_parts) for round_parts in got.rounds])
    assert all(one.rounds == staging[0].rounds for one in staging)
    return staging[0].rounds, out
