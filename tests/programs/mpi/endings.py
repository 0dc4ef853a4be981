"""Ranks that end, die or take another way: what the others say, and how soon.

As in ``mpirun -n 4 python -m tests.programs.mpi.endings raise late``. Ranks other than the bad one say how
long they waited and why they stopped.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas

BAD = int(os.environ.get("BAD_RANK", "1"))
"""The rank that goes another way."""


def go(how: str, a: Any) -> None:
    """What the bad rank does."""
    if how == "raise":
        raise ValueError("injected")
    if how == "exit":
        sys.exit(0)
    if how == "kill":
        say(MPI.COMM_WORLD, "goes")
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "sleep":
        time.sleep(18)
    if how == "nap":
        time.sleep(3)
    if how == "other":
        float(pgas.sum(a))
    if how == "other kind":  # one waits in shared memory, the other in MPI
        redist.Transfer("f64[8{x}]", "f64[8]", mesh=redist.Mesh(x=a.comm.size))


def grow_a_tree(comm: MPI.Comm, how: str) -> None:
    """Find clusters, which takes long, until something happens in the middle of a loop in C."""
    from redist.learn.cluster import HDBSCAN

    points = np.random.default_rng(0).normal(size=(60_000, 4))
    x = pgas.asarray(points, type="{x}, {}", comm=comm)
    if comm.rank == BAD and how == "kill":
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, wherever it is
        signal.setitimer(signal.ITIMER_REAL, 4.0)
    say(comm, "fitting")
    HDBSCAN(min_samples=2, copy=True).fit(x)


def run_within_a_limit(comm: MPI.Comm) -> None:
    """Run a program whose arguments do not fit its limit, again and again."""

    @pgas.program(limit="2MiB", spill=sys.argv[3])
    def multiply(x: Any, weights: Any) -> Any:
        for w in weights:
            x = x @ w
        return x

    x = pgas.ones((300, 300), type="{x}, {}")
    weights = [pgas.ones((300, 300), type="{x}, {}") for _ in range(8)]
    x = multiply(x, weights)
    say(comm, f"runs as {os.getpid()}")
    while True:
        multiply(x, weights)


def look_each_for_itself(comm: MPI.Comm) -> None:
    """Read elements that differ between ranks by a collective call, until ranks wait for each other."""
    a = pgas.ones((16, 16), type="{}, {x}")
    for i in np.random.default_rng(comm.rank).integers(0, 16, 200):
        float(a[0, int(i)])


def call_in_a_fork(comm: MPI.Comm) -> None:
    """Gather an array in a process that is no rank."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.apply(gather_ones)


def gather_ones() -> None:
    """What a fork must not do."""
    pgas.ones((64, 64), type="{x}, {}").gather()


def say(comm: MPI.Comm, text: str) -> None:
    """A line at once, so that those of ranks do not mix."""
    sys.stdout.write(f"rank {comm.rank} {text}\n")
    sys.stdout.flush()


def main() -> None:
    """Run until the bad rank goes."""
    how, when = sys.argv[1:3]
    comm = MPI.COMM_WORLD
    start = time.monotonic()
    try:
        if when == "tree":
            grow_a_tree(comm, how)
            return
        if when == "limit":
            run_within_a_limit(comm)
        a = None
        if when == "late":
            a = pgas.ones((64, 64), type="{x}, {}")
            a.gather()
            float(pgas.sum(a))
            comm.Barrier()
        start = time.monotonic()
        if how == "same":
            comm.Barrier()  # all have imported redist; one that has not is not waited for
            pgas.ones((64, 64), type="{no}, {}")
        elif how == "fork":
            call_in_a_fork(comm)
        elif how == "own index":
            look_each_for_itself(comm)
        elif comm.rank == BAD:
            go(how, a)
        elif when == "file":
            pgas.read_npy("none.npy")
        elif when == "barrier":
            comm.Barrier()
        else:
            pgas.ones((64, 64), type="{x}, {}").gather()
    except (redist.RedistError, KeyboardInterrupt) as error:
        say(comm, f"says after {time.monotonic() - start:.1f} s: {type(error).__name__}: {error}")
        if how == "kill":  # MPI waits for the dead at the end
            time.sleep(1)
            os._exit(3)
        raise


if __name__ == "__main__":
    main()
