"""How quick is redist beside JAX on the same random redistributions? Needs jax and mpirun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.problems.installed import version, why_absent
from bench.problems.judge import WrongPlanError
from bench.report.figures import geomean, most, quantile
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Report, Table, Value

RANKS = 8
MOST = 100
ARRAY_BYTES = 64 * 2**20
REPEATS = 5
RIVALS = ("jax-jit", "jax-put")
OURS = ("redist", "redist-any")


def run(n: int = MOST, seed: int = 0) -> Report:
    """Measure up to 100 random problems on 8 ranks and 8 CPU devices, contenders in turn."""
    if why_absent("jax") is not None:
        line = "jax: skipped, jax is not installed; pip install -e '.[peers]' or jax alone"
        return Report("jax", (Table(line, (), ()),))
    given = {"n": min(n, MOST), "seed": seed, "bytes": ARRAY_BYTES, "repeat": REPEATS}
    options = [word for name, value in given.items() for word in (f"--{name}", value)]
    start = on_ranks(RANKS, one_thread=False)
    return report(found_by(start, "compare with JAX", "bench.races.jax_job", *options))


def report(data: dict[str, Any]) -> Report:
    """A table from what the job wrote."""
    cases = data["cases"]
    for case in cases:
        for entry in case["entries"]:
            if entry["is_wrong"]:
                raise WrongPlanError(
                    f"cannot compare {case['text']}: {entry['key']}: {entry['note']}"
                )
    return Report("jax", (_table(data),))


def _table(data: dict[str, Any]) -> Table:
    cases = data["cases"]
    rows: list[tuple[Value, ...]] = []
    for rival in RIVALS:
        for own in OURS:
            ratios = _ratios(cases, rival, own)
            wins = sum(ratio > 1 for ratio in ratios)
            rows.append(
                (
                    rival,
                    own,
                    len(ratios),
                    geomean(ratios),
                    quantile(ratios, 0.25),
                    quantile(ratios, 0.5),
                    quantile(ratios, 0.75),
                    min(ratios, default=None),
                    most(ratios),
                    wins,
                )
            )
    return Table(
        f"Time of JAX {version('jax')} ({data['ranks']} CPU devices) over time of redist "
        f"({data['ranks']} ranks, {data['mpi']}), {data['machine']['cores']} cores",
        (
            "JAX by", "redist by", "cases", "geomean", "low", "median", "high", "least", "most",
            "redist wins",
        ),
        tuple(rows),
        (
            f"random even problems of about {ARRAY_BYTES // 2**20} MiB, median of {data['repeats']}, "
            "contenders in turn, results checked",
            "above 1: redist is quicker; low and high are quartiles; "
            "redist on its own buffers, redist-any on any NumPy arrays",
        ),
        "random",
        keys=2,
    )  # fmt: skip


def _ratios(cases: Sequence[dict[str, Any]], rival: str, own: str) -> list[float]:
    out = []
    for case in cases:
        times = {e["key"]: e["times"]["median_s"] for e in case["entries"] if e["times"]}
        if rival in times and own in times:
            out.append(times[rival] / times[own])
    return out
