"""Links that go down, hosts that die or are slow: one clear error on every rank that is left, or none."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import Cluster, make_cluster, why_no_cluster
from tests.programs.launch import Mpi, default_mpi, job, on_cluster, one_worker, run

WHY_NOT = why_no_cluster() if default_mpi() is not None else "needs mpirun"
pytestmark = [one_worker, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]

TIMEOUT_S = 3.0
START_S, END_S = 60.0, 60.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with make_cluster(2) as made:
        yield made


def on(cluster: Cluster) -> Mpi:
    """MPI with two ranks on each host."""
    mpi = default_mpi()
    assert mpi is not None
    return on_cluster(cluster, 2, mpi)


def said_by_ranks(output: str) -> dict[int, tuple[float, str]]:
    """What ranks say that failed: after how many seconds, and what; lines of two may run together."""
    found = re.findall(r"rank (\d+) says after ([\d.]+) s: (.*?)(?=rank \d+ says|\n|$)", output)
    return {int(rank): (float(seconds), text) for rank, seconds, text in found}


def test_a_link_that_goes_down_is_an_error_on_every_rank(cluster: Cluster) -> None:
    with job("failures", 4, "move", "--timeout", f"{TIMEOUT_S:g}", mpi=on(cluster)) as started:
        started.until(lambda said: said.count("moving") == 4, START_S)
        cluster.set_link(1, up=False)
        time.sleep(1.7 * TIMEOUT_S)
        cluster.set_link(1, up=True)  # what its ranks print comes by the same link
        done = started.end(END_S)
    said = said_by_ranks(done.output)
    assert set(said) == set(range(4)), done.output
    assert all(seconds < 2 * TIMEOUT_S + 2 for seconds, _ in said.values()), said
    assert all("did not come within" in text or "failed" in text for _, text in said.values()), said


@pytest.mark.slow("ranks on one machine die in every run")
def test_a_host_whose_ranks_die_ends_the_job_with_a_message(cluster: Cluster) -> None:
    # MPI itself does not survive peers that are gone; its mpirun says so and ends all ranks.
    with job("failures", 4, "move", "--timeout", f"{TIMEOUT_S:g}", mpi=on(cluster)) as started:
        started.until(lambda said: said.count("moving") == 4, START_S)
        start = time.monotonic()
        for pid in cluster.processes(1):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"failures" in words and b"proxy" not in words:
                os.kill(pid, signal.SIGKILL)
        done = started.end(END_S)
    assert time.monotonic() - start < 10 * TIMEOUT_S, done.output
    assert done.status != 0 and not done.left
    assert re.search(r"(?i)killed|signal|died|gone|failed", done.output), done.output


@pytest.mark.slow("seconds at 50 Mbit/s")
def test_a_slow_host_makes_nothing_wrong(cluster: Cluster) -> None:
    cluster.set_rate(1, 50)
    done = run("fuzz", 4, "--n", "9", "--seed", "4", mpi=on(cluster))
    assert done.status == 0, done.output


def test_hosts_are_gone_after_an_interrupt() -> None:
    places: list[Path] = []

    def interrupted() -> None:
        with make_cluster(1) as made:
            places.append(Path("/run/netns", f"{made.prefix}0"))
            assert places[0].exists()
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not places[0].exists()
