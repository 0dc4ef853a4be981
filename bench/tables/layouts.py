"""Whole programs, ours and those of other libraries side by side."""

from __future__ import annotations

from statistics import geometric_mean
from typing import TypeGuard

from bench.report.report import Value
from bench.tables.markdown import RunNotes, table
from bench.tables.stored import Stored, StoredRow, read

OURS = ("eager", "as written", "planned")


def received_beside() -> list[str]:
    """Bytes: a workload a row, a way or a library a column."""
    return _beside("received", "KiB", "KiB")


def times_beside() -> list[str]:
    """Times, likewise."""
    return _beside("times", "ms", "ms")


def _beside(part: str, unit: str, key: str) -> list[str]:
    ours, others = read("layouts"), read("rivals")
    rows = ours.select(table=part)
    libraries = list(dict.fromkeys(str(row.what["by"]) for row in others.rows))
    lines: list[list[Value]] = []
    for row in rows:
        cells = [row.found[f"{way} {unit}"] for way in OURS]
        cells += [_cell(_row(others, row.what["workload"], name), key) for name in libraries]
        lines.append([row.what["workload"], row.found["size"], *cells])
    columns = ["workload", "size", *(f"{way} {unit}" for way in OURS)]
    columns += [f"{name} {unit}" for name in libraries]
    notes = RunNotes(ours, rows)
    notes.add(others, others.rows)
    said = "Cannot: the library refuses the workload; a dash: not measured, or it does not tell."
    ratios = [
        _ratio(name, lines, 2 + OURS.index("planned"), 5 + k) for k, name in enumerate(libraries)
    ]
    said += " Planned over others, where both are known: " + "; ".join(filter(None, ratios)) + "."
    return [*table(columns, lines), *(["", said, *notes.lines] if rows else [])]


def _ratio(name: str, lines: list[list[Value]], ours: int, theirs: int) -> str:
    """How planned layouts compare with a library: the geometric mean, and how often they are above."""
    pairs = [(line[ours], line[theirs]) for line in lines]
    known = [a / b for a, b in pairs if _is_positive(a) and _is_positive(b)]
    if not known:
        return ""
    above = sum(one > 1.005 for one in known)
    return f"{name} {geometric_mean(known):.2f} ({len(known)} workloads, above in {above})"


def _is_positive(value: Value) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and value > 0


def _row(stored: Stored, workload: object, library: str) -> StoredRow | None:
    return next(iter(stored.select(workload=workload, by=library)), None)


def _cell(row: StoredRow | None, key: str) -> Value:
    if row is None:
        return None
    return "cannot" if row.found["cannot"] else row.found[key]
