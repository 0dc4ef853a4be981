"""Donated sources on a GPU: given up in time and not before, refused where a limit has no room.

As in ``mpirun -n 4 python -m tests.programs.gpu.donating``; ``--pretend`` needs no GPU. There the pool
is greedy: memory that it gets back from another stream than the one in use is written to at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist.runtime.simulator import simulate
from tests.fakes import counted_gpu as lent
from tests.fakes import pretended_cupy as pretend
from tests.programs.gpu.fuzz import differs
from tests.programs.mpi.cases import random_values
from tests.programs.pgas.rounds import names_of
from tests.programs.together import all_well, main, meet

SWAP = ("i32[60{x}, 44{y}]", "i32[60{y}, 44{x}]")
SLICED = ("i32[40, 36] sum{x}", "i32[40{y}, 36{x}]")
STEPS: dict[str, Any] = {"strategy": "no_permute", "donate": True, "timeout_s": 60.0}
TRANSPORTS: tuple[dict[str, Any], ...] = ({}, {"transport": "mpi"}, {"node_size": 2})


class Foreign:
    """An array of another library, in memory of an array of CuPy."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


class Scene:
    """A transfer of several steps, its sources on a stream of their own, and what must come out."""

    def __init__(self, comm: MPI.Comm, ends: tuple[str, str], **options: Any) -> None:
        import cupy

        mesh = redist.Mesh(x=2, y=comm.size // 2)
        self.comm = comm
        self.transfer = redist.Transfer(*ends, comm, mesh=mesh, **{**STEPS, **options})
        plan = self.transfer.plan
        assert len(plan.steps) > 1 and plan.peak_bytes < plan.peak_bytes_if_kept
        tiles = random_values(plan.source, 3)
        self.before = tiles[comm.rank]
        self.wanted = simulate(plan, tiles, self.transfer.topology).tiles[comm.rank]
        self.elsewhere, self.stream = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))

    def source(self) -> Any:
        """This rank's tile, in memory of the other stream."""
        import cupy

        with self.elsewhere:
            out = cupy.empty(self.before.shape, self.before.dtype)
            out[...] = cupy.asarray(self.before)
            self.elsewhere.synchronize()
        return out

    def moved(self, local: Any) -> str | None:
        """Move it on the stream of the call; what is wrong with the result."""
        with self.stream:
            return differs(self.transfer(local), None, self.wanted)

    def refused(self, local: Any) -> str:
        """The error of a call; empty if there was none."""
        try:
            with self.stream:
                self.transfer(local)
        except redist.RequestError as error:
            return str(error)
        return ""


def given_up(comm: MPI.Comm) -> str | None:
    """An array that owns its memory is empty afterwards; the result is right, again and again."""
    wrong = []
    for ends in (SWAP, SLICED):
        for options in TRANSPORTS:
            scene = Scene(comm, ends, **options)
            for _ in range(2):
                local = scene.source()
                said = scene.moved(local)
                if said or local.shape != (0,):
                    wrong.append(f"{ends} {options}: {said}, the source has shape {local.shape}")
            meet(comm)
            again = scene.refused(scene.before if comm.rank else local)
            if "rank 0: passed int32[0] as source tile" not in again and local.size == 0:
                wrong.append(f"an empty array is no source: {again!r}")
    return wrong[0] if wrong else None


def viewed(comm: MPI.Comm) -> str | None:
    """Views of a source that is given up keep its memory; donated views keep theirs."""
    import cupy

    scene = Scene(comm, SWAP)
    local = scene.source()
    view, row = local[...], local[1:]
    with scene.stream:
        got = scene.transfer(local)
        row[...] = 7
        view[...] = 8
        said = differs(got, None, scene.wanted)
        values = cupy.asnumpy(row)
    wrong = []
    if said or local.size or values.shape != row.shape or np.any(values != 8):
        wrong.append(f"views: {said}, shapes {local.shape} and {row.shape}")
    for name, make in (("view", lambda array: array[...]), ("foreign array", Foreign)):
        owner = scene.source()
        said = scene.moved(make(owner))
        if said or owner.shape != scene.before.shape:
            wrong.append(f"a donated {name}: {said}, its owner has shape {owner.shape}")
    return wrong[0] if wrong else None


