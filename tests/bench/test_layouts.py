"""Workloads equal NumPy in every way that redist runs them, and the reports say what was found."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from bench.layouts import race, rivals
from bench.layouts.cases import KERNELS, workloads
from bench.layouts.large import GPU_NODES, hand_plans, hand_time_ps
from bench.layouts.race import EAGER, PLANNED, WAYS, WRITTEN
from bench.problems.judge import WrongPlanError
from redist.arrange.layouts import plan_layouts
from redist.launch.launcher import environment, find_launcher
from redist.layout.axes import whole
from redist.layout.mesh import Mesh
from redist.plan.rates import GPU
from tests.problems.layer_graph import layers
from tests.programs.launch import alone, default_mpi, one_worker

ROOT = Path(__file__).resolve().parents[2]


@one_worker
@pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")
@pytest.mark.parametrize(
    ("ranks", "ways"),
    [
        pytest.param(1, (EAGER, WRITTEN), marks=pytest.mark.slow("runs every workload twice")),
        pytest.param(3, WAYS, marks=pytest.mark.slow("plans layouts of every workload")),
    ],
)
def test_every_workload_equals_numpy(ranks: int, ways: Sequence[str], tmp_path: Path) -> None:
    stored = tmp_path / "layouts.json"
    options = json.dumps({"repeat": 0, "tiny": True, "ways": ways})
    words = ["-m", "bench.report.job", "bench.layouts.race", options, str(stored)]
    env = {**environment(), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with alone():
        done = subprocess.run(
            find_launcher().command(ranks, words),
            cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout
    rows = json.loads(stored.read_text(encoding="utf-8"))["rows"]
    assert [row["name"] for row in rows] == [workload.name for workload in workloads()]
    for row in rows:
        found = row["ways"]
        assert {*ways} == set(found)
        assert not any(way["wrong"] for way in found.values()), row
        assert (found[WRITTEN]["moves"] > 0) == (ranks > 1)
        if EAGER in ways:
            assert found[WRITTEN]["total_bytes"] <= found[EAGER]["total_bytes"]


def test_workloads_are_the_same_at_all_sizes() -> None:
    full, tiny = workloads(), workloads(tiny=True)
    assert [one.name for one in full] == [one.name for one in tiny]
    assert len({one.name for one in full}) == len(full) and set(KERNELS) <= {
        one.name for one in full
    }
    for one in tiny:
        values = one.make()
        assert len(values) == len(one.cuts), one.name
        assert all(cut is None or cut < v.ndim for v, cut in zip(values, one.cuts, strict=True))


def way(received: int, ms: float, moves: int = 2, wrong: bool = False) -> dict[str, Any]:
    """What the job writes about one way."""
    times = (0.9e-3 * ms, 1e-3 * ms, 1.1e-3 * ms)
    return {
        "total_bytes": received, "busiest_bytes": received // 2, "moves": moves,
        "again_bytes": received, "pending_bytes": 0, "again_moves": moves,
        "error": 0.0, "wrong": wrong, "seconds": times,
    }  # fmt: skip


def written(**ways: Any) -> dict[str, Any]:
    row = {"name": "block, small", "what": "a size", "ways": ways}
    return {"ranks": 4, "mpi": "MPICH 5.0.2", "repeat": 3, "rows": [row]}


@pytest.mark.parametrize(("planned", "said"), [(way(100, 4.0), "met"), (way(900, 7.0), "MISSED")])
def test_gains_and_losses_are_said_alike(planned: dict[str, Any], said: str) -> None:
    ways = {EAGER: way(1000, 10.0), WRITTEN: way(800, 8.0), PLANNED: planned}
    received, times = race.tables(written(**ways))
    row, taken = (dict(zip(t.columns, t.rows[0], strict=True)) for t in (received, times))
    assert row["planned / eager"] == row["again / eager"] == planned["total_bytes"] / 1000
    assert row["reached"] == taken["reached"] == said
    assert row["moves"] == "2 / 2 / 2 / 2"


def test_no_wrong_result_is_reported() -> None:
    with pytest.raises(WrongPlanError, match="cannot compare block, small, eager"):
        race.tables(written(**{EAGER: way(10, 1.0, wrong=True), WRITTEN: way(10, 1.0)}))


def test_rivals_say_what_they_cannot() -> None:
    row: dict[str, Any] = {"workload": "1MM", "received_bytes": None, "transfers": None}
    row["library"] = "Heat 1.8.0"
    other: dict[str, Any] = {
        "workload": "1MM",
        "library": "JAX 0.10.2",
        "received_bytes": 2048,
        "transfers": 1,
    }
    rows: list[dict[str, Any]] = [
        {**row, "seconds": None, "cannot": "it has no Einstein sums"},
        {**other, "seconds": (0.001, 0.002, 0.003), "cannot": None},
    ]
    (table,) = rivals.table(rows)
    assert table.rows[0][1:4] == ("Heat", "Heat 1.8.0", None)
    assert table.rows[0][-1] == "it has no Einstein sums"
    assert table.rows[1][3:6] == (2.0, 1, 2.0)


def test_rivals_are_skipped_in_one_line_if_none_is_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["rivals"]) == 0
    assert (
        capsys.readouterr().err
        == "rivals: skipped, jax or torch or heat or dask is not installed\n"
    )


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")
def test_jax_runs_a_workload() -> None:
    (row,) = rivals.rows_of("jax", repeat=0, only="chain, square")
    assert "cannot" not in row and row["received_bytes"] > 0


@pytest.mark.slow("plans ten ways by hand across nodes")
@pytest.mark.parametrize("batch", [1, 16])
def test_plans_by_hand_are_not_better(batch: int) -> None:
    mesh = Mesh(x=2, y=8)
    parts = [whole(mesh, name) for name in "xy"]
    graph = layers(1, batch, 512, 1024, 16, 4096)
    plan = plan_layouts(graph, mesh, parts, GPU_NODES, GPU)
    found = {
        name: hand_time_ps(graph, mesh, parts, cuts, GPU_NODES, GPU)
        for name, cuts in hand_plans(parts).items()
    }
    assert {name for name, time in found.items() if time is None} == (
        {"batch", "batch x heads of 8", "batch x sequence of 8"} if batch == 1 else set()
    )
    times = [time for time in found.values() if time is not None]
    assert plan.time_ps <= min(times) < max(times)
    assert batch == 1 or plan.time_ps == found["batch"]
