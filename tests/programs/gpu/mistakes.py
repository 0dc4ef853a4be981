"""Calls that are wrong on one rank, or that only some ranks can judge: one error on all, and on it goes.

As in ``mpirun -n 3 python -m tests.programs.gpu.mistakes``; ``--pretend ipc`` and ``--pretend apart`` need no
GPU: with the second, ranks cannot open each other's memory.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist.errors import RequestError
from tests.fakes import counted_gpu as lent
from tests.programs.gpu import carrying
from tests.programs.together import all_well, main

TIMEOUT_S = 20.0
ROWS, COLUMNS = "f64[12{x}, 6]", "f64[12, 6{x}]"


class Refusing:
    """An array of a GPU that its owner does not give away."""

    @property
    def __cuda_array_interface__(self) -> Any:
        raise RuntimeError("it is being watched")


class Locked:
    """An array of a GPU that must not be written."""

    def __init__(self, array: Any) -> None:
        address = int(array.data.ptr)
        shape, kind = array.shape, array.dtype.str
        self._kept = array
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": kind, "data": (address, True), "version": 3,
        }  # fmt: skip


def outcome(comm: MPI.Comm, call: Callable[[], Any], wanted: str | None) -> str | None:
    """What is wrong with how a call went: all ranks must have one error, or none."""
    said: str | None = None
    try:
        call()
    except RequestError as error:
        said = str(error)
    told = comm.allgather(said)
    if len(set(told)) > 1:
        return f"ranks were told {told}"
    if wanted is None:
        return None if said is None else f"it says {said}"
    return None if said is not None and wanted in said else f"it says {said}, not {wanted}"


def lone(comm: MPI.Comm) -> str | None:
    """Mistakes of rank 0 alone."""
    import cupy

    mesh = redist.Mesh(x=comm.size)
    transfer = redist.Transfer(ROWS, COLUMNS, comm, mesh=mesh, timeout_s=TIMEOUT_S)
    plain = np.zeros((12 // comm.size, 6))
    good = cupy.asarray(plain)
    target = cupy.zeros((12, 6 // comm.size), "f8")
    wrong: dict[str, tuple[Any, Any]] = {
        "passed float64[5, 6] as source tile": (cupy.zeros((5, 6), "f8"), None),
        "in memory": (plain, None),
        "it is being watched": (Refusing(), None),
        "out is in memory": (good, np.zeros((12, 6 // comm.size))),
        "out is read-only": (good, Locked(target)),
    }
    for text, (local, out) in wrong.items():
        bad = local if comm.rank == 0 else good

        def call(local: Any = bad, out: Any = out if comm.rank == 0 else None) -> Any:
            return transfer(local, out)

        said = outcome(comm, call, text) or outcome(comm, lambda: transfer(good), None)
        if said is not None:
            return f"{text}: {said}"
    return None


def batch(comm: MPI.Comm) -> str | None:
    """Arrays in memory and on a GPU in one call."""
    import cupy

    mesh = redist.Mesh(x=comm.size)
    ends = {"a": ROWS, "b": ROWS}, {"a": COLUMNS, "b": COLUMNS}
    transfer = redist.Transfer(*ends, comm, mesh=mesh, timeout_s=TIMEOUT_S)
    plain = np.zeros((12 // comm.size, 6))
    good = cupy.asarray(plain)
    wanted = "the source tile 'b' is in memory and other arrays of the call are on a GPU"
    return outcome(comm, lambda: transfer({"a": good, "b": plain}), wanted) or outcome(
        comm, lambda: transfer({"a": good, "b": good}), None
    )


def elsewhere(comm: MPI.Comm) -> str | None:
    """Ranks that have no array cannot know where those of others lie, this time or the next."""
    import cupy

    few = redist.Mesh(x=comm.size - 1)
    ends = f"f64[{2 * (comm.size - 1)}{{x}}, 6]", f"f64[{2 * (comm.size - 1)}, 6{{x}}]"
    there: dict[str, Any] = {"target_mesh": redist.Mesh({"x": 1}, ranks=[comm.size - 1])}
    options: dict[str, Any] = {"mesh": few, "timeout_s": TIMEOUT_S}
    outside = redist.Transfer(*ends, comm, **options)
    across = redist.Transfer(ends[0], ends[0], comm, **options, **there)
    plain = np.ones((2, 6))
    for transfer in (outside, across):
        for on_gpu in (False, False, True, True, False, False, True):
            has = comm.rank < comm.size - 1
            local = (cupy.asarray(plain) if on_gpu else plain) if has else None

            def call(transfer: Any = transfer, local: Any = local) -> Any:
                return transfer(local)

            said = outcome(comm, call, None)
            if said is not None:
                return f"{'GPU' if on_gpu else 'memory'}: {said}"
    return None


def started(comm: MPI.Comm) -> str | None:
    """What was started on a stream comes after what was put there before."""
    import cupy

    mesh = redist.Mesh(x=comm.size)
    transfer = redist.Transfer(ROWS, COLUMNS, comm, mesh=mesh, timeout_s=TIMEOUT_S)
    for number in range(3):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            local = cupy.zeros((12 // comm.size, 6), "f8")
            for _ in range(50):
                local[...] = number + 1.0
            transfer.start(local)
            got = transfer.wait()
            local[...] = -1.0
            have = cupy.asnumpy(got)
        if len(have) != 12 or not (have == number + 1.0).all():  # the last ranks may hold nothing
            return f"call {number}: {have.tolist()}"
    return None


def restated(comm: MPI.Comm) -> str | None:
    """The same request in other words on one rank: what ranks remember of it differs then."""
    import cupy

    mesh = redist.Mesh(x=comm.size)
    types = [redist.ArrayType.parse(text, mesh) for text in (ROWS, COLUMNS)]
    plain = np.ones((12 // comm.size, 6))

    def call(local: Any, ends: list[Any]) -> Any:
        return redist.redistribute(local, ends[0], ends[1], comm, mesh=mesh, timeout_s=TIMEOUT_S)

    told = [ROWS, COLUMNS]
    turns = [(cupy.asarray(plain), told), (plain, types if comm.rank == 0 else told)]
    for local, ends in (*turns, turns[0], turns[0]):
        said = outcome(comm, lambda local=local, ends=ends: call(local, ends), None)  # type: ignore[misc]
        if said is not None:
            return said
    return None


CHECKS = {
    "lone": lone,
    "batch": batch,
    "elsewhere": elsewhere,
    "started": started,
    "restated": restated,
}


def program() -> int:
    """0 if every mistake was told to all, and nothing else was one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pretend", choices=("ipc", "apart"))
    args = parser.parse_args()
    if args.pretend == "ipc":
        lent.install()
    elif args.pretend == "apart":
        carrying.install("pinned", True)
    comm = MPI.COMM_WORLD
    good = all([all_well(comm, name, check(comm)) for name, check in CHECKS.items()])
    if comm.rank == 0 and good:
        print(f"mistakes are told alike ({comm.size} ranks)", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    main(program)
