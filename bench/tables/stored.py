"""Stored figures: one JSON file a benchmark in ``bench/results``, each row with the run it came from."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.report.figures import geomean

RESULTS = Path(__file__).parents[1] / "results"
VERSION = 1
DIGITS = 4
"""Significant digits of a stored figure."""

Run = Mapping[str, Any]
"""When, where and with what rows were measured."""
OURS = ("naive", "by-hand", "redist", "redist-any", "redist-mpi")
"""Contenders that redist brings along; all others are peers."""
COMMON = ("rows-columns", "slab-pencil", "slab-0-1", "slab-0-2", "pencil-pencil", "uneven")
"""The cases of the summary: all ranks exchange with all."""
_TIMES = ("n", "low_s", "median_s", "high_s")


@dataclass(frozen=True, slots=True)
class StoredRow:
    """What was measured, what was found, and in which run."""

    what: Mapping[str, Any]
    found: Mapping[str, Any]
    run: str

    @property
    def n_figures(self) -> int:
        """How many of its cells hold something."""
        return sum(value is not None for value in self.found.values())

    @property
    def identity(self) -> str:
        """Two rows with the same identity answer the same question."""
        return json.dumps(self.what, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Stored:
    """The rows of one benchmark, their runs by name, titles and notes of its tables."""

    runs: Mapping[str, Run] = field(default_factory=dict)
    rows: tuple[StoredRow, ...] = ()
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @staticmethod
    def of_run(run: Run, rows: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Stored:
        """Rows of one run, given as pairs of what was measured and what was found.

        >>> stored = Stored.of_run({"date": "2026-01-02"}, [({"case": "a"}, {"median_s": 0.123456})])
        >>> stored.rows[0].found, len(stored.runs)
        ({'median_s': 0.1235}, 1)
        """
        name = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:8]
        return Stored({name: run}, tuple(StoredRow(w, _round(f), name) for w, f in rows))

    def merge(self, new: Stored) -> Stored:
        """Both, where a new row replaces the old one of the same identity if it has as many figures.

        So a run without some library keeps what an earlier run found with it.
        """
        rows = {row.identity: row for row in self.rows}
        for row in new.rows:
            old = rows.get(row.identity)
            if old is None or row.n_figures >= old.n_figures:
                rows[row.identity] = row
        used = {row.run for row in rows.values()}
        runs = {name: run for name, run in {**self.runs, **new.runs}.items() if name in used}
        return Stored(runs, tuple(rows.values()), {**self.tables, **new.tables})

    def select(self, **what: Any) -> list[StoredRow]:
        """Rows whose question has these values."""
        return [r for r in self.rows if all(r.what.get(k) == v for k, v in what.items())]


def read(name: str, folder: Path = RESULTS) -> Stored:
    """The stored rows of a benchmark; none if there is no such file."""
    path = folder / f"{name}.json"
    if not path.exists():
        return Stored()
    data = json.loads(path.read_text(encoding="utf-8"))
    if data.get("version") != VERSION or "rows" not in data:
        raise ValueError(f"cannot read {path.name}: these are no stored rows of version {VERSION}")
    rows = tuple(StoredRow(row["what"], row["found"], row["run"]) for row in data["rows"])
    return Stored(data["runs"], rows, data.get("tables", {}))


def write(name: str, stored: Stored, folder: Path = RESULTS) -> Path:
    """Write rows, one a line, so that a change of figures is easy to read."""
    rows = [json.dumps({"what": r.what, "found": r.found, "run": r.run}) for r in stored.rows]
    head = {"version": VERSION, "runs": stored.runs, "tables": stored.tables}
    text = json.dumps(head, indent=1).removesuffix("\n}")
    joined = ",\n  ".join(rows)
    path = folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{text},\n "rows": [\n  {joined}\n ]\n}}\n', encoding="utf-8")
    return path


def _round(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
        for key, value in found.items()
    }


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


PLACES = ("folder", "dask", "heat", "svg", "configs", "disk")
"""Options that say where something lies on one machine: nothing that others could repeat."""


def stored_of(data: Mapping[str, Any]) -> dict[str, Stored]:
    """Figures by benchmark, from the JSON of ``redist bench`` or of ``python -m bench``."""
    if "cases" in data:
        return {"moves": moves_of(data), "summary": summary_of(data), "peers": peers_of(data)}
    if "reports" not in data:
        raise ValueError("these are not the figures of a benchmark")
    out: dict[str, Stored] = {}
    options = {name: one for name, one in data["options"].items() if name not in PLACES}
    for report in data["reports"]:
        for table in (one for one in report["tables"] if one["name"]):
            run = {**_run(data), "options": options, **table.get("about", {})}
            rows = Stored.of_run(run, [_halves(table, row) for row in table["rows"]])
            about = {table["name"]: {"title": table["title"], "notes": table["notes"]}}
            new = Stored(rows.runs, rows.rows, about)
            out[report["name"]] = out.get(report["name"], Stored()).merge(new)
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