def limited(comm: MPI.Comm) -> str | None:
    """A limit without room for a source that stays is an error on all ranks, before a byte moves."""
    free = Scene(comm, SWAP).transfer.plan
    bound = free.peak_bytes_if_kept
    roomy, tight = Scene(comm, SWAP, limit_bytes=bound), Scene(comm, SWAP, limit_bytes=bound - 1)
    for scene in (roomy, tight):
        assert scene.transfer.plan.steps == free.steps
    wrong = [roomy.moved(roomy.source()[...]), tight.moved(tight.source())]
    views: list[Any] = []

    def seen(array: Any) -> Any:
        views.append(array[...])
        return array

    makes: tuple[tuple[Callable[[Any], Any], str], ...] = (
        (lambda array: array[...], "it is a view"),
        (seen, "there are views of it"),
        (Foreign, "its memory is not of CuPy's pool"),
    )
    for make, why in makes:
        for everywhere in (True, False):
            local = tight.source()
            give = make(local) if everywhere or comm.rank == 1 else local
            told = comm.allgather(tight.refused(give))
            if len(set(told)) > 1 or everywhere == ("rank 1: " in told[0]):
                wrong.append(f"{why}: {told}")
            for said in (f"cannot donate the source tile: {why}, so", f"takes {bound} bytes"):
                if said not in told[0]:
                    wrong.append(f"{why}: {told}")
            if local.shape != tight.before.shape:
                wrong.append(f"{why}: a refused source has shape {local.shape}")
    wrong.append(tight.moved(tight.source()))
    return next((said for said in wrong if said), None)


def twice(comm: MPI.Comm) -> str | None:
    """One array under three names: one result is the array itself."""
    mesh = redist.Mesh(x=2, y=comm.size // 2)
    sources = dict.fromkeys(("slow", "quick", "same"), SWAP[0])
    targets = {"slow": SWAP[1], "quick": "i32[60{x}, 44]", "same": SWAP[0]}
    wrong = []
    for options in TRANSPORTS:
        for names in (("slow", "quick", "same"), ("same", "slow"), ("slow", "quick")):
            scene = Scene(comm, SWAP)
            both = redist.Transfer(
                {name: sources[name] for name in names},
                {name: targets[name] for name in names},
                comm,
                mesh=mesh,
                **{**STEPS, **options},
            )
            tiles = random_values(scene.transfer.plan.source, 3)
            local = scene.source()
            with scene.stream:
                got = both(dict.fromkeys(names, local))
                for name, plan in both.plans.items():
                    wanted = simulate(plan, tiles, both.topology).tiles[comm.rank]
                    said = differs(got[name], None, wanted)
                    if said:
                        wrong.append(f"{name} of {names} {options}: {said}")
            if bool(local.size) != ("same" in names):
                wrong.append(f"{names} {options}: the source has shape {local.shape}")
    return wrong[0] if wrong else None


ALL: tuple[Callable[[MPI.Comm], str | None], ...] = (given_up, viewed, limited, twice)
CHECKS = names_of(ALL)


def program() -> int:
    """0 if nothing is wrong on any rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pretend", action="store_true")
    args = parser.parse_args()
    if args.pretend:
        lent.install()
        pretend.GREEDY[0] = True
    comm = MPI.COMM_WORLD
    wrong = 0
    for check in ALL:
        wrong += not all_well(comm, check.__name__, check(comm))
        meet(comm)
    if not wrong and comm.rank == 0:
        print(f"donated sources go in time ({comm.size} ranks)", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
