"""Plain processes that join become ranks: they work, notice who dies, and say every mistake."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import redist
from redist.errors import LaunchError, PeerError
from redist.launch.launcher import environment
from redist.launch.started import doors_from, find_started, first_node, mpi_launcher
from tests.launch.plain import Ended, none_is_left, processes, run, variables
from tests.programs.launch import default_mpi, one_worker, open_mpi

mpi = default_mpi()
mpich = mpi is not None and mpi.launcher.kind == "MPICH"
pytestmark = [one_worker, pytest.mark.skipif(not mpich, reason="needs mpi4py with MPICH")]
slow = pytest.mark.slow("more processes that die, one way each")
WAYS = ("-m", "tests.programs.joined.ways")
NOTICED_S = 15.0
"""What is waited for in redist is noticed at once, in MPI after 10 s."""


def ways(size: int, *args: str, **more: str) -> list[Ended]:
    envs = [{**env, **more} for env in variables(size)]
    done = run([*WAYS, *args], envs)
    assert none_is_left(envs[0])
    return done


def test_plain_processes_are_ranks_of_one_node_and_join_once() -> None:
    for rank, one in enumerate(ways(2, "well")):
        assert one.status == 0, one.output
        first, second, forked, fork_calls = (text for _, text in one.said)
        assert first.startswith(f"rank {rank} of 2, 2 near, True, []"), first
        assert f"this process is rank {rank} of 2 already, and a process joins once" in second
        assert f"this process is a fork of rank {rank}; start new processes" in forked
        assert f"this process is a fork of rank {rank}; call redist in the rank" in fork_calls


@slow
@pytest.mark.parametrize("size", [1, 3, 4, 8])
def test_any_number_of_processes_are_ranks(size: int) -> None:
    done = ways(size, "well")
    assert [one.status for one in done] == [0] * size, done
    assert all(f"rank {r} of {size}, {size} near, True" in done[r].output for r in range(size))


@slow
def test_under_mpirun_joining_does_nothing() -> None:
    program = (
        "import redist; comm = redist.join(); from mpi4py import MPI; assert comm == MPI.COMM_WORLD\n"
        "try: redist.join(size=3)\n"
        "except redist.LaunchError as error: print(error, flush=True)"
    )
    assert mpi is not None
    command = mpi.launcher.command(2, ["-c", program])
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    for rank in range(2):
        words = (
            f"cannot join with size=3: mpirun has started this process as rank {rank} of 2; leave"
        )
        assert words in done.stdout, done


@slow
def test_mpi_that_has_started_is_an_error_on_all() -> None:
    for one in ways(2, "early"):
        assert (
            "rank 1 (process" in one.output
            and "MPI has started in this process already" in one.output
        )
        assert one.said[0][0] < NOTICED_S + 30


@slow
def test_a_rank_that_never_joins_ends_the_others() -> None:
    envs = variables(3)[:2]
    for one in run([*WAYS, "join", "1"], envs):
        assert (
            "rank 2 of 3 did not join within 1 s; start all ranks, or raise timeout_s" in one.output
        )


@slow
@pytest.mark.parametrize("how", ["dies", "waits"])
def test_a_rank_that_goes_while_mpi_starts_ends_all(how: str) -> None:
    start = time.monotonic()
    envs = variables(3)
    with processes([*WAYS, "starting", how], envs) as started:
        said = [started[rank].communicate(timeout=60)[0] for rank in (0, 2)]
    assert time.monotonic() - start < 30
    assert all(started[rank].returncode not in (0, None) for rank in (0, 2))
    assert not any("joined" in text.split() for text in said), said
    # Rank 0 started the server, which writes where it does.
    assert re.search(
        r"redist: rank \d \(process .* has died while MPI started; all ranks end", said[0]
    ), said
    assert none_is_left(envs[0])


@slow
def test_tasks_of_slurm_join_with_its_variables_alone() -> None:
    placed = ("RANK", "WORLD_SIZE", "MASTER_ADDR")
    envs = [{k: v for k, v in env.items() if k not in placed} for env in variables(2)]
    step = {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "localhost",
    }
    done = run(
        [*WAYS, "join", "20"],
        [
            {**env, **step, "SLURM_PROCID": str(k), "SLURM_NTASKS": "2"}
            for k, env in enumerate(envs)
        ],
    )
    assert [text for one in done for _, text in one.said] == ["no error", "no error"], done


@slow
def test_a_folder_is_a_place_to_meet(tmp_path: Path) -> None:
    program = f"import redist; print(redist.join(at={str(tmp_path)!r}, token='more').size)"
    done = run(["-c", program], variables(3))
    assert [one.output for one in done] == ["3\n"] * 3, done


@slow
def test_open_mpi_is_refused_with_what_to_use() -> None:
    library = open_mpi()
    if library is None:
        pytest.skip("needs Open MPI")
    folder = Path(library.variables["MPI4PY_LIBMPI"]).parent
    more = {**library.variables, "LD_LIBRARY_PATH": str(folder)}  # as its mpirun sets it
    for one in ways(2, "join", "20", **more):
        assert re.search(
            r"mpi4py uses Open MPI .*only its own launcher starts; use its mpirun", one.output
        )


# A rank goes: the others are in calls of redist, in MPI, or in none.


@slow
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("kill", r"rank 1 .*(died|is gone)"),
        ("raise", "rank 1 ended: ValueError: injected|rank 1 .* was ended by an error"),
        ("exit", "rank 1 has left: its program ended without"),
    ],
)
def test_who_goes_is_named_by_the_others(how: str, words: str) -> None:
    done = ways(3, how)
    for one in (done[0], done[2]):
        assert re.search(rf"PeerError: .*({words})", one.output), one.output
        assert one.said[-1][0] < NOTICED_S and one.status == 0
    assert done[1].status == {"kill": -9, "raise": 1, "exit": 3}[how]


@slow
@pytest.mark.parametrize("how", ["kill", "raise"])
@pytest.mark.parametrize("where", ["mpi", "idle"])
def test_who_does_not_notice_is_ended(how: str, where: str) -> None:
    done = ways(3, how, where)
    for one in (done[0], done[2]):
        assert one.status == 1, one
        assert re.search(
            r"rank 1 \(process \d+ on .*may wait for it for ever; this process ends", one.output
        )


@slow
def test_an_abort_ends_all_with_its_status() -> None:
    done = ways(3, "abort", "mpi")
    assert [one.status for one in done] == [5, 5, 5], done
    assert "rank 1 (process" in done[0].output and "has given up the job" in done[0].output


@slow
def test_ranks_go_on_without_the_server() -> None:
    for rank, one in enumerate(ways(3, "server")):
        assert one.status == 0, one.output
        assert "works True" in one.output
        assert f"rank {rank}: the server of this job has gone; MPI goes on" in one.output


# What the environment says.

PLACED = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.5", "MASTER_PORT": "4000"}


@pytest.mark.parametrize(
    ("env", "rank", "size", "door"),
    [
        (PLACED, 1, 4, ("10.0.0.5", 4000)),
        ({**PLACED, "SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, 1, 4, ("10.0.0.5", 4000)),
        (
            {"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "3", "MASTER_ADDR": "train-0.train"},
            2,
            3,
            ("train-0.train", 29500),
        ),
        (
            {
                "SLURM_PROCID": "5",
                "SLURM_NTASKS": "8",
                "SLURM_JOB_NODELIST": "c[3-4]",
                "SLURM_JOB_ID": "1",
            },
            5,
            8,
            ("c3", None),
        ),
    ],
)
def test_the_environment_says_who_and_where(
    monkeypatch: pytest.MonkeyPatch,
    env: dict[str, str],
    rank: int,
    size: int,
    door: tuple[str, int | None],
) -> None:
    set_only(monkeypatch, env)
    started = find_started(None, None, None, "t", 1.0)
    host, port = started.at.doors[0]  # type: ignore[union-attr]
    assert (started.rank, started.size, host) == (rank, size, door[0])
    assert port == door[1] or (door[1] is None and 20000 <= port < 30000)


def set_only(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    for name in list(os.environ):
        if name.startswith(
            ("SLURM_", "RANK", "WORLD_", "MASTER_", "JOB_COMP", "PMI", "TORCHELASTIC")
        ):
            monkeypatch.delenv(name)
    for name, value in env.items():
        monkeypatch.setenv(name, value)


def test_two_steps_of_a_slurm_job_meet_at_different_ports() -> None:
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NODELIST": "a"}
    assert doors_from(step) != doors_from({**step, "SLURM_STEP_ID": "1"})
    assert first_node("a[01,03-09]b,c") == "a01b"
    assert mpi_launcher({"PMIX_NAMESPACE": "x"}) == "PMIX_NAMESPACE"


@pytest.mark.parametrize(
    ("env", "at", "words"),
    [
        (
            {},
            None,
            "nothing says the rank; give rank=, start with a launcher that sets one of RANK",
        ),
        ({"RANK": "0"}, None, "nothing says the size; give size="),
        ({"RANK": "x", "WORLD_SIZE": "2"}, None, "RANK='x' is no whole number; set it to the rank"),
        (
            {"RANK": "0", "WORLD_SIZE": "2"},
            None,
            "nothing says where the ranks meet; give at='host:port'",
        ),
        ({**PLACED, "MASTER_PORT": "http"}, None, "MASTER_PORT=http is no port; give a number"),
        (
            PLACED,
            "somewhere",
            "cannot join at 'somewhere': it is no place; give 'host:port', a folder",
        ),
        (PLACED, 5, "cannot join at 5: it is no place"),
        (PLACED, "{}", "what the meeting place holds is no ticket"),
    ],
)
def test_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], at: object, words: str
) -> None:
    set_only(monkeypatch, env)
    with pytest.raises(LaunchError) as caught:
        find_started(None, None, at, "t", 1.0)
    assert words in str(caught.value)


# Ranks of a notebook.


def whose_rank(factor: int) -> int:
    from mpi4py import MPI

    return int(MPI.COMM_WORLD.rank) * factor


def test_a_notebook_runs_cells_and_functions_on_its_ranks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ranks = redist.launch(2)
    try:
        assert ranks.run("x = comm.rank + 1\nprint('here')\nx") == [None, None]
        shown = capsys.readouterr().out
        assert sorted(shown.splitlines()) == ["[0] 1", "[0] here", "[1] 2", "[1] here"]
        assert ranks.run(whose_rank, 10) == [0, 10]
        with pytest.raises(
            PeerError, match=r"^rank 1: ZeroDivisionError: division by zero\nTraceback"
        ) as one:
            ranks.run("if comm.rank == 1:\n    1 / 0\nimport time; time.sleep(30)")
        assert 'File "<cell 3>", line 2' in str(one.value)
        with pytest.raises(PeerError, match=r"^ranks 0, 1: ValueError: both"):
            ranks.run("raise ValueError('both')")
        assert ranks.run("comm.allreduce(x)") == [None, None]
        assert sorted(capsys.readouterr().out.splitlines()) == ["[0] 3", "[1] 3"]
        with pytest.raises(
            redist.ArgumentError, match=r"cannot run 5: it is neither text nor a function"
        ):
            ranks.run(5)  # type: ignore[arg-type]
        with pytest.raises(
            PeerError, match=r"rank . died .exit status 3., and all were ended; restart"
        ):
            ranks.run("import os; os._exit(3)")
        with pytest.raises(
            PeerError, match=r"the ranks have ended; start them anew with restart\(\)"
        ):
            ranks.run("1")
    finally:
        ranks.close()


def test_the_package_is_a_function_too() -> None:
    from redist.launch import launcher

    assert redist.launch.launcher is launcher  # type: ignore[attr-defined]
    with pytest.raises(
        redist.ArgumentError, match=r"cannot launch 0 ranks: give a whole number from 1"
    ):
        redist.launch(0)


@slow
def test_functions_of_a_program_are_sent_as_source(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import redist\n"
        "def double(k):\n    return 2 * k * comm.size + x\n"
        "if __name__ == '__main__':\n"
        "    ranks = redist.launch(2)\n"
        "    ranks.run('x = comm.rank')\n"
        "    print(ranks.run(double, 5))\n"
        "    try: ranks.run(lambda: 1)\n"
        "    except redist.ArgumentError as error: print(error)\n"
        "    ranks.restart()\n"
        "    print(ranks.run('print(comm.size)'), ranks)\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, env=environment(), timeout=90
    )
    assert "[20, 21]" in done.stdout and "define it with def" in done.stdout, done
    assert "<redist.launch: 2 ranks>" in done.stdout and done.returncode == 0, done


@slow
def test_processes_that_are_killed_leave_no_server() -> None:
    envs = variables(2)
    with processes([*WAYS, "kill", "idle"], envs) as started:
        started[1].wait(60)  # all of them are killed on leaving
    assert none_is_left(envs[0])
