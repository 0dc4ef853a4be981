"""Visits to rows on GPUs: in place on one GPU, copied ahead between GPUs of a node, moved between nodes.

As in ``mpirun -n 4 python -m tests.programs.gpu.visiting``; ``--without-gpu --gpus 2`` lets NumPy stand for
CuPy, on two pretended GPUs, ``--closed`` where nobody opens others' memory; ``--node-size 2`` pretends that
nodes have two ranks.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_device, to_host
from redist.spmd import Rows, Visits
from tests.fakes import opened_cupy
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
X = np.random.RandomState(0).normal(size=(203, 4)).astype("f4")
VISITS = 3
ASKED = argparse.Namespace()


def mates() -> list[int]:
    """Ranks whose tiles this one reads in place."""
    if ASKED.closed:
        return [RANK]
    width = ASKED.node_size or SIZE
    gpu, node = (
        [rank * ASKED.gpus // SIZE for rank in range(SIZE)],
        [r // width for r in range(SIZE)],
    )
    return [r for r in range(SIZE) if (gpu[r], node[r]) == (gpu[RANK], node[RANK])]


def rows_of(x: Any) -> Rows:
    return Rows.of(pgas.asarray(x, type="{x}, {}", device="cuda"), on_gpu=True)


def every_row_is_seen_once() -> str | None:
    """In any way, in every visit, the own rows first; nothing of this GPU is copied."""
    for x in (X, X[:2], X[:SIZE]):
        rows = rows_of(x)
        for prefetch, keep in ((True, 0), (False, 0), (True, 2**20)):
            visits = Visits(rows, prefetch=prefetch, keep_bytes=keep, node_size=ASKED.node_size)
            for _ in range(VISITS):
                seen = []
                for first, tile in visits:
                    if not is_device(tile):
                        return f"the tile is a {type(tile).__name__}"
                    seen.append((first, to_host(tile + 0)))
                if seen[0][0] != rows.first and len(rows.local):
                    return "others come before the own rows"
                found = np.concatenate([tile for _, tile in sorted(seen, key=lambda one: one[0])])
                if not np.array_equal(found, x):
                    return f"prefetch={prefetch}, keep_bytes={keep}: {found.shape} of {x.shape}"
    return None


def bytes_are_counted() -> str | None:
    """None are fetched from ranks of the same GPU; those of other GPUs once in a visit."""
    rows = rows_of(X)
    sizes = np.diff(rows.firsts()) * X.itemsize * X.shape[1]
    with redist.trace() as trace:
        visits = Visits(rows, keep_bytes=0, node_size=ASKED.node_size)
        for _ in range(VISITS):
            for _ in visits:
                pass
    counts, near = visits.counts, mates()
    far = int(sum(sizes)) - int(sum(sizes[near]))
    got = counts.in_place, counts.in_place_bytes, counts.fetched, counts.fetched_bytes
    per_visit = len(near), int(sum(sizes[near])), SIZE - len(near), far
    want = tuple(VISITS * one for one in per_visit)
    if got != want:
        return f"in place and fetched, tiles and bytes: {got} and not {want}"
    if not far and trace.moves:
        return f"moved\n{trace}"
    return None


def tiles_are_those_of_the_visit() -> str | None:
    """What a rank writes between two visits is seen in the next, and not in the one before."""
    rows = rows_of(np.zeros((4 * SIZE, 2)))
    visits = Visits(rows, keep_bytes=0, node_size=ASKED.node_size)
    own: Any = rows.local
    wrong = None
    for turn in range(VISITS):
        own[...] = to_device(np.full(own.shape, float(turn)))
        for first, tile in visits:  # to the end, whatever is wrong
            if not (to_host(tile) == turn).all():
                wrong = wrong or f"visit {turn}: rows from {first} are {to_host(tile)}"
    return wrong


CHECKS = {
    one.__name__: one
    for one in (every_row_is_seen_once, bytes_are_counted, tiles_are_those_of_the_visit)
}


def program() -> int:
    """0 if visits are right."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--without-gpu", action="store_true", help="NumPy stands for CuPy")
    parser.add_argument("--gpus", type=int, default=1, help="which all ranks share")
    parser.add_argument("--closed", action="store_true", help="nobody opens others' memory")
    parser.add_argument("--node-size", type=int)
    parser.parse_args(namespace=ASKED)
    if ASKED.without_gpu:
        opened_cupy.install(ASKED.gpus, not ASKED.closed)
    return run_named(CHECKS)


if __name__ == "__main__":
    main(program)
