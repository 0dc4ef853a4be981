"""Parts of arrays from every rank to every other, between GPUs: random counts, every byte compared.

As in ``mpirun -n 4 python -m tests.programs.gpu.parts --n 20 --gpus 2``, pretended GPUs that ranks share;
``--carrier pinned`` gives each rank one of its own, and ``--real`` is a real one that all share.
"""

from __future__ import annotations

import argparse
import contextlib
from typing import Any
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

from redist.runtime import passing
from redist.runtime.cuda import exchange as between_gpus
from redist.runtime.ranks import world as ranks
from tests.programs.gpu import carrying
from tests.programs.gpu.sharing import pretended_gpus
from tests.programs.together import all_well, main

COMM = MPI.COMM_WORLD
PARTS = "parts"
CHECKS = (PARTS,)
DTYPES = ("u1", "f4", "f8", "c16", "i2")


def passed(seed: int) -> str | None:
    """What is wrong with what came here; parts lie in any order in both arrays, with gaps."""
    import cupy

    rng, size, me = np.random.default_rng(seed), COMM.size, COMM.rank
    dtype = np.dtype(DTYPES[seed % len(DTYPES)])
    most = (0, 5, 3000)[seed % 3]
    counts = rng.integers(0, most + 1, (size, size)) * (rng.random((size, size)) < 0.7)
    if seed % 4 == 3:
        counts *= np.eye(size, dtype=np.int64)  # nothing passes between ranks
    gaps = rng.integers(0, 3, (2, size, size))
    orders = [[rng.permutation(size) for _ in range(size)] for _ in range(2)]
    starts, lengths = [], []
    for side, table in enumerate((counts, counts.T)):
        own = np.zeros((size, size), np.int64)
        sizes = np.zeros(size, np.int64)
        for rank in range(size):
            at = 0
            for other in orders[side][rank]:
                own[rank, other] = at
                at += int(table[rank, other] + gaps[side, rank, other])
            sizes[rank] = at
        starts.append(own)
        lengths.append(sizes)
    data = [rng.integers(0, 256, int(n) * dtype.itemsize, np.uint8).view(dtype) for n in lengths[0]]
    want = np.full(int(lengths[1][me]) * dtype.itemsize, 0xA5, np.uint8).view(dtype)
    out = cupy.asarray(want)
    for other in range(size):
        n, of, to = counts[other, me], starts[0][other, me], starts[1][me, other]
        want[to : to + n] = data[other][of : of + n]
    received = passing.exchange(
        COMM,
        cupy.asarray(data[me]),
        (counts[me], starts[0][me]),
        out,
        (counts[:, me], starts[1][me]),
    )
    if received != int(counts[:, me].sum() - counts[me, me]) * dtype.itemsize:
        return f"{received} bytes were counted"
    return None if cupy.asnumpy(out).tobytes() == want.tobytes() else f"{dtype}: other bytes"


def program() -> int:
    """0 if every byte is where it must be."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=15)
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--carrier")
    parser.add_argument("--real", action="store_true")
    args = parser.parse_args()
    transport = "auto"
    if args.carrier is not None:
        transport = "mpi"
        carrying.install(args.carrier, pretends=True)
    place: Any = contextlib.nullcontext()
    if args.gpus is not None:
        place = pretended_gpus(args.gpus)

    def world_of(comm: Any, timeout_s: float | None = None) -> Any:
        return ranks.world_of(comm, transport, None, timeout_s)

    bad = 0
    with place, patch.object(between_gpus, "world_of", world_of):
        for seed in range(args.n):
            bad += not all_well(COMM, PARTS, passed(seed), str(seed))
    if COMM.rank == 0:
        print(f"{args.n} exchanges, {bad} wrong ({COMM.size} ranks)", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    main(program)
