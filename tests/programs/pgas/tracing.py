"""What traces say, against what the transport counts and the plans say; explanations; warnings.

As in ``mpirun -n 3 python -m tests.programs.pgas.tracing``.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas
from redist.pgas.tiles.move import move
from redist.pgas.watch.seam import (
    ElementExchange,
    RankTraffic,
    TileMove,
    WrappedTraffic,
    gathered_bytes,
    through,
    traffic,
)
from redist.runtime.transfer import Transfer
from tests.programs.pgas.rounds import names_of
from tests.programs.together import all_well, main

COMM = MPI.COMM_WORLD
SHAPES = ((0, 3), (1, 5), (7, 4), (8, 9), (130, 70))


def meshes() -> list[redist.Mesh]:
    """All ranks along one axis, and along two."""
    n = COMM.size
    pairs = [(k, n // k) for k in range(2, n) if n % k == 0]
    return [redist.Mesh(x=n), *(redist.Mesh(x=a, y=b) for a, b in pairs[:1])]


def cuts(mesh: redist.Mesh) -> list[str]:
    """Every way to cut two dims."""
    one = ["{x}, {}", "{}, {x}", "{}, {}"]
    two = ["{x}, {y}", "{y}, {x}", "{x,y}, {}", "{}, {y,x}", "{y}, {}"]
    return one + (two if len(mesh.axes) > 1 else [])


def arrays(rng: Random) -> Iterator[tuple[Any, Any]]:
    """Pairs of arrays in all layouts, a few shapes each."""
    for mesh in meshes():
        for one in cuts(mesh):
            for other in rng.sample(cuts(mesh), 2 if len(mesh.axes) == 1 else 1):
                shape = SHAPES[rng.randrange(len(SHAPES))]
                a = pgas.from_function(lambda i, j: i - 2 * j, shape, type=one, mesh=mesh)
                yield a, pgas.ones(shape, type=other, mesh=mesh)


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sum then use": lambda a, b: pgas.sum(a, axis=0) + pgas.sum(b, axis=0),
    "mean": lambda a, b: pgas.mean(a, axis=1) if a.shape[1] else a,
    "cumulative_sum": lambda a, b: pgas.cumulative_sum(a, axis=0),
    "where": lambda a, b: pgas.where(a > 0, a, b),
    "to": lambda a, b: a.to(b.type),
    "gather": lambda a, b: a.gather(),
    "matmul": lambda a, b: a @ b.T,
    "float": lambda a, b: float(pgas.sum(b)),
}


class Counted:
    """What the transport of this rank receives: every call of a transfer, by its report."""

    def __init__(self) -> None:
        self.bytes = 0
        self._call = Transfer.__call__

    def __enter__(self) -> Counted:
        def call(transfer: Any, *args: Any, **options: Any) -> Any:
            out = self._call(transfer, *args, **options)
            parts = (part for parts in transfer._schedule.stages for part in parts)
            self.bytes += sum(transfer._counts._count_moved(part)[1] for part in parts)
            return out

        Transfer.__call__ = call  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *error: object) -> None:
        Transfer.__call__ = self._call  # type: ignore[method-assign]


def bytes_are_those_planned(a: Any, b: Any, operation: Callable[[Any, Any], Any]) -> str | None:
    """Why not, if all ranks together received more than the plans say."""
    with redist.trace() as t, Counted() as counted:
        operation(a, b)
    if t.received_bytes != counted.bytes:
        return f"the trace says {t.received_bytes} bytes, the transport {counted.bytes}"
    if any(move.plan is None for move in t.moves):
        return None
    everyone = COMM.allreduce(counted.bytes)
    if everyone > t.planned_bytes:
        return f"all ranks received {everyone} bytes, planned {t.planned_bytes}"
    return None


def explanation_is_what_happens(a: Any, b: Any, operation: Callable[[Any, Any], Any]) -> str | None:
    """Why not, if an expression moves otherwise than explained, or explaining moves something."""
    with Counted() as counted:
        told = redist.explain(lambda: operation(a, b))
    if counted.bytes:
        return f"explaining moved {counted.bytes} bytes"
    with redist.trace() as t:
        operation(a, b)
    said = [(m.source, m.target, m.steps, m.planned_bytes) for m in told.moves]
    done = [(m.source, m.target, m.steps, m.planned_bytes) for m in t.moves]
    return None if said == done else f"explained {said}, done {done}"


def trace_names_the_line() -> str | None:
    """Why not, if a table lacks what caused the moves."""
    a = pgas.ones((64, 64), type="{x}, {}")
    with redist.trace() as t:
        for _ in range(3):
            a.to("{}, {x}")
    if COMM.size == 1:
        return None if str(t) in ("no array moved",) or "tracing.py:" in str(t) else str(t)
    rows = [line for line in str(t).splitlines() if line.startswith("tracing.py:")]
    if len(t.moves) != 3 or len(rows) != 1 or "a.to(" not in t.moves[0].line.code:
        return f"{len(t.moves)} moves; {t}"
    if "total" not in str(t) or t.seconds <= 0:
        return str(t)
    return None


def timeline_has_every_rank() -> str | None:
    """Why not, if the picture is wrong."""
    name = COMM.bcast(tempfile.mktemp(suffix=".svg") if COMM.rank == 0 else None)
    a = pgas.ones((64, 64), type="{x}, {}")
    with redist.trace() as t:
        a.to("{}, {x}")
        a.gather()
    t.svg(name)
    COMM.Barrier()
    text = Path(name).read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    COMM.Barrier()
    if COMM.rank == 0:
        os.unlink(name)
    bars = text.count("received in")
    want = len(t.moves) * COMM.size
    if f"{len(t.moves)} moves on {COMM.size} ranks" not in text and COMM.size > 1:
        return f"not {len(t.moves)} moves: {text[:300]}"
    return None if f"rank {COMM.size - 1}" in text and bars == want else f"{bars} bars, not {want}"


def planning_is_told_apart() -> str | None:
    """Why not, if the first move's planning counts as moving, or a repeated move has any."""
    a = pgas.ones((61, 67), type="{x}, {}")
    with redist.trace() as t:
        for _ in range(2):
            a.to("{}, {x}")
    if COMM.size == 1:
        return None
    first, second = t.moves
    if not 0 < first.planning_s < (first.seconds or 0.0) or second.planning_s:
        return f"planned {first.planning_s} s of {first.seconds}, then {second.planning_s}"
    return None if "of it planning" in str(t).splitlines()[0] else str(t)


