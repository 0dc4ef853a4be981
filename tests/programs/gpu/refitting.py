"""Refits between tiles on GPUs: random plans by memory and by messages, on a GPU or a pretended one.

As in ``mpirun -n 4 python -m tests.programs.gpu.refitting --pretend --n 30``. A pretended GPU puts work off,
and its memory lies in files that others map; it casts nothing.
"""

from __future__ import annotations

import argparse
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI

from redist.runtime.refit import program as compiled
from redist.runtime.refit.bind import bind
from tests.fakes import counted_gpu
from tests.problems.small_refits import Tiles, random_refit
from tests.programs.together import all_well, main

REFITS, MIXED = "refits between GPUs", "refits between the host and GPUs"
CHECKS = (REFITS, MIXED)
WAYS = [
    (transport, commit)
    for transport in ("ipc", "messages")
    for commit in ("copy", "swap", "in place")
]


def to_gpu(tiles: Tiles) -> Tiles:
    import cupy

    return {name: cupy.asarray(tile) for name, tile in tiles.items()}


def differs(have: Tiles, want: Tiles) -> str:
    """The first tile that is not as wanted; empty if none."""
    import cupy

    def host(tile: Any) -> Any:
        return tile if isinstance(tile, np.ndarray) else cupy.asnumpy(tile)

    wrong = [name for name in want if not np.array_equal(host(have[name]), want[name])]
    return wrong[0] if wrong else ""


def wrong_in(comm: MPI.Comm, seed: int, casts: bool, mixed: bool) -> str:
    """What is wrong on this rank with a random plan."""
    rng = Random(f"{seed} of {comm.size}")
    plan = random_refit(rng, comm.size)
    while (
        not casts
        and len({t.dtype for side in (plan.source, plan.target) for t in side.types.values()}) > 1
    ):
        plan = random_refit(rng, comm.size)
    compiled.DIRECT_BYTES = rng.choice([1, 16, 2**20])
    names = sorted(plan.source_tensors)
    changed = sorted(rng.sample(names, rng.randrange(len(names) + 1)))
    transport, commit = WAYS[seed % len(WAYS)]
    on_gpu = not mixed or rng.randrange(2**comm.size) >> comm.rank & 1
    move = to_gpu if on_gpu else dict
    given, got = move(plan.sending(comm.rank, 1)), move(plan.receiving(comm.rank))
    how = "auto" if mixed else transport
    with bind(plan, given, got, comm=comm, transport=how, commit=commit) as refit:
        if not mixed and refit.transport != transport:
            return f"by {refit.transport}"
        for version, some, before in ((1, None, 0), (2, changed, 1), (3, None, 0)):
            for name, values in plan.sending(comm.rank, version).items():
                given[name][...] = move({name: values})[name]
            refit.send(version, changed=some) if given else refit.receive()
            name = differs(refit.tiles, plan.wanted(comm.rank, version, some, before))
            if any(comm.allgather(name)):
                return (
                    f"seed {seed}, {refit.transport}, {commit}, version {version}: {name!r}"
                    if name
                    else ""
                )
    return ""


def program() -> int:
    """0 if all tiles are as wanted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pretend", action="store_true")
    parser.add_argument("--n", type=int, default=12)
    args = parser.parse_args()
    comm, well = MPI.COMM_WORLD, True
    if args.pretend:
        counted_gpu.install()
    for check, mixed in ((REFITS, False), (MIXED, True)):
        wrong: str | None = None
        for seed in range(args.n):
            try:
                wrong = wrong_in(comm, seed, not args.pretend, mixed) or None
            except Exception as problem:
                wrong = f"seed {seed}: {type(problem).__name__}: {problem}"
            if any(comm.allgather(wrong)):
                break
        well = all_well(comm, check, wrong) and well
    if comm.rank == 0 and well:
        print(f"{args.n} refits agree ({comm.size} ranks)", flush=True)
    return 0 if well else 1


if __name__ == "__main__":
    main(program)
