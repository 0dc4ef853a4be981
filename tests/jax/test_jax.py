"""jax.Arrays moved by plans, against the values themselves; gradients; errors; bytes and memory.

Needs JAX; a process of its own has 8 CPU devices.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from redist.launch.launcher import environment, find_launcher
from tests.docs.documents import Document
from tests.docs.test_docs import without_times
from tests.programs.launch import alone, one_worker
from tests.tiers import sample

ROOT = Path(__file__).parents[2]
CHECKS = (
    "values",
    "inside_jit",
    "gradients",
    "bytes",
    "memory",
    "held_when_donated",
    "donated",
    "limits",
    "limit_texts",
    "errors",
    "meshes",
    "trees",
    "scalars",
    "tree_limits",
    "uneven",
    "inputs",
    "compared",
)
USES = (
    "explicit",
    "contexts",
    "small_dtypes",
    "empty",
    "keys",
    "gradients",
    "plans_as_functions",
    "gone",
    "memory_kinds",
    "refusals",
    "wrong_leaves",
    "shared_programs",
    "wrong_arguments",
)

pytestmark = pytest.mark.skipif(
    find_spec("jax") is None, reason="needs jax: make frameworks has an environment with it"
)


@pytest.mark.parametrize("check", CHECKS)
def test_jax(check: str) -> None:
    count = str(sample(24, of=300))
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.programs.jax.moves", check, "--n", count],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


@pytest.mark.parametrize("check", USES)
def test_what_users_do(check: str) -> None:
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "tests.programs.jax.users", check]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


@pytest.mark.parametrize("number", [0, 1], ids=["serve", "state"])
def test_the_page_shows_what_happens(number: int, tmp_path: Path) -> None:
    page = Document(ROOT / "docs" / "how-to" / "jax.md")
    program = page.programs[number]
    (tmp_path / program.name).write_text(program.text, encoding="utf-8")
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, program.name]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    shown = page.blocks("text")[0] if number == 0 else ""
    assert without_times(done.stdout) == without_times(shown)


def test_jax_needs_no_mpi() -> None:
    program = "import sys, redist.jax; sys.exit('mpi4py' in sys.modules or 'z3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


def test_arrays_are_saved_and_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.programs.jax.saved"],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=150,
    )  # fmt: skip
    assert done.stdout.endswith("saved and loaded\n"), done.stderr


@one_worker
@pytest.mark.parametrize("n_ranks", [1, 2])
def test_memory_is_shared_with_global_arrays(n_ranks: int) -> None:
    command = find_launcher().command(n_ranks, ["-m", "tests.programs.jax.shared"])
    with alone():
        done = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=200
        )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


N_FUNCTIONS = sample(5, of=500)


@pytest.fixture(scope="module")
def told_by_jax(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gradients and losses, found once for all numbers of ranks."""
    file = tmp_path_factory.mktemp("jax") / "told.npz"
    command = [
        sys.executable,
        "-m",
        "tests.programs.jax.gradients",
        str(file),
        "--n",
        f"{N_FUNCTIONS}",
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=3600
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return file


@one_worker
@pytest.mark.parametrize("n_ranks", [1, 2])
def test_a_decoder_within_a_limit_is_that_of_jax(n_ranks: int) -> None:
    with alone():
        done = subprocess.run(
            find_launcher().command(n_ranks, ["-m", "tests.programs.jax.decoder"]),
            cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=600,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


@one_worker
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
def test_gradients_and_losses_are_those_of_jax(n_ranks: int, told_by_jax: Path) -> None:
    limit_s = 120 + 20 * N_FUNCTIONS
    for program, n in (("gradients", N_FUNCTIONS), ("training", 0)):
        args = ["-m", f"tests.programs.pgas.{program}", "--n", str(n), "--seed", str(n_ranks)]
        with alone():
            done = subprocess.run(
                find_launcher().command(n_ranks, [*args, "--beside", str(told_by_jax)]), cwd=ROOT,
                env={**environment(), "REDIST_TEST_LIMIT_S": str(limit_s)},
                capture_output=True, text=True, timeout=limit_s,
            )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
