"""``python -m bench rechunk``: chunks of a step of time become chunks of a place, by redist, cubed and Dask.

Each library works in a process of its own on the same source, one after another; what it wrote is compared
with a formula. Processor seconds are those that the kernel counted for the process and its children, the
peak is the largest sum of their proportional set sizes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.problems.installed import version, why_absent
from bench.problems.judge import WrongPlanError
from bench.rechunk.ways import WAYS, is_right, make
from bench.report.jobs import ROOT
from bench.report.report import Row, Table, Tables
from redist.text.units import format_bytes, parse_bytes

NEEDS = {"redist": "zarr", "cubed": "cubed", "dask-p2p": "distributed", "dask-tasks": "distributed"}
LOOK_S = 0.1


def run(
    steps: int = 8192, side: int = 256, chunk: int = 16, memory: str = "256MiB",
    dask_memory: str = "8GiB", workers: int = 2, limit_s: float = 600.0, ways: str = "",
    folder: str = tempfile.gettempdir(),
) -> Tables:  # fmt: skip
    """Race all that are installed.

    steps, side: of the array; chunk: side of the new chunks; memory: of redist and cubed; ways: some of them.
    """
    shape, chunks = (steps, side, side), (steps, chunk, chunk)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=folder) as name:
        source = Path(name) / "source.zarr"
        make(source, shape)
        for way in ways.split(",") if ways else WAYS:
            if why_absent(NEEDS[way]) is not None:
                continue
            allowed = parse_bytes(dask_memory if way.startswith("dask") else memory)
            asked = {
                "source": str(source), "target": str(Path(name) / f"{way}.zarr"),
                "folder": str(Path(name) / way),
                "chunks": chunks, "memory_bytes": allowed, "workers": workers,
            }  # fmt: skip
            rows.append(_measured(way, asked, allowed, limit_s, shape, chunks))
    size = format_bytes(steps * side * side * 4)
    title = (
        f"{size} of f4, {steps} x {side} x {side}, chunks 1 x {side} x {side} to {steps} x {chunk} x {chunk}"
        f", zstd; {workers} workers or threads, {os.cpu_count()} cores"
    )
    used = ", ".join(f"{one} {version(one)}" for one in ("zarr", "cubed", "dask"))
    return (Table.of("stores", title, rows, f"{used}; elements are compared with a formula"),)


def _measured(
    way: str, asked: dict[str, Any], allowed: int, limit_s: float, shape: Any, chunks: Any
) -> Row:
    """Run one library, look at its memory, compare what it wrote."""
    Path(asked["folder"]).mkdir()
    log = Path(asked["folder"]) / "log"
    began = time.monotonic()
    with log.open("wb") as out:
        started = subprocess.Popen(
            [sys.executable, "-m", "bench.rechunk.ways", way, json.dumps(asked)], cwd=ROOT, stdout=out,
            stderr=out, start_new_session=True,
        )  # fmt: skip
    peak, why = 0, ""
    while True:
        pid, status, used = os.wait4(started.pid, os.WNOHANG)
        if pid:
            break
        peak = max(peak, _session_bytes(started.pid))
        if time.monotonic() - began > limit_s and not why:
            why = f"ended after {limit_s:.0f} s"
            os.killpg(started.pid, signal.SIGKILL)
        time.sleep(LOOK_S)
    seconds = time.monotonic() - began
    started.returncode = os.waitstatus_to_exitcode(status)
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)  # workers that outlive a killed scheduler
    if started.returncode and not why:
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        why = f"failed: {last[-1][:80] if last else started.returncode}"
    done = not why
    if done and not is_right(Path(asked["target"]), shape, chunks):
        raise WrongPlanError(f"{way} wrote other elements")
    for left in (asked["target"], asked["folder"]):
        shutil.rmtree(left, ignore_errors=True)
    return {
        "way": way.replace("-", ", "),
        "memory allowed": format_bytes(allowed),
        "processor s": used.ru_utime + used.ru_stime if done else None,
        "s": seconds if done else None,
        "peak MiB": round(peak / 2**20),
        "result": "right" if done else why,
    }


def _session_bytes(session: int) -> int:
    """The proportional set sizes of all processes of a session."""
    total = 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        with suppress(OSError, IndexError, ValueError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                rollup = (folder / "smaps_rollup").read_text()
                total += sum(
                    int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")
                )
    return total * 1024
