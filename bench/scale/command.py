"""``python -m bench scale``: transfers on machines of up to 65,536 ranks, on paper; ``--check`` here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.problems.judge import WrongPlanError
from bench.report.jobs import found_by, on_hosts
from bench.report.report import Row, Table, Tables
from bench.scale.machine import Machine
from bench.scale.paper import MACHINES, RANKS, cases_of, ways_of
from bench.scale.paper import SIZES as TILE_SIZES
from bench.scale.picture import COLOURS, Curves, draw
from bench.scale.transfer import simulate
from redist.plan.plan import Plan
from redist.plan.topology import Level, Topology
from redist.text.units import format_bytes

RATE_MBIT = 1000.0
FAST_MBIT = 20_000.0
"""Links so fast that processors are what limits a ring of messages."""
WITHIN = 0.2
"""A prediction may miss by this share."""
SIZES, OTHER_SIZES = (2**21, 2**25), (2**23,)


class Shape(NamedTuple):
    """Hosts and ranks of each."""

    hosts: int
    ranks: int

    def __str__(self) -> str:
        return f"{self.hosts} x {self.ranks}"


SHAPES = (Shape(4, 2), Shape(8, 1))
"""The shapes of ``bench cluster``, whose cases must be met."""
OTHER_SHAPES = (Shape(2, 4),)


def run(
    ranks: tuple[int, ...] = RANKS,
    machine: str = "",
    check: bool = False,
    repeat: int = 7,
    svg: str = "",
) -> Tables:
    """Simulate on a fat tree and on a cluster with NVLink and InfiniBand.

    ranks: powers of two; machine: fat-tree, gpus or none, instead of both; check: the same simulation
    predicts the cases of ``bench cluster``, which are measured on emulated hosts (needs root, iproute2); it
    fails if one misses; repeat: measurements of a case; svg: a file to draw time against ranks.
    """
    tables = _checked(repeat) if check else []
    found = {name: _rows(name, ranks) for name in MACHINES if machine in ("", name)}
    if svg:
        charts = {MACHINES[name].name: _charts(rows) for name, rows in found.items()}
        Path(svg).write_text(draw(charts), encoding="utf-8")
    return (*tables, *(_paper_table(name, rows) for name, rows in found.items()))


# On emulated hosts


def _checked(repeat: int) -> list[Table]:
    """What the simulation says of the emulated cluster, beside what is measured."""
    asked: list[Row] = []
    others: list[Row] = []
    for shape in (*SHAPES, *OTHER_SHAPES):
        found = measure_shape(shape, (*SIZES, *OTHER_SIZES), repeat)
        sizes = SIZES if shape in SHAPES else ()
        asked += predict(found, shape, sizes)
        others += predict(found, shape, [n for n in (*SIZES, *OTHER_SIZES) if n not in sizes])
    tables = []
    titles = {"check": "the cases of bench cluster", "others": "other sizes and shapes"}
    for (name, title), rows in zip(titles.items(), (asked, others), strict=True):
        about = f"{title}; links of {RATE_MBIT:g} Mbit/s, {found['mpi']}"
        good = sum(row["within 20 %"] == "yes" for row in rows)
        note = f"{good} of {len(rows)} within 20 %"
        wrong = name == "check" and good < len(rows)
        tables.append(Table.of(name, about, rows, note, keys=3, is_wrong=wrong))
    return tables


def measure_shape(shape: Shape, sizes: Sequence[int], repeat: int) -> dict[str, Any]:
    """Probe an emulated cluster, with links as they are and with fast ones, and time its cases."""

    def job(rate_mbit: float, sizes: Sequence[int]) -> dict[str, Any]:
        start = on_hosts(shape.hosts, shape.ranks, rate_mbit)
        asked = {"ranks": shape.ranks, "sizes": list(sizes), "repeat": repeat}
        found: dict[str, Any] = found_by(start, "bench.scale.probe", **asked)
        if wrong := [row["case"] for row in found["rows"] if row["wrong"]]:
            raise WrongPlanError(f"cannot predict {wrong[0]} on {shape}: its result is wrong")
        return found

    return {"fast": job(FAST_MBIT, [])["probes"], **job(RATE_MBIT, sizes)}


def machine_of(found: Mapping[str, Any], shape: Shape) -> Machine:
    """The emulated cluster on paper, from what was probed."""
    probes, fast = found["probes"], found["fast"]
    n, per = shape.hosts * shape.ranks, shape.ranks
    cores = float(len(os.sched_getaffinity(0)))
    on_each = cores / n
    """Share of a processor that a rank has while all are at work."""
    copied = probes["copied_bytes"] / on_each
    meeting, latency = probes["meeting_s"], probes["message_latency_s"]
    far = 2 * (n - per)
    call = probes["local_s"] * on_each
    message = (probes["all_to_all_s"] - probes["one_message_s"]) * on_each / (far - 1)
    one = (probes["one_message_s"] - meeting - latency) * on_each - call - message
    more = probes["rounds_s"] - probes["all_to_all_s"]
    each = more * on_each / (probes["rounds"] - 1) - far * message
    round_s = min(max(each, 0.0), max(one, 0.0))
    return Machine(
        f"emulated, {shape}", per, rank_rate=float("inf"), node_rate=1 / probes["ring_byte_s"],
        latency_s=latency, far_latency_s=latency, node_meeting_s=probes["node_meeting_s"],
        hop_s=meeting / Machine("", 1, 1.0, 1.0, hop_s=1.0).meeting_s(n), call_s=max(call, 0.0),
        stage_s=max(one - round_s, 0.0), round_s=round_s, message_s=max(message, 0.0),
        byte_s=cores * fast["ring_byte_s"] / shape.hosts, copy_rate=copied / probes["pack_s"],
        near_rate=copied / probes["pack_s"], combine_rate=copied / probes["combine_s"],
        fresh_rate=copied / max(probes["fresh_s"] - probes["fill_s"], 1e-9), processors=cores,
    )  # fmt: skip


def predict(found: Mapping[str, Any], shape: Shape, sizes: Sequence[int]) -> list[Row]:
    """A row for each case of these sizes: predicted beside measured."""
    machine = machine_of(found, shape)
    rows: list[Row] = []
    for row in (one for one in found["rows"] if one["bytes"] in sizes):
        plan, (levels, step_ps) = Plan.from_json(row["plan"]), row["topology"]
        topology = Topology(tuple(Level(*level) for level in levels), step_ps)
        seconds = simulate(plan, machine, shape.hosts * shape.ranks, topology).seconds
        took = row["redist_median"]
        rows.append(
            {
                "hosts x ranks": str(shape), "case": row["case"], "size": format_bytes(row["bytes"]),
                "predicted ms": seconds * 1e3, "measured ms": took * 1e3,
                "quartiles": f"{row['redist_low'] * 1e3:.3g}-{row['redist_high'] * 1e3:.3g}",
                "predicted / measured": seconds / took,
                "within 20 %": "yes" if abs(seconds / took - 1) <= WITHIN else "NO",
                "steps": "; ".join(row["steps"]),
            }
        )  # fmt: skip
    return rows


# On paper


def _rows(name: str, ranks: Sequence[int]) -> list[Row]:
    """Milliseconds of the three ways of every case, size and number of ranks."""
    rows: list[Row] = []
    for size, n_ranks in ((size, n_ranks) for size in TILE_SIZES for n_ranks in ranks):
        for case in cases_of(n_ranks, size):
            ways = ways_of(case, MACHINES[name], n_ranks)
            naive = ways.naive_s if isinstance(ways.naive_s, str) else ways.naive_s * 1e3
            rows.append(
                {
                    "case": case.name, "tile": format_bytes(size), "ranks": n_ranks,
                    "direct": ways.direct_s * 1e3, "level by level": ways.levels_s * 1e3,
                    "naive": naive, "direct / level by level": ways.direct_s / ways.levels_s,
                    "quickest": ways.best,
                    "steps of the plan for this machine": "; ".join(str(s.op) for s in ways.plan.steps),
                }
            )  # fmt: skip
    names = list(dict.fromkeys(row["case"] for row in rows))
    return sorted(rows, key=lambda row: names.index(row["case"]))


def _paper_table(name: str, rows: Sequence[Row]) -> Table:
    ways = ("level by level", "direct", "naive")
    said = ", ".join(f"{way} in {sum(row['quickest'] == way for row in rows)}" for way in ways)
    notes = (
        f"quickest of {len(rows)}: {said}; either where both are the same plan, or within 2 %",
        "naive: everything is brought, or added up, everywhere, then sliced; 'is direct' where that "
        "is what was asked for",
    )
    return Table.of(name, f"{MACHINES[name].name}: milliseconds, on paper", rows, *notes, keys=3)


def _charts(rows: Sequence[Row]) -> dict[str, Curves]:
    """By case: milliseconds of every way against ranks, at the larger size."""
    out: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in (one for one in rows if one["tile"] == format_bytes(max(TILE_SIZES))):
        curves = out.setdefault(str(row["case"]), {})
        for way in COLOURS:
            if isinstance(ms := row[way], float) and isinstance(n := row["ranks"], int):
                curves.setdefault(way, []).append((float(n), ms))
    return dict(out)
