"""Refits over MPI: random plans by memory and by messages, errors that all ranks share, ranks that fail.

As in ``mpirun -n 4 python -m tests.programs.mpi.refits --n 10``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist.errors import PeerError, RequestError, TransferError
from redist.runtime.refit import program as compiled
from redist.runtime.refit.bind import bind
from redist.runtime.refit.bound import BoundRefit
from redist.runtime.shm.segments import shared_empty
from tests.problems.small_refits import Tiles, random_refit, small_refit
from tests.programs.together import all_well, main

SOON_S = 20.0
WAYS = [
    (transport, commit)
    for transport in ("ipc", "messages")
    for commit in ("copy", "swap", "in place")
]
Check = Callable[[MPI.Comm, int], str | None]


def go(refit: BoundRefit, given: Tiles, *args: Any, **options: Any) -> Any:
    """Send, or receive, whatever this rank has to."""
    return refit.send(*args, **options) if given else refit.receive()


def differs(have: Tiles, want: Tiles) -> str:
    """The first tile that is not as wanted; empty if none."""
    wrong = [
        name for name in want if name not in have or not np.array_equal(have[name], want[name])
    ]
    return wrong[0] if wrong or set(have) != set(want) else ""


def in_shared_memory(tiles: Tiles) -> Tiles:
    """The same tiles where neighbours can map them."""
    out = {}
    for name, tile in tiles.items():
        out[name] = shared_empty(tile.shape, tile.dtype)
        out[name][...] = tile
    return out


def random_plans(comm: MPI.Comm, n: int) -> str | None:
    """Every transport and commit, tiles in private and in shared memory, all tensors and some."""
    for seed in range(n):
        rng = Random(f"{seed} of {comm.size}")
        compiled.DIRECT_BYTES = rng.choice([1, 16, 2**20])
        plan = random_refit(rng, comm.size)
        names = sorted(plan.source_tensors)
        changed = sorted(rng.sample(names, rng.randrange(len(names) + 1)))
        transport, commit = rng.choice(WAYS)
        shares_sources, shares_targets = rng.random() < 0.5, rng.random() < 0.5
        given, got = plan.sending(comm.rank, 1), plan.receiving(comm.rank)
        given = in_shared_memory(given) if shares_sources else given
        got = in_shared_memory(got) if shares_targets else got
        with bind(plan, given, got, comm=comm, transport=transport, commit=commit) as refit:
            assert refit.transport == transport, refit.transport
            for version, some, before in ((1, None, 0), (2, changed, 1), (3, None, 0)):
                for name, values in plan.sending(comm.rank, version).items():
                    given[name][...] = values
                go(refit, given, version, changed=some)
                wrong = differs(refit.tiles, plan.wanted(comm.rank, version, some, before))
                wrong += "" if refit.version == version else f" version {refit.version}"
                if any(comm.allgather(wrong)):
                    case = f"seed {seed}, {transport}, {commit}, version {version}"
                    return f"{case}: {wrong!r} differs" if wrong else None
    return None


def refused(comm: MPI.Comm, said: str, work: Callable[[], Any]) -> str | None:
    """What is wrong if some work is not the same error on every rank, which says this."""
    try:
        found = f"no error: {work()}"
    except RequestError as problem:
        found = str(problem)
    everyone = comm.allgather(found)
    if len(set(everyone)) > 1:
        return f"ranks say different things: {everyone}"
    return None if said in found else f"{found!r} does not say {said!r}"


def wrong_tiles(comm: MPI.Comm, n: int) -> str | None:
    """What is wrong with the tiles of one rank is one error on all, and a good binding works after it."""
    plan = small_refit(comm.size - 1, 1)
    last, rank = comm.size - 1, comm.rank

    def binding(change: Callable[[Tiles, Tiles], Any], **options: Any) -> Callable[[], Any]:
        given, got = plan.sending(rank, 1), plan.receiving(rank)
        if rank == last:
            change(given, got)
        return lambda: bind(plan, given, got, comm=comm, **options)

    def put(name: str, value: Any) -> Callable[[Tiles, Tiles], Any]:
        return lambda given, got: got.update({name: value})

    frozen = np.zeros((12, 4), "u2")
    frozen.setflags(write=False)
    nothing = put("norm", plan.receiving(last)["norm"])
    faults = [
        (f"rank {last}: cannot bind target tiles without 'ab'",
         binding(lambda given, got: got.pop("ab"))),
        ("is bf16[12, 4]", binding(put("ab", np.zeros((12, 4), "f4")))),
        ("is bf16[12, 4]", binding(put("ab", np.zeros((11, 4), "u2")))),
        ("not contiguous", binding(put("ab", np.zeros((4, 12), "u2").T))),
        ("it is read-only", binding(put("ab", frozen))),
        ("it is list", binding(put("ab", [1]))),
        ("the plan has no such name", binding(put("x", frozen))),
        ("unknown transport 'pigeon'", binding(nothing, transport="pigeon")),
        ("unknown commit 'later'", binding(nothing, commit="later")),
        ("different transports", binding(nothing, transport="ipc" if rank else "auto")),
    ]  # fmt: skip
    for said, work in faults:
        wrong = refused(comm, said, work)
        if wrong is not None:
            return wrong
    other = small_refit(comm.size - 1, 1, rounds=1 if rank else 2)
    tiles = plan.sending(rank, 1), plan.receiving(rank)
    wrong = refused(comm, "different plans", lambda: bind(other, *tiles, comm=comm))
    larger = small_refit(comm.size - 1, 1, source="f64")
    wrong = wrong or refused(  # tiles that do not fit are not the reason
        comm, "different plans", lambda: bind(plan if rank else larger, *tiles, comm=comm)
    )
    wrong = wrong or refused(
        comm, f"names rank {comm.size}", lambda: bind(small_refit(comm.size, 1), comm=comm)
    )
    with bind(plan, *tiles, comm=comm) as refit:
        go(refit, tiles[0], 1)
    return wrong or differs(tiles[1], plan.wanted(rank, 1)) or None


def one_memory(comm: MPI.Comm, n: int) -> str | None:
    """Tiles of both sides in one memory: nothing arrives in place in what is to be sent."""
    rank, size = comm.rank, comm.size
    rows = redist.Weights({"w": f"f32[{2 * size}{{x}}, 3]"}, redist.Mesh(x=size))
    turned = redist.Mesh({"x": size}, ranks=[*range(1, size), 0])
    next_rows = redist.Weights({"w": f"f32[{2 * size}{{x}}, 3]"}, turned)
    whole = np.arange(6 * size, dtype="f4").reshape(2 * size, 3)
    for side, stays in ((rows, True), (next_rows, size == 1)):
        plan = redist.refit(rows, side)
        own = {"w": whole[2 * rank : 2 * rank + 2].copy()}
        wrong = None
        if not stays:
            wrong = refused(
                comm, "target tile 'w' lies in memory of source tile 'w'",
                lambda: bind(plan, own, own, comm=comm, commit="in place"),  # noqa: B023
            )  # fmt: skip
        for commit in ("copy", "swap", "in place") if stays else ("copy", "swap"):
            mine = {"w": own["w"].copy()}
            with bind(plan, mine, mine, comm=comm, commit=commit) as refit:
                refit.send(1)
                at = rank if stays else (rank - 1) % size
                good = np.array_equal(refit.tiles["w"], whole[2 * at : 2 * at + 2])
            wrong = wrong or (None if good else f"{commit}, {stays}: other rows")
        if wrong is not None:
            return wrong
    return None


def wrong_versions(comm: MPI.Comm, n: int) -> str | None:
    """Senders that do not agree, versions that differ, names that are not known: all keep what they have."""
    plan = small_refit(comm.size - 1, 1)
    rank, is_first = comm.rank, comm.rank == 0
    given, got = plan.sending(rank, 1), plan.receiving(rank)
    several = comm.size > 2
    with bind(plan, given, got, comm=comm) as refit:
        calls = [
            ("do not have one version", lambda: go(refit, given, 2, changed=["a"])),
            ("need a whole number", lambda: go(refit, given, 2.5)),
            ("stores no tensor of this name", lambda: go(refit, given, 2, changed=["x"])),
            ("need a list of names", lambda: go(refit, given, 2, changed="a")),
            ("need a list of names", lambda: go(refit, given, 2, changed=7)),
            ("stores no tensor of this name", lambda: go(refit, given, 2, changed=[["a"]])),
            ("ValueError: no more", lambda: go(refit, given, 2, changed=_breaks_off())),
            ("call receive()", lambda: refit.send(2)),
            ("call send(version)", refit.receive),
        ]
        if several:
            calls += [
                ("different versions", lambda: go(refit, given, 3 if is_first else 2)),
                ("different tensors have changed",
                 lambda: go(refit, given, 2, changed=["a"] if is_first else None)),
            ]  # fmt: skip
        for said, work in calls:
            wrong = refused(comm, said, work)
            if wrong is not None or refit.version is not None:
                return wrong or f"version {refit.version}"
        go(refit, given, 1)
        refit.version = 5 if is_first else 1
        wrong = refused(comm, "rank 0: version 5", lambda: go(refit, given, 2, changed=["a"]))
        return wrong or differs(got, plan.wanted(rank, 1)) or None


def _breaks_off() -> Iterator[str]:
    yield "a"
    raise ValueError("no more")


class Stop(Exception):
    """What a rank raises in the middle."""


def failing(comm: MPI.Comm, n: int) -> str | None:
    """A rank that fails in the middle: all keep the old weights, but for those in place."""
    for transport, commit in WAYS:
        for mapped in (False, True) if transport == "ipc" else (False,):
            own = comm.Dup()
            wrong = _failing(own, transport, commit, mapped)
            if any(own.allgather(wrong)):
                return f"{transport}, {commit}, {mapped}: {wrong}" if wrong else None
    return None


def _failing(comm: MPI.Comm, transport: str, commit: str, mapped: bool) -> str:
    """With ``mapped`` others write into the tiles that serve, and this may be before their rank is ready."""
    plan = small_refit(comm.size - 1, 1)
    rank = comm.rank
    given, got = plan.sending(rank, 1), plan.receiving(rank)
    got = in_shared_memory(got) if mapped else got
    refit = bind(plan, given, got, comm=comm, transport=transport, commit=commit, timeout_s=SOON_S)
    go(refit, given, 1)
    for name, values in plan.sending(rank, 2).items():
        given[name][...] = values
    if rank == 0:
        mover: Any = refit._mover

        def move(*args: Any) -> None:
            raise Stop("no more")

        mover.move = move
    elif mapped and got:
        ranks: Any = refit._ranks
        gather = ranks.gather

        def late(value: Any) -> Any:
            found = gather(value)
            time.sleep(0.3)
            ranks._world.failure.raise_if_any()  # as a wait that is not yet over does
            return found

        ranks.gather = late
    try:
        go(refit, given, 2)
        said = "nobody minded" if got else ""  # what others send may have gone before
    except Stop:
        said = "" if rank == 0 else "another rank's error"
    except PeerError as problem:
        said = "" if "no more" in str(problem) else str(problem)
    if got:
        is_old = not differs(refit.tiles, plan.wanted(rank, 1))
        if refit.version == 1 and not is_old:
            return "the old weights are gone"
        if refit.version != 1 and (commit != "in place" or refit.version is not None):
            return f"version {refit.version}"
    try:
        go(refit, given, 2)
        return "it goes on as if nothing had been"
    except TransferError as problem:
        return said or ("" if "failed" in str(problem) else str(problem))


def without_tiles(comm: MPI.Comm, n: int) -> str | None:
    """Ranks without tiles, ranks that send and receive, a lock, texts as versions, weights of a version."""
    plan = small_refit(1, 1, together=True)
    assert plan.n_ranks == 1
    rank, entered = comm.rank, list[int]()

    class Guard:
        def __enter__(self) -> None:
            entered.append(1)

        def __exit__(self, *error: object) -> None:
            entered.append(0)

    given, got = plan.sending(rank, 1), plan.receiving(rank)
    with bind(plan, given, got, comm=comm, guard=Guard(), version="before") as refit:  # type: ignore[arg-type]
        if go(refit, given, "after", changed=["a", "b", "norm"]) != "after":
            return "no version"
        got.pop("o", None)
        want = plan.wanted(rank, 1)
        want.pop("o", None)
        if entered != ([1, 0] if got else []):
            return f"the guard was entered {entered}"
        return differs(got, want) or None


EVERY: dict[str, Check] = {
    "random plans": random_plans,
    "wrong tiles": wrong_tiles,
    "one memory": one_memory,
    "wrong versions": wrong_versions,
    "a rank that fails": failing,
    "ranks without tiles": without_tiles,
}
CHECKS = tuple(EVERY)


def program() -> int:
    """0 if every check is well."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=10)
    n = parser.parse_args().n
    comm, well = MPI.COMM_WORLD, True
    for name, check in EVERY.items():
        own = comm.Dup()
        try:
            wrong = check(own, n)
        except Exception as problem:
            wrong = f"{type(problem).__name__}: {problem}"
        well = all_well(comm, name, wrong) and well
    return 0 if well else 1


if __name__ == "__main__":
    main(program)
