"""Markdown tables, and the marked places of a page where they stand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from bench.report.report import Value, cell_text
from bench.tables.stored import Run, Stored, StoredRow

BEGIN = "<!-- table: {} -->"
END = "<!-- end -->"
_PLACE = re.compile(r"<!-- table: (?P<name>[\w-]+) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL)
_BEGIN = re.compile(r"<!-- table:")


def table(columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> list[str]:
    """Lines of a table.

    >>> print("\\n".join(table(["case", "ms"], [["a|b", 1.234]])))
    | case | ms |
    |---|---|
    | a\\|b | 1.23 |
    """
    lines = [_line(columns), "|" + "---|" * len(columns)]
    return lines + [_line([cell_text(value) for value in row]) for row in rows]


def table_names(page: str) -> list[str]:
    """The tables that a page shows.

    >>> table_names("<!-- table: moves -->\\nold\\n<!-- end -->")
    ['moves']
    """
    names = [place["name"] for place in _PLACE.finditer(page)]
    if len(names) != len(_BEGIN.findall(page)) or any(
        _BEGIN.search(place["body"]) for place in _PLACE.finditer(page)
    ):
        raise ValueError(f"a marked place has no name or does not end with {END}")
    return names


def fill(page: str, make: Callable[[str], Sequence[str]]) -> str:
    """The page with every marked place made anew.

    >>> page = "a\\n<!-- table: t -->\\nold\\n<!-- end -->\\nb"
    >>> fill(page, lambda name: [f"new {name}"])
    'a\\n<!-- table: t -->\\nnew t\\n<!-- end -->\\nb'
    """

    def filled(place: re.Match[str]) -> str:
        lines = [BEGIN.format(place["name"]), *make(place["name"]), END]
        return "\n".join(lines)

    return _PLACE.sub(filled, page)


class RunNotes:
    """Says below a table when, where and with what its rows were measured; marks them if runs differ.

    >>> a, b = (Stored.of_run({"redist": v}, [({"case": v}, {})]) for v in ("0.1.0", "0.2.0"))
    >>> both = a.merge(b)
    >>> notes = RunNotes(both, both.rows)
    >>> [notes.mark(both, row) for row in both.rows], notes.lines[-1]
    ([' ¹', ' ²'], '² Measured with redist 0.2.0.')
    >>> RunNotes(a, a.rows).mark(a, a.rows[0])
    ''
    """

    def __init__(self, stored: Stored, rows: Iterable[StoredRow]) -> None:
        self._texts: list[str] = []
        self.add(stored, rows)

    def add(self, stored: Stored, rows: Iterable[StoredRow]) -> None:
        """Rows of another file of figures are shown, too."""
        for row in rows:
            text = run_text(stored.runs[row.run])
            if text not in self._texts:
                self._texts.append(text)

    def mark(self, stored: Stored, row: StoredRow) -> str:
        """What stands behind the name of a row."""
        number = self._texts.index(run_text(stored.runs[row.run])) + 1
        return f" {_raised(number)}" if len(self._texts) > 1 else ""

    @property
    def lines(self) -> list[str]:
        """Lines below the table, one paragraph a run."""
        out = []
        for number, text in enumerate(self._texts, start=1):
            mark = f"{_raised(number)} " if len(self._texts) > 1 else ""
            out += ["", f"{mark}Measured {text}."]
        return out


def run_text(run: Run) -> str:
    """A run in words.

    >>> run_text({"redist": "0.1.0", "mpi": "MPICH 5.0.2", "machine": {"cores": 2}})
    'with redist 0.1.0; 2 cores; MPICH 5.0.2'
    """
    when = f"on {run['date']} " if run.get("date") else ""
    parts = [f"{when}with redist {run['redist']}", machine_text(run.get("machine", {}))]
    parts += [str(run.get("mpi") or ""), str(run.get("note") or "")]
    return "; ".join(part for part in parts if part)


def machine_text(machine: Mapping[str, object]) -> str:
    """A machine in words.

    >>> machine_text({"processor": "Xeon", "cores": 2, "system": "Linux x86_64", "numpy": "2.1"})
    '2 cores, Xeon, Linux x86_64, NumPy 2.1'
    """
    cores = machine.get("cores")
    parts = [f"{cores} {'core' if cores == 1 else 'cores'}" if cores else ""]
    parts += [str(machine.get(key, "")) for key in ("processor", "system")]
    for key, name in (("python", "Python"), ("numpy", "NumPy"), ("jax", "JAX")):
        parts.append(f"{name} {machine[key]}" if key in machine else "")
    return ", ".join(part for part in parts if part)


def _raised(number: int) -> str:
    """A number as a mark in text."""
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
