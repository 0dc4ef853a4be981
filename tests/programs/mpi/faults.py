"""Requests that are wrong on some ranks: one error for all, nothing moved, and on with the next.

As in ``mpirun -n 4 python -m tests.programs.mpi.faults --transport mpi``.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from mpi4py import MPI

import tests.programs.mpi.calling
import tests.programs.mpi.making  # noqa: F401  (both register their faults)
from tests.programs.mpi.rows_to_columns import FAULTS, SOON_S, Fault, Scene
from tests.programs.together import all_well, main, meet

CHECKS = tuple(one.name for one in FAULTS)


def wrong_with(fault: Fault, comm: MPI.Comm, options: dict[str, Any]) -> str | None:
    """What one fault did that it should not have done, on this rank."""
    scene = Scene(comm, options)
    local, out = scene.local.copy(), scene.out.copy()
    start = time.monotonic()
    said: tuple[str, str] | None = None
    error: Exception | None = None
    try:
        fault.act(scene)
    except Exception as problem:
        error = problem
        said = type(error).__name__, str(error)
    meet(comm)
    everyone = comm.allgather(said)
    if said is None or any(other != said for other in everyone):
        return f"ranks say different things: {everyone}"
    if not isinstance(error, fault.kind):
        return f"{said} is no {fault.kind.__name__}"
    missing = [words for words in fault.says if words not in said[1]]
    if missing:
        return f"{said[1]!r} does not say {missing}"
    if time.monotonic() - start > SOON_S / 2:
        return f"took {time.monotonic() - start:.1f} s"
    if (scene.local != local).any() or (scene.out != out).any():
        return "data moved"
    with Scene(comm, options).transfer() as t:
        t(local, out)
    want = np.concatenate(
        [local[:, comm.rank] - 100 * comm.rank + 100 * r for r in range(comm.size)]
    )
    return None if (out[:, 0] == want).all() else "a good transfer right after went wrong"


def program() -> int:
    """0 if every fault is an error that all ranks share."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--node-size", type=int, default=None)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    assert comm.size == 4, "texts name ranks 0 to 3"
    options = {"transport": args.transport, "node_size": args.node_size}
    wrong = 0
    for one in FAULTS:
        if args.only in one.name:
            own = comm.Dup()
            try:
                said = wrong_with(one, own, options)
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
            wrong += not all_well(comm, one.name, said)
            own.Free()
    if comm.rank == 0:
        print(f"{len(FAULTS) - wrong} of {len(FAULTS)} faults are handled", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
