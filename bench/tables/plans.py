"""Tables of plans: redist beside other planners, and how planning grows with devices."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report.report import Value, cell_text
from bench.tables.markdown import RunNotes, table
from bench.tables.stored import StoredRow, read

SHORT = (
    "redist, objective `bytes`",
    "redist, objective `time`",
    "XLA SPMD",
)
"""How the planners of the short table begin."""


def comparison() -> list[str]:
    """Received bytes over the lower bound, memory, and what each planner cannot express."""
    return _table(read("comparison").rows)


def comparison_short() -> list[str]:
    """The same for three of them, without the last column."""
    rows = [row for row in read("comparison").rows if row.what["planner"].startswith(SHORT)]
    return _table(rows, 1)


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


def _table(rows: Sequence[StoredRow], without: int = 0) -> list[str]:
    stored = read("comparison")
    notes = RunNotes(stored, rows)
    columns = ["", "cases", "received / lower bound", "memory", "cannot"]
    shown = len(columns) - without
    lines = []
    for row in rows:
        name, found = str(row.what["planner"]), row.found
        ours = name.startswith("redist")
        label = name.replace("redist", "**redist**", 1) if ours else name
        means = [f"{v:.2f}" for k, v in found.items() if k.endswith("devices") and v is not None]
        received = " / ".join(means) or "not measured"
        received += "" if found["worst"] is None else f", worst {_worst(found['worst'])}"
        cells = [str(found[key] or "") for key in ("cases", "memory", "cannot")]
        lines.append([label + notes.mark(stored, row), cells[0], received, *cells[1:]][:shown])
    return [*table(columns[:shown], lines), *notes.lines]


def _worst(value: float) -> str:
    return f"{value:.2f}" if value < 5 else f"{value:g}"
