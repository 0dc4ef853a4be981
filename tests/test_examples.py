"""Every example runs, checks its own result and says so."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from redist.launch.launcher import environment, find_launcher
from tests.programs.checks import Job, Run, items, must_hold
from tests.programs.launch import alone, default_mpi, one_worker

ROOT = Path(__file__).resolve().parents[1]
SMALL = {
    "fft3d": (["--n", "12"], "fft3d: 12^3"),
    "heat": (["--n", "37", "--steps", "9"], "heat: 37 x 37"),
    "least_squares": (["--rows", "1501", "--columns", "5"], "least squares: f64[1501{x}, 5]"),
    "kmeans": (["--points", "4001"], "k-means: f64[4001{x}, 8]"),
    "power_iteration": (["--n", "601"], "power iteration: matrix of 2.8 MiB"),
    "hand_over": (["--width", "24", "--layers", "2"], "hand over: 6 arrays"),
    "transformer": (["--layers", "2", "--tokens", "9", "--width", "24"], "transformer: f32[4"),
    "streamed_layers": (
        ["--layers", "2", "--tokens", "6", "--width", "192"],
        "streamed layers: proved for every order",
    ),
    "train_mlp": (
        ["--samples", "50", "--width", "10", "--steps", "2"],
        "train an MLP: f64[50{x}, 16]",
    ),
    "conjugate_gradients": (["--n", "101"], "conjugate gradients: f64[101{x}, 101]"),
    "page_rank": (
        ["--n", "301", "--steps", "4"],
        "page rank: 301 pages, 4 steps, inspected 0 times",
    ),
    "fft_filter": (["--n", "10"], "fft filter: c128[10{x}, 10, 10]"),
    "decoder": (
        ["--layers", "1", "--width", "64", "--tokens", "16", "--share", "0.5"],
        "decoder, adapters: within 50%",
    ),
}
ON_PYTORCH = ("refit_loops", "weight_refit")
"""Those that need PyTorch and no MPI; tests/torch runs them."""
WITH_SCIKIT_LEARN = ("cluster_shapes",)
"""Those that need scikit-learn; tests/learn runs them."""
OF_CHECKPOINTS = ("train_gpt",)
"""Those that are killed and resumed; tests/store runs them."""
LINES = {"refit_loops": 180, "train_gpt": 320, "decoder": 330}
"""Most have fewer than 130 lines; one is three loops, one has the gradients of its network in it, and one is
a model whose parts a benchmark and tests use, too."""
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
pytestmark = [one_worker, pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")]


def run(ranks: int, program: list[str]) -> str:
    env = {**environment(), **dict.fromkeys(ONE_THREAD, "1")}
    with alone():
        done = subprocess.run(
            find_launcher().command(ranks, program),
            cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_every_example_is_tested() -> None:
    names = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"__init__"}
    assert names == {*SMALL, *ON_PYTORCH, *WITH_SCIKIT_LEARN, *OF_CHECKPOINTS}
    for path in (ROOT / "examples").glob("*.py"):
        assert len(path.read_text().splitlines()) < LINES.get(path.stem, 130), path.name


ON_TWO = Job(
    2,
    tuple(
        Run("scripts", (f"examples/{name}.py", said, *options))
        for name, (options, said) in SMALL.items()
    ),
    ONE_THREAD,
)


@pytest.mark.parametrize(("job", "run", "check"), [*items([ON_TWO])])
def test_examples_run_one_after_another(job: Job, run: Run, check: str) -> None:
    must_hold(job, run, check)


@pytest.mark.slow("every example in a job of its own, on 3 and 4 ranks too")
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", SMALL)
def test_example_checks_its_result(name: str, ranks: int) -> None:
    options, said = SMALL[name]
    output = run(ranks, [os.path.join("examples", f"{name}.py"), *options])
    assert said in output
