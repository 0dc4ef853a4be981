"""``redist doctor``: what was found, and why something was not."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from mpi4py import MPI

from redist.cli.commands.doctor import MODULE
from redist.doctor.__main__ import main
from redist.doctor.among_ranks import likely
from redist.doctor.process import Fact, facts, gpu_facts
from redist.launch.launcher import MPICH, OPEN_MPI, environment
from redist.runtime.copies.kernels import PACKAGE
from redist.version import __version__
from tests.cli.conftest import Run
from tests.launch.test_launcher import VERSIONS, fake
from tests.programs.launch import alone, default_mpi, one_worker

NAMES = (
    *("redist", "Python", "MPI", "launcher", "MPI threads"),
    *("compiled kernels", "clustering kernels", "shared memory", "process reads"),
)


def as_job(
    n: int, *args: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command as a user gives it."""
    argv = [sys.executable, "-m", "redist.cli", "doctor", *(("-n", str(n)) if n else ()), *args]
    with alone() if n > 1 else nullcontext():
        return subprocess.run(
            argv, env={**environment(), **(env or {})}, capture_output=True, text=True, timeout=200
        )


def test_one_process_says_what_it_finds() -> None:
    done = as_job(0)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    for name in NAMES:
        assert any(line.startswith(f"{name} ") for line in lines), name
    assert any(line.startswith("CuPy ") for line in lines)
    assert any(line.startswith("of different nodes   messages of MPI") for line in lines)


@one_worker
@pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")
def test_ranks_say_how_each_pair_is_joined() -> None:
    done = as_job(3, "--node-size", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("compiled kernels") == 1  # said once, not by every rank
    assert done.stdout.count("process reads  ") == 1  # what ranks found out, no guess beside it
    (near,) = (line for line in done.stdout.splitlines() if line.startswith("0-1 "))
    (far,) = (line for line in done.stdout.splitlines() if line.startswith("0-2 1-2 "))
    assert "shared memory" in near and "messages of MPI" in far


def test_kernels_that_are_switched_off_are_said_to_be() -> None:
    done = as_job(0, env={"REDIST_PURE": "1"})
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("compiled kernels"))
    assert line.split()[2] == "no" and "REDIST_PURE" in line


def test_it_names_the_redist_and_the_mpi_library_it_looked_at() -> None:
    found = {fact.name: fact for fact in facts()}
    assert found["redist"].found == __version__
    assert found["redist"].why.startswith(f"checkout {PACKAGE.parent}")
    assert Path(found["MPI"].why.split(", ")[1]).is_file()


def test_ranks_that_do_not_know_of_each_other_are_noticed() -> None:
    """As started by the mpirun of another MPI: each process is rank 0 of 1."""
    started = [sys.executable, "-m", MODULE]
    for rank, lines in (("0", 1), ("1", 0)):
        env = {**environment(), "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": "2"}
        done = subprocess.run(started, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert done.stdout.count("started 2 processes, but each of them is rank 0 of 1") == lines
        assert not done.stdout or "; use " in done.stdout


def test_an_mpirun_of_another_mpi_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    vendor, _ = MPI.get_vendor()
    kind = MPICH if vendor == OPEN_MPI else OPEN_MPI
    assert main(["--launcher", f"{kind}: their/mpirun"]) == 0
    (line,) = (x for x in capsys.readouterr().out.splitlines() if x.startswith("launcher"))
    assert line.split()[1] == "no" and f"their/mpirun is {kind}'s" in line
    assert f"mpi4py uses {vendor}" in line


def test_no_cupy_is_said_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert [fact.name for fact in gpu_facts()] == ["CuPy"]
    found = list(facts())
    assert found[-1].name == "CuPy" and likely(found)[0][2] == "-"


def test_a_cupy_without_a_gpu_says_why(tmp_path: Path) -> None:
    (tmp_path / "cupy").mkdir()
    (tmp_path / "cupy" / "__init__.py").write_text(
        "__version__ = '14.0'\nclass cuda:\n class runtime:\n  @staticmethod\n"
        "  def getDeviceCount(): raise RuntimeError('no CUDA-capable device is detected')\n",
        encoding="utf-8",
    )
    paths = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    done = as_job(0, env={"PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("GPUs "))
    assert line.endswith("no CUDA-capable device is detected")


def test_an_mpi_that_does_not_start_is_what_it_says(
    redist: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPI4PY_LIBMPI", str(tmp_path / "nowhere.so"))
    broken = tmp_path / "mpi4py"
    broken.mkdir()
    (broken / "__init__.py").write_text("", encoding="utf-8")
    (broken / "MPI.py").write_text("import os; os.abort()", encoding="utf-8")
    monkeypatch.setattr(
        "redist.cli.commands.doctor.environment",
        lambda: {
            **environment(),
            "PYTHONPATH": f"{tmp_path}{os.pathsep}{environment()['PYTHONPATH']}",
        },
    )
    done = redist("doctor")
    assert done.status == 1
    assert "MPI   no   a process that starts it ends with status -6" in done.out


def test_without_mpirun_it_still_says_the_rest(
    redist: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redist.launch.launcher.NAMES", ("no-such-mpirun",))
    done = redist("doctor")
    assert done.status == 0
    (line,) = (line for line in done.out.splitlines() if line.startswith("launcher"))
    assert line.split()[1] == "no" and "pip install mpich" in line


def test_options_reach_the_job(redist: Run, tmp_path: Path) -> None:
    mpirun = fake(tmp_path, VERSIONS["MPICH"], f'printf "%s\\n" "$@" > {tmp_path}/argv; exit 5')
    assert redist("doctor", "-n", "6", "--node-size", "3", "--mpi", str(mpirun)).status == 5
    argv = (tmp_path / "argv").read_text(encoding="utf-8").split("\n")[:-1]
    assert argv[:2] == ["-n", "6"]
    assert argv[3:] == ["-m", MODULE, "--launcher", f"MPICH: {mpirun}", "--node-size", "3"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("-n", "0"), "-n: cannot use '0'"),
        (("--node-size", "2"), "--node-size: cannot make nodes of one process"),
        (("-n", "4", "--mpi", "no-such-mpirun"), "--mpi: cannot run no-such-mpirun"),
    ],
)
def test_wrong_requests_are_one_line(redist: Run, argv: tuple[str, ...], said: str) -> None:
    done = redist("doctor", *argv)
    assert done.status == 2
    assert said in done.one_line()


def test_what_goes_wrong_is_a_fact(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: object) -> None:
        raise OSError("no memory files today")

    monkeypatch.setattr("redist.doctor.process.shared_bytes", fail)
    assert Fact("shared memory", "no", "no memory files today") in list(facts())
    assert main([]) == 0
    assert "no memory files today" in capsys.readouterr().out
