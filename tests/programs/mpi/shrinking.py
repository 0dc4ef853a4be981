"""Oracle = simulator = pieces = MPI run where every type is cut into shrinking tiles.

It holds if `layout.cuts` alone decides who holds what. Left out is `check`, which divides dims with
arithmetic of its own on purpose.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist.check import prove, replay
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.plan.request import Request
from redist.runtime.simulator import is_correct, random_tiles, simulate
from redist.synth.find import find_plan
from tests.fakes.shrinking_cuts import install
from tests.problems import oracle
from tests.problems.problems import problems
from tests.runtime.test_phases import phases_by_rank, run

MOST_ELEMS = 4000
Tiles = dict[int, Any]


def tile(n: int, n_tiles: int, number: int) -> range:
    """Indices of a tile, counted out: those with more than so many behind them, and no more."""
    most, least = (n * (n_tiles - i) ** 2 // n_tiles**2 for i in (number, number + 1))
    held = [i for i in range(n) if least < n - i <= most]
    return range(held[0], held[-1] + 1) if held else range(0)


def tiles_of(t: ArrayType, values: Any) -> Tiles:
    """What every rank holds of an array."""
    out = {}
    for rank, at in zip(t.mesh.ranks, oracle.devices(t.mesh), strict=True):
        held = []
        for n, parts in zip(t.shape, t.dims, strict=True):
            number, n_tiles = oracle.shard_index(t.mesh, parts, at)
            held.append(list(tile(n, n_tiles, number)))
        out[rank] = values[np.ix_(*held)] if held else values
    return out


def same(a: Tiles, b: Tiles) -> bool:
    """Whether all ranks hold the same bytes."""
    return a.keys() == b.keys() and all(
        a[r].shape == b[r].shape and a[r].tobytes() == b[r].tobytes() for r in a
    )


def agrees_without_mpi(plan: Plan, number: int) -> bool:
    """Whether the simulator makes the oracle's tiles, and the pieces make the simulator's."""
    source, target = plan.source, plan.target
    plain = source.pending_op is None and target.pending_op is None
    given: Tiles = random_tiles(source, number)
    expected: Tiles | None = None
    if plain:
        size = math.prod(source.shape) * source.dtype.itemsize
        data = np.random.default_rng(number).integers(0, 2, size, dtype=np.uint8)
        values = data.view(source.dtype.to_numpy()).reshape(source.shape)
        given, expected = tiles_of(source, values), tiles_of(target, values)
    done = simulate(plan, given).tiles
    right = same(done, expected) if expected is not None else is_correct(plan, given, done)
    here: Tiles = given
    for step, before in zip(plan.steps, plan.types, strict=False):
        with np.errstate(over="ignore"):
            here = run(step, before, here, phases_by_rank(step, before, FLAT))
    return right and same(here, done)


def agrees_with_mpi(plan: Plan, number: int, comm: MPI.Comm) -> bool:
    """**Collective.** Whether this rank gets what the simulator says."""
    given = random_tiles(plan.source, number)
    out = redist.redistribute(given.get(comm.rank), plan.source, plan.target, comm, topology=FLAT)
    done = simulate(plan, given).tiles.get(comm.rank)
    if out is None or done is None:
        return out is None and done is None
    return out.shape == done.shape and out.tobytes() == done.tobytes()


def main() -> None:
    """Every rank plans and simulates every problem, then all run it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    pairs = _pairs(options.n, options.seed, comm.size)
    install()
    for module, name in ((replay, "check_plan"), (prove, "certify")):
        setattr(module, name, lambda plan: None)
    good = 0
    for number, pair in enumerate(pairs):
        source, target = (ArrayType.parse(text, mesh) for text, mesh in pair)
        plan = find_plan(Request(source, target))
        agree = agrees_without_mpi(plan, number)
        if agree and comm.size > 1:
            agree = agrees_with_mpi(plan, number, comm)
        everywhere = comm.allreduce(int(agree), MPI.MIN)
        if not everywhere and comm.rank == 0:
            print(f"differs: {source} -> {target}: {[step.op for step in plan.steps]}")
        good += everywhere
    if comm.rank == 0:
        print(f"{good} of {len(pairs)} cases agree ({comm.size} ranks)")


def _pairs(n: int, seed: int, ranks: int) -> list[list[tuple[str, Mesh]]]:
    """Problems as text: types that exist already are cut evenly."""
    devices = (4, 6) if ranks == 1 else (ranks,)
    return [
        [(str(t), t.mesh) for t in (p.source, p.target)]
        for p in problems(n, seed, devices=devices, most_dims=3)
        if p.source.global_elems <= MOST_ELEMS
        and (ranks == 1 or max(*p.source.mesh.ranks, *p.target.mesh.ranks) < ranks)
    ]


if __name__ == "__main__":
    main()
