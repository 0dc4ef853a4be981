"""What goes wrong in the global address space, what it holds in memory, and what a read costs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import PeerError, RequestError, TransferError, pgas
from redist.errors import MemoryLimitError
from redist.pgas.memory import memory_for
from redist.pgas.onesided import epochs as onesided
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.onesided.window import windows_of
from redist.runtime.ranks.world import world_of
from tests.fakes import opened_cupy
from tests.programs.pgas.rounds import names_of
from tests.programs.together import all_well, main, meet

WHERE: dict[str, Any] = {}
"""Where arrays lie, if not in memory."""
LATE_S = 1.0
SOON_S = 20.0


def on_gpu() -> bool:
    """Whether arrays lie on GPUs."""
    return bool(WHERE)


def error_of(act: Callable[[], Any]) -> Exception | None:
    """The error that an act raises."""
    try:
        act()
    except Exception as error:
        return error
    return None


def says(error: Exception | None, kind: type[Exception], *words: str) -> str | None:
    """What is wrong with an error."""
    if kind not in (type(error), *type(error).__bases__):
        return f"{error!r} is no {kind.__name__}"
    return next(
        (f"{error} does not say {word!r}" for word in words if word not in str(error)), None
    )


def wrong_calls(comm: MPI.Comm) -> Iterator[tuple[str, str | None]]:
    """Errors of one rank alone: the epoch goes on."""
    a = pgas.arange(10 * comm.size, dtype="i8", type="{x}", **WHERE)
    if comm.size > 1:
        yield "unreachable", says(error_of(lambda: a.get(0)), RequestError, "a.fence()")
    yield "no epoch", says(error_of(lambda: a.put(0, 1)), RequestError, "no epoch is open")
    yield "no epoch", says(error_of(lambda: a.accumulate(0, 1)), RequestError, "with a.epoch()")
    with a.epoch():
        if comm.rank == comm.size - 1:
            n = a.size
            for name, act, kind, word in (
                ("out of range", lambda: a.get(n), IndexError, f"index {n} is out of bounds"),
                ("out of range", lambda: a.put([0, -n - 1], 1), IndexError, "out of bounds"),
                ("dims", lambda: a.get((0, 0)), IndexError, "too many indices"),
                ("mask", lambda: a.get(np.ones(3, bool)), IndexError, "a mask of shape (3,)"),
                ("kind", lambda: a.get(1.5), IndexError, "use integers"),
                ("by a global array", lambda: a.get(a), IndexError, ".gather()"),
                ("shape", lambda: a.put(slice(3), [1, 2]), ValueError, "broadcast"),
                ("op", lambda: a.accumulate(0, 1, "mean"), RequestError, "'mean'"),
                ("cast", lambda: a.accumulate(0, 1.5), TypeError, "float"),
                ("nested", lambda: a.epoch().__enter__(), RequestError, "one is open"),
                ("global", lambda: a.put(slice(None), a), TypeError, "a.gather()"),
            ):
                yield name, says(error_of(act), kind, word)
        a.accumulate(0, 1)
    good = a.get(0) == comm.size and a.get(1) == 1
    yield "the epoch went on", None if good else f"{a.get(slice(2))}"
    a.fence()
    if on_gpu():
        host, given = pgas.arange(3, comm=MPI.COMM_SELF), to_device(np.ones(1))
        with host.epoch():
            yield "of a GPU", says(error_of(lambda: host.put(0, given)), TypeError, "asnumpy")
        return  # arrays of a GPU can be written, always
    fixed = pgas.asarray(np.arange(4.0))
    if fixed.local is not None and comm.rank == 0:
        fixed.local.flags.writeable = False
    with fixed.epoch():
        yield "read-only", says(error_of(lambda: fixed.put(0, 1)), RequestError, "is read-only")


def failing_ranks(comm: MPI.Comm) -> Iterator[tuple[str, str | None]]:
    """Errors of one rank that the others hear of."""
    if comm.size == 1:
        return
    a, b = (pgas.zeros(40, type="{x}", **WHERE) for _ in range(2))
    for has_fence in (False, True):

        def fail(fences: bool = has_fence) -> None:
            with a.epoch():
                a.put(comm.rank, 7.0)
                if comm.rank == 0:
                    raise KeyError("mine")
                if fences:
                    a.fence()

        error = error_of(fail)
        if comm.rank == 0:
            yield "failing", says(error, KeyError, "mine")
        else:
            yield "failing", says(error, PeerError, "rank 0 failed: KeyError: 'mine'", "dropped")
        yield "nothing was done", None if not a.get(slice(None)).any() else "something was"
        a.fence()

    def moves_inside() -> None:
        with a.epoch():
            if comm.rank == 0:
                raise KeyError("mine")
            b.to("{}")

    error = error_of(moves_inside)
    if comm.rank == 0:
        yield "failing before a move", says(error, KeyError, "mine")
    else:
        yield "failing before a move", says(error, RequestError, "rank 0: KeyError: 'mine'")
    a.fence()
    b.fence()
    error = error_of(lambda: (a if comm.rank == 0 else b).fence())
    yield "different arrays", says(error, RequestError, "ranks came for different things")
    a.fence()

    def late() -> None:
        own = pgas.zeros(40, type="{x}", comm=comm.Dup(), **WHERE)
        with own.epoch(LATE_S):
            if comm.rank == 0:
                time.sleep(2.5 * LATE_S)

    start = time.monotonic()
    error = error_of(late)
    seconds = time.monotonic() - start
    wrong = None if isinstance(error, TransferError) else f"{error!r}"
    yield "late", wrong if seconds < SOON_S else f"took {seconds:.1f} s"
    meet(comm)


def memory(comm: MPI.Comm) -> Iterator[tuple[str, str | None]]:
    """What is kept, and for how long."""
    a = pgas.zeros(2**17 * comm.size, type="{x}", **WHERE)
    a.fence()
    held = memory_for(on_gpu())
    before = held.live_bytes
    with redist.memory_limit(before + 2**20):
        with a.epoch():
            a.put(slice(0, 2**16), np.ones(2**16))
            yield "puts count", None if held.live_bytes >= before + 2**19 else "they do not"
            error = error_of(lambda: a.put(slice(0, 2**17), np.ones(2**17)))
            yield "puts are bounded", says(error, MemoryLimitError, "the limit is")
            error = error_of(lambda: a.get(slice(0, 2**17)))
            yield "gets are bounded", says(error, MemoryLimitError, "the limit is")
            a.fence()
            yield "a fence frees", None if held.live_bytes == before else "it does not"
        yield "an end frees", None if held.live_bytes == before else "it does not"
    live = windows_of(world_of(comm)).live
    n = len(live)
    for _ in range(20):
        b = pgas.zeros(2**14 * comm.size, type="{x}", **WHERE)
        b.fence()
        good = b.get(b.size - 1) == 0
    del b
    yield "dead arrays go", None if good and len(live) <= n + 2 else f"{len(live)} are kept"
    if comm.size > 1:  # a rank that is behind still reads an array that has died elsewhere
        c = pgas.full(2**14 * comm.size, 3.0, type="{x}", **WHERE)
        c.fence()
        wrong = None
        if comm.rank == 0:
            time.sleep(0.1)
            wrong = None if (c.get(slice(None)) == 3).all() else "a dead tile was used again"
        del c
        d = pgas.full(2**14 * comm.size, 4.0, type="{x}", **WHERE)
        yield "the slow read well", wrong
        del d


def cost(comm: MPI.Comm) -> Iterator[tuple[str, str | None]]:
    """A neighbour's element is a load or a read through the kernel away; the microseconds are printed."""
    for name, n in (("shared", 2**14), ("private", 16)):
        a = pgas.zeros(n * comm.size, type="{x}")
        a.fence()
        wrong = None
        if comm.rank == 0:
            mine, theirs = best_us(np.zeros(4).__getitem__, 3), best_us(a.get, a.size - 1)
            print(f"{name}: get {theirs:.2f} us, NumPy {mine:.2f} us", flush=True)
            space, last = a._space, comm.size - 1
            near = space.views[last] is not None or last in space.peeked
            wrong = None if near else "it is asked for by a message"
        yield f"cost of a {name} element", wrong


