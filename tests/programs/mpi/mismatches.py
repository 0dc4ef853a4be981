"""Prepared transfers of which one rank calls another, or none, or brings other arrays: one error for all.

Nothing of the caller's is written, neither what it gives as ``out`` nor a transfer's own output, and the next
call is right. As in ``mpirun -n 4 python -m tests.programs.mpi.mismatches --n 40 --node-size 1``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import redist
from redist.runtime.simulator import random_tiles, simulate
from tests.programs.together import all_well, main, meet

Array = NDArray[Any]

SOON_S = 20.0
PROBLEMS = (
    ("i64[64{x}, 64]", "i64[64, 64{x}]"),
    ("i64[67{x}, 65]", "i64[67, 65{x}]"),
    ("i64[1024{x}, 512]", "i64[1024, 512{x}]"),
    ("i64[640{x}]", "i64[640]"),
    ("i64[64, 8] sum{x}", "i64[64{x}, 8]"),
    ("i64[4096] sum{x}", "i64[4096]"),
    ("two meshes", "two meshes"),
)
"""Small ones pass in letters, the third in rounds of messages, all-reduces in two stages."""
WAYS = ("another transfer", "calls twice", "a wrong shape", "a wrong dtype",
        "a read-only out", "a new request", "a request prepared by redistribute")  # fmt: skip
BY_REDISTRIBUTE = WAYS[-2:]
"""It knows the nodes as they are: where ranks pretend to be on others, nothing joins it with transfers."""
BETWEEN = "calls in between"


def ways_with(args: Sequence[str]) -> tuple[str, ...]:
    """What is tried with these arguments."""
    pretends = any(one in args for one in ("--transport", "--node-size"))
    return tuple(way for way in WAYS if not (pretends and way in BY_REDISTRIBUTE))


def checks_on(ranks: int, args: Sequence[str]) -> tuple[str, ...]:
    """What is checked with these arguments."""
    return *ways_with(args), BETWEEN


class Prepared:
    """A transfer, and what its tiles are before and after."""

    def __init__(self, comm: MPI.Comm, number: int, options: dict[str, Any]) -> None:
        source, target = PROBLEMS[number]
        mesh = redist.Mesh(x=comm.size)
        types: tuple[Any, Any] = source, target
        if source == "two meshes":
            half = comm.size // 2
            here, there = range(half), range(comm.size - half, comm.size)
            ends = (redist.Mesh({"x": half}, ranks=ranks) for ranks in (here, there))
            a, b = (redist.ArrayType.parse("i64[64{x}, 8]", one) for one in ends)
            types = a, b
        self.types, self.mesh, self.comm = types, mesh, comm
        self.transfer = redist.Transfer(*types, comm, mesh=mesh, **options)
        plan = self.transfer.plan
        tiles = random_tiles(plan.source, number)
        with np.errstate(over="ignore"):
            more = {rank: tile + 1 for rank, tile in tiles.items()}
            after, later = (
                simulate(plan, one, self.transfer.topology).tiles for one in (tiles, more)
            )
        self.before: Array | None = tiles.get(comm.rank)
        self.after: Array | None = after.get(comm.rank)
        self.slope = None if self.after is None else later[comm.rank] - self.after

    def local(self, value: int) -> Array | None:
        """This rank's source, new each time."""
        with np.errstate(over="ignore"):
            return None if self.before is None else self.before + value

    def out(self) -> Array | None:
        """An array for the result in which nothing may be written."""
        return None if self.after is None else np.full_like(self.after, -7)

    def wrong(self, value: int) -> str | None:
        """Call it on all ranks, sometimes between its own buffers; what is wrong with the result."""
        own = value % 3 == 0
        out = self.out()
        local = self.local(value)
        if own and local is not None:
            np.copyto(self.transfer.input, local)
        got = self.transfer() if own else self.transfer(local, out)
        if self.after is None or self.slope is None:
            return None if got is None else "a result where there is none"
        with np.errstate(over="ignore"):
            bad = int(np.count_nonzero(got != self.after + value * self.slope))
        return f"{bad} of {got.size} elements are wrong" if bad else None


def misuse(way: str, one: Prepared, other: Prepared, value: int, out: Array | None) -> None:
    """What the bad rank does where others call ``one`` once."""
    local, comm = one.local(value), one.comm
    match way:
        case "another transfer" | "calls twice":
            other.transfer(other.local(value), other.out())
        case "a wrong shape":
            one.transfer(np.zeros((3, 1), np.int64), out)
        case "a wrong dtype":
            one.transfer(np.zeros((4, 4), np.float32), out)
        case "a read-only out":
            closed = np.zeros((5, 5, 5), np.int64)
            closed.flags.writeable = False
            one.transfer(local, closed)
        case "a new request":
            text = f"i64[{1000 + value}{{x}}]"
            redist.redistribute(None, text, text[:-4] + "]", comm, mesh=one.mesh)
        case _:
            redist.redistribute(other.local(value), *other.types, comm, mesh=other.mesh)


def trial(all_: list[Prepared], way: str, rng: Random, value: int) -> str | None:
    """One mismatch, and a good call after it; what is wrong on this rank."""
    comm = all_[0].comm
    one, other = rng.sample(all_, 2)
    bad = rng.randrange(comm.size)
    before = other.wrong(value + 1) if way == "calls twice" else None
    if before is not None:
        return f"before: {before}"
    out = one.out()
    own = one.transfer.output
    own_before = None if own is None else own.copy()
    start = time.monotonic()
    caught: str | None = None
    try:
        if comm.rank == bad:
            misuse(way, one, other, value, out)
        else:
            one.transfer(one.local(value), out)
    except redist.RedistError as error:
        caught = f"{type(error).__name__}: {error}"
    meet(comm)
    said = comm.allgather(caught)
    if caught is None or len(set(said)) > 1:
        return f"{one.types}, rank {bad} otherwise: ranks say {said}"
    if time.monotonic() - start > SOON_S:
        return f"took {time.monotonic() - start:.1f} s"
    if out is not None and (out != -7).any():
        return f"{one.types}: {np.count_nonzero(out != -7)} elements of out were written"
    if own_before is not None and not np.array_equal(own, own_before):
        return f"{one.types}: the transfer's own output was written"
    again = rng.choice((one, other))
    wrong = again.wrong(value + 2)
    return None if wrong is None else f"after it {again.types}: {wrong}"


def program() -> int:
    """0 if every mismatch is one error, and every other call is right."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--node-size", type=int, default=None)
    args = parser.parse_args()
    comm, ways = MPI.COMM_WORLD, ways_with(sys.argv)
    options = {"transport": args.transport, "node_size": args.node_size, "timeout_s": 20.0}
    all_ = [Prepared(comm, number, options) for number in range(len(PROBLEMS))]
    rng = Random(args.seed)
    said: dict[str, str] = {}
    for number in range(args.n):
        for way in ways:
            wrong = trial(all_, way, rng, 10 * number)
            if wrong is not None:
                said.setdefault(way, wrong)
        for one in rng.sample(all_, 3):
            wrong = one.wrong(10 * number + 5)
            if wrong is not None:
                said.setdefault(BETWEEN, wrong)
    wrongs = sum(not all_well(comm, check, said.get(check)) for check in (*ways, BETWEEN))
    if comm.rank == 0:
        print(f"{args.n * len(ways)} mismatches, {wrongs} kinds of them wrong", flush=True)
    return 1 if wrongs else 0


if __name__ == "__main__":
    main(program)
