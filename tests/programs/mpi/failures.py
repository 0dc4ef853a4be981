"""Ranks that fail, come late, are killed or interrupted while data moves: nobody waits for ever.

As in ``mpirun -n 4 python -m tests.programs.mpi.failures raise --transport mpi``.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist.errors import PeerError, TransferError
from redist.runtime.copies.copy_list import CopyList
from redist.runtime.schedule.compiler import Combine
from redist.runtime.schedule.stages import TransferStages
from tests.programs.together import all_well, main, meet

TIMEOUT_S = 20.0
SOON_S = 10.0
LATE_S = 1.0
BAD = 2
"""The rank that fails."""

ROWS, COLUMNS = "f64[96{x}, 65537]", "f64[96, 65537{x}]"
"""Uneven, and of 12 MB a rank: several rounds through pools and staging."""
SHORT, BROUGHT = "f64[4096{x}, 1024]", "f64[4096, 1024{x}]"
"""Runs of 2 KiB at most: senders write into the tiles of receivers."""
PARTIAL, SUMMED = "f64[65537, 8] sum{x}", "f64[65537{x}, 8]"


@contextmanager
def injected(owner: type, name: str, after: int, act: Callable[[], None]) -> Iterator[None]:
    """In one call of ``owner.name``, after so many on the bad rank, something happens first."""
    original = getattr(owner, name)
    calls = 0

    def instead(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == after + 1:
            act()
        return original(*args, **options)

    if MPI.COMM_WORLD.rank == BAD:
        setattr(owner, name, staticmethod(instead) if name == "of" else instead)
    try:
        yield
    finally:
        setattr(owner, name, staticmethod(original) if name == "of" else original)


def out_of_memory() -> None:
    """What happens to the bad rank."""
    raise MemoryError("injected")


def make(
    comm: MPI.Comm, reduces: bool = False, brings: bool = False, **options: Any
) -> redist.Transfer:
    """A transfer with several rounds, ready on every rank.

    Without the barrier a rank may fail in its run while another is still making the transfer; that
    one hears of it there, rightly, but then it is not the run that is tested.
    """
    ends = (PARTIAL, SUMMED) if reduces else (SHORT, BROUGHT) if brings else (ROWS, COLUMNS)
    options = {"timeout_s": TIMEOUT_S, **options}
    made = redist.Transfer(*ends, comm, mesh=redist.Mesh(x=comm.size), **options)
    comm.Barrier()
    return made


def tile(comm: MPI.Comm, t: redist.Transfer) -> Any:
    """This rank's part, not in C order: it passes through pools."""
    shape = t.input.shape
    return np.full(shape[::-1], comm.rank + 1.0).T


def wrong_with(comm: MPI.Comm, move: Callable[[], Any], bad: type[Exception]) -> str | None:
    """What is wrong with how a failure of the bad rank reaches this one."""
    start = time.monotonic()
    try:
        move()
    except Exception as error:
        caught: Exception | None = error
    else:
        caught = None
    seconds = time.monotonic() - start
    if seconds > SOON_S:
        return f"took {seconds:.1f} s"
    if comm.rank == BAD:
        return None if isinstance(caught, bad) else f"the bad rank raised {caught!r}"
    if not isinstance(caught, PeerError):
        return f"raised {caught!r}"
    text = str(caught)
    return None if f"rank {BAD}" in text and "injected" in text else f"says {text!r}"


def refuses(comm: MPI.Comm, move: Callable[[], Any]) -> str | None:
    """What is wrong with how a communicator is after a failure."""
    try:
        move()
    except TransferError as error:
        said = str(error)
        return None if "continue with a new one" in said else f"after it: {said!r}"
    return "the communicator was used again"


