"""The example of clustering runs, checks its result and draws its picture."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from redist.launch.launcher import environment, find_launcher
from tests.programs.launch import alone, default_mpi, one_worker

ROOT = Path(__file__).resolve().parents[2]
if find_spec("sklearn") is None:
    pytest.skip(
        "needs scikit-learn: make learn has an environment with it", allow_module_level=True
    )


@one_worker
@pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")
def test_shapes_are_found_and_drawn(tmp_path: Path) -> None:
    words = ["examples/cluster_shapes.py", "--svg", str(tmp_path / "clusters.svg")]
    env = {**environment(), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with alone():
        done = subprocess.run(
            find_launcher().command(4, words),
            cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "on 6 sets of 300 rows" in done.stdout
    drawn = (tmp_path / "clusters.svg").read_text(encoding="utf-8")
    assert "KMeans" in drawn and drawn.count("<path") > 100