def best_us(act: Callable[[int], Any], index: int, n: int = 500) -> float:
    """The best of some rounds."""
    best = 1e9
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(n):
            act(index)
        best = min(best, time.perf_counter() - start)
    return best / n * 1e6


def repeated(comm: MPI.Comm) -> Iterator[tuple[str, str | None]]:
    """Elements named many times by all ranks, in many ways: the same bits every time, and those of memory."""
    n, names, rng = 11, 20_000, np.random.default_rng(comm.rank)
    where = [rng.integers(-n, n, names), rng.integers(0, n, (40, 2)), np.zeros(3000, "i8")]
    for dtype in ("f4", "f8", "f2", "i1", "u2", "i8", "c8", "bool"):
        every = ("sum", "prod", "max", "min", "replace")
        ops = {"bool": every[2::2], "c8": (*every[:1], *every[2:])}.get(dtype, every)
        values = [(rng.normal(size=at.shape) * 3).astype(dtype) for at in where]
        found: list[Any] = []
        for device in ("cpu", *[WHERE.get("device", "cpu")] * 2):
            a = pgas.ones((n, 3), dtype=dtype, type="{x}, {}", device=device)
            with np.errstate(all="ignore"), a.epoch():
                for op in ops:
                    for k, (at, v) in enumerate(zip(where, values, strict=True)):
                        given = to_device(v) if on_gpu() and device != "cpu" and k % 2 else v
                        a.accumulate((at, k), given, op)
                        a.accumulate((slice(2, 9, 3), slice(None)), v.flat[0], op)
            got = to_host(a.get(...))
            if got.dtype.kind in "fc":
                got[np.isnan(got)] = np.nan  # processors make NaNs of different signs
            found.append(got.tobytes())
        name = "in every run" if found[1] != found[2] else "as in memory"
        yield f"{dtype}: the bits are not the same {name}", None if len(set(found)) == 1 else name


