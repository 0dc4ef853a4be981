"""Plans written as programs of plain mpi4py, run by the ranks: values by the simulator's judge, and bytes.

As in ``mpirun -n 4 python -m tests.programs.mpi.texts --n 100 --seed 0``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.plan.steps import ReduceScatter
from redist.runtime.simulator import is_correct, random_tiles
from tests.problems.segments import KINDS, random_pair
from tests.programs.mpi.cases import problems_for
from tests.programs.together import all_well, main

STRATEGIES = ("collectives", "auto", "no_permute", "direct")
CHECKS = ("values", "bytes")


class Counted:
    """A communicator that counts the bytes which its rank receives from others."""

    def __init__(self, comm: Any, counts: list[int]) -> None:
        self.comm, self.counts = comm, counts
        self.rank = MPI.UNDEFINED if comm == MPI.COMM_NULL else comm.rank
        self.size = 0 if comm == MPI.COMM_NULL else comm.size

    def Split(self, color: int, key: int) -> Counted:
        return Counted(self.comm.Split(color, key), self.counts)

    def Free(self) -> None:
        self.comm.Free()

    def _count(self, n_bytes: int) -> None:
        self.counts[0] += n_bytes

    def Alltoall(self, sent: Any, got: Any) -> None:
        self._count(got.nbytes // self.size * (self.size - 1))
        self.comm.Alltoall(sent, got)

    def Allgather(self, sent: Any, got: Any) -> None:
        self._count(got.nbytes - sent.nbytes)
        self.comm.Allgather(sent, got)

    def Reduce_scatter_block(self, sent: Any, got: Any, op: Any) -> None:
        self._count(got.nbytes * (self.size - 1))
        self.comm.Reduce_scatter_block(sent, got, op)

    def Allreduce(self, sent: Any, got: Any, op: Any) -> None:
        # As in a ring: each scatters its sums and gathers them; rounded as the plan rounds.
        if self.rank == 0:
            self._count(2 * (self.size - 1) * got.nbytes)
        self.comm.Allreduce(sent, got, op)

    def Irecv(self, got: Any, sender: int, tag: int) -> Any:
        self._count(got.nbytes)
        return self.comm.Irecv(got, sender, tag)

    def Isend(self, sent: Any, receiver: int, tag: int) -> Any:
        return self.comm.Isend(sent, receiver, tag)


def run_text(comm: MPI.Comm, plan: redist.Plan, seed: int) -> dict[str, str | None]:
    """**Collective.** What is wrong with the values and with the bytes."""
    names: dict[str, Any] = {"__name__": "text"}
    exec(compile(plan.to_mpi4py(), "text", "exec"), names)
    tiles = random_tiles(plan.source, seed)
    mine = tiles.get(comm.rank)
    given = None if mine is None else mine.copy()
    counts = [0]
    with np.errstate(over="ignore"):
        after = names["move"](given, Counted(comm, counts))
    if mine is not None and mine.tobytes() != given.tobytes():  # type: ignore[union-attr]
        return {"values": "the tile of the caller was changed", "bytes": None}
    everyone = dict(enumerate(comm.allgather(after)))
    held = {rank: tile for rank, tile in everyone.items() if tile is not None}
    wanted = set(plan.target.mesh.rank_array().tolist())
    got = {rank: tile for rank, tile in held.items() if rank in wanted}
    values = None if is_correct(plan, tiles, got) else "values differ"
    total = comm.allreduce(counts[0])
    loose = any(isinstance(step.action, ReduceScatter) for step in plan.steps)
    good = total == plan.received_bytes or (loose and total < plan.received_bytes)
    return {"values": values, "bytes": None if good else f"{total} for {plan.received_bytes} bytes"}


def plans_for(n_ranks: int, n: int, seed: int) -> Iterator[tuple[str, redist.Plan]]:
    """Plans of random problems, and how to name them; every third has dims with segments."""
    plain = problems_for(n_ranks, seed)
    for number in range(n):
        if number % 3 == 2 and n_ranks > 1:
            kind = KINDS[number // 3 % len(KINDS)]
            ends = [
                ArrayType.parse(one.text("i64"), Mesh(one.mesh))
                for one in random_pair(seed + number, n_ranks, kind)
            ]
            yield f"{ends[0]} -> {ends[1]}", redist.synthesize(*ends)
        else:
            problem, strategy = next(plain), STRATEGIES[number % len(STRATEGIES)]
            plan = redist.synthesize(problem.source, problem.target, strategy=strategy)
            yield f"{strategy}: {problem}", plan


def program() -> int:
    """0 if every text does what its plan says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    wrong = refused = 0
    for number, (name, plan) in enumerate(plans_for(comm.size, args.n, args.seed)):
        try:
            plan.to_mpi4py()
        except redist.ConversionError:
            refused += 1
            continue
        ranks = [int(rank) for t in (plan.source, plan.target) for rank in t.mesh.rank_array()]
        part = comm.Split(0 if comm.rank <= max(ranks) else MPI.UNDEFINED, comm.rank)
        found: dict[str, str | None] = {}
        if part != MPI.COMM_NULL:
            found = run_text(part, plan, number)
            part.Free()
        for check in CHECKS:
            wrong += not all_well(comm, check, found.get(check), name)
    if comm.rank == 0:
        print(f"{args.n - refused} texts, {wrong} wrong, {refused} refused ({comm.size} ranks)")
    return 1 if wrong or refused > args.n // 4 else 0


if __name__ == "__main__":
    main(program)
