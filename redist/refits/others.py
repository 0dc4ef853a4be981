"""What other schedules of the same refit would take, by the same model.

Three schedules, with the same limit for what a rank sends and receives in a round:

=================  =========================================================================================
this plan          tensors in proportion over all holders
stage by stage     tensors of one pipeline stage of the source after those of the other
whole tensors      every rank receives all of each stored tensor of which it keeps a part, and cuts it
=================  =========================================================================================

Rounds are synchronised, so a schedule takes what the busiest rank of each round takes, added up: *in step*.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from redist.plan.rates import FAR_LEVEL
from redist.refits.rounds import rounds_of

if TYPE_CHECKING:
    from redist.refits.plan import RefitPlan

Schedule = tuple[str, int, int, float, str]
"""Name, bytes received, bytes in step, seconds, and how many times this plan's."""


def schedules(plan: RefitPlan) -> list[Schedule]:
    """This plan beside the others."""
    own = int(plan.turns.busiest.sum())
    staged = rounds_of(plan.pairs, plan.limit_bytes, by_stage=True)
    whole, whole_step = _whole(plan)
    rows = [
        ("this plan", plan.received_bytes, own),
        ("stage by stage", plan.received_bytes, int(staged.busiest.sum())),
        ("whole tensors", whole, whole_step),
    ]
    return [
        (name, received, step, _seconds(plan, step), f"{step / own:.2f} x" if own else "")
        for name, received, step in rows
    ]


def _seconds(plan: RefitPlan, n_bytes: int) -> float:
    """By the rate of the farthest level: the sides are usually on different nodes."""
    far = FAR_LEVEL if plan.topology is None else plan.topology.levels[-1]
    return n_bytes * far.byte_fs / 1e15


def _whole(plan: RefitPlan) -> tuple[int, int]:
    """Bytes that all ranks, and the busiest one, receive if stored tensors travel whole.

    Each stored tensor of the target is put together once by its first holder and passed on, so ranks
    receive, and are taken to forward at most what they receive.
    """
    received: dict[int, int] = {}
    for t in plan.target.types.values():
        n_bytes = math.prod(t.shape) * t.dtype.itemsize
        for rank in t.mesh.ranks:
            received[rank] = received.get(rank, 0) + n_bytes
    return sum(received.values()), max(received.values(), default=0)
