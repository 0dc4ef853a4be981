"""Put what a benchmark wrote as JSON into the stored figures: ``python -m bench keep FILE ...``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report.figures import geomean
from bench.tables.stored import RESULTS, Stored, read, write

OURS = ("naive", "by-hand", "redist", "redist-any", "redist-mpi")
"""Contenders that redist brings along; all others are peers."""
COMMON = ("rows-columns", "slab-pencil", "slab-0-1", "slab-0-2", "pencil-pencil", "uneven")
"""The cases of the summary: all ranks exchange with all."""
_TIMES = ("n", "low_s", "median_s", "high_s")


def main(arguments: Sequence[str]) -> int:
    """Keep files; 2 if one of them holds no figures."""
    parser = argparse.ArgumentParser(prog="python -m bench keep", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="JSON of redist bench or of bench")
    for path in parser.parse_args(arguments).files:
        try:
            kept = keep(path)
        except (OSError, ValueError, KeyError) as error:
            print(f"bench keep: cannot keep {path.name}: {error}", file=sys.stderr)
            return 2
        print(f"kept   {', '.join(str(p) for p in kept)}")
    return 0


def keep(path: Path, folder: Path = RESULTS) -> list[Path]:
    """Merge a file's figures into those stored; returns the stored files that have changed."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return [
        write(name, read(name, folder).merge(new), folder)
        for name, new in stored_of(data).items()
        if new.rows
    ]


PLACES = ("json", "folder", "dask")
"""Options that say where something lies on one machine: nothing that others could repeat."""


def stored_of(data: Mapping[str, Any]) -> dict[str, Stored]:
    """Figures by benchmark, from the JSON of ``redist bench`` or of ``python -m bench``."""
    if "cases" in data:
        return {"moves": moves_of(data), "summary": summary_of(data), "peers": peers_of(data)}
    if "reports" not in data:
        raise ValueError("these are not the figures of a benchmark")
    out = {}
    for report in data["reports"]:
        named = [table for table in report["tables"] if table["name"]]
        options = {name: one for name, one in data["options"].items() if name not in PLACES}
        run = {**_run(data), "options": options}
        pairs = [_halves(table, row) for table in named for row in table["rows"]]
        stored = Stored.of_run(run, pairs)
        tables = {t["name"]: {"title": t["title"], "notes": t["notes"]} for t in named}
        out[report["name"]] = Stored(stored.runs, stored.rows, tables)
    return out


def moves_of(data: Mapping[str, Any]) -> Stored:
    """One row for each contender of each case that was timed; the floor is a contender, too."""
    return Stored.of_run({**_run(data), "mpi": data["mpi"]}, _moves(data))


def summary_of(data: Mapping[str, Any]) -> Stored:
    """One row a run: how many times as long as redist the others took in the common cases."""
    found: dict[str, Any] = {}
    for key in ("naive", "by-hand"):
        rows = [row for what, row in _largest(data, key) if what["case"] in COMMON]
        if len(rows) == len(COMMON):
            found |= {f"{key} {name}": value for name, value in _spread(rows).items()}
    what = {"mpi": mpi_family(data["mpi"]), "ranks": data["ranks"]}
    return Stored.of_run({**_run(data), "mpi": data["mpi"]}, [(what, found)] if found else [])


def peers_of(data: Mapping[str, Any]) -> Stored:
    """One row for each library: how many times as long as redist it took, over its cases."""
    rows = []
    for key in dict.fromkeys(entry["key"] for case in data["cases"] for entry in case["entries"]):
        entries = [row for _, row in _largest(data, key)]
        if key not in OURS and entries:
            what = {"library": key, "mpi": mpi_family(data["mpi"]), "ranks": data["ranks"]}
            about = {"label": entries[0]["label"], "cases": len(entries)}
            rows.append((what, {**about, **_spread(entries)}))
    return Stored.of_run({**_run(data), "mpi": data["mpi"]}, rows)


def _largest(data: Mapping[str, Any], key: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What a contender did beside redist, at the largest size."""
    size = max(case["size_bytes"] for case in data["cases"])
    return [
        (what, row)
        for what, row in _moves(data)
        if what["size_bytes"] == size and what["contender"] == key and row["times_redist"]
    ]


def _spread(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ratios = [row["times_redist"] for row in rows]
    return {"geomean": geomean(ratios), "least": min(ratios), "most": max(ratios)}


def _moves(data: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    run = {"mpi": mpi_family(data["mpi"]), "ranks": data["ranks"]}
    for case in data["cases"]:
        what = {**run, "size_bytes": case["size_bytes"], "case": case["name"]}
        if case["floor"]:
            yield {**what, "contender": "floor"}, {k: case["floor"][k] for k in _TIMES}
        for entry in case["entries"]:
            if entry["is_wrong"]:
                raise ValueError(f"{entry['key']} had a wrong result in {case['name']}")
            if entry["times"]:
                found = {"label": entry["label"], **{k: entry["times"][k] for k in _TIMES}}
                found |= {k: entry[k] for k in ("peak_bytes", "planned_bytes", "times_redist")}
                yield {**what, "contender": entry["key"]}, found


def mpi_family(name: str) -> str:
    """An MPI library without its version.

    >>> mpi_family("Open MPI 5.0.11"), mpi_family("MPICH 5.0.2")
    ('Open MPI', 'MPICH')
    """
    return name.rpartition(" ")[0] or name


def _run(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: data[key] for key in ("date", "redist", "machine")}


def _halves(
    table: Mapping[str, Any], row: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A row as what it is about, its first columns, and what was found, the others."""
    names = list(row)[: table["keys"]]
    what = {"table": table["name"], **{name: row[name] for name in names}}
    return what, {name: value for name, value in row.items() if name not in names}
