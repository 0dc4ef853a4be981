"""Figures of GPU runs: one JSON file that every run adds to, and its tables."""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import redist
from bench.report.report import Table, Value
from redist.measure.machine import machine

MOVERS = {"raw": "raw IPC", "ipc": "redist IPC", "cupy": "CuPy's copies", "staged": "host staging"}
CONTENDERS = ("redist", "CuPy", "JAX", "PyTorch")


def gpu_machine() -> dict[str, Any]:
    """**Local.** The host, its GPU and the software that the figures depend on."""
    import cupy

    runtime = cupy.cuda.runtime
    name = runtime.getDeviceProperties(cupy.cuda.Device().id)["name"]
    out = {
        **machine(),
        "gpu": name.decode() if isinstance(name, bytes) else str(name),
        "gpus": runtime.getDeviceCount(),
        "cupy": cupy.__version__,
        "cuda_driver": runtime.driverGetVersion(),
        "cuda_runtime": runtime.runtimeGetVersion(),
    }
    for module in ("jax", "torch"):
        with contextlib.suppress(PackageNotFoundError):
            out[module] = version(module)
    return out


def read(path: Path) -> dict[str, Any]:
    """What a file has; nothing where there is none."""
    if not path.exists():
        return {"version": 1, "runs": {}}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def add_run(path: Path, name: str, found: dict[str, Any]) -> None:
    """**Local.** Put a run in the place of the one of that name."""
    data = read(path)
    data["machine"] = gpu_machine()
    when = {"redist": redist.__version__, "date": datetime.date.today().isoformat()}
    data["runs"][name] = {**when, **found}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def is_right(found: dict[str, Any]) -> bool:
    """Whether no result of a run was wrong.

    >>> is_right({"cases": [{"case": "a", "redist": {"right": True}, "ipc": {"note": ""}}]})
    True
    >>> is_right({"cases": [{"case": "a", "ipc": {"note": "wrong result"}}]})
    False
    """
    entries = [e for case in found["cases"] for e in case.values() if isinstance(e, dict)]
    return all(e.get("right", True) and "wrong" not in e.get("note", "") for e in entries)


def as_text(data: dict[str, Any]) -> str:
    """All tables."""
    return "\n\n".join(str(table) for table in tables(data))


def tables(data: dict[str, Any]) -> Iterator[Table]:
    """A table for the kernels, and one for every run of ranks."""
    for name, run in data["runs"].items():
        yield kernels_table(run) if "kernels" in name else ranks_table(name, run)


def kernels_table(run: dict[str, Any]) -> Table:
    """Shares of the contiguous copy, in percent."""
    top = run["copy_bytes_per_s"]
    rows: list[tuple[Value, ...]] = []
    for case in run["cases"]:
        cells = [_percent(case.get(name), top) for name in CONTENDERS]
        ours, cupy = cells[0], cells[1]
        gain = ours / cupy if isinstance(ours, float) and isinstance(cupy, float) else None
        rows.append((case["case"], *cells, gain))
    notes = [f"{name}: {note}" for name, note in {**run["absent"], **run["cannot"]}.items()]
    nccl = run.get("nccl", {})
    if "bytes_per_s" in nccl:
        share = 100 * nccl["bytes_per_s"] / top
        notes.append(f"NCCL {nccl['version']}, one rank to itself: {share:.1f}")
    elif nccl:
        notes.append(f"NCCL: {nccl['note']}")
    title = f"Packs and unpacks of {run['array_bytes'] / 2**30:g} GiB f32, % of the contiguous copy"
    columns = ("case", *CONTENDERS, "x CuPy")
    return Table(f"{title} ({top / 1e12:.2f} TB/s)", columns, tuple(rows), tuple(notes))


def _percent(entry: dict[str, Any] | None, top: float) -> Value:
    if entry is None:
        return None
    return 100 * entry["bytes_per_s"] / top if entry["right"] else "wrong"


def ranks_table(name: str, run: dict[str, Any]) -> Table:
    """Milliseconds, shares of the copy's rate and of the raw copy, gains over CuPy's copies."""
    keys = [key for key in MOVERS if any(key in case for case in run["cases"])]
    columns = ["case", *(f"{MOVERS[key]} ms" for key in keys), "quartiles"]
    columns += ["% of copy", "of raw", "x CuPy's"]
    ours = next(key for key in ("ipc", "staged", *keys) if key in keys)
    rows: list[tuple[Value, ...]] = []
    for case in run["cases"]:
        if "note" in case:
            continue
        ms: list[Value] = [_ms(case.get(key), "median_s") for key in keys]
        mine = case.get(ours, {})
        spread = "-"
        if "low_s" in mine:
            spread = f"{mine['low_s'] * 1e3:.2f} - {mine['high_s'] * 1e3:.2f}"
        share = 100 * mine["of_copy"] if "of_copy" in mine else None
        slower = case.get("cupy", {}).get("median_s")
        gain = slower / mine["median_s"] if slower and "median_s" in mine else None
        rows.append((case["case"], *ms, spread, share, mine.get("of_raw"), gain))
    notes = [f"{case['case']}: {case['note']}" for case in run["cases"] if "note" in case]
    title = f"{name} on one GPU, {run['total_bytes'] / 2**30:g} GiB f32 in all, {run['mpi']}"
    copy = f"contiguous copy {run['copy_bytes_per_s'] / 1e12:.2f} TB/s; quartiles of {MOVERS[ours]}"
    return Table(title, tuple(columns), tuple(rows), (*notes, copy))


def _ms(entry: dict[str, Any] | None, field: str) -> Value:
    if entry is None:
        return None
    return entry[field] * 1e3 if field in entry else entry["note"] or None
