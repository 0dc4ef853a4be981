"""Ranks that end, die, come late or take another way: every other rank says so, soon, by name and line."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.programs.launch import Done, Job, Mpi, default_mpi, job, one_worker, open_mpi

pytestmark = [one_worker, pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")]

START_S, END_S = 120.0, 60.0
SOON_S = 2.0
SEVERAL = "on more ranks, or once more another way"


def said(done: Done) -> dict[int, tuple[float, str]]:
    """What ranks say, and after how many seconds."""
    found = re.findall(r"rank (\d+) says after ([\d.]+) s: (.*)", done.output)
    return {int(rank): (float(seconds), text) for rank, seconds, text in found}


def check(done: Done, ranks: int, words: str, within_s: float = SOON_S) -> None:
    """Every rank but the bad one says these words in time, and the job fails."""
    told = said(done)
    assert set(told) >= set(range(ranks)) - {1}, done.output
    for rank in set(range(ranks)) - {1}:
        seconds, text = told[rank]
        assert seconds < within_s, (rank, seconds, text)
        assert re.search(words, text), (rank, text)
    assert done.status != 0


def end(how: str, when: str, ranks: int, mpi: Mpi | None = None, **variables: str) -> Done:
    with job("endings", ranks, how, when, mpi=mpi, variables=variables) as started:
        return started.end(START_S)


slow = pytest.mark.slow(SEVERAL)
COUNTS = [2, pytest.param(4, marks=slow), pytest.param(8, marks=slow)]
CALL = r"a\.gather\(\) \(endings\.py:\d+\)"


@pytest.mark.parametrize("ranks", COUNTS)
@pytest.mark.parametrize("when", [pytest.param("early", marks=slow), "late"])
def test_an_uncaught_exception_reaches_the_others(when: str, ranks: int) -> None:
    done = end("raise", when, ranks)
    check(done, ranks, "rank 1 ended: ValueError: injected")
    assert "Traceback" in done.output


@pytest.mark.parametrize("ranks", COUNTS)
@pytest.mark.parametrize("when", ["early", pytest.param("late", marks=slow)])
def test_a_rank_that_leaves_early_is_missed_at_once(when: str, ranks: int) -> None:
    done = end("exit", when, ranks)
    check(done, ranks, rf"rank 1 has left: its program ended without {CALL}")


@slow
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_killed_rank_ends_the_job_at_once(ranks: int) -> None:
    with job("endings", ranks, "kill", "late") as started:
        started.until(lambda text: "rank 1 goes" in text, START_S)
        ends_soon(started)


def ends_soon(started: Job, within_s: float = 5.0) -> None:
    """The launcher ends the job; a rank that is quicker says who died."""
    start = time.monotonic()
    done = started.end(END_S)
    assert time.monotonic() - start < within_s, done.output
    assert done.status != 0 and not done.left
    assert re.search(r"(?i)killed|signal|exit code|died|interrupt", done.output), done.output


@pytest.mark.parametrize("ranks", COUNTS)
def test_ranks_in_different_calls_are_told_apart(ranks: int) -> None:
    done = end("other kind", "late", ranks)
    check(done, ranks, rf"{CALL}.*rank 1: Transfer\(\) \(endings\.py:\d+\)")


@slow
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ranks_with_different_requests_are_told_apart(ranks: int) -> None:
    done = end("other", "late", ranks)
    check(done, ranks, rf"{CALL}.*rank 1: \S+ \(endings\.py:\d+\)")


@slow
@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("when", ["early", "late"])
def test_a_missing_rank_is_named_after_a_while_and_in_the_end(when: str, ranks: int) -> None:
    done = end("sleep", when, ranks, REDIST_TIMEOUT_S="11")
    missing = "rank 1"
    check(done, ranks, rf"{missing} did not come within 11 s to {CALL}|rank 1", 12.5)
    assert re.search(rf"ranks? \S.* ha(s|ve) waited 10 s in {CALL} for {missing}", done.output)


@slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_an_exception_is_told_under_open_mpi(ranks: int) -> None:
    mpi = open_mpi()
    if mpi is None:
        pytest.skip("needs Open MPI")
    check(end("raise", "late", ranks, mpi), ranks, "rank 1 ended: ValueError: injected")


@slow
@pytest.mark.parametrize("how", ["kill", "interrupt"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_loops_of_clustering_notice(ranks: int, how: str) -> None:
    pytest.importorskip("sklearn")
    with job("endings", ranks, how, "tree") as started:
        started.until(lambda text: text.count("fitting") == ranks, START_S)
        time.sleep(3)
        if how == "interrupt":
            os.killpg(started.process.pid, signal.SIGINT)
        ends_soon(started)


@pytest.mark.parametrize("who", ["all", pytest.param("the last", marks=slow)])
def test_an_interrupt_within_a_limit_shows_the_lines_of_the_user(who: str, tmp_path: Path) -> None:
    with job("endings", 2, "interrupt", "limit", str(tmp_path)) as started:
        started.until(lambda text: text.count("runs as") == 2, START_S)
        time.sleep(0.3)  # what says so has returned
        if who == "all":
            os.killpg(started.process.pid, signal.SIGINT)
        else:  # which the others hear of before they are interrupted themselves
            pid = re.findall(r"rank 1 runs as (\d+)", started.output())[0]
            os.kill(int(pid), signal.SIGINT)
        done = started.end(END_S)
    shown = re.findall(r'File "([^"]+)", line \d+, in (\w+|<module>)', done.output)
    assert [name for _, name in shown[-2:]] == ["main", "run_within_a_limit"], done.output
    assert {Path(file).name for file, _ in shown} <= {"endings.py", "<frozen runpy>"}, done.output
    assert done.output.count("Traceback") == 1 and done.output.count("KeyboardInterrupt") >= 1
    assert "rank 1: the same error as rank 0" in done.output
    assert done.status != 0 and not done.left and not list(tmp_path.iterdir())


def test_a_rank_that_misses_the_first_call_for_a_file_is_named_at_once() -> None:
    done = end("exit", "file", 2)
    check(
        done,
        2,
        r"rank 1 has left: its program ended without pgas\.read_npy\(\) \(endings\.py:\d+\)",
    )


def test_one_rank_shows_the_traceback_of_an_error_that_all_have() -> None:
    done = end("same", "early", 3)
    assert done.output.count("Traceback") == 1, done.output
    for rank in (1, 2):
        assert f"rank {rank}: the same error as rank 0" in done.output
    assert done.status != 0


def test_who_misses_the_first_call_is_named_and_the_lowest_rank_shows_the_error() -> None:
    done = end("nap", "early", 3, REDIST_TIMEOUT_S="1", BAD_RANK="0")
    told = said(done)
    for rank in (1, 2):
        assert re.search(rf"rank 0 did not come within 1 s to {CALL}", told[rank][1]), done.output
    assert "rank 2: the same error as rank 1" in done.output
    assert len(re.findall(r"(?m)^redist\.errors\.PeerError: rank 0 did not come", done.output)) == 1


@pytest.mark.parametrize("when", [pytest.param("early", marks=slow), "late"])
def test_a_fork_of_a_rank_is_told_that_it_is_none(when: str) -> None:
    done = end("fork", when, 2)
    check(done, 2, "this process is a fork of rank 0; call redist in the rank itself")


@pytest.mark.slow("takes 10 s")
def test_a_rank_that_ended_says_that_others_wait_in_mpi() -> None:
    with job("endings", 2, "raise", "barrier") as started:
        words = "rank 1 has ended by ValueError, rank 0 has not"
        started.until(lambda text: words in text, 40)


@pytest.mark.slow("takes 11 s")
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_with_indices_of_their_own_are_told_so(ranks: int) -> None:
    done = end("own index", "early", ranks, REDIST_TIMEOUT_S="11")
    words = r"different partners.*a\.get\(\.\.\.\).*REDIST_CHECK_CALLS=1"
    assert re.search(rf"waited 10 s in a\[\.\.\.\] \(endings\.py:\d+\).*{words}", done.output)
    assert any(re.search(words, text) for _, text in said(done).values()), done.output
