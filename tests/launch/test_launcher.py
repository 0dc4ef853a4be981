"""The launcher, with mpiruns that are scripts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from redist.cli.command import UsageError
from redist.cli.request import read_ranks
from redist.errors import LaunchError
from redist.launch import launcher as launch
from redist.launch.launcher import MPICH, OPEN_MPI, Launcher, environment, find_launcher

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = {
    MPICH: "HYDRA build details:\n    Version:    5.0.2",
    OPEN_MPI: "mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org",
}


def fake(folder: Path, says: str, does: str = 'shift 2; exec "$@"', name: str = "mpirun") -> Path:
    """An mpirun that says what it is, and starts one process."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then\ncat <<"EOF"\n{says}\nEOF\nexit 0\nfi\n{does}\n',
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("kind", [MPICH, OPEN_MPI])
def test_it_recognises_whose_mpirun_it_is(tmp_path: Path, kind: str) -> None:
    path = fake(tmp_path, VERSIONS[kind])
    assert find_launcher(str(path)) == Launcher(str(path), kind)


def test_open_mpi_is_told_that_more_ranks_than_cores_are_fine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def command(kind: str, user: int) -> list[str]:
        monkeypatch.setattr(os, "geteuid", lambda: user)
        return Launcher("mpirun", kind).command(8, ["-m", "mine"])

    end = [sys.executable, "-m", "mine"]
    assert command(MPICH, 0) == ["mpirun", "-n", "8", *end]
    assert command(OPEN_MPI, 1000) == ["mpirun", "-n", "8", "--oversubscribe", *end]
    assert command(OPEN_MPI, 0)[3:5] == ["--oversubscribe", "--allow-run-as-root"]


def test_the_mpirun_beside_python_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, other = tmp_path / "venv", tmp_path / "path"
    mine = fake(beside, VERSIONS[MPICH])
    theirs = fake(other, VERSIONS[OPEN_MPI])
    monkeypatch.setenv("PATH", f"{other}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    assert find_launcher() == Launcher(str(mine), MPICH)
    mine.unlink()
    assert find_launcher() == Launcher(str(theirs), OPEN_MPI)
    fake(beside, VERSIONS[MPICH], name="mpiexec")
    assert find_launcher().path == str(beside / "mpiexec")


def test_without_any_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(LaunchError, match="pip install mpich"):
        find_launcher()


def test_what_is_no_mpirun_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"--mpi: cannot run .*nowhere"):
        find_launcher(str(tmp_path / "nowhere"))
    path = fake(tmp_path, "srun 23.11")
    with pytest.raises(
        LaunchError, match=r"neither MPICH's nor Open MPI's \(it says 'srun 23.11'\)"
    ):
        find_launcher(str(path))


@pytest.mark.parametrize("status", [0, 1, 2, 7])
def test_exit_status_is_handed_on(tmp_path: Path, status: int) -> None:
    launcher = find_launcher(str(fake(tmp_path, VERSIONS[MPICH])))
    assert launch.launch(launcher, 2, ["-c", f"raise SystemExit({status})"]) == status


def test_death_by_a_signal_is_a_status_too(tmp_path: Path) -> None:
    launcher = find_launcher(str(fake(tmp_path, VERSIONS[MPICH])))
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert launch.launch(launcher, 2, ["-c", code]) == 128 + 9


def test_ranks_find_this_redist_and_belong_to_no_other_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PMI_RANK", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("OMPI_MCA_btl", "self,sm")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    env = environment()
    assert not {"PMI_RANK", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK"} & set(env)
    assert env["OMPI_MCA_btl"] == "self,sm"
    assert env["PYTHONPATH"] == f"{ROOT}{os.pathsep}elsewhere"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_job(tmp_path: Path, number: signal.Signals) -> None:
    """A job that would last for minutes ends with the command that started it."""
    started = tmp_path / "started"
    mpirun = fake(
        tmp_path,
        VERSIONS[MPICH],
        f"trap 'kill $!; echo ended > {tmp_path}/ended; exit 3' INT TERM\n"
        f"sleep 300 &\necho > {started}\nwait\n",
    )
    code = (
        "import sys; from redist.launch.launcher import *; "
        f"sys.exit(launch(find_launcher({str(mpirun)!r}), 2, []))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment(),
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a shell's job may ignore it
    )
    deadline = time.monotonic() + 60
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    process.wait(60)
    assert (tmp_path / "ended").exists()
    if number == signal.SIGTERM:
        assert process.returncode == 3


@pytest.mark.parametrize("text", ["0", "-1", "two", "", "1.5", "99999"])
def test_ranks_are_a_number(text: str) -> None:
    assert read_ranks("8") == 8
    with pytest.raises(UsageError, match="-n: cannot use"):
        read_ranks(text)
