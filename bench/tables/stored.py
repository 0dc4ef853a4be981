"""Stored figures: one JSON file a benchmark in ``bench/results``, each row with the run it came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
VERSION = 1
DIGITS = 4
"""Significant digits of a stored figure."""

Run = Mapping[str, Any]
"""When, where and with what rows were measured."""


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
