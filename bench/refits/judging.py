"""How quick is the judge of transfers? All runs of a whole model, and millions of single blocks.

Each list is judged as its receivers list it, in any order, and with one run that reads an element too late.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import redist
from bench.problems.judge import WrongPlanError
from bench.refits.models import QWEN3_235B, served, trained
from bench.report.figures import met, quartiles, timed
from bench.report.jobs import found_by, in_one_process
from bench.report.report import Row, Table, Tables
from redist.check.run_rows import FIELDS
from redist.measure.pages import private_bytes, private_peak_bytes, reset_peak
from redist.refits.manifest import boxes_of, rows_of

Runs = NDArray[np.void]
ONE_BLOCK = [*FIELDS[:6]]
"""The fields of a run that does not repeat."""
ITEMSIZE = 2
BY_RECEIVER, ANY_ORDER, WRONG = "by receiver", "any order", "any order, one run wrong"


@dataclass(frozen=True, slots=True)
class Aim:
    """So many runs in so many seconds of one core."""

    runs: int
    seconds: float

    @property
    def us(self) -> float:
        """Microseconds a run."""
        return 1e6 * self.seconds / self.runs


MODEL, BLOCKS = "a whole model", "single blocks"
AIMS = {MODEL: Aim(600_000, 2.0), BLOCKS: Aim(10_000_000, 12.0)}
TP = {MODEL: 8, BLOCKS: 4}
"""Ranks of an engine."""


def run(n: int = 3, layers: int = 94, receivers: int = 20) -> Tables:
    """Judge refits of Qwen3-235B: all of it to two engines of 8 ranks, and a layer of it, block by block.

    n: repetitions; layers: of the whole model; receivers: of the blocks, a multiple of 4.
    """
    asked = {MODEL: {"layers": layers}, BLOCKS: {"receivers": receivers}}
    found = {
        name: found_by(in_one_process(), "bench.refits.judging", name=name, repeat=n, **how)
        for name, how in asked.items()
    }
    return (table_of(found),)


def table_of(found: dict[str, Any]) -> Table:
    """What the jobs found; a right list that is refused, or a wrong one that is not, is an error."""
    rows: list[Row] = []
    for name, job in found.items():
        for order, seconds in job["seconds"].items():
            if job["fault"][order] == (order != WRONG):
                what = "refused" if job["fault"][order] else "accepted"
                raise WrongPlanError(f"cannot time the judge: {name}, {order}, was {what}")
            low, middle, high = quartiles(seconds)
            rows.append(
                {
                    "list": name, "order": order, "runs": job["runs"], "boxes": job["boxes"],
                    "s": middle, "low": low, "high": high, "us a run": 1e6 * middle / job["runs"],
                    "GiB": job["peak_bytes"][order] / 2**30,
                    "aim": met(1e6 * middle / job["runs"] <= AIMS[name].us),
                }
            )  # fmt: skip
    aims = " and ".join(f"{aim.runs:,} runs in {aim.seconds:g} s" for aim in AIMS.values())
    notes = (
        "a whole model: all runs of a refit from 256 ranks to two engines of 8, runs with strides as they "
        "are; single blocks: a layer of it to engines of 4, every block a run of its own",
        "seconds of one core, medians and quartiles; making the list and its boxes is not counted; one run "
        "wrong: it reads one element behind the right one, and the judge must name its tensor and rank",
        "GiB: private memory at most beside the list",
        f"aims: {aims}, held against the time for each run",
    )
    return Table.of("judged", "Judging runs of Qwen3-235B", rows, *notes, keys=2)


def measure(name: str, repeat: int, layers: int = 1, receivers: int = 16) -> dict[str, Any]:
    """Judge one list in all orders; runs in a process of its own."""
    model, tp = replace(QWEN3_235B, layers=layers), TP[name]
    source_side = trained(model, fsdp=name == MODEL)
    plan = redist.refit(source_side, served(model, tp=tp, ranks=receivers))
    source, target, runs = boxes_of(plan.source), boxes_of(plan.target), rows_of(plan)
    if name == BLOCKS:
        runs = one_by_one(runs)
    mixed = runs[np.random.default_rng(0).permutation(len(runs))]
    wrong = mixed.copy()
    changed = shift_one(wrong, source.sizes)
    lists = {BY_RECEIVER: runs, ANY_ORDER: mixed, WRONG: wrong}
    seconds: dict[str, list[float]] = {order: [] for order in lists}
    peak: dict[str, int] = {}
    fault: dict[str, bool] = {}
    for order, rows in lists.items():
        verdict, peak[order] = most_of(partial(redist.check_runs, rows, source, target))
        fault[order] = not verdict.is_right
        if order == WRONG and verdict.faults:
            rank = int(target.ranks[rows["target"][changed]])
            fault[order] = any(one.rank == rank and one.tensor for one in verdict.faults)
        del verdict
    for _ in range(repeat):
        for order, rows in lists.items():
            judge = partial(redist.check_runs, rows, source, target)
            seconds[order].append(timed(judge, time.process_time)[0])
    return {
        "runs": len(runs), "boxes": len(source.rows) + len(target.rows), "seconds": seconds,
        "peak_bytes": peak, "fault": fault,
    }  # fmt: skip


def one_by_one(runs: Runs) -> Runs:
    """Every block as a run of its own.

    >>> from redist.check.run_rows import as_runs
    >>> one_by_one(as_runs([(0, 1, 4, 2, 8, 2, 3, 10, 20)])).tolist()
    [(0, 1, 4, 2, 8, 2), (0, 1, 14, 2, 28, 2), (0, 1, 24, 2, 48, 2)]
    """
    count = runs["count"].astype(np.int64)
    which = np.repeat(np.arange(len(runs)), count)
    number: NDArray[np.int64] = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
    out = np.empty(len(which), [(name, runs.dtype[name]) for name in ONE_BLOCK])
    for name in ONE_BLOCK:
        out[name] = runs[name][which]
    for side in ("source", "target"):
        step: NDArray[np.int64] = runs[f"{side}_step"][which]
        out[f"{side}_offset"] += number * step
    return out


def shift_one(runs: Runs, sizes: NDArray[np.int64]) -> int:
    """Let the first run that leaves room behind it read one element too late; its number."""
    last = runs["source_offset"] + runs["bytes"]
    if "count" in (runs.dtype.names or ()):
        last = last + (runs["count"] - 1) * runs["source_step"]
    at = int(np.argmax(last + ITEMSIZE <= sizes[runs["source"]]))
    runs["source_offset"][at] += ITEMSIZE
    return at


def most_of(work: Callable[[], Any]) -> tuple[Any, int]:
    """What some work made, and how much private memory it took at most."""
    before = private_bytes()
    reset_peak()
    made = work()
    return made, private_peak_bytes() - before
