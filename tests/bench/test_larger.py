"""The benchmark of programs larger than memory, small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.__main__ import main
from bench.larger import blocks_race, gpu_program, gpu_race, order_race, race
from bench.larger.race import LayerChain
from bench.problems.judge import WrongPlanError
from tests.fakes import eager_cupy, pretended_cupy
from tests.programs.launch import alone, default_mpi, one_worker

ROOT = Path(__file__).resolve().parents[2]


def test_larger_measures_every_policy_within_every_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(race, "N_EMPTY", 50)
    stored = tmp_path / "found.json"
    words = ["--layers", "6", "--side", "64", "--rows", "8", "--repeats", "1"]
    assert main(["larger", *words, "--folder", str(tmp_path), "--json", str(stored)]) == 0
    measured, loop = json.loads(stored.read_text())["reports"][0]["tables"]
    assert [row["memory"] for row in measured["rows"]] == ["unlimited", "50% of it", "25% of it"]
    assert measured["rows"][2]["loaded"] != measured["rows"][0]["loaded"]  # some twice
    assert [row["vertices"] for row in loop["rows"]] == [101, 100, 150]
    assert "GB/s" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


def test_a_free_order_is_measured_beside_fixed_lanes(capsys: pytest.CaptureFixture[str]) -> None:
    (table,) = order_race.run(tiles=8, layers=2, task_ms=0.5, repeat=2)
    programs = list(dict.fromkeys(row[:3] for row in table.rows))
    assert len(programs) == 8 and len(table.rows) == 4 * len(programs)
    assert [row[3] for row in table.rows[:4]] == list(order_race.WAYS)
    aimed = [row for row in table.rows if row[table.columns.index("aim")] is not None]
    assert len(aimed) == 4 and all(row[3] == order_race.FREE_ADMITTED for row in aimed)
    of_alone = table.columns.index("of computing alone")
    assert all(float(row[of_alone] or 0) >= 1.0 for row in table.rows)


def test_order_takes_no_result_on_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_race, "straight", lambda tasks: {len(tasks.tiles) - 1: b"other"})
    with pytest.raises(WrongPlanError, match="other bits"):
        order_race.run(tiles=4, layers=1, task_ms=0.1, repeat=1)


def found_by_ranks() -> dict[str, Any]:
    """What a job of blocks writes, made up."""
    times = {
        "unlimited": [2.0, 2.2],
        "longest path": [2.4, 2.4],
        "in order": [2.5, 2.5],
        "synchronous": [3.6, 3.6],
    }
    return {
        "ranks": 4, "mpi": "MPICH", "stack": "24 blocks", "weight_bytes": 2**30, "limit_bytes": 2**26,
        "peak_bytes": 2**28, "held_bytes": 2**25, "largest_node_bytes": 2**24, "certificate": "proved",
        "loaded_bytes": 10**9, "read_bytes_per_s": 10**9, "times": times, "cpu_s": times,
    }  # fmt: skip


def test_blocks_report_aims_and_losses() -> None:
    dask = {"library": "Dask 1", "times": [4.8], "spilled_bytes": 2**20}
    said = str(blocks_race.table(found_by_ranks(), dask))
    assert "of unlimited 1.15, aim at most 1.5: met" in said
    assert "times as fast as one at a time 1.50, aim 1.4: met" in said
    assert "times as fast as Dask 2.0, aim 3.0: MISSED" in said
    assert "compute / I-O 2.1 (condition 2: met)" in said
    assert "Dask was not there" in str(blocks_race.table(found_by_ranks(), None))


@one_worker
@pytest.mark.slow("an MPI job that captures programs")
@pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")
def test_blocks_are_measured_on_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = tmp_path / "found.json"
    words = ["--ranks", "2", "--layers", "3", "--width", "256", "--tokens", "8", "--repeat", "1"]
    more = ["--share", "0.5", "--folder", str(tmp_path), "--dask", "", "--json", str(stored)]
    with alone():
        assert main(["larger", "blocks", *words, *more]) == 0
    (table,) = json.loads(stored.read_text())["reports"][0]["tables"]
    ways = [row["way"] for row in table["rows"]]
    assert ways == ["unlimited", "as chosen", "event-driven", "fixed order", "one at a time"]
    assert "proved for every order" in capsys.readouterr().out


def test_stacks_on_a_gpu_give_one_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # type: ignore[arg-type]
    with pretended_cupy.gone_afterwards():
        eager_cupy.install()
        stacks = {"chain": [40, 32, 16], "blocks": [5, 32, 16]}
        found = gpu_race.measure(stacks, repeat=1, device="cuda")
    (table,) = gpu_race.table(json.loads(json.dumps(found)))
    assert not table.is_wrong
    ways = ["all there", "limited", "one at a time", "two buffers"]
    want = [(name, way) for name in ("GEMM chain", "transformer blocks") for way in ways]
    assert [row[1:3] for row in table.rows] == want
    assert table.columns[6] == "limited / way"


BY_NUMPY = """
from tests.fakes import numpy_cupy
numpy_cupy.install()
from bench.larger import gpu_program
gpu_program.wait_for_gpu = lambda: None
(table,) = gpu_program.table(gpu_program.measure([6, 8, 256, 512], repeat=1))
assert not table.is_wrong
print(table)
"""


def test_a_program_on_a_gpu_is_measured_by_every_way() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BY_NUMPY], cwd=ROOT, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr[-2000:]
    for way in ("all there", *gpu_program.POLICIES, gpu_program.FEW, gpu_program.BEFORE):
        assert done.stdout.count(f"  {way}  ") == 2
    assert "waiting for memory" in done.stdout and "proved for every order" in done.stdout


def test_larger_takes_no_result_on_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LayerChain, "straight", lambda *args: np.zeros(1))
    with pytest.raises(WrongPlanError, match="other bits"):
        race.run(layers=3, side=64, rows=8, repeats=1, folder=str(tmp_path))