def far_blocks(comm: MPI.Comm) -> str | None:
    """Blocks of other nodes are fetched once in an interval, and ahead in the next; never across a fence."""
    n = 64
    a = pgas.zeros(n * comm.size, type="{x}", **WHERE)
    onesided.reach(a, node_size=1)
    first = (comm.rank + 1) % comm.size * n
    seen = []
    for prefetch, cache in ((True, True), (False, True), (False, False)):
        with redist.trace() as trace, a.epoch(prefetch=prefetch, cache=cache):
            for interval in range(3):
                for _ in range(2):
                    for at in range(0, 32, 8):
                        got = a.get(slice(first + at, first + at + 8))
                        if not np.all(to_host(got) == interval):
                            return f"interval {interval}: {got}"
                a.accumulate(slice(comm.rank * n, (comm.rank + 1) * n), 1.0)
                a.fence()
        with a.epoch():
            a.put(slice(comm.rank * n, (comm.rank + 1) * n), 0.0)
        seen += [(read.hits, read.misses, read.wasted_bytes) for read in trace.reads.values()]
    if comm.size == 1:
        return None
    want = [(18, 6, 0), (12, 12, 0), (0, 24, 0)]
    return None if seen == want else f"hits, misses, wasted: {seen}, not {want}"


PARTS: tuple[Callable[[MPI.Comm], Iterator[tuple[str, str | None]]], ...] = (
    wrong_calls, failing_ranks, memory, cost, repeated,
)  # fmt: skip


def checks_on(ranks: int, args: Sequence[str]) -> tuple[str, ...]:
    """What is checked: where every rank is a node, that a large array arrives."""
    return ("large", "far blocks") if "--nodes" in args else names_of(parts_on("--cuda" in args))


def parts_on(gpu: bool) -> tuple[Callable[[MPI.Comm], Iterator[tuple[str, str | None]]], ...]:
    """What is checked of arrays in memory, or on GPUs, which have no elements a load away."""
    return tuple(part for part in PARTS if not (gpu and part is cost))


def program() -> int:
    """0 if everything is as it should be."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", action="store_true", help="pretend that every rank is a node")
    parser.add_argument("--cuda", action="store_true", help="tiles on GPUs")
    parser.add_argument("--without-gpu", action="store_true", help="NumPy stands for CuPy")
    args = parser.parse_args()
    if args.cuda:
        WHERE["device"] = "cuda"
    if args.without_gpu:
        opened_cupy.install()
    comm = MPI.COMM_WORLD
    good = True
    if args.nodes:
        a = pgas.zeros(2**21, type="{x}", **WHERE)
        onesided.reach(a, node_size=1)
        with a.epoch():
            a.put(slice(comm.rank, None, comm.size), comm.rank)
        want = np.arange(2**21) % comm.size
        same = np.array_equal(to_host(a.get(slice(None, None, -1))), want[::-1])
        good = all_well(comm, "large", None if same else "differs")
        a.fence()
        good &= all_well(comm, "far blocks", far_blocks(comm))
    else:
        for part in parts_on(on_gpu()):
            bad = [f"{name}: {wrong}" for name, wrong in part(comm) if wrong is not None]
            good &= all_well(comm, part.__name__, "; ".join(bad) or None)
    if comm.rank == 0:
        print("all is well" if good else "something is wrong", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    main(program)
