"""What a benchmark found: tables for the terminal, JSON beside them, charts where there is room."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redist
from redist.measure.machine import machine
from redist.text.columns import table as align
from redist.text.extras import install_line

Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns, with remarks below.

    The first ``keys`` columns say what a row is about. A table with a ``name`` can be kept among the
    stored figures.

    >>> print(Table("Sizes", ("kind", "cases", "worst"), (("even", 3, 1.0), ("odd", 12, None))))
    Sizes
      kind   cases   worst
      even       3    1.00
      odd       12       -
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    notes: tuple[str, ...] = ()
    name: str = ""
    keys: int = 1

    def __post_init__(self) -> None:
        assert len(set(self.columns)) == len(self.columns), "a row is an object in JSON"

    def __str__(self) -> str:
        if not self.columns:
            return self.title
        lines = [self.columns, *(tuple(map(cell_text, row)) for row in self.rows)]
        left = {i for row in self.rows[:1] for i, value in enumerate(row) if isinstance(value, str)}
        out = align(lines, left if self.rows else range(len(self.columns)), indent="  ")
        return "\n".join([self.title, *out, *(f"  {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """The table as plain data, one object per row."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        about = {"name": self.name, "keys": self.keys, "title": self.title}
        return {**about, "rows": rows, "notes": list(self.notes)}


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a chart."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves over two labelled axes, vertical logarithmic, horizontal where ``log_x``."""

    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    log_x: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """The answer of one benchmark."""

    name: str
    tables: tuple[Table, ...]
    charts: tuple[Chart, ...] = ()

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables))

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        charts = [
            {
                "title": chart.title,
                "x": chart.x,
                "y": chart.y,
                "curves": [{"name": c.name, "x": c.x, "y": c.y} for c in chart.curves],
            }
            for chart in self.charts
        ]
        return {
            "name": self.name,
            "tables": [table.to_dict() for table in self.tables],
            "charts": charts,
        }


def cell_text(value: Value) -> str:
    """A table cell: three digits for a fraction, a dash for nothing.

    >>> [cell_text(v) for v in (1.0, 17.4321, 1234.5, 0.01234, 12345, None)]
    ['1.00', '17.4', '1234', '0.0123', '12345', '-']
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        digits = 2 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
        return f"{value:.{digits}f}"
    return str(value)


def sorted_curve(name: str, values: Iterable[float]) -> Curve:
    """Values in rising order over the share of cases that do not exceed them.

    >>> sorted_curve("a", [2.0, 1.0])
    Curve(name='a', x=(0.5, 1.0), y=(1.0, 2.0))
    """
    ordered = tuple(sorted(values))
    return Curve(name, tuple((i + 1) / len(ordered) for i in range(len(ordered))), ordered)


def save_json(path: Path, reports: Sequence[Report], options: dict[str, Any]) -> None:
    """Write reports with the options, the day, the version and the machine they came from."""
    data = {
        "options": options,
        "date": datetime.date.today().isoformat(),
        "redist": redist.__version__,
        "machine": machine(),
        "reports": [report.to_dict() for report in reports],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def save_plot(path: Path, reports: Sequence[Report]) -> str:
    """Draw all charts into one picture; says what it did."""
    charts = [chart for report in reports for chart in report.charts if chart.curves]
    if not charts:
        return "no plot: nothing to draw"
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return f"no plot: matplotlib is not installed; {install_line('plot')}"
    figure = Figure(figsize=(7, 4 * len(charts)), layout="constrained")
    for axes, chart in zip(figure.subplots(len(charts), squeeze=False)[:, 0], charts, strict=True):
        for curve in chart.curves:
            marker = "o" if len(curve.x) < 20 else ""
            axes.plot(curve.x, curve.y, marker=marker, markersize=3, label=curve.name)
        axes.set(title=chart.title, xlabel=chart.x, ylabel=chart.y, yscale="log")
        if chart.log_x:
            axes.set_xscale("log", base=2)
        axes.grid(alpha=0.3)
        axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return f"plot   {path}"
