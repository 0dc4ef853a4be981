"""The kernels on a real GPU: every byte, and under NVIDIA's sanitizer where it is installed."""

from __future__ import annotations

import glob
import shutil
import subprocess
import sys

import pytest

from tests.programs.gpu.jobs import needs_gpu
from tests.programs.launch import ROOT
from tests.tiers import sample

pytestmark = needs_gpu


def sanitizer() -> str | None:
    """Where the tool is."""
    found = shutil.which("compute-sanitizer")
    return found or next(iter(sorted(glob.glob("/usr/local/cuda*/bin/compute-sanitizer"))), None)


def test_random_lists() -> None:
    n = sample(50, of=200)
    command = [sys.executable, "-m", "tests.programs.gpu.kernels", "--n", str(n)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{n} of {n}" in done.stdout


def test_random_datatypes() -> None:
    n = sample(40, of=1000)
    command = [sys.executable, "-m", "tests.programs.gpu.packs", "--n", str(n)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{n} of {n} datatypes" in done.stdout


def test_far_offsets() -> None:
    command = [sys.executable, "-m", "tests.programs.gpu.far"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    if done.stdout.startswith("SKIPPED: "):
        pytest.skip(done.stdout.removeprefix("SKIPPED: ").strip())
    assert done.stdout.count(": right") == 17, done.stdout


@pytest.mark.skipif(sanitizer() is None, reason="needs compute-sanitizer")
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck"])
def test_sanitizer_finds_nothing(tool: str) -> None:
    program = [
        sys.executable,
        "-m",
        "tests.programs.gpu.kernels",
        "--n",
        "12",
        "--most",
        "10000",
        "--alone",
    ]
    command = [sanitizer() or "", "--tool", tool, "--error-exitcode", "3", *program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "12 of 12" in done.stdout
