"""Simulate a plan: run it in one process, and compare with the right values and the plan's figures."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redist.errors import CheckError, RedistError, RequestError
from redist.judge.faults import step_fault, value_fault
from redist.layout.lower_bound import lower_bound_bytes
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.plan.steps import Action, AllPermute, Exchange, ReduceScatter
from redist.plan.topology import Topology
from redist.text.columns import table
from redist.text.units import format_bytes

if TYPE_CHECKING:
    from redist.runtime.simulator import Simulation, Tiles

# Run a plan on random data in this process; where it is large, its steps on the smallest such array.


SAMPLE_BYTES = 2**27
SAMPLE_PIECES = 2**15
"""What takes about a second at most."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A run on data: the plan that was run (or None, and ``reason`` says why) and what went wrong."""

    plan: Plan | None
    fault: str | None
    reason: str
    seconds: float


def run_sample(plan: Plan, topology: Topology) -> Sample:
    """Run a plan if it is small, else the same steps on the smallest array with even tiles."""
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
    """Bytes that a run in one process takes: all tiles of source and target, twice for the comparison."""
    ends = (plan.source, plan.target)
    return sum(t.tile_bytes * t.mesh.n_devices for t in ends) * 2


def smallest(plan: Plan, topology: Topology) -> Plan | None:
    """The same steps on the smallest array for which all tiles are even; None if this plan's are not.

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
    source, target = (replace(t, shape=shape) for t in (plan.source, plan.target))
    pricer = Pricer(source, target, topology, None, plan.donate)
    route = tuple(
        (_resize_action(s.action, shape), replace(s.after, shape=shape)) for s in plan.steps
    )
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
    return simulated_bytes(plan) > SAMPLE_BYTES or _pieces(plan) > SAMPLE_PIECES


def _resize_action(action: Action, shape: tuple[int, ...]) -> Action:
    match action:
        case AllPermute(to) | Exchange(to) | ReduceScatter(to):
            return replace(action, to=replace(to, shape=shape))
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


MOST_BYTES = 2**31
SHOWN_RANKS = 16


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """The measurements of a simulated run; ``print(report)`` says them in words.

    ``fault`` says what was wrong with the values. ``run`` has tiles and bytes by rank; it is None if
    nothing was run because the steps make no sense.
    """

    plan: Plan
    run: Simulation | None
    fault: str | None
    data: str

    @property
    def received_bytes(self) -> int:
        """Bytes that all ranks together received."""
        return 0 if self.run is None else sum(self.run.received_bytes.values())

    @property
    def held_bytes(self) -> int:
        """The most bytes that any rank held."""
        return 0 if self.run is None else max(self.run.held_bytes.values(), default=0)

    @property
    def is_correct(self) -> bool:
        """Whether every element arrived with the right value."""
        return self.run is not None and self.fault is None

    @property
    def is_as_planned(self) -> bool:
        """Whether it is correct, received as many bytes as planned and held no more than planned."""
        return self.is_correct and self._received_alike and self._held_within

    @property
    def _received_alike(self) -> bool:
        return self.received_bytes == self.plan.received_bytes

    @property
    def _held_within(self) -> bool:
        return self.held_bytes <= self.plan.peak_bytes

    def __str__(self) -> str:
        plan, run = self.plan, self.run
        if run is None:
            return f"result     WRONG: {self.fault}"
        received = _compare(self.received_bytes, plan.received_bytes)
        held = _compare(self.held_bytes, plan.peak_bytes)
        differs = "" if self._received_alike else ": DIFFERS from the plan"
        over = "" if self._held_within else ": OVER the plan"
        return "\n".join(
            [
                f"{plan.source} -> {plan.target}",
                *_rank_lines(run.received_bytes, run.held_bytes),
                f"result     {f'WRONG: {self.fault}' if self.fault else 'correct'} ({self.data})",
                f"received   {received}{differs}",
                f"memory     {held}{over}",
            ]
        )


def simulate(
    plan: Plan,
    tiles: Tiles | None = None,
    *,
    seed: int = 0,
    topology: Topology = FLAT,
    max_bytes: int = MOST_BYTES,
) -> SimulationReport:
    """**Local.** Run a plan on all ranks in this process and measure what it moves and holds.

    >>> import redist
    >>> plan = redist.synthesize("i32[10{x}, 7]", "i32[10, 7{x}]", mesh=redist.Mesh(x=3))
    >>> print(redist.simulate(plan))
    i32[10{x}, 7] -> i32[10, 7{x}]
      rank   received   peak held
         0       72 B       292 B
         1       72 B       292 B
         2       32 B       156 B
    result     correct (random data, seed 0)
    received   measured 176 B, planned 176 B
    memory     measured 292 B, planned 292 B

    ``tiles`` has the source tile of each rank, by rank; without it the data is random. If all ranks together
    need more than ``max_bytes``, the run is refused.
    """
    from redist.runtime import simulator

    check_size(plan, max_bytes)
    data = f"random data, seed {seed}" if tiles is None else "the given arrays"
    fault = step_fault(plan)
    if fault is not None:
        return SimulationReport(plan, None, fault, data)
    before = simulator.random_tiles(plan.source, seed) if tiles is None else tiles
    run = simulator.simulate(plan, before, topology)
    return SimulationReport(plan, run, value_fault(plan, before, run.tiles), data)


def check_size(plan: Plan, most_bytes: int, option: str = "max_bytes") -> None:
    """Refuse a plan that would take more memory in this process than ``option`` allows."""
    need = simulated_bytes(plan)
    if need > most_bytes:
        raise RequestError(
            f"cannot simulate {plan.source}: all devices together need about {format_bytes(need)}, "
            f"more than {format_bytes(most_bytes)}; use smaller dims or raise {option}"
        )


def _rank_lines(received: dict[int, int], held: dict[int, int]) -> list[str]:
    ranks = sorted({*received, *held})
    rows = [("rank", "received", "peak held")]
    rows += [
        (str(rank), format_bytes(received.get(rank, 0)), format_bytes(held.get(rank, 0)))
        for rank in ranks[:SHOWN_RANKS]
    ]
    lines = table(rows, left=(), indent="  ")
    if len(ranks) > SHOWN_RANKS:
        lines.append(f"  ... and {len(ranks) - SHOWN_RANKS} more ranks")
    return lines


def _compare(measured: int, said: int) -> str:
    return f"measured {_exact(measured)}, planned {_exact(said)}"


def _exact(n_bytes: int) -> str:
    return f"{format_bytes(n_bytes)} ({n_bytes} bytes)" if n_bytes >= 1024 else f"{n_bytes} B"