def warns_once_per_line() -> str | None:
    """Why not, if gathering is passed over in silence, or named too often."""
    a = pgas.ones((512, 1024), type="{x}, {}")
    b = pgas.ones((512, 1024), type="{}, {}")
    small = pgas.ones((16, 16), type="{x}, {}")
    whole = b.type
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            move(a, whole)
        a.to("{}, {}")
        a.gather()
        move(small, small.to("{}, {}").type)
    share = gathered_bytes(a.type, whole)
    if (share > 0) != (COMM.size > 1):
        return f"{share} bytes would be gathered"
    want = 1 if share and COMM.rank == 0 else 0
    gathers = [w for w in seen if w.category is redist.GatherWarning]
    if len(gathers) != want:
        return f"{len(gathers)} warnings, not {want}"
    for w in gathers:
        if os.path.basename(w.filename) != "tracing.py" or ".to(" not in str(w.message):
            return str(w)
    square = pgas.ones((1024, 1024), type="{x}, {}")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        square @ square
    said = [str(w.message) for w in seen if w.category is redist.GatherWarning]
    if len(said) != want or any(f"{square.type} -> " not in text for text in said):
        return f"the warning of a product of {square.type} says {said}"
    return None


def warning_can_be_an_error() -> str | None:
    """Why not, if ranks part where warnings are errors."""
    a = pgas.ones((512, 1024), type="{x}, {}")
    whole = pgas.ones((512, 1024), type="{}, {}").type
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            move(a, whole)
        except redist.GatherWarning:
            return None
    return None if COMM.size == 1 else "no error"


