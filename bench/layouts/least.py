"""The least that any layouts of a workload receive: planned as if bytes were all that costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.layouts.workload import Workload
from redist import RedistError, pgas
from redist.arrange.strategies import DeviceCosts
from redist.pgas.programs.capture import capture
from redist.pgas.programs.planning.plan_calls import ProgramCosts, plan_calls
from redist.pgas.programs.planning.plan_program import types_of
from redist.pgas.programs.planning.recorder import CallRecorder
from redist.plan.topology import Level, Topology

BYTE_PS = 1000
BYTES_ONLY = Topology((Level("all", None, 0, 1000 * BYTE_PS),))
NO_WORK = DeviceCosts(0, 0)


def least_received(workload: Workload, arrays: Sequence[Any]) -> int | None:
    """**Local.** Bytes that the busiest rank receives at least, all moves together; None if not known.

    Arguments lie as they are given, results anywhere with nothing pending. Work done several times over
    is free. That is the least over all layouts of the calls as they are written, each argument moved anew.
    """
    recorder = CallRecorder()
    capture(workload.of(pgas), arrays, {}, arrays, arranger=recorder)
    try:
        plan = plan_calls(recorder, (), ProgramCosts.of(types_of(recorder), BYTES_ONLY, NO_WORK))
    except RedistError:
        return None
    return plan.bound_ps // BYTE_PS
