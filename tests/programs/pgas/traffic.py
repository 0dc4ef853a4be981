"""Bytes that really pass between ranks, counted two ways, against what traces and plans say.

``mpirun -n 3 python -m tests.programs.pgas.traffic`` gives every rank tiles full of its own number and sees
whose elements a result has, whatever carried them. With ``--messages`` nothing is shared, and every message
that is sent is counted.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import ArrayType, Mesh
from redist.runtime.ranks import world as ranks_world
from redist.runtime.ranks.world import world_of
from tests.programs.pgas.drawing import xp
from tests.programs.pgas.layouts import layouts
from tests.programs.together import all_well, main

COMM = MPI.COMM_WORLD
SHAPES = ((12, 18), (13, 7), (5, 64))

MOVES: dict[str, Callable[[Any, Any], Any]] = {
    "to": lambda a, b: a.to(b.type),
    "gather": lambda a, b: a.to("{}, {}"),
    "flip": lambda a, b: xp.flip(a, axis=0),
    "roll": lambda a, b: xp.roll(a, 3, axis=1),
    "slice": lambda a, b: a[1:, ::2],
    "rows": lambda a, b: a[::-3],
    "row": lambda a, b: a[2],
    "reshape": lambda a, b: xp.reshape(a, (-1,)),
    "transposed shape": lambda a, b: xp.reshape(a, a.shape[::-1]),
    "permute": lambda a, b: xp.permute_dims(a, (1, 0)).to(b.T.type),
    "concat": lambda a, b: xp.concat([a, a], axis=0),
    "stack": lambda a, b: xp.stack([a, a]),
    "take": lambda a, b: xp.take(a, np.array([4, 0, 3]), axis=0),
    "unstack": lambda a, b: xp.unstack(a)[0],
    "squeeze": lambda a, b: xp.squeeze(a[:1], axis=0),
    "tril": lambda a, b: xp.tril(a),
}
"""What only carries elements."""
OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "add a row": lambda a, b: a + b[0],
    "where": lambda a, b: xp.where(a > 1, a, b),
    "update": lambda a, b: a.copy().__iadd__(b),
    "sum": lambda a, b: xp.sum(a),
    "settled sum": lambda a, b: xp.sum(a, axis=0).settled(),
    "settled max": lambda a, b: xp.max(a, axis=1).settled(),
    "mean": lambda a, b: xp.mean(a, axis=0) + 1,
    "variance": lambda a, b: xp.var(a, axis=1) + 1,
    "any": lambda a, b: bool(xp.any(a > 3)),
    "argmax": lambda a, b: xp.argmax(a, axis=0),
    "cumulative_sum": lambda a, b: xp.cumulative_sum(a, axis=0),
    "matmul": lambda a, b: a @ b.T,
    "normal matrix": lambda a, b: (a.T @ b).settled(),
    "tensordot": lambda a, b: xp.tensordot(a, b, axes=2) + 0,
    "einsum": lambda a, b: xp.einsum("ij,kj->ik", a, b).settled(),
    "norm": lambda a, b: xp.linalg.matrix_norm(a) + 0,
    "qr": lambda a, b: xp.linalg.qr(a.T if a.shape[0] < a.shape[1] else a),
    "fftn": lambda a, b: xp.fft.fftn(a),
    "fft": lambda a, b: xp.fft.fft(a, axis=0),
    "sort": lambda a, b: xp.sort(a, axis=0),
    "unique": lambda a, b: xp.unique_values(a),
    "mask": lambda a, b: a[a > 3],
    "nonzero": lambda a, b: xp.nonzero(a > 3),
    "write": lambda a, b: a.copy().__setitem__((slice(1, 4),), b[1:4]),
}
CONTROL_BYTES = 0
"""What may pass beside the elements."""


class Counting:
    """A communicator that counts what is sent to others by messages and all-to-alls."""

    def __init__(self, comm: Any) -> None:
        self._comm, self.sent_bytes = comm, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def Isend(self, buffer: Any, dest: int, tag: int = 0) -> Any:
        """A message."""
        if dest != self._comm.rank:
            whole = buffer if isinstance(buffer, list) else [buffer, MPI.BYTE]
            many = whole[1] if len(whole) == 3 else memoryview(whole[0]).nbytes
            self.sent_bytes += int(many) * (whole[2].Get_size() if len(whole) == 3 else 1)
        return self._comm.Isend(buffer, dest, tag)

    def Ialltoallv(self, there: Any, here: Any) -> Any:
        """A message to everyone."""
        counts = list(there[1][0])
        counts[self._comm.rank] = 0
        self.sent_bytes += int(sum(counts)) * there[2].Get_size()
        return self._comm.Ialltoallv(there, here)


def said(t: Any) -> int:
    """What a trace says that all ranks receive: the plans', or where there is none what is counted."""
    free = sum(move.received_bytes for move in t.moves if move.plan is None)
    everyone: int = COMM.allreduce(free)
    return everyone + int(t.planned_bytes)


