"""Replay a plan: who owns which indices after every step, the types, the bytes, the memory."""

from __future__ import annotations

import numpy as np

from redist.check.delivery import (
    Holding,
    PendingChange,
    fault,
    holding,
    pending_change,
    rows_by_rank,
    size,
)
from redist.check.segment_indices import count_cells, shared_elems
from redist.errors import CheckError
from redist.layout.axes import coordinates
from redist.layout.lower_bound import lower_bound_bytes
from redist.layout.tiles import Ints, total
from redist.plan.plan import Plan
from redist.plan.steps import (
    Action,
    AllPermute,
    AllReduce,
    Event,
    Exchange,
    ReduceScatter,
    Slice,
    Step,
)

# Bytes, messages and memory of a step, worked out again from the boxes alone.


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
    if before.type.segments or after.type.segments:
        return need - np.where(brings, shared_elems(before.type, after.type, own), 0)
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
    if before.type.segments or after.type.segments:
        rows = rows_by_rank(before.type, after.type)
        met, mine = count_cells(before.type, after.type, rows)
        brings = coordinates(after.type.mesh, pending.added) == 0
        count = np.where(brings, met * g - mine, 0)
        return int(count.min()), int(count.max())
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


def check_plan(plan: Plan) -> None:
    """Raise :class:`CheckError` with the step and the reason if anything about a plan is wrong.

    >>> import redist
    >>> check_plan(redist.synthesize("f32[8{x}]", "f32[8]", mesh=redist.Mesh(x=2)))

    Judged are: that every step can deliver what the next type needs from what the last one holds,
    the types from source to target, bytes received, messages, allocations, peaks and the limit. Not
    judged: modelled times, how load is shared among senders, and which axes a step names as crossed.
    """
    before = holding(plan.source)
    for number, step in enumerate(plan.steps):
        if (step.after.shape, step.after.dtype) != (plan.source.shape, plan.source.dtype):
            raise CheckError(number, f"{step.after} is another array than {plan.source}")
        if step.after.mesh not in (plan.source.mesh, plan.target.mesh):
            raise CheckError(number, f"it uses a third mesh, {step.after.mesh}")
        after = holding(step.after)
        reason = _step_fault(plan, number, step, before, after)
        if reason is not None:
            raise CheckError(number, f"{step.op} {before.type} -> {after.type}: {reason}")
        before = after
    _check_whole(plan)


def _step_fault(plan: Plan, number: int, step: Step, before: Holding, after: Holding) -> str | None:
    action = step.action
    if isinstance(action, (AllPermute, Exchange, ReduceScatter)) and action.to != step.after:
        return f"it leads to {action.to}"
    pending = pending_change(before.type, after.type)
    across = before.type.mesh != after.type.mesh and isinstance(action, (Exchange, AllPermute))
    if across and before.type.pending_op is not None:
        return "pending axes cannot change meshes"
    reason = fault(action, before, after, pending)
    if reason is not None:
        return reason
    itemsize = plan.source.dtype.itemsize
    moved, least, most = received_elems(step, before, after, pending)
    if moved * itemsize != step.received_bytes:
        return f"{moved * itemsize} bytes are received, the plan says {step.received_bytes}"
    if (least * itemsize, most * itemsize) != step.received_range_bytes:
        return (
            f"ranks receive {least * itemsize} to {most * itemsize} bytes, "
            f"the plan says {step.received_range_bytes}"
        )
    few, many = messages(action, before, after, pending)
    if (few, many) != step.messages_range:
        return f"ranks receive {few} to {many} messages, the plan says {step.messages_range}"
    if step.sent_worst_bytes > step.received_bytes:
        return f"a rank sends {step.sent_worst_bytes} bytes, more than are received"
    return memory_fault(plan, number, most * itemsize)


FORBIDDEN: dict[str, tuple[str, ...]] = {
    "auto": (),
    "direct": (),
    "collectives": ("exchange",),
    "no_permute": ("exchange", "all_permute"),
}


def _crosses(plan: Plan, number: int) -> bool:
    """Whether a step is the all_permute that every strategy needs between two meshes."""
    step = plan.steps[number]
    return step.op == "all_permute" and plan.types[number].mesh != step.after.mesh


def _check_whole(plan: Plan) -> None:
    if plan.types[-1] != plan.target:
        raise CheckError(None, f"it ends in {plan.types[-1]}, not in {plan.target}")
    if plan.strategy == "direct" and len(plan.steps) > 1:
        raise CheckError(None, f"strategy 'direct' has one step, not {len(plan.steps)}")
    for number, step in enumerate(plan.steps):
        if step.op in FORBIDDEN[plan.strategy] and not _crosses(plan, number):
            raise CheckError(number, f"strategy {plan.strategy!r} has no {step.op}")
    bound = lower_bound(plan)
    if plan.lower_bound_bytes != bound:
        raise CheckError(
            None, f"the lower bound is {bound}, the plan says {plan.lower_bound_bytes}"
        )
    peak = max(live_at(plan, moment) for moment in range(max(1, len(plan.steps))))
    if peak != plan.peak_bytes:
        raise CheckError(None, f"the peak is {peak} bytes, the plan says {plan.peak_bytes}")
    if plan.limit_bytes is not None and peak > plan.limit_bytes:
        raise CheckError(None, f"the peak of {peak} bytes is over the limit of {plan.limit_bytes}")
