"""``redist simulate``: run a plan on data, without the machine it is for."""

from __future__ import annotations

import argparse

from redist.cli.given import Given
from redist.cli.request import bytes_of
from redist.cli.status import FAILED, OK, UsageError
from redist.errors import StepError
from redist.judge.sample import simulated_bytes, value_fault
from redist.plan.plan import Plan
from redist.plan.rules import type_after
from redist.text.units import format_bytes

SHOWN_RANKS = 16


def run_simulate(args: argparse.Namespace) -> int:
    """Run the plan, compare with the brute-force answer, print what was measured."""
    from redist.runtime.simulator import random_tiles, simulate

    seed = _seed(args.seed)
    given = Given.read(args)
    plan = given.plan
    _refuse_large(plan, bytes_of(args.max_memory, "--max-memory"))
    reason = _cannot_run(plan)
    if reason is not None:
        print(f"result     WRONG: {reason}")
        return FAILED
    tiles = random_tiles(plan.source, seed)
    run = simulate(plan, tiles, given.topology)
    fault = value_fault(plan, tiles, run.tiles)
    held = max(run.held_bytes.values(), default=0)
    received = sum(run.received_bytes.values())
    same, within = received == plan.received_bytes, held <= plan.peak_bytes
    print(f"{plan.source} -> {plan.target}")
    for line in _rows(run.received_bytes, run.held_bytes):
        print(line)
    print(f"result     {f'WRONG: {fault}' if fault else 'correct'} (random data, seed {seed})")
    print(f"received   {_against(received, plan.received_bytes, same, 'DIFFERS from the plan')}")
    print(f"memory     {_against(held, plan.peak_bytes, within, 'OVER the plan')}")
    return OK if fault is None and same and within else FAILED


def _cannot_run(plan: Plan) -> str | None:
    """Why a stored plan makes no sense as a sequence of steps; None if it does."""
    here = plan.source
    for number, step in enumerate(plan.steps):
        try:
            after = type_after(step.action, here)
        except StepError as error:
            return f"step {number + 1}: {error}"
        if after != step.after:
            return f"step {number + 1} leads to {after}, the plan says {step.after}"
        here = after
    return None if here == plan.target else f"the plan ends in {here}, not in {plan.target}"


def _seed(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise UsageError(f"--seed: cannot use {text!r}; need a whole number >= 0, such as 7")
    return int(text)


def _refuse_large(plan: Plan, most_bytes: int) -> None:
    need = simulated_bytes(plan)
    if need > most_bytes:
        raise UsageError(
            f"cannot simulate {plan.source}: all devices together need about {format_bytes(need)}, "
            f"more than {format_bytes(most_bytes)}; use smaller dims or raise --max-memory"
        )


def _rows(received: dict[int, int], held: dict[int, int]) -> list[str]:
    ranks = sorted({*received, *held})
    rows = [("rank", "received", "peak held")]
    rows += [
        (str(rank), format_bytes(received.get(rank, 0)), format_bytes(held.get(rank, 0)))
        for rank in ranks[:SHOWN_RANKS]
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [
        "  " + "   ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    if len(ranks) > SHOWN_RANKS:
        lines.append(f"  ... and {len(ranks) - SHOWN_RANKS} more ranks")
    return lines


def _against(measured: int, said: int, fine: bool, trouble: str) -> str:
    text = f"measured {_exact(measured)}, planned {_exact(said)}"
    return text if fine else f"{text}: {trouble}"


def _exact(n_bytes: int) -> str:
    return f"{format_bytes(n_bytes)} ({n_bytes} bytes)" if n_bytes >= 1024 else f"{n_bytes} B"
