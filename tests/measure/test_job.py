"""The harness itself under mpirun, with arrays of a few KiB; no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from redist.errors import LaunchError
from redist.launch.launcher import Launcher, environment, find_launcher
from redist.measure.cases import KINDS
from redist.measure.options import CONTENDER_NAMES
from tests.programs.launch import alone, one_worker
from tests.tiers import THOROUGH

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 240

LAUNCHER: Launcher | None
try:
    LAUNCHER = find_launcher()
except LaunchError:
    LAUNCHER = None

pytestmark = [one_worker, pytest.mark.skipif(LAUNCHER is None, reason="needs mpirun")]


def job(n_ranks: int, *program: str) -> subprocess.CompletedProcess[str]:
    assert LAUNCHER is not None
    with alone():
        return subprocess.run(
            LAUNCHER.command(n_ranks, program),
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )


def measured(n_ranks: int, path: Path, *options: str) -> tuple[list[dict[str, Any]], str]:
    """Cases as JSON, and the table."""
    done = job(
        n_ranks, "-m", "redist.measure", "--sizes", "16KiB", "--repeat", "2", *options,
        "--json", str(path),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(path.read_text(encoding="utf-8"))["cases"], done.stdout


def notes(cases: Sequence[dict[str, Any]]) -> dict[tuple[str, str], str]:
    return {(c["name"], e["key"]): e["note"] for c in cases for e in c["entries"] if e["note"]}


@pytest.mark.parametrize(
    "n_ranks",
    [2, *(pytest.param(n, marks=pytest.mark.slow("as on 2 ranks", full=n < 4)) for n in (3, 4))],
)
def test_every_contender_is_right_in_every_case(tmp_path: Path, n_ranks: int) -> None:
    cyclic = {"cyclic-rows", "cyclic-cyclic"}
    grid = {"slab-pencil", "pencil-pencil", "swap", "axis-order", "sub-axes", *cyclic}
    kinds = [*KINDS][:: 1 if THOROUGH else 6]
    cases, table = measured(n_ranks, tmp_path / "out.json", "--cases", ",".join(kinds))
    assert [case["name"] for case in cases] == kinds
    left_out = {case["name"] for case in cases if case["note"]}
    assert left_out == (set() if n_ranks == 4 else grid & set(kinds))
    cannot = {("sum-all", "naive"): "cannot: one Allreduce is all there is: see by hand"}
    for kind in (*cyclic, "ragged", "fused-qkv", "experts"):
        cannot[kind, "naive"] = "cannot: it takes every tile for a box"
    wanted = {key: note for key, note in cannot.items() if key[0] in set(kinds) - left_out}
    assert notes(cases) == wanted
    for case in cases:
        if case["name"] in left_out:
            continue
        assert [e["key"] for e in case["entries"]] == list(CONTENDER_NAMES)
        assert case["floor"]["n"] == 2
        ours = next(e for e in case["entries"] if e["key"] == "redist")
        assert ours["planned_bytes"] > 0 and ours["times_redist"] == 1.0
    assert "fastest copy" in table and "of floor" in table


def test_rank_0_alone_speaks_and_wrong_requests_are_one_line() -> None:
    done = job(2, "-m", "redist.measure", "--cases", "nothing")
    assert done.returncode == 2
    assert done.stdout == ""
    said = [line for line in done.stderr.splitlines() if line.startswith("redist: ")]
    assert said == ["redist: --cases: cannot use 'nothing'; known: " + ", ".join(KINDS)]
    assert "Traceback" not in done.stderr
    done = job(2, "-m", "redist.measure", "--ranks", "5")
    assert done.returncode == 2
    assert "another MPI than the one mpi4py uses" in done.stderr


def test_the_same_by_way_of_bench(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    done = job(
        2, "-m", "bench", "run", "--sizes", "4KiB", "--cases", "uneven", "--contenders",
        "redist,naive", "--repeat", "1", "--json", str(path), "--peers", "bench.peers",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (case,) = json.loads(path.read_text(encoding="utf-8"))["cases"]
    keys = [entry["key"] for entry in case["entries"]]
    assert keys == ["naive", "redist", "mpi4py-fft", "heat", "dtensor", "jax-jit", "jax-put"]
    for entry in case["entries"]:
        absent = entry["note"] in ("not installed", "cannot: uneven tiles")
        assert absent or entry["times"], entry


def test_liars_are_caught() -> None:
    done = job(3, "-m", "tests.fakes.liars")
    assert done.returncode == 0, done.stderr


def test_help_needs_no_ranks() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "redist.measure", "--help"],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0 and "rows-columns" in done.stdout
