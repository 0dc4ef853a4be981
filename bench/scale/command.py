"""``python -m bench scale``: transfers on machines of up to 65,536 ranks, on paper; ``--check`` here.

Without options: tables of a fat tree and of a cluster with NVLink and InfiniBand. With ``--check`` the same
simulation predicts the cases of ``bench cluster``, which are then measured on emulated hosts: needs root.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.report.report import Report, Table, Value, save_json
from bench.scale.check import OTHER_SIZES, SIZES, Shape, measure, predict, table_of
from bench.scale.paper import MACHINES, RANKS, cases_of, ways_of
from bench.scale.paper import SIZES as TILE_SIZES
from bench.scale.picture import Chart, Curve, draw
from redist.text.units import format_bytes
from tests.cluster.hosts import why_no_cluster

LAST = Path(__file__).parents[1] / "results" / "last"
SHAPES = (Shape(4, 2), Shape(8, 1))
"""The shapes of ``bench cluster``, whose cases must be met."""
OTHER_SHAPES = (Shape(2, 4),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate, print the tables; 1 if a prediction of a case of the harness misses."""
    parser = argparse.ArgumentParser(prog="python -m bench scale", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS, help="powers of two")
    parser.add_argument("--machine", choices=[*MACHINES, "none"], help="only this one")
    parser.add_argument("--check", action="store_true", help="measure on emulated hosts, predict")
    parser.add_argument("--measured", type=Path, nargs="+", help="predict what was measured before")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--json", type=Path, default=LAST / "scale.json")
    parser.add_argument("--svg", type=Path, help="where to draw time against ranks")
    args = parser.parse_args(arguments)
    tables = [table for table in _checked(args) if table.rows]
    names = [name for name in MACHINES if args.machine in (None, name)]
    found = {name: _rows(name, args.ranks) for name in names}
    tables += [_paper_table(name, rows) for name, rows in found.items()]
    report = Report("scale", tuple(tables))
    print(report)
    options = {"ranks": list(args.ranks), "repeat": args.repeat}
    save_json(args.json, [report], options)
    if args.svg is not None:
        args.svg.write_text(draw(_charts(found)), encoding="utf-8")
    missed = [row for table in tables if table.name == "check" for row in table.rows]
    return int(any(row[7] != "yes" for row in missed))


def _checked(args: argparse.Namespace) -> list[Table]:
    """What the simulation says of the emulated cluster, beside what is measured."""
    if args.measured:
        found = [json.loads(path.read_text(encoding="utf-8")) for path in args.measured]
    elif args.check:
        found = _measured(args.repeat)
    else:
        found = []
    asked, others = list[tuple[Value, ...]](), list[tuple[Value, ...]]()
    for one in found:
        shape = Shape(one["hosts"], one["ranks_per_host"])
        sizes = SIZES if shape in SHAPES else ()
        asked += predict(one, sizes)
        others += predict(one, [n for n in (*SIZES, *OTHER_SIZES) if n not in sizes])
    mpi = found[0]["mpi"] if found else ""
    return [
        table_of("check", "the cases of bench cluster", asked, mpi),
        table_of("others", "other sizes and shapes", others, mpi),
    ]


def _measured(repeat: int) -> list[dict[str, Any]]:
    why_not = why_no_cluster()
    if why_not:
        print(f"bench scale: nothing is checked: {why_not}", file=sys.stderr)
        return []
    found = []
    for shape in (*SHAPES, *OTHER_SHAPES):
        found.append(measure(shape, (*SIZES, *OTHER_SIZES), repeat))
        LAST.mkdir(parents=True, exist_ok=True)
        path = LAST / f"scale-{shape.hosts}x{shape.ranks}.json"
        path.write_text(json.dumps(found[-1]), encoding="utf-8")
    return found


def _rows(name: str, ranks: Sequence[int]) -> list[tuple[Value, ...]]:
    """Case, bytes, ranks, and milliseconds of the three ways."""
    rows: list[tuple[Value, ...]] = []
    for size in TILE_SIZES:
        for n_ranks in ranks:
            for case in cases_of(n_ranks, size):
                ways = ways_of(case, MACHINES[name], n_ranks)
                naive = ways.why_not_naive or (ways.naive_s or 0.0) * 1e3
                rows.append(
                    (
                        case.name, format_bytes(size), n_ranks, ways.direct_s * 1e3,
                        ways.levels_s * 1e3, naive, ways.direct_s / ways.levels_s, ways.best,
                        "; ".join(str(step.op) for step in ways.plan.steps),
                    )
                )  # fmt: skip
    names = list(dict.fromkeys(row[0] for row in rows))
    return sorted(rows, key=lambda row: names.index(row[0]))


def _paper_table(name: str, rows: Sequence[tuple[Value, ...]]) -> Table:
    won = {way: sum(row[7] == way for row in rows) for way in ("level by level", "direct", "naive")}
    said = ", ".join(f"{way} in {n}" for way, n in won.items())
    return Table(
        f"{MACHINES[name].name}: milliseconds, on paper",
        ("case", "tile", "ranks", "direct", "level by level", "naive", "direct / level by level",
         "quickest", "steps of the plan for this machine"),
        tuple(rows),
        (f"quickest of {len(rows)}: {said}; either where both are the same plan, or within 2 %",
         "naive: everything is brought, or added up, everywhere, then sliced; 'is direct' where that "
         "is what was asked for"),
        name,
        3,
    )  # fmt: skip


def _charts(found: dict[str, list[tuple[Value, ...]]]) -> list[Chart]:
    """Time against ranks, a chart for each machine and case, at the larger size."""
    charts = []
    size = format_bytes(max(TILE_SIZES))
    for name, rows in found.items():
        for case in dict.fromkeys(row[0] for row in rows):
            mine = [row for row in rows if row[0] == case and row[1] == size]
            curves = []
            for column, way in ((3, "direct"), (4, "level by level"), (5, "naive")):
                values = [(row[2], row[column]) for row in mine]
                points = [
                    (float(n), ms)
                    for n, ms in values
                    if isinstance(n, int) and isinstance(ms, float)
                ]
                if points:
                    x, y = zip(*points, strict=True)
                    curves.append(Curve(way, x, y))
            title = f"{MACHINES[name].name}: {case}, {size}"
            charts.append(Chart(title, tuple(curves)))
    return charts
