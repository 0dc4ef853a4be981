"""Tables of ``redist bench``: moves on processors, their summary, and other libraries beside them."""

from __future__ import annotations

from bench.report.report import Value, cell_text
from bench.tables.markdown import RunNotes, table
from bench.tables.stored import Stored, StoredRow, read

SIZE_BYTES = 2**27
RANKS = 8
LABELS = {
    "rows-columns": "rows to columns, 4096²",
    "columns-rows": "columns to rows, 4096²",
    "slab-pencil": "256³ slab to pencil",
    "slab-0-1": "256³ slab, dim 0 to 1",
    "slab-0-2": "256³ slab, dim 0 to 2",
    "slab-2-0": "256³ slab, dim 2 to 0",
    "pencil-pencil": "256³ pencil to pencil",
    "uneven": "uneven 4093 x 4101",
    "swap": "4096², both axes swapped",
    "axis-order": "major and minor axis swapped",
    "sub-axes": "parts of one axis swapped",
    "gather": "gather on every rank",
    "cut": "cut what every rank has",
    "sum-cut": "sum to tiles",
    "sum-all": "sum on every rank",
    "two-meshes": "4 ranks to 4 others",
}
"""Cases of ``redist bench`` as they are called in tables, for 128 MiB and 8 ranks."""
Rows = dict[tuple[str, str], StoredRow]
"""By case and contender."""


def cpu_moves() -> list[str]:
    """Milliseconds of every case at 128 MiB on 8 ranks with MPICH, and the gain with Open MPI."""
    stored = read("moves")
    mpich, other = (_rows(stored, mpi) for mpi in ("MPICH", "Open MPI"))
    cases = [case for case in LABELS if (case, "redist") in mpich]
    by_hand = [other[case, "by-hand"] for case in cases if (case, "by-hand") in other]
    notes = RunNotes(stored, [mpich[case, "redist"] for case in cases])
    notes.add(stored, by_hand)
    lines: list[list[Value]] = []
    for case in cases:
        keys = ("floor", "redist", "redist-any", "by-hand", "naive")
        cells = [_ms(mpich.get((case, key))) for key in keys]
        gains = [_times(rows.get((case, "by-hand"))) for rows in (mpich, other)]
        lines.append([LABELS[case] + notes.mark(stored, mpich[case, "redist"]), *cells, *gains])
    marks = "".join(dict.fromkeys(notes.mark(stored, row) for row in by_hand))
    columns = (
        "ms, median (quartiles)", "floor", "**redist, own**", "redist, any",
        "Alltoallw or Reduce_scatter", "naive", "by hand / own", f"with Open MPI{marks}",
    )  # fmt: skip
    return [*table(columns, lines), *notes.lines]


def cpu_summary() -> list[str]:
    """How many times as long as redist the others take, by MPI and number of ranks."""
    stored = read("summary")
    notes = RunNotes(stored, stored.rows)
    lines: list[list[Value]] = []
    for row in stored.rows:
        label = f"{row.what['mpi']}, {row.what['ranks']} ranks{notes.mark(stored, row)}"
        lines.append([label, *(_mean(row, f"{key} ") for key in ("naive", "by-hand"))])
    columns = ("x redist's time, geomean (least to most)", "naive", "Alltoallw")
    return [*table(columns, lines), *notes.lines]


def cpu_peers() -> list[str]:
    """Other libraries: how many times as long as redist they take in the cases they can express."""
    moved, random = read("peers"), read("jax")
    beside = random.select(**{"redist by": "redist"})
    notes = RunNotes(moved, moved.rows)
    notes.add(random, beside)
    lines: list[list[Value]] = []
    for row in moved.rows:
        label = row.found["label"] + notes.mark(moved, row)
        lines.append([label, f"{row.what['mpi']}, {row.what['ranks']} ranks", *_cells(row)])
    for row in beside:
        label = f"{row.what['JAX by']}: random moves of 64 MiB{notes.mark(random, row)}"
        lines.append([label, f"MPICH, {RANKS} ranks", *_cells(row)])
    columns = ("", "run", "cases that it can express", "x redist's time, geomean", "least to most")
    return [*table(columns, lines), *notes.lines]


def _cells(row: StoredRow) -> list[Value]:
    """Number of cases, mean and spread of a library."""
    ends = [row.found[key] for key in ("least", "most") if row.found[key] is not None]
    return [row.found["cases"], _mean(row), " to ".join(_short(end) for end in ends)]


def _rows(stored: Stored, mpi: str) -> Rows:
    found = stored.select(mpi=mpi, ranks=RANKS, size_bytes=SIZE_BYTES)
    return {(row.what["case"], row.what["contender"]): row for row in found}


def _ms(row: StoredRow | None) -> str:
    """Median and quartiles in milliseconds."""
    if row is None or "median_s" not in row.found:
        return ""
    text = cell_text(row.found["median_s"] * 1e3)
    if "low_s" not in row.found:
        return text
    quartiles = (cell_text(row.found[key] * 1e3) for key in ("low_s", "high_s"))
    return f"{text} ({' - '.join(quartiles)})"


def _times(row: StoredRow | None) -> str:
    """How many times as long as redist it takes."""
    return "" if row is None else f"{_short(row.found['times_redist'])}x"


def _mean(row: StoredRow, key: str = "") -> str:
    """The mean of ratios, with their spread if the row has it under that key."""
    if row.found.get(f"{key}geomean") is None:
        return ""
    mean = f"{_short(row.found[f'{key}geomean'])}x"
    ends = [row.found.get(f"{key}{end}") for end in ("least", "most")]
    if not key or None in ends:
        return mean
    return f"{mean} ({' to '.join(_short(end) for end in ends if end is not None)})"


def _short(ratio: float) -> str:
    """A ratio in two digits.

    >>> _short(10.44), _short(3.55), _short(0.042)
    ('10', '3.5', '0.04')
    """
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}" if ratio >= 0.95 else f"{ratio:.2f}"