def by_messages(comm: Counting, work: Callable[[], Any], what: str) -> str | None:
    """Why not, if more is sent than the trace says."""
    COMM.Barrier()
    before = comm.sent_bytes
    with redist.trace() as t:
        work()
    sent = COMM.allreduce(comm.sent_bytes - before)
    told = said(t)
    if sent > told + CONTROL_BYTES:
        steps = [(move.source, move.target, move.steps) for move in t.moves]
        return f"{what}: {sent} bytes are sent, the trace says {told}: {steps}"
    for move in t.moves:
        if move.plan is not None and move.plan.received_bytes < move.plan.lower_bound_bytes:
            return f"{what}: a plan below the lower bound"
    return None


def by_owner(t: ArrayType, work: Callable[[Any], Any], what: str) -> str | None:
    """Why not, if a result has more elements of other ranks than the trace says were received."""
    x = xp.empty(t.shape, dtype=t.dtype.to_numpy(), type=t)
    if x.local is not None:
        x.local[...] = COMM.rank + 1
    with redist.trace() as seen:
        out = work(x)
    tile = np.zeros(0) if out.local is None else out.local
    foreign = int(np.count_nonzero((tile != COMM.rank + 1) & (tile != 0))) * x.dtype.itemsize
    everyone, told = COMM.allreduce(foreign), said(seen)
    if everyone > told:
        return f"{what}: {everyone} bytes come from others, the trace says {told}"
    plans = [move.plan for move in seen.moves]
    if len(plans) == 1 and plans[0] is not None:
        bound = plans[0].lower_bound_bytes
        if plans[0].received_bytes == bound and everyone > bound:
            return f"{what}: {everyone} bytes come from others, the bound is {bound}"
    return None


def checks_on(ranks: int, args: Sequence[str]) -> tuple[str, ...]:
    """What is checked: by messages more operations, and that messages are counted."""
    return (*MOVES, *OTHERS, "counter") if "--messages" in args else tuple(MOVES)


def program() -> int:
    """0 if no operation moves more than it says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", action="store_true")
    parser.add_argument("--n", type=int, default=2, help="pairs of layouts for each operation")
    args = parser.parse_args()
    comm: Any = None
    if args.messages:
        ranks_world.can_share = lambda: False  # type: ignore[attr-defined]
        world = world_of(COMM)
        assert COMM.size == 1 or not world.one_node
        comm = world.comm = Counting(world.comm)  # type: ignore[assignment]
    rng, n = Random(COMM.size), COMM.size
    meshes = [Mesh(x=n), *([Mesh(x=2, y=n // 2)] if n % 2 == 0 and n > 2 else [])]
    wrong = checks = 0
    for name, operation in {**MOVES, **(OTHERS if args.messages else {})}.items():
        for _ in range(args.n):
            mesh, shape = rng.choice(meshes), rng.choice(SHAPES)
            kind = redist.ArrayType.parse(f"f64[{shape[0]}, {shape[1]}]", mesh).dtype
            s, t = (rng.choice(list(layouts(mesh, kind, shape))) for _ in range(2))
            a = xp.from_function(lambda i, j: (i * 7 + j * 3) % 11, shape, type=s)
            b = xp.ones(shape, type=t)
            what = f"{name} of {s} and {t} on {mesh}"
            if args.messages:
                work = lambda: operation(a, b)  # noqa: B023, E731
                found = by_messages(comm, work, what)
            else:
                found = by_owner(s, lambda x: operation(x, b), what)  # noqa: B023
            checks += 1
            wrong += not all_well(COMM, name, found, what)
    if args.messages and n > 1:
        wrong += not all_well(COMM, "counter", None if comm.sent_bytes else "nothing was counted")
    if COMM.rank == 0:
        print(f"{checks - wrong} of {checks} keep to their bytes ({n} ranks)", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
