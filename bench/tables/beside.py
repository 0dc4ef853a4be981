"""Tables of several systems side by side: planners, whole programs; and how planning grows with devices."""

from __future__ import annotations

from statistics import geometric_mean
from typing import TypeGuard

from bench.report.report import Value, cell_text
from bench.tables.markdown import RunNotes, table
from bench.tables.stored import read

SHORT = ("redist, objective `bytes`", "redist, objective `time`", "XLA SPMD")
"""How the planners of the short table begin."""
OURS = ("eager", "as written", "planned")


def planning_growth() -> list[str]:
    """The slowest of all patterns and sizes on every mesh, with the most memory of a process."""
    stored = read("planning")
    rows = stored.select(table="devices")
    lines: list[list[Value]] = []
    for mesh in dict.fromkeys(row.what["mesh"] for row in rows):
        some = [row for row in rows if row.what["mesh"] == mesh]
        worst = max(some, key=lambda row: row.found["worst s"])
        peak = max(row.found["peak MiB"] for row in some)
        slowest = f"{cell_text(worst.found['worst s'])} ({worst.what['pattern']})"
        lines.append([mesh, some[0].what["devices"], len(some), slowest, f"{peak:.0f}"])
    columns = ("mesh", "devices", "patterns", "slowest, s", "peak of a process, MiB")
    return [*table(columns, lines), *RunNotes(stored, rows).lines]


def planners(is_short: bool) -> list[str]:
    """Received bytes over the lower bound, memory, and what each planner cannot express.

    A short table has three planners, and not the last column.
    """
    stored = read("comparison")
    starts = SHORT if is_short else ""
    rows = [row for row in stored.rows if row.what["planner"].startswith(starts)]
    notes = RunNotes(stored, rows)
    columns = ["", "cases", "received / lower bound", "memory", "cannot"]
    shown = len(columns) - is_short
    lines = []
    for row in rows:
        name, found = str(row.what["planner"]), row.found
        label = name.replace("redist", "**redist**", 1) if name.startswith("redist") else name
        means = [f"{v:.2f}" for k, v in found.items() if k.endswith("devices") and v is not None]
        received = " / ".join(means) or "not measured"
        if (worst := found["worst"]) is not None:
            received += f", worst {worst:.2f}" if worst < 5 else f", worst {worst:g}"
        cells = [str(found[key] or "") for key in ("cases", "memory", "cannot")]
        lines.append([label + notes.mark(stored, row), cells[0], received, *cells[1:]][:shown])
    return [*table(columns[:shown], lines), *notes.lines]


def programs(part: str, unit: str) -> list[str]:
    """Bytes or times: a workload a row, a way or a library a column."""
    ours, others = read("layouts"), read("rivals")
    rows = ours.select(table=part)
    libraries = list(dict.fromkeys(str(row.what["by"]) for row in others.rows))
    lines: list[list[Value]] = []
    for row in rows:
        cells: list[Value] = [row.found[f"{way} {unit}"] for way in OURS]
        for name in libraries:
            (found, *_) = [*others.select(workload=row.what["workload"], by=name), None]
            known = None if found is None else found.found[unit]
            cells.append("cannot" if found is not None and found.found["cannot"] else known)
        lines.append([row.what["workload"], row.found["size"], *cells])
    columns = ["workload", "size", *(f"{way} {unit}" for way in (*OURS, *libraries))]
    notes = RunNotes(ours, rows)
    notes.add(others, others.rows)
    said = "Cannot: the library refuses the workload; a dash: not measured, or it does not tell."
    ratios = [_ratio(name, lines, 4, 5 + k) for k, name in enumerate(libraries)]
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
