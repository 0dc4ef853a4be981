"""``redist bench``: what is wrong is said before a job is started; then the job speaks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.launch.test_launcher import VERSIONS, fake
from tests.programs.launch import alone, one_worker

MPICH = VERSIONS["MPICH"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "-n"),
        (("-n", "1"), "-n: cannot use '1'; need 2 to"),
        (("-n", "8", "--cases", "gather,x"), "--cases: cannot use 'x'; known: rows-columns"),
        (("-n", "8", "--sizes", "big"), "--sizes: cannot read 'big'"),
        (("-n", "8", "--plot", "p.txt"), "--plot: cannot draw"),
        (("-n", "8", "--json", "no/such/folder/f.json"), "--json: cannot write no/such/folder"),
        (("-n", "8", "--mpi", "no-such-mpirun"), "--mpi: cannot run no-such-mpirun"),
        (("-n", "8", "--frob"), "cannot use '--frob'"),
    ],
)
def test_wrong_requests_are_one_line(redist: Run, argv: tuple[str, ...], said: str) -> None:
    done = redist("bench", *argv)
    assert done.status == 2
    assert said in done.one_line()


def test_options_reach_the_job(redist: Run, tmp_path: Path) -> None:
    mpirun = fake(tmp_path, MPICH, f'printf "%s\\n" "$@" > {tmp_path}/argv; exit 1')
    done = redist(
        "bench", "-n", "6", "--sizes", "2KiB", "--cases", "swap", "--contenders", "redist",
        "--repeat", "4", "--json", str(tmp_path / "f.json"), "--mpi", str(mpirun),
    )  # fmt: skip
    assert done.status == 1  # a result was wrong: handed on as it is
    argv = (tmp_path / "argv").read_text(encoding="utf-8").split("\n")[:-1]
    assert argv[:2] == ["-n", "6"]
    assert argv[3:] == [
        "-m", "redist.measure", "--ranks", "6", "--sizes", "2048", "--cases", "swap",
        "--contenders", "redist", "--repeat", "4", "--json", str(tmp_path / "f.json"),
    ]  # fmt: skip


@one_worker
def test_it_runs(redist: Run, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    with alone():
        done = redist(
            "bench", "-n", "2", "--sizes", "4KiB", "--cases", "gather", "--repeat", "1",
            "--json", str(path),
        )  # fmt: skip
    assert done.status == 0
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data["ranks"] == 2 and [case["name"] for case in data["cases"]] == ["gather"]


def test_help_names_cases_and_contenders(redist: Run) -> None:
    done = redist("bench", "--help")
    assert (done.status, done.err) == (0, "")
    assert "rows-columns" in done.out and "redist-any" in done.out
    assert "  redist bench -n 8\n" in done.out
