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
from bench.larger import blocks_race, decoder_race, order_race, race
from bench.larger.race import LayerChain
from bench.problems.judge import WrongPlanError
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


@pytest.mark.slow("what each benchmark measures is looked at by make test-all")
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


PRETENDED = """
import json, sys
from types import SimpleNamespace
from tests.fakes import numpy_cupy
numpy_cupy.install()
import cupy
import numpy as np
sys.modules["torch"] = None
from bench.larger import decoder_race
from examples import decoder
from redist.pgas.elementwise import on_device
from redist.pgas.programs.passes import casts, fuse

class Draw:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
    def standard_normal(self, shape, dtype):
        return numpy_cupy.ndarray(self.rng.standard_normal(shape, dtype=dtype))

cupy.random = SimpleNamespace(default_rng=Draw)
cupy.ones = lambda shape, dtype: numpy_cupy.ndarray(np.ones(shape, dtype))
cupy.uint8 = np.uint8
decoder_race.wait_for_gpu = decoder_race.free = lambda: None
decoder_race.libraries = lambda: "a pretended GPU"
for module in (on_device, casts, fuse):  # one after another: kernels are looked at elsewhere
    module.run_steps = lambda *args: None
fuse.run_rows = lambda *args: None
decoder.by_torch = lambda q, k, v, learns=False: decoder.attention(q, k, v, rows=16)
found = decoder_race.measure(
    ["link", "lora"], [1, 64, 160, 4, 2, 64], [2, 24], 1, ["torch", "plain", "accelerate"], [(0.25, 1)]
)
print(json.dumps(found))
"""


@pytest.mark.slow("the decoder itself is looked at in make test")
def test_a_decoder_is_measured_by_every_way() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRETENDED], cwd=ROOT, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    (table,) = decoder_race.table(found)
    assert not table.is_wrong
    link, lora = (
        f"{name} tokens" for name in ("first token, few tokens, 1 x 24", "LoRA step, 2 x 24")
    )
    ways = (
        "all there",
        decoder_race.PLAIN,
        "PyTorch, all there",
        "accelerate, pinned",
        "within 25%",
    )
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    want = [*((link, way) for way in ways), (lora, "all there"), (lora, "within 25%")]
    assert [(row["task"], row["way"]) for row in rows] == want
    assert [row["reached"] for row in rows[2:4]] == ["failed"] * 2  # they are not there
    assert rows[4]["aim"] == 1.15 and rows[4]["of the link"] is not None
    notes = "\n".join(table.notes)
    assert "ModuleNotFoundError" in notes and "proved for every order" in notes
    found["rows"][-1]["error"] = 1.0
    (wrong,) = decoder_race.table(found)
    assert wrong.is_wrong


def test_aims_of_a_decoder_are_said() -> None:
    row = {"label": "a", "what": decoder_race.FIRST, "error": 0.0}
    rows = [
        {**row, "way": decoder_race.ALONE, "times": [1.0], "of_alone": []},
        {**row, "way": decoder_race.TORCH, "times": [0.7], "of_alone": [0.7]},
        {**row, "way": decoder_race.ACCELERATE, "times": [2.0], "of_alone": [2.0]},
        {**row, "way": "within 25%", "times": [1.05], "of_alone": [1.05], "share": 0.25, "waited": 0.01},
        {**row, "way": "within 25% again", "times": [1.05], "of_alone": [1.05], "share": 0.25, "waited": 0.2},
        {**row, "way": "within 10%", "times": [1.4], "of_alone": [1.4], "share": 0.10, "waited": 0.2},
    ]  # fmt: skip
    found = {"rows": rows, "sizes": [1] * 6, "libraries": "none", "link": 1e9}
    (table,) = decoder_race.table(found)
    reached = table.columns.index("reached")
    assert [line[reached] for line in table.rows] == [
        None,
        "MISSED",
        None,
        "met",
        "MISSED",
        "MISSED",
    ]


def test_larger_takes_no_result_on_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LayerChain, "straight", lambda *args: np.zeros(1))
    with pytest.raises(WrongPlanError, match="other bits"):
        race.run(layers=3, side=64, rows=8, repeats=1, folder=str(tmp_path))
