"""Replay a plan: who owns which indices after every step, the types, the bytes, the memory."""

from __future__ import annotations

from redist.check.delivery import fault
from redist.check.figures import live_at, memory_fault, messages, received_elems
from redist.check.holdings import Holding, holding, pending_change
from redist.errors import CheckError
from redist.layout.bounds import lower_bound_bytes
from redist.plan.plan import Plan
from redist.plan.steps import AllPermute, AllReduce, Exchange, ReduceScatter, Slice, Step


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
    if not isinstance(action, (Slice, AllReduce)):
        count = messages(before, after, pending)
        if (int(count.min()), int(count.max())) != step.messages_range:
            return (
                f"ranks receive {count.min()} to {count.max()} messages, "
                f"the plan says {step.messages_range}"
            )
    return memory_fault(plan, number, most * itemsize)


def _check_whole(plan: Plan) -> None:
    if plan.types[-1] != plan.target:
        raise CheckError(None, f"it ends in {plan.types[-1]}, not in {plan.target}")
    bound = lower_bound_bytes(plan.source, plan.target)
    if plan.lower_bound_bytes != bound:
        raise CheckError(
            None, f"the lower bound is {bound}, the plan says {plan.lower_bound_bytes}"
        )
    peak = max(live_at(plan, moment) for moment in range(max(1, len(plan.steps))))
    if peak != plan.peak_bytes:
        raise CheckError(None, f"the peak is {peak} bytes, the plan says {plan.peak_bytes}")
    if plan.limit_bytes is not None and peak > plan.limit_bytes:
        raise CheckError(None, f"the peak of {peak} bytes is over the limit of {plan.limit_bytes}")
