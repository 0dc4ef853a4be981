"""Replay a plan: who owns which indices after every step, the types, the bytes, the memory."""

from __future__ import annotations

from redist.check.delivery import fault
from redist.check.figures import live_at, lower_bound, memory_fault, messages, received_elems
from redist.check.holdings import Holding, holding, pending_change
from redist.errors import CheckError
from redist.plan.plan import Plan
from redist.plan.steps import AllPermute, Exchange, ReduceScatter, Step


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
