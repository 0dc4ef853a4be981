"""Hold simulations against the emulated cluster: measure its constants, predict every case, compare."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.problems.judge import WrongPlanError
from bench.report.jobs import found_by, on_hosts
from bench.report.report import Table, Value
from bench.scale.machine import Machine
from bench.scale.transfer import simulate
from redist.plan.plan import Plan
from redist.plan.topology import Topology
from redist.text.units import format_bytes
from tests.cluster.hosts import make_cluster

RATE_MBIT = 1000.0
FAST_MBIT = 20_000.0
"""Links so fast that processors are what limits a ring of messages."""
WITHIN = 0.2
"""A prediction may miss by this share."""
SIZES, OTHER_SIZES = (2**21, 2**25), (2**23,)


@dataclass(frozen=True, slots=True)
class Shape:
    """Hosts and ranks of each."""

    hosts: int
    ranks: int

    def __str__(self) -> str:
        return f"{self.hosts} x {self.ranks}"


def measure(shape: Shape, sizes: Sequence[int], repeat: int) -> dict[str, Any]:
    """Probe an emulated cluster, with links as they are and with fast ones, and time its cases."""
    fast = _job(shape, FAST_MBIT, [], repeat)
    found = _job(shape, RATE_MBIT, sizes, repeat)
    about = {"hosts": shape.hosts, "ranks_per_host": shape.ranks}
    return {**about, **found, "fast": fast["probes"]}


def _job(shape: Shape, rate_mbit: float, sizes: Sequence[int], repeat: int) -> dict[str, Any]:
    options = ["--ranks", shape.ranks, "--repeat", repeat, "--bytes", *sizes]
    with make_cluster(shape.hosts, rate_mbit) as cluster:
        start = on_hosts(cluster, shape.ranks)
        found: dict[str, Any] = found_by(start, "probe the hosts", "bench.scale.probe", *options)
    if wrong := [row["case"] for row in found["rows"] if row["wrong"]]:
        raise WrongPlanError(f"cannot predict {wrong[0]} on {shape}: its result is wrong")
    return found


def machine_of(found: Mapping[str, Any], shape: Shape, processors: float | None = None) -> Machine:
    """The emulated cluster on paper, from what was probed."""
    probes, fast = found["probes"], found["fast"]
    n, per = shape.hosts * shape.ranks, shape.ranks
    cores = float(processors or len(os.sched_getaffinity(0)))
    on_each = cores / n
    """Share of a processor that a rank has while all are at work."""
    copied = probes["copied_bytes"] / on_each
    meeting, latency = probes["meeting_s"], probes["message_latency_s"]
    far = 2 * (n - per)
    call = probes["local_s"] * on_each
    message = (probes["all_to_all_s"] - probes["one_message_s"]) * on_each / (far - 1)
    one = (probes["one_message_s"] - meeting - latency) * on_each - call - message
    rounds = probes["rounds"]
    more = probes["rounds_s"] - probes["all_to_all_s"]
    each = more * on_each / (rounds - 1) - far * message
    round_s = min(max(each, 0.0), max(one, 0.0))
    return Machine(
        f"emulated, {shape}",
        per,
        rank_rate=float("inf"),
        node_rate=1 / probes["ring_byte_s"],
        latency_s=latency,
        far_latency_s=latency,
        hop_s=meeting / Machine("", 1, 1.0, 1.0, hop_s=1.0).meeting_s(n),
        node_meeting_s=probes["node_meeting_s"],
        call_s=max(call, 0.0),
        stage_s=max(one - round_s, 0.0),
        round_s=round_s,
        message_s=max(message, 0.0),
        byte_s=cores * fast["ring_byte_s"] / shape.hosts,
        copy_rate=copied / probes["pack_s"],
        near_rate=copied / probes["pack_s"],
        combine_rate=copied / probes["combine_s"],
        fresh_rate=copied / max(probes["fresh_s"] - probes["fill_s"], 1e-9),
        processors=cores,
    )


def predict(found: Mapping[str, Any], sizes: Sequence[int]) -> list[tuple[Value, ...]]:
    """A row for each case of these sizes: predicted beside measured."""
    shape = Shape(found["hosts"], found["ranks_per_host"])
    machine = machine_of(found, shape)
    rows: list[tuple[Value, ...]] = []
    for row in found["rows"]:
        if row["bytes"] not in sizes:
            continue
        plan, topology = Plan.from_json(row["plan"]), topology_of(row["topology"])
        seconds = simulate(plan, machine, shape.hosts * shape.ranks, topology).seconds
        took = row["redist_median"]
        spread = f"{row['redist_low'] * 1e3:.3g}-{row['redist_high'] * 1e3:.3g}"
        good = abs(seconds / took - 1) <= WITHIN
        rows.append(
            (
                str(shape), row["case"], format_bytes(row["bytes"]), seconds * 1e3, took * 1e3,
                spread, seconds / took, "yes" if good else "NO", "; ".join(row["steps"]),
            )
        )  # fmt: skip
    return rows


def topology_of(text: str) -> Topology:
    """A topology from the text of its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "topology.toml"
        path.write_text(text, encoding="utf-8")
        return Topology.load(path)


def table_of(name: str, title: str, rows: Sequence[tuple[Value, ...]], mpi: str) -> Table:
    """Predictions and what was measured."""
    good = sum(row[7] == "yes" for row in rows)
    return Table(
        f"{title}; links of {RATE_MBIT:g} Mbit/s, {mpi}",
        ("hosts x ranks", "case", "size", "predicted ms", "measured ms", "quartiles",
         "predicted / measured", "within 20 %", "steps"),
        tuple(rows),
        (f"{good} of {len(rows)} within 20 %",),
        name,
        3,
    )  # fmt: skip
