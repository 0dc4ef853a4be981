"""Do plans that cost less take less? On emulated hosts where that can be, and on one node beside it."""

from __future__ import annotations

from typing import Any

from bench.report.figures import met
from bench.report.jobs import found_by, on_hosts, on_ranks
from bench.report.report import Report, Table
from tests.cluster.hosts import make_cluster, why_no_cluster

HOSTS, RATE_MBIT = 4, 1000.0
CORRELATION_AIM, BEST_AIM, MOST_PLANS = 0.9, 1.1, 50


def run(n: int = MOST_PLANS, seed: int = 0) -> Report:
    """Rank ``n`` plans (50 at most) of each workload on 4 emulated hosts, and on 4 ranks of one node."""
    tables = []
    asked = "rank plans", "bench.layouts.ranking", "--plans", min(n, MOST_PLANS)
    if not why_no_cluster():
        with make_cluster(HOSTS, RATE_MBIT) as cluster:
            tables.append(_table(found_by(on_hosts(cluster, 1), *asked), True))
    tables.append(_table(found_by(on_ranks(HOSTS), *asked), False))
    return Report("ranking", tuple(tables))


def _table(data: dict[str, Any], on_hosts: bool) -> Table:
    rows = []
    for row in data["rows"]:
        modelled, measured = zip(*row["plans"], strict=True)
        alike, best = row["correlation"], row["chosen_over_best"]
        aims = (met(alike >= CORRELATION_AIM), met(best <= BEST_AIM)) if on_hosts else ("-", "-")
        rows.append(
            (
                row["name"], row["what"], len(measured), 1e3 * modelled[0], 1e3 * measured[0],
                1e3 * max(measured), alike, aims[0], best, aims[1],
            )
        )  # fmt: skip
    where = (
        f"{HOSTS} emulated hosts of 1 rank, links of {RATE_MBIT:g} Mbit/s"
        if on_hosts
        else f"{HOSTS} ranks of one node"
    )
    return Table(
        f"Plans of layouts, modelled and measured, {where}, {data['mpi']}",
        (
            "workload", "size", "plans", "chosen, modelled ms", "chosen, measured ms", "slowest ms",
            "rank correlation", "at least 0.9", "chosen / best", "at most 1.1",
        ),
        tuple(rows),
        (
            "plans: the best by the model, and others in which some values are pinned to random types",
            "computing measured in the same job, links as a job measures them; medians of 5 in turn",
        ),
        "hosts" if on_hosts else "node",
    )  # fmt: skip
