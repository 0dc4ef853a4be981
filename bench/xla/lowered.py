"""How quick are plans when XLA runs them, beside what it does by itself? Needs jax."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from typing import Any

from bench.problems.installed import version
from bench.problems.judge import WrongPlanError
from bench.report.figures import geomean, in_turn, quantile, timed
from bench.report.jobs import found_by, in_one_process
from bench.report.report import Row, Table, Tables
from bench.xla.race import cases
from redist.lower.hlo import elems, received_elems
from redist.measure.cases import Case
from redist.text.progress import track

DEVICES = 8
ARRAY_BYTES = 64 * 2**20
REPEATS = 11
LIMIT_S = 3600.0
SLOW = 0.9
"""Below this ratio a problem is listed."""


def run(n: int = 120, seed: int = 0, repeat: int = REPEATS) -> Tables:
    """Race up to 120 random problems on 8 CPU devices of one process, both ways in turn."""
    asked = {"n": min(n, 120), "seed": seed, "n_bytes": ARRAY_BYTES, "repeat": repeat}
    return tables(found_by(in_one_process(limit_s=LIMIT_S), "bench.xla.lowered", **asked))


def measure(n: int, seed: int, n_bytes: int, repeat: int) -> list[dict[str, Any]]:
    """A row for every problem, in a process of its own."""
    from bench.peers.jax_devices import force_devices

    force_devices(DEVICES)
    asked = cases(n, seed, n_bytes, DEVICES)
    return [race(case, repeat) for case in track(asked, n, "bench lowered")]


def race(case: Case, repeat: int) -> dict[str, Any]:
    """One problem: XLA's own way and the plan in turn, checked first."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import redist.jax
    from redist.jax.choose import goes_as_bits
    from redist.lower.calls import peak_bytes
    from redist.lower.lowering import lower_plan
    from redist.plan.rates import XLA

    source, target = case.source, case.target
    grid = np.array(jax.devices()).reshape([size for _, size in source.mesh.axes])
    mesh = Mesh(grid, [name for name, _ in source.mesh.axes])
    ends = [
        NamedSharding(mesh, PartitionSpec(*redist.to_partition_spec(t))) for t in (source, target)
    ]
    values = np.random.default_rng(0).integers(0, 100, source.shape)
    x = jax.device_put(values.astype(source.dtype.to_numpy()), ends[0])
    plan = redist.jax.plan_for(x, ends[1])
    as_bits = goes_as_bits(source.dtype, jax.devices()[0].platform)
    ways = [
        jax.jit(lambda a: a, out_shardings=ends[1]),
        jax.jit(redist.jax.to_jax(plan, mesh, topology=XLA), out_shardings=ends[1]),
    ]
    theirs, ours = (way(x) for way in ways)
    wrong = not np.array_equal(np.asarray(theirs), np.asarray(ours))
    del theirs, ours

    def seconds_of(way: Any) -> float:
        return timed(lambda: jax.block_until_ready(way(x)))[0]

    times = list(in_turn(dict(enumerate(ways)), repeat, seconds_of).values())
    compiled = [way.lower(x).compile() for way in ways]
    texts = [one.as_text() for one in compiled]
    memory = [one.memory_analysis() for one in compiled]
    held = [
        m.argument_size_in_bytes + m.output_size_in_bytes + m.temp_size_in_bytes for m in memory
    ]
    whole_bytes = source.global_elems * source.dtype.itemsize
    return {
        "case": f"{source} -> {target} on {source.mesh}",
        "wrong": wrong,
        "steps": [step.op for step in plan.steps],
        "times_s": times,
        "received_bytes": [received_elems(text, DEVICES) * source.dtype.itemsize for text in texts],
        "planned_bytes": plan.received_bytes,
        "gathers_all": gathers_all(texts[0], source.global_elems)
        and target.tile_bytes < whole_bytes,
        "held_bytes": held,
        "bound_bytes": peak_bytes(lower_plan(plan, XLA), as_bits=as_bits),
    }


def gathers_all(text: str, n_elems: int) -> bool:
    """Whether a compiled program gathers the whole array somewhere.

    >>> gathers_all("  %g = f32[8,16]{1,0} all-gather(%p), replica_groups={}", 128)
    True
    """
    found = re.findall(r"= (\(.*?\)|\S+) all-gather(?:-start)?\(", text)
    return any(elems(shape) >= n_elems for shape in found)


def tables(rows: Sequence[dict[str, Any]]) -> Tables:
    """What the job found; wrong results are refused."""
    for row in rows:
        if row["wrong"]:
            raise WrongPlanError(f"cannot compare {row['case']}: results differ")
        if row["received_bytes"][1] > row["planned_bytes"]:
            raise WrongPlanError(f"cannot compare {row['case']}: XLA moves more than was planned")
    return _summary(rows), _losses(rows)


def ratio(row: dict[str, Any]) -> float:
    """How many times as long as the plan XLA's own way took."""
    theirs, ours = map(statistics.median, row["times_s"])
    return theirs / ours


def _summary(rows: Sequence[dict[str, Any]]) -> Table:
    bytes_of = [(row, *row["received_bytes"]) for row in rows]
    kinds = {
        "all": rows,
        "XLA gathers the whole array": [row for row in rows if row["gathers_all"]],
        "XLA moves more bytes": [row for row, theirs, ours in bytes_of if theirs > ours],
        "equal bytes": [row for row, theirs, ours in bytes_of if theirs == ours],
        "XLA moves fewer bytes": [row for row, theirs, ours in bytes_of if theirs < ours],
    }
    lines: list[Row] = []
    for name, some in kinds.items():
        ratios = [ratio(row) for row in some]
        received = [r["received_bytes"] for r in some]
        lines.append(
            {
                "problems": name, "cases": len(some), "time": geomean(ratios),
                "least": min(ratios, default=None), "median": quantile(ratios, 0.5),
                "most": max(ratios, default=None),
                "bytes": geomean(theirs / ours for theirs, ours in received if ours),
                "memory": geomean(row["held_bytes"][0] / row["held_bytes"][1] for row in some),
                "of bound": max((r["held_bytes"][1] / r["bound_bytes"] for r in some), default=None),
            }
        )  # fmt: skip
    where = f"64 MiB, {DEVICES} CPU devices, jax {version('jax')}"
    title = f"XLA's own resharding over the plan run by XLA: {where}"
    notes = (
        "time, bytes received, memory (arguments, results, temporaries): XLA / plan, geomeans",
        "of bound: the most memory that a plan took, over what redist said it would take at most",
    )
    return Table.of("summary", title, lines, *notes)


def _losses(rows: Sequence[dict[str, Any]]) -> Table:
    lines: list[Row] = []
    for row in sorted((row for row in rows if ratio(row) < SLOW), key=ratio):
        theirs, ours = (statistics.median(times) * 1e3 for times in row["times_s"])
        spread = quantile([1e3 * t for t in row["times_s"][1]], 0.75)
        about: Row = {"problem": row["case"], "ratio": ratio(row), "XLA ms": theirs}
        steps = "; ".join(row["steps"])
        lines.append({**about, "plan ms": ours, "upper quartile": spread, "steps": steps})
    title = f"Problems in which the plan took longer: XLA / plan below {SLOW}"
    return Table.of("losses", title, lines)
