"""What a benchmark found: tables for the terminal, JSON beside them."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redist
from redist.measure.results.results import machine
from redist.text.columns import table as align

Value = str | int | float | None
Row = Mapping[str, Value]
"""Values by column."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns, with remarks below.

    The first ``keys`` columns say what a row is about. A table with a ``name`` can be kept among the
    stored figures, with what its run is ``about`` besides the machine. One that ``is_wrong`` is printed, and
    the benchmark fails.

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
    is_wrong: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert len(set(self.columns)) == len(self.columns), "a row is an object in JSON"

    @staticmethod
    def of(
        name: str,
        title: str,
        rows: Iterable[Row],
        *notes: str,
        keys: int = 1,
        is_wrong: bool = False,
        about: Mapping[str, Any] | None = None,
    ) -> Table:
        """A table whose rows name their columns, all alike.

        >>> Table.of("sizes", "Sizes", [{"kind": "even", "cases": 3}]).columns
        ('kind', 'cases')
        """
        lines = list(rows)
        columns = tuple(lines[0]) if lines else ()
        assert all(tuple(line) == columns for line in lines), f"{name}: rows of other columns"
        values = tuple(tuple(line.values()) for line in lines)
        return Table(title, columns, values, notes, name, keys, is_wrong, about or {})

    def __str__(self) -> str:
        if not self.columns:
            return "\n".join([f"{self.title}: none", *(f"  {note}" for note in self.notes)])
        lines = [self.columns, *(tuple(map(cell_text, row)) for row in self.rows)]
        left = {i for row in self.rows[:1] for i, value in enumerate(row) if isinstance(value, str)}
        out = align(lines, left if self.rows else range(len(self.columns)), indent="  ")
        return "\n".join([self.title, *out, *(f"  {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """The table as plain data, one object per row."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        about = {"name": self.name, "keys": self.keys, "title": self.title}
        return {**about, "rows": rows, "notes": list(self.notes), "about": self.about}


Tables = tuple[Table, ...]


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


def save_json(path: Path, reports: Mapping[str, Tables], options: Mapping[str, Any]) -> None:
    """Write tables with the options, the day, the version and the machine they came from."""
    data = {
        "options": options,
        "date": datetime.date.today().isoformat(),
        "redist": redist.__version__,
        "machine": machine(),
        "reports": [
            {"name": name, "tables": [table.to_dict() for table in tables]}
            for name, tables in reports.items()
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