def updates_are_explained() -> str | None:
    """Why not, if explaining an update changes the array, or has other moves than the update."""
    a: Any = pgas.ones((8, 8), type="{x}, {}")
    b = pgas.ones((8, 8), type="{}, {x}")

    def change() -> None:
        nonlocal a
        a += b

    told = redist.explain(change)
    if not np.all(a.gather() == 1):
        return "the array has changed"
    with redist.trace() as done:
        change()
    moves = [[(move.source, move.target) for move in one.moves] for one in (told, done)]
    return None if moves[0] == moves[1] else f"explained {moves[0]}, done {moves[1]}"


def traces_lie_in_each_other() -> str | None:
    """Why not, if an inner trace, an error or an explanation changes what an outer trace notes."""
    a = pgas.ones((16, 16), type="{x}, {}")
    with redist.trace() as outer:
        with redist.trace() as inner:
            a.to("{}, {x}")
        with contextlib.suppress(ZeroDivisionError), redist.trace() as failed:
            pgas.flip(a, axis=0)
            raise ZeroDivisionError
        told = redist.explain(lambda: a.to("{}, {x}"))
        a.to("{}, {x}")
    a.to("{}, {x}")
    n = int(COMM.size > 1)
    found = len(inner.moves), len(failed.moves), len(told.moves), len(outer.moves)
    if [m.received_bytes for m in inner.moves] != [m.received_bytes for m in outer.moves[:n]]:
        return "inner and outer trace disagree"
    return None if found == (n, n, n, 3 * n) else f"{found} moves"


class CountingTraffic(WrappedTraffic):
    """Counts what passes through it."""

    def __init__(self, inner: RankTraffic) -> None:
        super().__init__(inner)
        self.seen: list[str] = []

    def redistribute(self, move: TileMove, comm: Any, limit_bytes: int | None) -> Any:
        self.seen.append("redistribute")
        return self.inner.redistribute(move, comm, limit_bytes)

    def redistribute_together(
        self, moves: Mapping[str, TileMove], comm: Any, prepared: Any = None
    ) -> Any:
        self.seen.append("together")
        return self.inner.redistribute_together(moves, comm)

    def perform(self, exchange: ElementExchange, work: Any, *more: Any, **options: Any) -> Any:
        self.seen.append(exchange.what)
        return self.inner.perform(exchange, work, *more, **options)


def everything_passes_the_seam() -> str | None:
    """Why not, if an operation reaches the runtime beside the traffic in force."""
    a = pgas.reshape(pgas.arange(64), (8, 8)).to("{x}, {}")
    counting = CountingTraffic(traffic())
    with through(counting):
        pgas.move_together({"a": a}, {"a": "{}, {x}"})["a"].to("{x}, {}")
        pgas.flip(a, axis=0)
        a[pgas.asarray([1, 2]), pgas.asarray([3, 4])]
        a[[0, 1], [2, 2]] = 5
        pgas.sort(pgas.reshape(a, (64,)))
        pgas.unique_all(a)
    want = {"fetch", "store", "spread"}
    if COMM.size > 1:
        want |= {"redistribute", "together", "select", "sort", "unique"}
    return None if want <= set(counting.seen) else f"only {sorted(set(counting.seen))}"


OFTEN: tuple[Callable[..., str | None], ...] = (
    bytes_are_those_planned,
    explanation_is_what_happens,
)
ONCE: tuple[Callable[[], str | None], ...] = (
    trace_names_the_line, timeline_has_every_rank, planning_is_told_apart, warns_once_per_line,
    warning_can_be_an_error, updates_are_explained, traces_lie_in_each_other,
    everything_passes_the_seam,
)  # fmt: skip
CHECKS = names_of([*OFTEN, *ONCE])


def program() -> int:
    """0 if nothing is wrong."""
    rng = Random(COMM.size)
    wrong = checks = 0
    for a, b in arrays(rng):
        for name in rng.sample(list(OPERATIONS), 5):
            operation, what = OPERATIONS[name], f"{name} of {a.type} and {b.type}"
            for judge in OFTEN:
                checks += 1
                wrong += not all_well(COMM, judge.__name__, judge(a, b, operation), what)
    for check in ONCE:
        checks += 1
        wrong += not all_well(COMM, check.__name__, check())
    if COMM.rank == 0:
        print(f"{checks - wrong} of {checks} checks of traces hold ({COMM.size} ranks)", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
