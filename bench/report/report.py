"""What a benchmark found: tables for the terminal, JSON beside them."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redist
from redist.measure.machine import machine
from redist.text.columns import table as align

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
class Report:
    """The answer of one benchmark."""

    name: str
    tables: tuple[Table, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables))

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return {"name": self.name, "tables": [table.to_dict() for table in self.tables]}


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