def works(comm: MPI.Comm, options: dict[str, Any]) -> str | None:
    """What is wrong with a good transfer."""
    for reduces in (False, True):
        with make(comm, reduces, **options) as t:
            got = t(tile(comm, t))
            if reduces:
                good = (got == sum(range(1, comm.size + 1))).all()
            else:
                good = (
                    got == np.repeat(np.arange(1.0, comm.size + 1), 96 // comm.size)[:, None]
                ).all()
            if not good:
                return "wrong data"
    return None


def raise_in_the_middle(comm: MPI.Comm, options: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Exceptions on one rank in every place where one may happen."""
    for name, owner, after, reduces in (
        ("first copy", CopyList, 0, False),
        ("later round", CopyList, 3, False),
        ("reduction", Combine, 1, True),
    ):
        own = comm.Dup()
        t = make(own, reduces, **options)
        again = partial(t, tile(own, t))
        with injected(owner, "run", after, out_of_memory):
            yield name, wrong_with(own, again, MemoryError)
        yield f"{name}: after", refuses(own, again)
        yield f"{name}: new", refuses(own, partial(make, own, **options))
    own = comm.Dup()
    t = make(own, **options)
    local = tile(own, t)

    def in_the_background() -> None:
        t.start(local)
        t.wait()

    with injected(CopyList, "run", 3, out_of_memory):
        yield "background", wrong_with(own, in_the_background, MemoryError)
    yield "background: after", refuses(own, lambda: t(local))
    own = comm.Dup()
    with injected(TransferStages, "of", 0, out_of_memory):
        yield "making", wrong_with(own, lambda: make(own, **options), MemoryError)
    yield "making: after", refuses(own, lambda: make(own, **options))
    yield "another communicator", works(comm.Dup(), options)


def come_late(comm: MPI.Comm, options: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """One rank does not come; the others say so, and it learns of it when it comes."""
    near = comm.Split_type(MPI.COMM_TYPE_SHARED)
    one_node = options == {"transport": "auto", "node_size": None} and near.size == comm.size
    near.Free()
    own = comm.Dup()
    t = make(own, **{**options, "timeout_s": LATE_S})
    local = tile(own, t)
    yield "late", lateness(own, lambda: t(local), names=one_node)
    yield "late: after", refuses(own, lambda: t(local))
    for after in (3, 7):
        own = comm.Dup()
        t = make(own, **{**options, "timeout_s": LATE_S})
        out = np.zeros(t.output.shape)
        yield "late in the middle", late_in_the_middle(own, t, tile(own, t), out, after)
    own = comm.Dup()
    t = make(own, brings=True, **{**options, "timeout_s": LATE_S})
    yield "late with opened tiles", late_in_the_middle(own, t, t.input, t.output, 0)
    own = comm.Dup()
    works(own, options)
    late = {**options, "timeout_s": LATE_S}
    yield "late to make", lateness(own, lambda: make(own, **late), names=False)


def late_in_the_middle(
    comm: MPI.Comm, t: redist.Transfer, local: Any, out: Any, after: int
) -> str | None:
    """What is wrong with arrays after the error: they are the caller's again, for good."""
    with injected(CopyList, "run", after, lambda: time.sleep(2 * LATE_S)):
        minded = False
        try:
            t(local, out)
        except PeerError:
            minded = True
        out[...], local[...] = -7.0, -8.0
    meet(comm)
    time.sleep(0.2)
    for _ in range(20):  # MPI has time to do what it still wants to do
        meet(comm)
    if not minded and comm.rank != BAD:  # to the last meeting all others had come
        return "nobody minded"
    return None if (out == -7.0).all() and (local == -8.0).all() else "an array was written later"


def lateness(comm: MPI.Comm, move: Callable[[], Any], names: bool) -> str | None:
    """What is wrong with how ranks wait for a late one."""
    if comm.rank == BAD:
        time.sleep(2 * LATE_S)
    start = time.monotonic()
    try:
        move()
    except PeerError as error:
        text = str(error)
    else:
        return "nobody minded"
    seconds = time.monotonic() - start
    if comm.rank == BAD:
        return None if seconds < 1.5 * LATE_S else f"the late rank waited {seconds:.1f} s"
    if not 0.9 * LATE_S < seconds < 2 * LATE_S:
        return f"waited {seconds:.1f} s"
    good = f"did not come within {LATE_S:g} s" in text and (f"rank {BAD} " in text or not names)
    return None if good else f"says {text!r}"


def disappear(comm: MPI.Comm, options: dict[str, Any], is_killed: bool) -> None:
    """Move without end, until the bad rank is killed by its own hand, or all are interrupted."""
    with make(comm.Dup(), **options) as t:
        local = tile(comm, t)
        t(local)
        sys.stdout.write(f"pid {os.getpid()} {' '.join(sorted(names_in_use()))}\n")
        sys.stdout.flush()
        meet(comm)
        if is_killed and comm.rank == BAD:
            threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        sys.stdout.write("moving\n")
        sys.stdout.flush()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            t(local)


def move_until_it_fails(comm: MPI.Comm, options: dict[str, Any], timeout_s: float) -> None:
    """Move without end; say what ended it, and how long after the last good call, then give up.

    MPI is not finalized: it would wait for those who are gone.
    """
    with make(comm.Dup(), **{**options, "timeout_s": timeout_s}) as t:
        local = tile(comm, t)
        t(local)
        print("moving", flush=True)
        good = time.monotonic()
        try:
            while time.monotonic() < good + 60:
                t(local)
                good = time.monotonic()
        except PeerError as error:
            seconds = time.monotonic() - good
            said = f"rank {comm.rank} says after {seconds:.1f} s: {error}\n"
            print(said, end="", flush=True)  # at once, so that lines of ranks do not mix
            time.sleep(2 * timeout_s)  # the others have something to say, too
    os._exit(3)


def names_in_use() -> set[str]:
    """Files of shared memory that this process has mapped and that have a name."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    return {name for name in re.findall(r"/dev/shm/\S+", maps) if Path(name).exists()}


RAISED = (
    *("first copy", "first copy: after", "first copy: new"),
    *("later round", "later round: after", "later round: new"),
    *("reduction", "reduction: after", "reduction: new"),
    "background", "background: after", "making", "making: after", "another communicator",
)  # fmt: skip
LATE = ("late", "late: after", "late in the middle", "late with opened tiles", "late to make")


def checks_on(ranks: int, args: Sequence[str]) -> tuple[str, ...]:
    """What is checked if ranks raise or come late; the other two programs end by force."""
    return {"raise": RAISED, "late": LATE}[args[0]]


def program() -> int:
    """0 if failures reach everyone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("raise", "late", "kill", "interrupt", "move"))
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S)
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--node-size", type=int, default=None)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    options = {"transport": args.transport, "node_size": args.node_size}
    if args.what == "move":
        move_until_it_fails(comm, options, args.timeout)
    if args.what in ("kill", "interrupt"):
        try:
            disappear(comm, options, args.what == "kill")
        except PeerError as error:
            print(f"rank {comm.rank} says: {error}", flush=True)
            sys.exit(3)
        except KeyboardInterrupt:
            print(f"rank {comm.rank} was interrupted", flush=True)
            sys.exit(130)
    cases = raise_in_the_middle if args.what == "raise" else come_late
    wrong = n = 0
    for name, said in cases(comm, options):
        wrong += not all_well(comm, name, said)
        n += 1
    if comm.rank == 0:
        print(f"{n - wrong} of {n} failures reach everyone", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
