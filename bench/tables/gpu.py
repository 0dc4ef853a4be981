"""Tables of a GPU: packing by kernels, and whole redistributions by ranks that share it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.report.report import Value
from bench.tables.markdown import run_text, table
from bench.tables.stored import Run, read

CONTENDERS = {"redist": "redist", "CuPy": "CuPy's copies", "JAX": "JAX (jit)", "PyTorch": "PyTorch"}
LABELS = {
    "rows-columns": "rows to columns",
    "columns-rows": "columns to rows",
    "slab-0-1": "slabs, dim 0 to 1",
    "slab-0-2": "slabs, dim 0 to 2",
    "slab-pencil": "slabs to pencils",
    "pencil-pencil": "pencils to pencils",
    "thin": "runs of 16 bytes read",
    "thin-back": "runs of 16 bytes written",
    "single": "single elements read",
    "single-back": "single elements written",
    "transposed": "rows to columns, transposed",
    "gather": "gather",
    "sum-cut": "reduce_scatter",
}
RANKS = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class GpuRun:
    """A stored run, and what each contender of each case found in it; nothing if it took no part."""

    about: Run
    found: Mapping[tuple[str, str], Mapping[str, Any]]

    def of(self, case: str, contender: str) -> Mapping[str, Any]:
        """What one contender found."""
        found = self.found.get((case, contender), {})
        return {key: value for key, value in found.items() if value is not None}

    def ms(self, case: str, contender: str) -> float | None:
        """Its milliseconds."""
        seconds = self.of(case, contender).get("median_s")
        return None if seconds is None else float(seconds) * 1e3

    def share(self, case: str, contender: str) -> float | None:
        """Its rate in percent of the contiguous copy's."""
        rate = self.of(case, contender).get("bytes_per_s")
        return 100 * rate / self.about["copy_bytes_per_s"] if rate else None


def runs_of(name: str) -> list[GpuRun]:
    """The runs of that name: the first, and those that are numbered, as ``4 ranks, run 2``."""
    stored, out = read("gpu"), []
    for run in dict.fromkeys(row.what["run"] for row in stored.select(table="runs")):
        if re.fullmatch(re.escape(name) + r"(, run \d+)?", run):
            rows = stored.select(run=run)
            found = {(row.what["case"], row.what["contender"]): row.found for row in rows}
            out.append(GpuRun(stored.runs[rows[0].run], found))
    return out


def packs(name: str, what: str) -> list[str]:
    """Packs and unpacks as shares of the contiguous copy: least to most of the medians of all runs."""
    runs = runs_of(name)
    lines: list[list[Value]] = []
    for case in dict.fromkeys(case.rpartition(", ")[0] for case, _ in runs[0].found):
        cells = [
            " / ".join(
                _range((run.share(f"{case}, {way}", key) for run in runs), 0)
                for way in ("pack", "unpack")
            )
            for key in CONTENDERS
        ]
        lines.append([case, *cells])
    size = f"{runs[0].about['array_bytes'] / 2**30:g} GiB{what}"
    columns = ("pack / unpack, % of the copy", *CONTENDERS.values())
    return [*table(columns, lines), "", _note(runs, size)]


def moves() -> list[str]:
    """Milliseconds of whole redistributions by 2, 4 and 8 ranks on one GPU."""
    runs = {n: runs_of(f"{n} ranks")[0] for n in RANKS}
    lines: list[list[Value]] = []
    for case, label in LABELS.items():
        two, four, eight = (_moved(run, case) for run in runs.values())
        lines.append([label, two, four, _generic(runs[4], case), eight])
    first = "raw, **redist** in ms (% of the copy)"
    columns = (first, "2 ranks", "4 ranks", "CuPy's copies, 4 ranks", "8 ranks")
    return [*table(columns, lines), "", _note([runs[4]], _size(runs[4]))]


def move_ranges() -> list[str]:
    """Whole redistributions by 4 ranks over all stored runs: least to most of the medians."""
    runs = runs_of("4 ranks")
    lines: list[list[Value]] = []
    for case, label in LABELS.items():
        ours = [run.of(case, "ipc") for run in runs]
        pairs = [(run.ms(case, "cupy"), run.ms(case, "ipc")) for run in runs]
        lines.append(
            [
                label,
                _range((run.ms(case, "ipc") for run in runs), 2),
                _range((one["of_copy"] * 100 for one in ours), 0),
                _range((one.get("of_raw") for one in ours), 2),
                _range((other / one for other, one in pairs if other and one), 1),
            ]
        )
    columns = ("4 ranks", "redist, ms", "% of the copy", "x the raw copy's rate", "x CuPy's rate")
    return [*table(columns, lines), "", _note(runs, _size(runs[0]))]


def _moved(run: GpuRun, case: str) -> str:
    """The raw copy beside redist in one case."""
    ours, raw = run.ms(case, "ipc"), run.ms(case, "raw")
    if ours is None:
        return ""
    first = "-" if raw is None else f"{raw:.2f}"
    return f"{first}, **{ours:.2f}** ({100 * run.of(case, 'ipc')['of_copy']:.0f} %)"


def _generic(run: GpuRun, case: str) -> str:
    """The same transfer with CuPy's copies, and how many times as long it takes."""
    theirs, ours = run.ms(case, "cupy"), run.ms(case, "ipc")
    return "" if theirs is None or ours is None else f"{theirs:.2f} ({theirs / ours:.1f}x)"


def _range(values: Iterable[float | None], digits: int) -> str:
    """Least to most of those that are there.

    >>> _range([2.0, 1.44], 1), _range([0.5, None], 2), _range([2.01, 1.99], 1), _range([], 0)
    ('1.4-2.0', '0.50', '2.0', '-')
    """
    known = [value for value in values if value is not None]
    ends = [f"{end:.{digits}f}" for end in (min(known), max(known))] if known else ["-"]
    return "-".join(dict.fromkeys(ends))


def _size(run: GpuRun) -> str:
    return f"{run.about['total_bytes'] / 2**30:g} GiB of f32 in all, {run.about['mpi']}"


def _note(runs: Sequence[GpuRun], what: str) -> str:
    """Sizes, repetitions, how many runs there are and when they were, the rate of the copy, software."""
    abouts, m = [run.about for run in runs], runs[0].about["machine"]
    repeats = _range((about["repeats"] for about in abouts), 0)
    rates = _range((about["copy_bytes_per_s"] / 1e12 for about in abouts), 2)
    when = dict.fromkeys(
        run_text({"redist": about["redist"], "date": about.get("date")}) for about in abouts
    )
    count = f"{len(runs)} run{'s' * (len(runs) > 1)}, measured {' and '.join(when)}"
    software = [f"{m['gpu']}", f"CuPy {m['cupy']}", f"CUDA {m['cuda_runtime'] // 1000}"]
    software += [f"{n} {m[k]}" for k, n in (("jax", "JAX"), ("torch", "PyTorch")) if k in m]
    copy = f"contiguous copy {rates} TB/s, read and written"
    return f"{what}, medians of {repeats}; {copy}; {count}; {', '.join(software)}."
