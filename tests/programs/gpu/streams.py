"""Transfers on several streams at once: nobody waits, sources are overwritten, results used at once.

All of them share pinned memory for the largest.
As in ``mpirun -n 4 python -m tests.programs.gpu.streams``; ``--carrier``, ``--pretend``
and ``--real`` as for ``carrying``.
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from tests.fakes import nccl_doubles as doubles
from tests.fakes import pretended_cupy as pretend
from tests.programs.gpu import carrying
from tests.programs.gpu.memory import Counted
from tests.programs.together import all_well, main

CALLS = 6
TIMEOUT_S = 60.0
SHAPE = (120, 132)
ROWS, COLUMNS = "i64[120{x}, 132]", "i64[120, 132{x}]"


def whole(number: int) -> Any:
    """All values of call ``number``."""
    return (np.arange(SHAPE[0] * SHAPE[1], dtype="i8") * 7 + 10**6 * number).reshape(SHAPE)


def tile(values: Any, dim: int, comm: MPI.Comm) -> Any:
    """What this rank has of them, cut along a dim."""
    n = -(-values.shape[dim] // comm.size)
    part = slice(n * comm.rank, n * (comm.rank + 1))
    return np.ascontiguousarray(values[part] if dim == 0 else values[:, part])


def wrong(comm: MPI.Comm, options: dict[str, Any]) -> str | None:
    """What is wrong on this rank; None if nothing."""
    import cupy

    mesh = redist.Mesh(x=comm.size)
    makes = [(ROWS, COLUMNS, 0), (COLUMNS, ROWS, 1)] * 2
    transfers = [redist.Transfer(a, b, comm, mesh=mesh, **options) for a, b, _ in makes]
    two = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    streams = [two[0], two[0], two[1], two[1]]
    sources = [cupy.asarray(tile(whole(0), dim, comm)) for _, _, dim in makes]
    news = [[cupy.asarray(tile(whole(k), dim, comm)) for k in range(CALLS)] for _, _, dim in makes]
    cupy.cuda.get_current_stream().synchronize()
    used: list[tuple[int, int, Any]] = []
    count = Counted()
    for number, (k, transfer) in itertools.product(range(CALLS), enumerate(transfers)):
        with streams[k], count.watching():
            sources[k][...] = news[k][number]
            out = transfer(sources[k])
            sources[k][...] = -1  # whoever reads it from now on reads this
            copy = cupy.empty(out.shape, out.dtype)
            copy[...] = out  # at once, on the stream of the call
            out[...] = -2
            del out  # its memory is lent again
            used.append((k, number, copy))
    most = max(step.staging_bytes for transfer in transfers for step in transfer.plan.steps)
    if count.pinned > most:
        return f"{count.pinned} pinned bytes, staging {most}"
    for k, number, copy in used:
        with streams[k]:
            have = cupy.asnumpy(copy)
        if not np.array_equal(have, tile(whole(number), 1 - makes[k][2], comm)):
            bad = np.count_nonzero(have != tile(whole(number), 1 - makes[k][2], comm))
            return f"call {number} of transfer {k}: {bad} of {have.size} elements differ"
    return None


CHECKS = ("with the least limit", "without a limit")


def program() -> int:
    """0 if every result was right."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--carrier", choices=carrying.CARRIERS)
    parser.add_argument("--pretend", action="store_true")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--node-size", type=int)
    parser.add_argument("--round-bytes", type=int)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    if args.round_bytes is not None:
        carrying.in_small_rounds(args.round_bytes)
    if args.carrier is not None:
        carrying.install(args.carrier, args.pretend, args.real)
    elif args.pretend:
        pretend.install(f"gpu {comm.rank}", doubles.Nccl(doubles.put_off))
    options = {
        "transport": args.transport,
        "node_size": args.node_size,
        "timeout_s": TIMEOUT_S,
    }
    least = redist.synthesize(ROWS, COLUMNS, mesh=redist.Mesh(x=comm.size)).peak_bytes
    well = True
    for check, limit in zip(CHECKS, (least, None), strict=True):
        said = wrong(comm, {**options, "limit_bytes": limit})
        well = all_well(comm, check, said) and well
    if well and comm.rank == 0:
        print(f"two streams at once agree ({comm.size} ranks)", flush=True)
    return 0 if well else 1


if __name__ == "__main__":
    main(program)
