"""Run a plan on random data in this process; where it is large, its steps on the smallest such array."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from redist.errors import CheckError, RedistError
from redist.judge.faults import value_fault
from redist.layout.array_type import ArrayType
from redist.layout.lower_bound import lower_bound_bytes
from redist.plan.plan import Plan
from redist.plan.steps import Action, AllPermute, Exchange, ReduceScatter
from redist.plan.topology import Topology
from redist.text.units import format_bytes

MOST_BYTES = 2**27
MOST_PIECES = 2**15
"""What takes about a second at most."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A run: the plan that was run (None: none was, ``reason`` says why) and what was wrong."""

    plan: Plan | None
    fault: str | None
    reason: str
    seconds: float


def run_sample(plan: Plan, topology: Topology) -> Sample:
    """Run a plan if it is small, else the same steps on the smallest array they are even for."""
    started = time.perf_counter()
    chosen = smallest(plan, topology) if _is_large(plan) else plan
    if chosen is None or _is_large(chosen):
        need = format_bytes(simulated_bytes(plan))
        reason = f"all devices together would need {need} and {_pieces(plan)} pieces"
        return Sample(None, None, reason, 0.0)
    try:
        fault = _scale_fault(plan, chosen) or _run_fault(chosen, topology)
    except CheckError as error:
        fault = str(error)
    except (RedistError, ModuleNotFoundError) as error:  # no arithmetic for this dtype
        return Sample(None, None, str(error), 0.0)
    return Sample(chosen, fault, "", time.perf_counter() - started)


def simulated_bytes(plan: Plan) -> int:
    """Bytes that a run in one process takes: all tiles of source and target, twice to compare them."""
    ends = (plan.source, plan.target)
    return sum(t.tile_bytes * t.mesh.n_devices for t in ends) * 2


def smallest(plan: Plan, topology: Topology) -> Plan | None:
    """The same steps on the smallest array for which all tiles are even; None if these are not.

    >>> import redist
    >>> from redist.plan.rates import FLAT
    >>> mesh = redist.Mesh(x=2, y=4)
    >>> plan = redist.synthesize("f32[4096{x}, 4096{y}]", "f32[4096{y}, 4096{x}]", mesh=mesh)
    >>> print(smallest(plan, FLAT).source)
    f32[4{x}, 4{y}]
    """
    from redist.check.families import unit_dims
    from redist.synth.plan_figures import Pricer

    shape = unit_dims(plan)
    if shape is None:
        return None
    source, target = _resize(plan.source, shape), _resize(plan.target, shape)
    pricer = Pricer.of(source, target, topology, None, plan.donate)
    route = tuple((_resize_action(s.action, shape), _resize(s.after, shape)) for s in plan.steps)
    return replace(
        plan,
        source=source,
        target=target,
        steps=pricer.steps(route),
        lower_bound_bytes=lower_bound_bytes(source, target),
        considered=(),
        certificate=None,
    )


def _pieces(plan: Plan) -> int:
    devices = max(plan.source.mesh.n_devices, plan.target.mesh.n_devices)
    return devices * (plan.messages + 1)


def _is_large(plan: Plan) -> bool:
    return simulated_bytes(plan) > MOST_BYTES or _pieces(plan) > MOST_PIECES


def _resize(t: ArrayType, shape: tuple[int, ...]) -> ArrayType:
    return replace(t, shape=shape)


def _resize_action(action: Action, shape: tuple[int, ...]) -> Action:
    match action:
        case AllPermute(to) | Exchange(to) | ReduceScatter(to):
            return replace(action, to=_resize(to, shape))
        case _:
            return action


def _scale_fault(plan: Plan, chosen: Plan) -> str | None:
    """Whether a smaller plan is right, and receives and must receive in proportion to its size."""
    from redist.check.replay import check_plan

    if chosen is plan:
        return None
    check_plan(chosen)
    times = plan.source.global_elems // chosen.source.global_elems
    for what in ("received_bytes", "lower_bound_bytes"):
        small, large = getattr(chosen, what), getattr(plan, what)
        if small * times != large:
            return f"{what} is {small} for {chosen.source} and {large} for {plan.source}"
    return None


def _run_fault(plan: Plan, topology: Topology) -> str | None:
    from redist.runtime.simulator import random_tiles, simulate

    tiles = random_tiles(plan.source)
    run = simulate(plan, tiles, topology)
    fault = value_fault(plan, tiles, run.tiles)
    if fault is not None:
        return fault
    received, held = sum(run.received_bytes.values()), max(run.held_bytes.values(), default=0)
    if received != plan.received_bytes:
        return f"{received} bytes were received, the plan says {plan.received_bytes}"
    return None if held <= plan.peak_bytes else f"{held} bytes were held, over {plan.peak_bytes}"
