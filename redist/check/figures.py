"""Bytes, messages and memory of a step, worked out again from the boxes alone."""

from __future__ import annotations

import numpy as np

from redist.check.holdings import (
    Holding,
    PendingChange,
    holding,
    pending_change,
    rows_by_rank,
    size,
)
from redist.layout.lower_bound import lower_bound_bytes
from redist.layout.tiles import Ints, coordinates, total
from redist.plan.plan import Plan
from redist.plan.steps import Action, AllReduce, Event, Slice, Step

MIB = 2**20


def received_elems(
    step: Step, before: Holding, after: Holding, pending: PendingChange
) -> tuple[int, int, int]:
    """Elements received in all, by the least and by the busiest rank."""
    if isinstance(step.action, Slice):
        return 0, 0, 0
    if isinstance(step.action, AllReduce):
        g = size(pending.resolved)
        worst, least = int(before.volumes.max()), int(before.volumes.min())
        all_ = 2 * (g - 1) * total(before.volumes) // g
        return all_, 2 * (least - least // g), 2 * (worst - worst // g)
    lack = lacking(before, after, pending)
    return total(lack), int(lack.min()), int(lack.max())


def lacking(before: Holding, after: Holding, pending: PendingChange) -> Ints:
    """Elements that each rank of the type after lacks, partial values counted one by one."""
    brings = coordinates(after.type.mesh, pending.added) == 0
    need = np.where(brings, after.volumes * size(pending.resolved), 0)
    own = rows_by_rank(before.type, after.type)
    inner = np.minimum(before.hi[own], after.hi) - np.maximum(before.lo[own], after.lo)
    have = np.prod(np.maximum(inner, 0), axis=1, dtype=np.int64)
    return need - np.where((own >= 0) & brings, have, 0)


def messages(
    action: Action, before: Holding, after: Holding, pending: PendingChange
) -> tuple[int, int]:
    """How many messages a rank receives, the least and the most: other tiles that its box meets."""
    if isinstance(action, Slice):
        return 0, 0
    g = size(pending.resolved)
    if isinstance(action, AllReduce):
        return 2 * (g - 1), 2 * (g - 1)
    count = np.full(len(after.lo), g, dtype=np.int64)
    for i, (n, k) in enumerate(zip(before.type.shape, before.cuts, strict=True)):
        tile = max(1, -(-n // k))
        count *= (np.maximum(after.hi[:, i], 1) - 1) // tile - after.lo[:, i] // tile + 1
    lack = lacking(before, after, pending)
    brings = coordinates(after.type.mesh, pending.added) == 0
    own = np.where(brings, after.volumes * g, 0) - lack > 0
    count = np.where(lack > 0, count - own, 0)
    return int(count.min()), int(count.max())


def lower_bound(plan: Plan) -> int:
    """The lower bound counted here where nothing is pending; else as the layout counts it."""
    source, target = holding(plan.source), holding(plan.target)
    change = pending_change(plan.source, plan.target)
    if plan.source.pending_op is None and plan.target.pending_op is None:
        return total(lacking(source, target, change)) * plan.source.dtype.itemsize
    return lower_bound_bytes(plan.source, plan.target)


def memory_fault(plan: Plan, number: int, worst_received_bytes: int) -> str | None:
    """What is wrong with the allocations of a step; None if nothing is."""
    step = plan.steps[number]
    last = number == len(plan.steps) - 1
    split = plan.source.mesh.ranks != plan.target.mesh.ranks
    at = "both"
    if split:
        at = "source" if step.after.mesh == plan.source.mesh else "target"
    out = Event(
        "target" if last else "middle",
        step.after.tile_bytes,
        number,
        number if last else number + 1,
        at,
    )
    staging = [event for event in step.events if event.what == "staging"]
    rest = [event for event in step.events if event.what != "staging"]
    if rest != [out]:
        return f"it must allocate exactly {out}, the plan says {rest}"
    if len(staging) != 1 or (staging[0].born, staging[0].freed) != (number, number):
        return "it must have one staging buffer that lives during the step"
    if staging[0].at != "both" or staging[0].n_bytes < 0:
        return "its staging buffer must be on every rank and not negative"
    room = staging[0].n_bytes
    busiest = max(worst_received_bytes, step.sent_worst_bytes)
    rounds = max(1, -(-2 * busiest // room)) if room else 1
    if step.rounds != rounds:
        return f"{busiest} bytes through {room} take {rounds} rounds, the plan says {step.rounds}"
    larger = max(plan.source.tile_bytes, plan.target.tile_bytes)
    allowed = max(larger // 8, min(MIB, larger // 2))
    if room > allowed:
        return f"staging of {room} bytes is above the {allowed} bytes allowed"
    live = live_at(plan, number)
    if live != step.peak_bytes:
        return f"{live} bytes are live, the plan says {step.peak_bytes}"
    if plan.limit_bytes is not None and live > plan.limit_bytes:
        return f"{live} bytes are live, over the limit of {plan.limit_bytes}"
    return None


def live_at(plan: Plan, moment: int) -> int:
    """Bytes alive on the worst rank during a step, from the events of the plan."""
    alive = [event for event in plan.events if event.born <= moment <= event.freed]
    if plan.source.mesh.ranks == plan.target.mesh.ranks:
        return sum(event.n_bytes for event in alive)
    sources, targets = set(plan.source.mesh.ranks), set(plan.target.mesh.ranks)
    worst = 0
    for here, kinds in (
        (sources & targets, {"source", "target", "both"}),
        (sources - targets, {"source", "both"}),
        (targets - sources, {"target", "both"}),
    ):
        if here:
            worst = max(worst, sum(event.n_bytes for event in alive if event.at in kinds))
    return worst
