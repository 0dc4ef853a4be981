"""Random problems run by MPI ranks and compared with the simulator, bit for bit.

    mpirun -n 6 python -m tests.mpi.fuzz --n 500 --seed 0
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from bench.problems import KINDS, Problem, problems
from redist.errors import NoPlanError
from redist.runtime.simulator import random_tiles, simulate

VARIANTS = ("foreign", "own", "out", "fortran", "strided", "donate", "limit", "read-only")


def problems_for(size: int, n: int, seed: int) -> Iterator[Problem]:
    """Problems that ``size`` ranks can play, of every kind they allow."""
    devices = tuple(d for d in range(2, size + 1) if size % d == 0 or d == size - 1)
    kinds = tuple(k for k in KINDS if size > 1 or k in ("even",))
    if not any(d in (4, 6, 8) for d in devices):
        kinds = tuple(k for k in kinds if k != "sub-axes")
    if size == 1:
        mesh = redist.Mesh(x=1)
        for k in range(n):
            t = redist.ArrayType.parse(f"f64[{3 + k % 50}, {k % 7}]", mesh)
            yield Problem("even", t, t)
        return
    found = 0
    for problem in problems(50 * n, seed, kinds, devices):
        ranks = (*problem.source.mesh.ranks, *problem.target.mesh.ranks)
        if max(ranks) < size and problem.source.global_elems < 2_000_000:
            yield problem
            found += 1
            if found == n:
                return


def disguised(tile: np.ndarray[Any, Any], variant: str) -> np.ndarray[Any, Any]:
    """The same values in another memory layout."""
    match variant:
        case "fortran":
            return np.asfortranarray(tile)
        case "strided":
            wide = np.zeros((*tile.shape[:-1], 2 * tile.shape[-1]), tile.dtype) if tile.ndim else tile
            if tile.ndim:
                wide[..., ::2] = tile
                return wide[..., ::2]
            return tile
        case "read-only":
            tile = tile.copy()
            tile.setflags(write=False)
            return tile
        case _:
            return tile.copy()


def run_one(problem: Problem, variant: str, comm: MPI.Comm, seed: int, **options: Any) -> str | None:
    """What is wrong with the run of one problem on this rank, None if nothing is."""
    source, target = problem.source, problem.target
    if variant == "limit":
        try:
            plan = redist.synthesize(source, target, limit_bytes=1)
            least = plan.peak_bytes
        except NoPlanError as error:
            least = error.least_bytes
        options["limit_bytes"] = least + random.Random(seed).choice((0, 8, 100, 1024, 4096))
    transfer = redist.Transfer(source, target, comm, donate=variant == "donate", **options)
    tiles = random_tiles(source, seed)
    expected = None
    if comm.rank == 0:
        done = simulate(transfer.plan, tiles, transfer.topology).tiles
        expected = [done.get(rank) for rank in range(comm.size)]
    want = comm.scatter(expected)
    mine = tiles.get(comm.rank)
    for repeat in range(2):
        if variant == "own":
            if mine is not None:
                transfer.input[...] = mine
            got = transfer()
        else:
            local = None if mine is None else disguised(mine, variant)
            out = None if want is None or variant != "out" else np.full_like(want, 1)
            got = transfer(local, out)
            if variant == "out" and got is not out:
                return "out was not used"
            if variant != "donate" and mine is not None:
                assert local is not None
                if local.tobytes() != mine.tobytes():
                    return "the source was modified"
        if (got is None) != (want is None):
            return f"got {got}, want {want}"
        if got is not None and want is not None:
            if got.shape != want.shape or got.dtype != want.dtype:
                return f"got {got.dtype}{got.shape}, want {want.dtype}{want.shape}"
            if np.ascontiguousarray(got).tobytes() != want.tobytes():
                bad = np.argwhere(got != want)
                return f"repeat {repeat}: {len(bad)} of {got.size} elements differ, first {bad[:1]}"
    transfer.close()
    return None


def main() -> int:
    """0 if all ranks agree with the simulator on every problem."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--node-size", type=int, default=None)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    wrong = done = 0
    for number, problem in enumerate(problems_for(comm.size, args.n, args.seed)):
        variant = VARIANTS[number % len(VARIANTS)]
        said = run_one(
            problem,
            variant,
            comm,
            number,
            transport=args.transport,
            node_size=args.node_size,
            timeout_s=60.0,
        )
        said_all = comm.allgather(said)
        done += 1
        for rank, text in enumerate(said_all):
            if text is not None:
                wrong += 1
                if comm.rank == 0:
                    print(f"rank {rank}, {variant}, {problem}: {text}", flush=True)
                break
    if comm.rank == 0:
        print(f"{done - wrong} of {done} problems agree ({comm.size} ranks)", flush=True)
    return 1 if wrong or not done else 0


if __name__ == "__main__":
    sys.exit(main())
