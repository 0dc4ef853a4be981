"""Figures of GPU runs as stored rows: every run adds its own to one file."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import redist
from bench.tables.stored import Stored, read, write
from redist.measure.machine import machine


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


def add_run(path: Path, name: str, found: dict[str, Any]) -> None:
    """**Local.** Put a run in the place of the one of that name."""
    when = {"redist": redist.__version__, "date": datetime.date.today().isoformat()}
    about = {key: value for key, value in found.items() if key != "cases"}
    new = Stored.of_run({**when, "machine": gpu_machine(), **about}, rows_of(name, found))
    write(path.stem, read(path.stem, path.parent).merge(new), path.parent)


def rows_of(name: str, found: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """What each contender of each case found in a run of that name.

    >>> list(rows_of("2 ranks", {"cases": [{"case": "a", "ipc": {"note": ""}}]}))
    [({'run': '2 ranks', 'case': 'a', 'contender': 'ipc'}, {'note': ''})]
    """
    for case in found["cases"]:
        for key, entry in case.items():
            if isinstance(entry, dict):
                yield {"run": name, "case": case["case"], "contender": key}, entry


def is_right(found: dict[str, Any]) -> bool:
    """Whether no result of a run was wrong.

    >>> is_right({"cases": [{"case": "a", "redist": {"right": True}, "ipc": {"note": ""}}]})
    True
    >>> is_right({"cases": [{"case": "a", "ipc": {"note": "wrong result"}}]})
    False
    """
    entries = [entry for _, entry in rows_of("", found)]
    return all(e.get("right", True) and "wrong" not in e.get("note", "") for e in entries)
