"""Tables of a GPU: packing by kernels, and whole redistributions by ranks that share it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.gpu.command import RESULTS
from bench.gpu.results import read
from bench.report.report import Value
from bench.tables.markdown import run_text, table

CONTENDERS = {
    "redist": "redist",
    "CuPy": "CuPy's copies",
    "JAX": "JAX (jit)",
    "PyTorch": "PyTorch",
}
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


def gpu_packs() -> list[str]:
    """Packs and unpacks, each as a share of the contiguous copy."""
    data = read(RESULTS)
    run = data["runs"]["kernels"]
    top = run["copy_bytes_per_s"]
    found = {case["case"]: case for case in run["cases"]}
    lines: list[list[Value]] = []
    for name in dict.fromkeys(label.rpartition(", ")[0] for label in found):
        line: list[Value] = [name]
        for key in CONTENDERS:
            pair = (found[f"{name}, {way}"].get(key) for way in ("pack", "unpack"))
            line.append(" / ".join(_percent(entry, top) for entry in pair))
        lines.append(line)
    columns = ("pack / unpack, % of the copy", *CONTENDERS.values())
    size = f"{run['array_bytes'] / 2**30:g} GiB of f32"
    return [*table(columns, lines), "", _note(data, run, size)]


def gpu_moves() -> list[str]:
    """Milliseconds of whole redistributions by 2, 4 and 8 ranks on one GPU."""
    data = read(RESULTS)
    runs = {n: data["runs"][f"{n} ranks"] for n in RANKS}
    by_case = {n: {c["case"]: c for c in run["cases"]} for n, run in runs.items()}
    lines: list[list[Value]] = []
    for case, label in LABELS.items():
        line: list[Value] = [label]
        for n in RANKS:
            found = by_case[n].get(case, {})
            line.append(_moved(found))
            if n == 4:
                line.append(_generic(found))
        lines.append(line)
    columns = ["raw, **redist** in ms (% of the copy)", *(f"{n} ranks" for n in RANKS)]
    columns.insert(3, "CuPy's copies, 4 ranks")
    size = f"{runs[4]['total_bytes'] / 2**30:g} GiB of f32 in all, {runs[4]['mpi']}"
    return [*table(columns, lines), "", _note(data, runs[4], size)]


def _percent(entry: Mapping[str, Any] | None, top: float) -> str:
    if entry is None or not entry["right"]:
        return "-"
    return f"{100 * entry['bytes_per_s'] / top:.0f}"


def _moved(found: Mapping[str, Any]) -> str:
    """The raw copy beside redist in one case."""
    ours, raw = found.get("ipc", {}), found.get("raw", {})
    if "median_s" not in ours:
        return ""
    first = f"{raw['median_s'] * 1e3:.2f}" if "median_s" in raw else "-"
    return f"{first}, **{ours['median_s'] * 1e3:.2f}** ({100 * ours['of_copy']:.0f} %)"


def _generic(found: Mapping[str, Any]) -> str:
    """The same transfer with CuPy's copies, and how many times as long it takes."""
    theirs, ours = found.get("cupy", {}), found.get("ipc", {})
    if "median_s" not in theirs:
        return ""
    times = theirs["median_s"] / ours["median_s"]
    return f"{theirs['median_s'] * 1e3:.2f} ({times:.1f}x)"


def _note(data: Mapping[str, Any], run: Mapping[str, Any], what: str) -> str:
    m = data["machine"]
    software = [f"{m['gpu']}", f"CuPy {m['cupy']}", f"CUDA {m['cuda_runtime'] // 1000}"]
    software += [f"{n} {m[k]}" for k, n in (("jax", "JAX"), ("torch", "PyTorch")) if k in m]
    rate = f"contiguous copy {run['copy_bytes_per_s'] / 1e12:.2f} TB/s, read and written"
    when = run_text({"redist": run["redist"], "date": run.get("date")})
    return f"{what}, medians of {run['repeats']}; {rate}; measured {when}; {', '.join(software)}."
