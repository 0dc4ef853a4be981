"""Plans and DTensors on ranks of PyTorch: random ones against the simulator, and what users rely on."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.programs.launch import default_mpi
from tests.programs.launch import run as run_mpi
from tests.programs.torch import spawn
from tests.programs.torch.launch import must_pass, needs_cuda, needs_torch, one_worker, run
from tests.tiers import sample

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [needs_torch, one_worker]
GIVES_BACK = {"MIMALLOC_PURGE_DELAY": "0"}
"""PyTorch's allocator gives memory back at once, so that peaks show."""


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_random_plans_agree_with_the_simulator(ranks: int) -> None:
    n = sample(18, of=90)
    said = must_pass("fuzz", ranks, "--n", str(n), "--seed", str(ranks), limit_s=400)
    assert f"{n} of {n} plans agree" in said


@needs_cuda
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_random_plans_agree_with_the_simulator_on_a_gpu(ranks: int) -> None:
    n = sample(18, of=90)
    words = ("--n", str(n), "--seed", str(ranks), "--device", "cuda")
    assert f"{n} of {n} plans agree" in must_pass("fuzz", ranks, *words, limit_s=400)


@needs_cuda
@pytest.mark.parametrize("ranks", [2, 4])
def test_random_plans_agree_with_the_simulator_over_nccl(ranks: int) -> None:
    """NCCL itself: ranks that share a GPU join it as if each had a host of its own."""
    n = sample(18, of=200)
    words = ("--n", str(n), "--seed", str(ranks), "--device", "cuda")
    said = must_pass("fuzz", ranks, *words, limit_s=400, variables={"REDIST_TEST_BACKEND": "nccl"})
    assert f"{n} of {n} plans agree" in said


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_random_dtensors_agree_with_pytorch(ranks: int) -> None:
    n = sample(18, of=90)
    said = must_pass("dtensors", ranks, "--n", str(n), "--seed", str(ranks), limit_s=400)
    assert f"{n} of {n} DTensors agree" in said


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_what_users_rely_on(ranks: int) -> None:
    said = must_pass("checks", ranks, variables=GIVES_BACK)
    assert said.count("well ") == 9 and "WRONG" not in said, said


def test_what_ranks_agree_on() -> None:
    said = must_pass("agreement", 4, limit_s=200)
    assert said.count("well ") == 9 and "WRONG" not in said, said


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_plans_as_texts_do_what_the_plans_do(ranks: int) -> None:
    words = [
        "-m",
        "tests.programs.torch.texts",
        "--ranks",
        str(ranks),
        "--n",
        str(sample(12, of=100)),
    ]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0 and " 0 wrong" in done.stdout, done.stdout + done.stderr[-2000:]


def test_a_death_is_an_error_on_the_others() -> None:
    done = run("checks", 3, "death")
    assert done.statuses == (-9, 0, 0), f"{done.statuses}\n{done.output}"
    assert done.output.count("was told") == 2, done.output


def test_a_long_wait_is_told() -> None:
    said = must_pass("checks", 3, "late")
    waits = r"waited \d+ s in redist\.torch\.redistribute\(\) \(checks\.py:\d+\) for"
    assert re.search(f"rank [02] has {waits} other ranks; every rank must make this call", said), (
        said
    )
    assert re.search(f"{waits} ranks? 1", said), said


def test_a_rank_that_ends_before_the_first_move() -> None:
    done = run("checks", 3, "ends_early")
    assert done.statuses == (3, 0, 0), f"{done.statuses}\n{done.output}"
    assert not re.search("was told.*gloo", done.output), (
        "gloo's own words come after the first line"
    )
    assert done.output.count("closed its connection, ") == 2 and "300" not in done.output, (
        done.output
    )


def test_the_cause_is_passed_on() -> None:
    said = must_pass("checks", 3, "gives_up")
    cause = "rank 1 failed: MemoryError: no room for a tile"
    assert said.count(cause) == 2, said


def test_the_example_hands_weights_over() -> None:
    words = ["examples/weight_refit.py", "--layers", "3", "--width", "48"]
    done = spawn.run(words, 4, 100, {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())})
    assert set(done.statuses) == {0}, done.output
    assert done.output.count("weight refit: 16 weights") == 2, done.output


def test_the_example_of_loops_serves_what_was_trained() -> None:
    words = ["examples/refit_loops.py", "--steps", "3", "--width", "64"]
    done = spawn.run(words, 4, 100, {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())})
    assert set(done.statuses) == {0}, done.output
    for loop in ("colocated", "apart", "behind"):
        assert f"{loop}: 3 refits" in done.output, done.output
    assert done.output.count("proved: right") == 3, done.output


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return int(found.getsockname()[1])


@pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")
@pytest.mark.parametrize(
    "ranks", [1, 2, pytest.param(4, marks=pytest.mark.slow("4 ranks of PyTorch"))]
)
def test_global_arrays_share_memory_with_dtensors(ranks: int) -> None:
    done = run_mpi("tests.programs.torch.global_arrays", ranks, variables={"OMP_NUM_THREADS": "1"})
    assert done.status == 0 and "WRONG" not in done.output, done.output


@needs_cuda
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_global_arrays_share_memory_with_dtensors_on_gpus(ranks: int) -> None:
    done = run_mpi("tests.programs.torch.global_arrays", ranks, "gpu")
    assert done.status == 0 and "WRONG" not in done.output, done.output


def test_pytorch_needs_no_mpi() -> None:
    program = "import sys, redist.torch; sys.exit('mpi4py' in sys.modules or 'z3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


def test_redist_alone_imports_no_framework() -> None:
    program = "import sys, redist; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0
    assert find_spec("torch") is not None
