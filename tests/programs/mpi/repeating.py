"""Batches that are repeated, moves of which several are under way, and preparation without data.

As in ``mpirun -n 4 python -m tests.programs.mpi.repeating``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist.errors import TransferError
from redist.runtime.host.recorded import RecordedCall
from redist.runtime.ranks.world import world_of
from redist.runtime.redistribute import TransferCache
from tests.programs.pgas.rounds import names_of
from tests.programs.together import all_well, main

KINDS = {
    "sum": ("f64[513] sum{x}", "f64[513]"),
    "scatter": ("f32[64, 3] sum{x}", "f32[64{x}, 3]"),
    "rows": ("i16[40{x}, 36]", "i16[40, 36{x}]"),
    "large": ("f64[512{x}, 360]", "f64[512, 360{x}]"),
    "still": ("u8[7, 5]", "u8[7, 5]"),
}


def tiles(transfer: redist.Transfer, seed: int) -> dict[str, Any]:
    """Random tiles of this rank for a batch."""
    rng = np.random.default_rng([seed, transfer.comm.rank])
    found = {}
    for name, plan in transfer.plans.items():
        box = redist.box_of(plan.source, transfer.comm.rank)
        shape = tuple(hi - lo for lo, hi in box or ())
        found[name] = rng.integers(0, 100, shape).astype(plan.source.dtype.to_numpy())
    if "still" in found:  # every rank holds the same
        found["still"] = np.full((7, 5), seed, np.uint8)
    return found


def batch(comm: MPI.Intracomm) -> redist.Transfer:
    sources, targets = ({name: ends[k] for name, ends in KINDS.items()} for k in (0, 1))
    return redist.Transfer(sources, targets, comm, mesh=redist.Mesh(x=comm.size))


def singly(comm: MPI.Intracomm, given: dict[str, Any]) -> dict[str, Any]:
    """The same moves, one after another."""
    mesh = redist.Mesh(x=comm.size)
    return {
        name: redist.redistribute(tile, *KINDS[name], comm, mesh=mesh)
        for name, tile in given.items()
    }


def a_repeated_batch_is_recorded_and_right(comm: MPI.Intracomm) -> str | None:
    """Why not, if a batch is not repeated in C, or does other than single moves do."""
    with batch(comm) as t:
        given, outs = tiles(t, 0), None
        for time in range(8):
            if time % 3 == 0:  # other arrays, in other memory
                given = tiles(t, time)
            got = t(given, outs)
            want = singly(comm, given)
            for name, tile in want.items():
                if tile.tobytes() != got[name].tobytes():
                    return f"call {time}: {name} differs from a single move"
            outs = {name: np.zeros_like(tile) for name, tile in got.items()} if time > 4 else None
        world = world_of(comm)
        can = world.one_node and world.node.kernels is not None
        if can and not t._recorded.calls:
            return "the batch is not recorded"
    return None


def own_and_other_arrays_take_turns(comm: MPI.Intracomm) -> str | None:
    """Why not, if ranks repeat different calls for the same arrays.

    Runs to the last rank are shorter than 4096 bytes and others longer, so some ranks' arrays are read in
    place and others pass through pools. A rank whose pooled call fits the transfer's own buffers must not
    take it.
    """
    mesh, n, wrong = redist.Mesh(x=comm.size), 11 * comm.size - 3, None
    for own_first in (True, False):
        with redist.Transfer(
            f"f64[37{{x}}, {n}, 53]", f"f64[37, {n}{{x}}, 53]", comm, mesh=mesh
        ) as t:
            local = np.random.default_rng(comm.rank).random(t.input.shape)
            t.input[...] = local
            out = np.empty_like(t.output)
            ways = [partial(t), partial(t, local, out)]
            want = t(local.copy(), np.empty_like(t.output))
            for time in range(12):
                got = ways[(time % 2 == 0) is own_first]()
                if got.tobytes() != want.tobytes():
                    wrong = f"call {time} is wrong"
            met: list[bool] = []
            seen = RecordedCall.run

            def run(self: Any, *given: Any, met: list[bool] = met, seen: Any = seen) -> bool:
                met.append(seen(self, *given))
                return met[-1]

            RecordedCall.run = run  # type: ignore[assignment,method-assign]
            try:
                for time in range(6):
                    ways[time % 2]()
            finally:
                RecordedCall.run = seen  # type: ignore[method-assign]
            world = world_of(comm)
            if world.one_node and world.node.kernels is not None and met != [True] * 6:
                wrong = f"calls are not repeated as they were recorded: {met}"
    return wrong


def several_moves_are_under_way(comm: MPI.Intracomm) -> str | None:
    """Why not, if handles give other results than calls, or own buffers move twice at a time."""
    mesh = redist.Mesh(x=comm.size)
    with redist.Transfer(*KINDS["rows"], comm, mesh=mesh) as t:
        given = [np.full_like(t.input, 10 * comm.rank + k) for k in range(3)]
        want = [t(one) for one in given]
        moves = [t.start(one) for one in given]
        for k in (1, 0, 2):
            if not np.array_equal(moves[k].wait(), want[k]) or not moves[k].is_done():
                return f"move {k} is wrong"
        if not np.array_equal(moves[0].wait(), want[0]):
            return "a result is there but once"
        t.start(given[0])
        t.start(given[2])
        if not all(np.array_equal(t.wait(), want[k]) for k in (0, 2)):
            return "wait() does not give results in order"
        t.input[...] = given[1]
        first = t.start()
        try:
            t.start()
        except TransferError as error:
            wrong = None if "own buffers" in str(error) else str(error)
        else:
            wrong = "own buffers move twice at a time"
        return wrong if np.array_equal(first.wait(), want[1]) else "own buffers are wrong"


def what_is_prepared_is_used(comm: MPI.Intracomm) -> str | None:
    """Why not, if a move does not use what was prepared for it."""
    for mesh in (redist.Mesh(x=comm.size), f"x={comm.size}", {"x": comm.size}):
        own = comm.Dup()
        on: dict[str, Any] = {"mesh": mesh, "target_mesh": mesh}
        prepared = redist.prepare(*KINDS["large"], own, **on)
        local = np.ones(
            tuple(hi - lo for lo, hi in redist.box_of(prepared.plan.source, own.rank) or ())
        )
        redist.redistribute(local, *KINDS["large"], own, **on)
        cache = world_of(own).kept(TransferCache)
        assert cache is not None
        used = [*cache.by_key.values()] == [prepared] and prepared.report().calls == 1
        own.Free()
        if not used:
            return f"it was prepared again for mesh={mesh!r}"
    return None


PARTS: tuple[Callable[[MPI.Intracomm], str | None], ...] = (
    a_repeated_batch_is_recorded_and_right,
    own_and_other_arrays_take_turns,
    several_moves_are_under_way,
    what_is_prepared_is_used,
)
CHECKS = names_of(PARTS)


def program() -> int:
    """0 if everything is as it should be."""
    comm = MPI.COMM_WORLD
    wrong = sum(not all_well(comm, part.__name__, part(comm)) for part in PARTS)
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
