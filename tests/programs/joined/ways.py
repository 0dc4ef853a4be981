"""Join, and then do what the first argument says; every rank says what came of it.

``python -m tests.programs.joined.ways well`` with ``RANK``, ``WORLD_SIZE`` and ``MASTER_ADDR`` set.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import redist
from redist.launch import entrance
from redist.runtime.ranks import joining

BAD = int(os.environ.get("BAD_RANK", "1"))
START = time.monotonic()


def say(text: object) -> None:
    rank = os.environ.get("RANK", "?")
    os.write(1, f"rank {rank} says after {time.monotonic() - START:.2f} s: {text}\n".encode())


def said_by(act: Callable[[], object]) -> None:
    """Say what an act raises; it must."""
    try:
        act()
    except redist.RedistError as error:
        say(f"{type(error).__name__}: {error}")
    else:
        say("no error")


def works() -> bool:
    """Whether ranks can move an array."""
    from redist import pgas

    a = pgas.from_function(lambda i, j: 100 * i + j, (20, 30), type="{x}, {}")
    want = 100 * sum(range(20)) * 30 + sum(range(30)) * 20
    return bool(pgas.sum(a.to("{}, {x}")).gather() == want)


def sums() -> None:
    """A call of all ranks, again and again."""
    while works():
        time.sleep(0.01)


def well() -> None:
    comm = redist.join()
    from mpi4py import MPI

    near = comm.Split_type(MPI.COMM_TYPE_SHARED).size
    names = [v for v in os.environ if v.startswith(("PMI_", "MPIR_CVAR_NO"))]
    ok = works()
    say(f"rank {comm.rank} of {comm.size}, {near} near, {ok}, {names}")
    said_by(lambda: redist.join())
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        said_by(lambda: redist.join())
        said_by(works)
        sys.exit(7)  # through all that ends a Python program
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    comm.Barrier()
    done = subprocess.run([sys.executable, "-c", "from mpi4py import MPI; print(MPI.COMM_WORLD.size)"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout == "1\n", done


def early() -> None:
    """MPI has started on one rank before it joins."""
    if os.environ["RANK"] == str(BAD):
        from mpi4py import MPI  # noqa: F401
    said_by(redist.join)


def join_only() -> None:
    said_by(lambda: redist.join(timeout_s=float(sys.argv[2])))


def go(how: str) -> None:
    """One rank goes, while the others are in calls of redist or of MPI."""
    comm = redist.join()
    assert works()
    if comm.rank == BAD:
        time.sleep(0.3)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "raise":
            raise ValueError("injected")
        if how == "abort":
            comm.Abort(5)
        sys.exit(3)
    global START
    START = time.monotonic()
    if sys.argv[2:] == ["mpi"]:
        comm.Barrier()
    elif sys.argv[2:] == ["idle"]:
        time.sleep(60)
    else:
        said_by(sums)


def starting(how: str) -> None:
    """One rank goes, or waits for ever, while MPI starts on the others."""
    if os.environ["RANK"] == str(BAD):
        joining._start_mpi = lambda *args: os._exit(9) if how == "dies" else time.sleep(60)
    redist.join(timeout_s=5)
    say("joined")


def server() -> None:
    """The server dies after the meeting: MPI goes on, and ends in order."""
    comm = redist.join()
    assert works()
    comm.Barrier()
    if comm.rank == 0:
        entrance._SERVERS[0].kill()
    time.sleep(0.3)
    say(f"works {works()}")


if __name__ == "__main__":
    match sys.argv[1]:
        case "well":
            well()
        case "early":
            early()
        case "join":
            join_only()
        case "starting":
            starting(sys.argv[2])
        case "server":
            server()
        case how:
            go(how)
