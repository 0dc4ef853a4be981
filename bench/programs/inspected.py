"""Reads at indices that stay: programs, which inspect them once, beside epochs and planned moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from bench.report.figures import in_turn, quartiles, slowest_s
from redist import Mesh, pgas
from redist.runtime.onesided.window import windows_of
from redist.runtime.ranks.world import world_of

REPEATS = 41
PART = 16
"""Epochs row by row read one of so many rows; messages and time are this many times those."""


@dataclass(frozen=True, slots=True)
class ReadCase:
    """Rows of a sparse matrix: how many for a rank, with how many elements, times a matrix of some columns.

    Elements lie up to ``near`` from the diagonal, or anywhere.
    """

    name: str
    rows: int
    long: int
    columns: int
    near: int = 0


CASES = (
    ReadCase("anywhere", 2**12, 8, 1),
    ReadCase("anywhere, 32 columns", 2**10, 8, 32),
    ReadCase("near the diagonal", 2**14, 8, 1, 2**10),
)


def measure_reads(comm: MPI.Intracomm) -> list[dict[str, Any]]:
    """Each case, results compared first. **Collective over `comm`.**"""
    return [_measure(comm, case) for case in CASES]


def _measure(comm: MPI.Intracomm, case: ReadCase) -> dict[str, Any]:
    n, mesh = case.rows * comm.size, Mesh(x=comm.size)
    rng = np.random.default_rng(3)
    wide = () if case.columns == 1 else (case.columns,)
    whole = rng.integers(0, n, (n, case.long))
    if case.near:
        off = rng.integers(-case.near, case.near + 1, whole.shape)
        whole = (np.arange(n)[:, None] + off) % n
    cut = "{x}" if not wide else "{x}, {}"
    x = pgas.asarray(rng.normal(size=(n, *wide)), mesh=mesh).to(cut)
    cols = pgas.asarray(whole, mesh=mesh).to("{x}, {}")
    read: Any = pgas.program(layouts="as written")(lambda x, cols: x.get(cols))
    own = np.array(cols.copy().local)
    first_s = slowest_s(comm, partial(read, x, cols))
    with redist.trace() as t:
        got = read(x, cols)
    (found,) = t.by_lists.values()
    received, sent = comm.allreduce(found.received_bytes), comm.allreduce(found.messages)
    moved = _as_many_bytes(received, mesh)
    move: Any = pgas.program(layouts="as written", cache=False)(lambda a: a.to("{}, {x}"))
    move(moved)

    def by_rows() -> list[Any]:
        with x.epoch(prefetch=False, cache=False):
            return [x.get(row) for row in own[::PART]]

    def at_once() -> Any:
        with x.epoch(prefetch=False, cache=False):
            return x.get(own)

    def take() -> Any:
        return got.local.reshape(own.size, -1).take(own.reshape(-1) % own.size, axis=0)

    want = at_once()
    (some, sent_rows), (_, sent_once) = _counted(comm, by_rows), _counted(comm, at_once)
    same = got.local.tobytes() == want.tobytes() and np.array_equal(np.stack(some), want[::PART])
    ways: dict[str, Any] = {
        "read": partial(read, x, cols),
        "move": partial(move, moved),
        "take": take,
        "at once": at_once,
    }
    times = in_turn(ways, REPEATS, partial(slowest_s, comm))
    ratios = np.array(times["read"]) / np.array(times["move"])
    return {
        "case": case.name, "what": f"{n} rows of {case.long}", "received": received,
        "wrong": not all(comm.allgather(same)), "first_s": first_s,
        "by rows_s": PART * slowest_s(comm, by_rows),
        **{f"{name}_s": float(np.median(some)) for name, some in times.items()},
        "ratio": quartiles(ratios.tolist()), "most": comm.allreduce(found.messages, MPI.MAX),
        "messages": [sent, PART * sent_rows, sent_once],
    }  # fmt: skip


def _as_many_bytes(received: int, mesh: Mesh) -> Any:
    """A matrix of which ranks together receive about so many bytes when rows become columns."""
    p = mesh.n_devices
    columns = 64 * p
    rows = max(p, round(received / 8 / columns * p / max(1, p - 1) / p) * p)
    return pgas.asarray(np.ones((rows, columns)), mesh=mesh).to("{x}, {}")


def _counted(comm: MPI.Intracomm, work: Any) -> tuple[Any, int]:
    """What some work gives, and how many messages with requests, answers and values it sends."""
    world = world_of(comm)
    service = windows_of(world).service
    watched: Sequence[Any] = [world] if service is None else [world, service]
    names = ["comm", "_comm"]
    counters = []
    for owner, name in zip(watched, names, strict=False):
        counters.append(_Counting(getattr(owner, name)))
        setattr(owner, name, counters[-1])
    made = work()
    comm.Barrier()
    for owner, name, counter in zip(watched, names, counters, strict=False):
        setattr(owner, name, counter.inner)
    return made, comm.allreduce(sum(counter.n for counter in counters))


class _Counting:
    """A communicator that counts the messages that are sent to others."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.n = inner, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def Isend(self, buffer: Any, dest: int, tag: int = 0) -> Any:  # noqa: N802
        """A message."""
        self.n += dest != self.inner.rank
        return self.inner.Isend(buffer, dest, tag)
