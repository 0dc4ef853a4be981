"""The same transfer with other arrays in every call, chosen by every rank for itself.

What a rank did in the call before must never matter: neither to it, nor to its neighbours, who may
have repeated theirs. As in ``mpirun -n 4 python -m tests.programs.mpi.mixing --n 100``.
"""

from __future__ import annotations

import argparse
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import redist
from redist.runtime.shm.segments import shared_empty
from redist.runtime.simulator import random_tiles, simulate
from tests.programs.mpi.ways import Dressed
from tests.programs.together import all_well, main, meet

Array = NDArray[Any]

TIMEOUT_S = 60.0
PROBLEMS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("i64[256{x,y}, 1024]", "i64[256, 1024{x,y}]", {}),
    ("i64[250{x,y}, 130]", "i64[250, 130{y,x}]", {}),
    ("i64[256{x}, 1024{y}]", "i64[256{y}, 1024{x}]", {}),
    ("i64[256{x}, 1024{y}]", "i64[256{y}, 1024{x}]", {"strategy": "no_permute"}),
    ("i64[64{x}, 1024] sum{y}", "i64[64, 1024{y}]", {}),
    ("i64[64, 1024] sum{x,y}", "i64[64, 1024]", {"strategy": "direct"}),
    ("i64[64, 1024{y}] sum{x}", "i64[64{x}, 1024] sum{y}", {}),
    ("i64[16{x,y}, 8]", "i64[16, 8{x,y}]", {}),
    ("i64[64{x}, 512]", "i64[64{x}, 512]", {}),
)
CHECKS = tuple(
    " ".join([source, "->", target, *map(str, more.values())]) for source, target, more in PROBLEMS
)
PLACES = ("plain", "plain", "fortran", "strided", "shared", "own", "new")


class Mix:
    """A transfer, and arrays of many kinds to call it with."""

    def __init__(self, comm: MPI.Comm, number: int, options: dict[str, Any]) -> None:
        source, target, more = PROBLEMS[number]
        mesh = redist.Mesh(x=2, y=comm.size // 2)
        self.comm, self.number, self.rng = comm, number, Random(1000 * number + comm.rank)
        self.transfer = redist.Transfer(source, target, comm, mesh=mesh, **more, **options)
        plan = self.transfer.plan
        tiles = random_tiles(plan.source, number)
        with np.errstate(over="ignore"):
            ends = [
                simulate(plan, {r: tile + k for r, tile in tiles.items()}, self.transfer.topology)
                for k in (0, 1)
            ]
        self.before, self.after = tiles[comm.rank], ends[0].tiles[comm.rank]
        self.slope = ends[1].tiles[comm.rank] - self.after
        self.sources = [self._place(place, self.before, True) for place in PLACES]
        self.outs = [self._place(place, self.after, False) for place in PLACES]
        self.source, self.out = self.sources[0], self.outs[-1]

    def _place(self, place: str, like: Array, is_source: bool) -> Array | None:
        if place == "own":
            return self.transfer.input if is_source else self.transfer.output
        if place == "new":
            return like.copy() if is_source else None
        if place == "shared":
            return shared_empty(like.shape, like.dtype)
        return Dressed(like, place).array

    def wrong(self, call: int) -> str | None:
        """Move other values, from and to some arrays; what is wrong with the result."""
        if self.rng.random() < 0.3:
            self.source = self.rng.choice(self.sources)
        if self.rng.random() < 0.3:
            self.out = self.rng.choice(self.outs)
        source, out = self.source, self.out
        assert source is not None
        with np.errstate(over="ignore"):
            np.copyto(source, self.before + call)
            got = self.transfer(source, out)
            want = self.after + call * self.slope
        if out is not None and got is not out:
            return "out was not used"
        bad = int(np.count_nonzero(got != want))
        # A tile of the caller's is the caller's again: whoever still reads it reads this.
        np.copyto(source, -1)
        return f"call {call}: {bad} of {want.size} elements are wrong" if bad else None


def program() -> int:
    """0 if every call moved what it should."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--node-size", type=int, default=None)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    options = {
        "transport": args.transport,
        "node_size": args.node_size,
        "timeout_s": TIMEOUT_S,
    }
    mixes = [Mix(comm, number, options) for number in range(len(PROBLEMS))]
    said: dict[int, str] = {}
    order = Random(0)
    for call in range(args.n * len(mixes)):
        mix = mixes[order.randrange(len(mixes))] if call % 7 else mixes[call % len(mixes)]
        for again in range(order.choice((1, 4))):
            text = mix.wrong(10 * call + again)
            if text is not None:
                said.setdefault(mix.number, text)
    meet(comm)
    wrong = sum(not all_well(comm, check, said.get(number)) for number, check in enumerate(CHECKS))
    if comm.rank == 0:
        print(f"{len(mixes) - wrong} of {len(mixes)} transfers are right every time", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
