"""How often elements cross into a block of ranks, counted piece by piece."""

from __future__ import annotations

import numpy as np

from redist.layout.tiles import Ints
from redist.plan.plan import Plan
from redist.plan.schedule import make_schedule
from redist.plan.steps import AllReduce, Slice
from redist.plan.topology import Topology
from redist.plan.traffic import flow

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
