"""``python -m bench tables``: print the tables of stored figures, write them into pages, check pages."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.benchmarks import SHOWN
from bench.report.report import Value
from bench.tables import beside, gpu, moves
from bench.tables.markdown import RunNotes, fill, table, table_names
from bench.tables.stored import read

ROOT = Path(__file__).parents[2]
HEAD = 2
"""Lines of a table without rows."""
SPECIAL: dict[str, Callable[[], list[str]]] = {
    "comparison": lambda: beside.planners(False),
    "comparison-short": lambda: beside.planners(True),
    "planning-growth": beside.planning_growth,
    "cpu-moves": moves.cpu_moves,
    "cpu-summary": moves.cpu_summary,
    "cpu-peers": moves.cpu_peers,
    "examples": lambda: _generic("examples", "programs"),
    "layouts-received-beside": lambda: beside.programs("received", "KiB"),
    "layouts-times-beside": lambda: beside.programs("times", "ms"),
    "gpu-packs": lambda: gpu.packs("kernels", " of f32"),
    "gpu-moves": gpu.moves,
    "gpu-more-packs": lambda: gpu.packs("more kernels", ", f32 where nothing else is said"),
    "gpu-move-ranges": gpu.move_ranges,
}
"""Tables that are more than the stored rows one below the other."""
NONE = "No figures are stored yet: `python -m bench figures` measures them."


def main(arguments: Sequence[str]) -> int:
    """0 if all is well, 1 if a page differs from the stored figures, 2 if a table is not known."""
    args = _parser().parse_args(arguments)
    try:
        if args.write or args.check:
            return _pages(pages(ROOT), args.write)
        for name in _chosen(args.names):
            print("\n".join([f"{name}:", "", *lines_of(name), ""]))
    except ValueError as error:
        print(f"bench tables: {error}", file=sys.stderr)
        return 2
    return 0


def known() -> list[str]:
    """Names of all tables."""
    return [*SPECIAL, *SHOWN]


def lines_of(name: str) -> list[str]:
    """The lines of a table in Markdown; one that says so if no figures are stored."""
    if name not in known():
        raise ValueError(f"there is no table {name!r}; known: {', '.join(known())}")
    benchmark, _, part = name.partition("-")
    lines = SPECIAL[name]() if name in SPECIAL else _generic(benchmark, part)
    return lines if len(lines) > HEAD else [NONE]


def _chosen(names: Sequence[str]) -> list[str]:
    """All tables, those of these names, or all of a benchmark: ``gpu``."""
    some = [[one for one in known() if one.startswith(f"{name}-")] or [name] for name in names]
    return [one for every in some for one in every] or known()


def pages(root: Path) -> Iterator[Path]:
    """The pages that may show tables: the README and everything in ``docs``."""
    yield root / "README.md"
    yield from sorted((root / "docs").rglob("*.md"))


def _generic(benchmark: str, part: str) -> list[str]:
    """The stored rows one below the other, with the table's title and notes."""
    stored = read(benchmark)
    rows = stored.select(table=part)
    keys = [key for row in rows[:1] for key in row.what if key != "table"]
    columns = [*keys, *(key for row in rows[:1] for key in row.found)]
    notes = RunNotes(stored, rows)
    lines: list[list[Value]] = []
    for row in rows:
        first, *rest = (row.what[key] for key in keys)
        cells = (row.found.get(column) for column in columns[len(keys) :])
        lines.append([f"{first}{notes.mark(stored, row)}", *rest, *cells])
    about = stored.tables.get(part, {"title": "", "notes": []})
    said = [note for note in (about["title"], *about["notes"]) if note]
    remarks = [line for note in said for line in ("", f"{note[0].upper()}{note[1:]}.")]
    return [*table(columns, lines), *(remarks if rows else []), *(notes.lines if rows else [])]


def _pages(paths: Iterator[Path], write: bool) -> int:
    """Renew the marked places, or say which differ from the stored figures."""
    differ = False
    for path in paths:
        old = path.read_text(encoding="utf-8")
        try:
            names = table_names(old)
            new = fill(old, lines_of)
        except ValueError as error:
            raise ValueError(f"{path.relative_to(ROOT)}: {error}") from None
        if new != old and write:
            path.write_text(new, encoding="utf-8")
            print(f"wrote  {path.relative_to(ROOT)}: {', '.join(names)}")
        elif new != old:
            differ = True
            name = str(path.relative_to(ROOT))
            ends = old.splitlines(), new.splitlines(), f"{name}, as it is", f"{name}, as stored"
            print("\n".join(difflib.unified_diff(*ends, n=0, lineterm="")), file=sys.stderr)
    if differ:
        print("bench tables: run 'python -m bench tables --write'", file=sys.stderr)
    return 1 if differ else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench tables", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="tables to print (all)")
    both = parser.add_mutually_exclusive_group()
    both.add_argument("--write", action="store_true", help="renew marked places of README and docs")
    both.add_argument(
        "--check", action="store_true", help="fail if a marked place is not as stored"
    )
    return parser
