"""Faults of the disk, of a rank and of people while programs run within a limit.

As in ``mpirun -n 3 python -m tests.programs.pgas.spill_faults``: one error on all ranks, arguments as they
were, no file and no thread left. With ``kill FOLDER`` one rank is killed while a program runs there.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas
from redist.errors import PeerError, SpillError
from redist.pgas.spill.memory_limit import stored_tile
from redist.runtime.lanes.spill_file import SpillFile
from tests.programs.pgas.limited import planned_within
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
BAD = COMM.size - 1
X: Any = pgas
SIDE, LAYERS = 192, 6
SOON_S = 20.0


def layers(x: Any, weights: list[Any]) -> Any:
    """Forth and back: values are stored, too."""
    values = [x]
    for w in weights:
        values.append(X.tanh(values[-1] @ w))
    y = values.pop()
    for value in reversed(values):
        y = y + value * y
    return y


def arguments(comm: Any) -> tuple[Any, list[Any]]:
    """Weights cut by rows, and an input that is whole."""
    rng = np.random.default_rng(4)
    several = [0.05 * rng.standard_normal((SIDE, SIDE)) for _ in range(LAYERS)]
    weights = [X.asarray(w, type="{x}, {}", comm=comm) for w in several]
    return X.asarray(rng.standard_normal((SIDE, SIDE)), type="{x}, {}", comm=comm), weights


def least_limit(x: Any, weights: list[Any], folder: str) -> int:
    """**Collective.** The least limit with which the program runs."""
    try:
        X.program(layouts="as written", limit=1, spill=folder)(layers)(x, weights)
    except redist.NoPlanError as error:
        return error.least_bytes
    raise AssertionError("it fits into nothing")


def bits(x: Any, weights: list[Any]) -> list[bytes]:
    """**Local.** The tiles of all arguments, wherever they lie now."""
    return [one.tile.tobytes() for one in (x, *weights)]


@contextmanager
def patched(thing: Any, name: str, other: Any) -> Iterator[None]:
    """Another function of a class or module, on the bad rank."""
    original = getattr(thing, name)
    if COMM.rank == BAD:
        setattr(thing, name, other(original))
    try:
        yield
    finally:
        setattr(thing, name, original)


def small_disk() -> str | None:
    """A folder with too little room is the same error everywhere, before anything runs."""
    folder = tempfile.mkdtemp() if COMM.rank == 0 else None
    folder = COMM.bcast(folder)
    assert folder is not None
    mounted = True
    if COMM.rank == 0:
        words = ["mount", "-t", "tmpfs", "-o", "size=512k", "none", folder]
        mounted = subprocess.run(words, capture_output=True).returncode == 0
    if not COMM.bcast(mounted):
        return None  # only root can
    try:
        comm = COMM.Dup()
        x, weights = arguments(comm)
        before = bits(x, weights)
        limit = least_limit(x, weights, tempfile.gettempdir())
        step: Any = X.program(layouts="as written", limit=limit, spill=folder)(layers)
        try:
            step(x, weights)
        except SpillError as error:
            said = COMM.allgather(str(error))
        else:
            return "nobody minded"
        if len(set(said)) != 1 or "spill" not in said[0] or "give another folder" not in said[0]:
            return f"says {said}"
        if bits(x, weights) != before:
            return "arguments changed"
        if not np.isfinite(layers(x, weights).gather()).all():  # ranks can go on
            return "other values"
        return f"left {os.listdir(folder)}" if os.listdir(folder) else None
    finally:
        del x, weights, step
        COMM.Barrier()
        if COMM.rank == 0:
            subprocess.run(["umount", "-l", folder], check=True)
            os.rmdir(folder)


def fails(patch: Callable[[int], Any], says: str, kind: type[BaseException]) -> str | None:
    """Why not, if what goes wrong on one rank in the middle is not an error for all, soon."""
    comm = COMM.Dup()
    x, weights = arguments(comm)
    before = bits(x, weights)
    with tempfile.TemporaryDirectory() as folder:
        limit = least_limit(x, weights, folder)
        step: Any = X.program(layouts="as written", limit=limit, spill=folder)(layers)
        step(x, weights)  # weights are in the file from now on
        (within,) = planned_within(step)
        assert within.fitted is not None and within.fitted.graph.moved_bytes["store"]
        n_away = sum(stored_tile(one) is not None for one in weights)
        caught: BaseException | None = None
        start = time.monotonic()
        with patch(2):
            try:
                step(x, weights)
            except BaseException as error:
                caught = error
        seconds = time.monotonic() - start
        threads = [
            one.name for one in threading.enumerate() if one.name in ("redist-load", "redist-store")
        ]
        left = os.listdir(folder)
        if bits(x, weights) != before:
            return "arguments changed"
        del step, within
    if not n_away or left or threads or seconds > SOON_S:
        return f"{n_away} put away, {left}, {threads}, {seconds:.1f} s"
    if COMM.rank == BAD:
        good = type(caught) is kind and says in str(caught)
    else:
        good = (
            isinstance(caught, PeerError) and f"rank {BAD}" in str(caught) and says in str(caught)
        )
    return None if good else f"raised {caught!r}"


def reads(problem: Callable[[], int]) -> Callable[[int], Any]:
    """Let a read of a file, the ``at``-th, go wrong on the bad rank."""

    def patch(at: int) -> Any:
        n = [0]

        def other(original: Any) -> Any:
            def preadv(*args: Any) -> int:
                n[0] += 1
                return problem() if n[0] > at else int(original(*args))

            return preadv

        return patched(os, "preadv", other)

    return patch


def short_read() -> str | None:
    """A file that ends too early."""
    return fails(reads(lambda: 0), "it ends after", SpillError)


def failing_read() -> str | None:
    """A disk that cannot be read any more."""

    def problem() -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    return fails(reads(problem), "Input/output error", SpillError)


def failing_device() -> str | None:
    """A store that raises what nobody expects when something is written to it."""

    def patch(at: int) -> Any:
        def other(original: Any) -> Any:
            def write(self: SpillFile, *args: Any) -> None:
                raise RuntimeError("the device is gone")

            return write

        return patched(SpillFile, "write", other)

    return fails(patch, "the device is gone", RuntimeError)


def interrupt() -> str | None:
    """Ctrl-C on one rank."""

    def problem() -> int:
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        raise OSError(errno.EINTR, "interrupted")

    return fails(reads(problem), "", KeyboardInterrupt)


CHECKS = {
    check.__name__: check
    for check in (small_disk, short_read, failing_read, failing_device, interrupt)
}


def kill(folder: str) -> int:
    """Run a program without end; the bad rank is killed in the middle of a read."""
    x, weights = arguments(COMM)
    limit = least_limit(x, weights, folder)
    step: Any = X.program(layouts="as written", limit=limit, spill=folder)(layers)
    step(x, weights)

    def problem() -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    print(f"running {len(os.listdir(folder))}", flush=True)
    with reads(problem)(20):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            step(x, weights)
    return 0


def program() -> int:
    """0 if everything holds."""
    if "kill" in sys.argv:
        return kill(sys.argv[-1])
    return run_named(CHECKS)


if __name__ == "__main__":
    main(program)
