"""No figure without a check: every plan is replayed, and run on data where the array is small."""

from __future__ import annotations

import redist
from redist.check.replay import check_plan
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.plan.topology import Topology
from redist.runtime.simulator import is_correct, random_tiles, simulate

SIMULATED_ELEMS = 100_000
SIMULATED_DEVICES = 512
"""Arrays up to this size on up to so many devices are moved for real, in one process."""


class WrongPlanError(redist.RedistError):
    """A benchmark met a plan that is not what it says; no figure is printed then."""


def judge(plan: Plan, topology: Topology = FLAT) -> Plan:
    """Check a plan and return it; raise if a check finds it wrong.

    >>> plan = redist.synthesize("f32[8{x}]", "f32[8]", mesh=redist.Mesh(x=2))
    >>> judge(plan) is plan
    True
    """
    fault = _fault(plan, topology)
    if fault is None:
        return plan
    raise WrongPlanError(
        f"cannot measure {plan.source} -> {plan.target} on {plan.source.mesh} -> {plan.target.mesh} "
        f"(objective {plan.objective}, strategy {plan.strategy}): {fault}"
    )


def _fault(plan: Plan, topology: Topology) -> str | None:
    """What is wrong with a plan; None if nothing is."""
    try:
        check_plan(plan)
    except redist.CheckError as error:
        return str(error)
    if plan.certificate is not None and plan.certificate.verdict != "proved":
        return f"its certificate says {plan.certificate.verdict}"
    devices = max(plan.source.mesh.n_devices, plan.target.mesh.n_devices)
    if plan.source.global_elems > SIMULATED_ELEMS or devices > SIMULATED_DEVICES:
        return None
    tiles = random_tiles(plan.source)
    try:
        run = simulate(plan, tiles, topology)
        if not is_correct(plan, tiles, run.tiles):
            return "the target stands for other values than the source"
    except redist.RedistError as error:
        return str(error)
    received = sum(run.received_bytes.values())
    if received != plan.received_bytes:
        return f"{received} bytes were received, the plan says {plan.received_bytes}"
    held = max(run.held_bytes.values(), default=0)
    if held > plan.peak_bytes:
        return f"a rank held {held} bytes, the plan says {plan.peak_bytes}"
    return None
