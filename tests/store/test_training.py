"""A training that is killed at any moment goes on under another split with the losses of one that is not."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from redist.launch.launcher import environment, find_launcher
from tests.programs.launch import default_mpi, one_worker

ROOT = Path(__file__).parents[2]
Split = tuple[int, int, int, int]
"""Ranks, dp, tp, stages."""


def command(folder: Path, split: Split, steps: int, every: int) -> list[str]:
    ranks, dp, tp, stages = split
    words = [sys.executable, str(ROOT / "examples/train_gpt.py"), str(folder), "--keep", "2"]
    options = {"dp": dp, "tp": tp, "stages": stages, "steps": steps, "every": every}
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    return find_launcher().command(ranks, words[1:])


def losses(said: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+) loss (\S+)", said)}


def train(folder: Path, split: Split, steps: int, every: int) -> str:
    done = subprocess.run(
        command(folder, split, steps, every),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@one_worker
@pytest.mark.slow("a training on 4 ranks")
@pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")
def test_a_training_resumes_under_any_split(tmp_path: Path) -> None:
    first = train(tmp_path / "run", (4, 2, 1, 2), 6, 3)
    want = losses(first)
    (tmp_path / "run" / "step-0000000006.safetensors").unlink()
    for split in ((1, 1, 1, 1), (3, 1, 2, 2), (4, 2, 1, 2)):
        said = train(tmp_path / "run", split, 6, 100)
        assert said.startswith(f"from step 3 on {split[0]} ranks")
        found = losses(said)
        assert sorted(found) == [4, 5, 6]
        for step, loss in found.items():
            same = loss == want[step] if split == (4, 2, 1, 2) else abs(loss - want[step]) < 1e-6
            assert same, (split, step, loss, want[step])


@one_worker
@pytest.mark.slow("trainings that are killed again and again")
@pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")
def test_a_training_survives_kills(tmp_path: Path) -> None:
    steps, rng, kills = 40, random.Random(7), 0
    began = time.monotonic()
    want = losses(train(tmp_path / "straight", (1, 1, 1, 1), steps, 100))
    took_s = time.monotonic() - began
    splits = [(1, 1, 1, 1), (2, 1, 2, 1), (2, 2, 1, 1)]
    for turn in range(60):
        words = command(tmp_path / "run", splits[turn % 3], steps, 1)
        started = subprocess.Popen(
            words, env=environment(), stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            # The first is killed before it can be done; others run longer and longer.
            said, _ = started.communicate(timeout=took_s * rng.uniform(0.4, 0.6 + 0.2 * turn))
        except subprocess.TimeoutExpired:
            kill_all(started.pid)
            said, _ = started.communicate()
            kills += 1
        for step, loss in losses(said).items():
            assert abs(loss - want[step]) < 1e-6
        if steps in losses(said):
            break
    assert steps in losses(said)
    assert kills > 0


def kill_all(group: int) -> None:
    """Kill mpirun, its helpers and all ranks, none of which can say good-bye."""
    listed = subprocess.run(["ps", "-eo", "pid,sess,pgid"], capture_output=True, text=True)
    for line in listed.stdout.splitlines()[1:]:
        pid, session, _ = map(int, line.split())
        if session == group:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)
