"""Oracle, checker and simulator on many random problems: python -m tests.problems.soak --n 2000."""

from __future__ import annotations

import argparse
import math
import random
import sys

import numpy as np

from redist.check.delivery import holding
from redist.check.prove import certify
from redist.check.replay import check_plan
from redist.layout.array_type import ArrayType
from redist.plan.plan import Plan
from redist.plan.request import OBJECTIVES, STRATEGIES, Request
from redist.plan.steps import AllReduce
from redist.runtime.copies.reduce import combine
from redist.runtime.simulator import Simulation, global_value, random_tiles, simulate
from redist.synth.find import find_plan
from tests.problems import oracle
from tests.problems.problems import KINDS, Problem, problems

Boxes = dict[int, tuple[range, ...]]


def boxes(t: ArrayType) -> Boxes:
    """By the oracle: which indices every rank holds, dim by dim."""
    return dict(zip(t.mesh.ranks, oracle.boxes(t), strict=True))


def oracle_value(t: ArrayType, tiles: dict[int, np.ndarray]) -> np.ndarray:
    """By the oracle: the global array, partial values combined in ascending order."""
    parts: dict[tuple[int, ...], np.ndarray] = {}
    where, labels = boxes(t), oracle.labels(t)
    for rank, box in where.items():
        part = parts.setdefault(labels[rank], np.zeros(t.shape, t.dtype.to_numpy()))
        part[np.ix_(*box)] = tiles[rank]
    out = [parts[label] for label in sorted(parts)]
    for part in out[1:]:
        assert t.pending_op is not None
        out[0] = combine(t.pending_op, t.dtype, out[0], part)
    return out[0]


def oracle_received(before: ArrayType, after: ArrayType) -> int:
    """By the oracle: elements that ranks lack between two types with nothing pending."""
    have, need = boxes(before), boxes(after)
    lacking = 0
    for rank, box in need.items():
        own = have.get(rank, tuple(range(0) for _ in box))
        both = math.prod(len(set(a) & set(b)) for a, b in zip(own, box, strict=True))
        lacking += math.prod(map(len, box)) - (both if rank in have else 0)
    return lacking


def disagreements(problem: Problem, plan: Plan, seed: int) -> list[str]:
    """What oracle, checker and simulator do not agree on; empty if they do on everything."""
    faults = []
    check_plan(plan)
    for t in plan.types:
        held = holding(t)
        for row, box in enumerate(oracle.boxes(t)):
            mine = [range(int(a), int(b)) for a, b in zip(held.lo[row], held.hi[row], strict=True)]
            if [list(r) for r in mine] != [list(r) for r in box]:
                faults.append(f"boxes of device {row} under {t}")
    for before, step in zip(plan.types, plan.steps, strict=False):
        plain = before.pending_op is None and step.after.pending_op is None
        if plain and not isinstance(step.action, AllReduce):
            expected = oracle_received(before, step.after) * plan.source.dtype.itemsize
            if expected != step.received_bytes:
                faults.append(f"bytes of {step.op}: {expected}, not {step.received_bytes}")
    tiles = random_tiles(problem.source, seed)
    done = simulate(plan, tiles)
    faults += value_faults(problem, tiles, done)
    if sum(done.received_bytes.values()) != plan.received_bytes:
        faults.append("bytes received by the simulator")
    if max(done.held_bytes.values()) > plan.peak_bytes:
        faults.append(f"{max(done.held_bytes.values())} bytes held, peak {plan.peak_bytes}")
    return faults


def value_faults(problem: Problem, tiles: dict[int, np.ndarray], done: Simulation) -> list[str]:
    """Whether every rank has in the end what the oracle says."""
    source, target = problem.source, problem.target
    value = oracle_value(source, tiles)
    if value.tobytes() != global_value(source, tiles).tobytes():
        return ["the global value of the source"]
    if target.pending_op is not None:
        same = oracle_value(target, done.tiles).tobytes() == value.tobytes()
        return [] if same else ["the global value of the target"]
    return [
        f"tile of rank {rank}"
        for rank, box in boxes(target).items()
        if np.ascontiguousarray(value[np.ix_(*box)]).tobytes() != done.tiles[rank].tobytes()
    ]


def main() -> int:
    """Run until done or a disagreement; print what was covered."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--options", action="store_true", help="random options, limits, certificates"
    )
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    seen = dict.fromkeys(KINDS, 0)
    for number, problem in enumerate(problems(arguments.n, arguments.seed)):
        request = Request(problem.source, problem.target)
        if arguments.options:
            base = problem.source.tile_bytes + problem.target.tile_bytes
            strategy = rng.choice(STRATEGIES)
            limit = base + 1024 + rng.randrange(base + 1) if strategy == "auto" else None
            request = Request(
                problem.source,
                problem.target,
                limit_bytes=rng.choice((None, limit)),
                objective=rng.choice(OBJECTIVES),
                strategy=strategy,
                donate=rng.random() < 0.5,
            )
        plan = find_plan(request)
        faults = disagreements(problem, plan, number)
        if arguments.options and certify(plan).verdict != "proved":
            faults.append(f"certificate: {certify(plan)}")
        if request.limit_bytes is not None and plan.peak_bytes > request.limit_bytes:
            faults.append("over the limit")
        if faults:
            print(f"problem {number}: {problem}\n{plan}\n" + "\n".join(faults))
            return 1
        seen[problem.kind] += 1
        if number % 100 == 99:
            print(f"\r{number + 1} problems agree", end="", file=sys.stderr)
    counts = ", ".join(f"{kind} {n}" for kind, n in seen.items())
    print(f"\n{arguments.n} problems, all agree: {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
