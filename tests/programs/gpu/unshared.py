"""An array in memory that the last rank cannot share: one error on all ranks, and all goes on.

As in ``mpirun -n 3 python -m tests.programs.gpu.unshared --what source``; on a pretended GPU.
"""

from __future__ import annotations

import argparse

import numpy as np
from mpi4py import MPI

import redist
from redist.runtime.cuda.transports import opened_memory
from redist.runtime.cuda.transports.opened_memory import OpenedMemory
from tests.fakes import counted_gpu as lent
from tests.programs.gpu import sharing
from tests.programs.together import main

REFUSED: set[int] = set()


def place_of(address: int) -> OpenedMemory:
    """As everywhere, but for some memory."""
    if address in REFUSED:
        raise RuntimeError("invalid argument")
    return sharing.place_of(address)


def donated(comm: MPI.Comm) -> int:
    """0 if a source is whole after its call was refused, though it is given up in a first stage."""
    import cupy

    mesh = redist.Mesh(x=2, y=comm.size // 2)
    transfer = redist.Transfer(
        "f64[8{x}, 8]", "f64[8, 8{y}]", comm, mesh=mesh, donate=True, strategy="collectives"
    )
    local, out = cupy.full((4, 8), 7.0, np.float64), cupy.empty((8, 16 // comm.size), np.float64)
    if comm.rank == comm.size - 1:
        REFUSED.add(int(out.data.ptr))
    try:
        transfer(local, out)
        said = "nobody minded"
    except redist.RequestError:
        said = "" if local.shape == (4, 8) else f"the source is {local.shape}"
    if said or len(transfer.plan.steps) < 2:
        print(f"WRONG rank {comm.rank}: {said}, {len(transfer.plan.steps)} steps", flush=True)
        return 1
    if comm.rank == 0:
        print("refused, and nothing was given up", flush=True)
    return 0


def program() -> int:
    """0 if all ranks get the error and the same communicator can be used after it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--what", choices=("source", "target", "donated"), default="source")
    what = parser.parse_args().what
    lent.install()
    opened_memory.place_of = place_of
    import cupy

    comm = MPI.COMM_WORLD
    if what == "donated":
        return donated(comm)
    mesh = redist.Mesh(x=comm.size)
    n = 4 * comm.size
    whole = np.arange(n * n, dtype=np.float64).reshape(n, n)
    rows = slice(4 * comm.rank, 4 * comm.rank + 4)
    transfer = redist.Transfer(f"f64[{n}{{x}}, {n}]", f"f64[{n}, {n}{{x}}]", comm, mesh=mesh)
    well = 0
    for number in range(4):
        local, out = cupy.asarray(whole[rows]), cupy.empty((n, 4), np.float64)
        bad = number % 2 == 0  # also the very first call
        if bad and comm.rank == comm.size - 1:
            REFUSED.add(int((local if what == "source" else out).data.ptr))
        try:
            got = cupy.asnumpy(transfer(local, out))
            well += not bad and np.array_equal(got, whole[:, rows])
        except redist.RequestError as error:
            well += bad and f"cannot share the {what} tile with other ranks" in str(error)
        REFUSED.clear()
    if comm.allreduce(well) != 4 * comm.size:
        print(f"WRONG rank {comm.rank}: {well} of 4 calls", flush=True)
        return 1
    if comm.rank == 0:
        print(f"refused on all {comm.size} ranks, then well", flush=True)
    return 0


if __name__ == "__main__":
    main(program)
