"""Sorting and searching on random arrays of every layout, compared with NumPy.

As in ``mpirun -n 3 python -m tests.programs.pgas.sorting --n 200 --seed 0``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from mpi4py import MPI

import redist
from redist import ArrayType, Mesh, pgas
from redist.pgas.global_array import Array
from redist.pgas.ordering import searching as search
from redist.pgas.ordering.splitters import MANY
from redist.pgas.tiles.layouts import dtype_of
from tests.programs.pgas.layouts import layouts, meshes
from tests.programs.pgas.rounds import names_of
from tests.programs.together import all_well, main

SIZES = (0, 1, 2, 3, 5, 8, 13, 40)
DTYPES = ("f8", "f4", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "bool")
LONG = 3000
Check = Callable[["Cases", np.ndarray[Any, Any], Array], "str | None"]


class Cases:
    """Random cases, the same on all ranks."""

    def __init__(self, comm: MPI.Comm, seed: int) -> None:
        self.comm, self.rng = comm, np.random.default_rng(seed)
        self.meshes = meshes(comm.size)
        if comm.size > 2:
            self.meshes.append(Mesh({"x": comm.size - 1}, ranks=range(1, comm.size)))

    def shape(self) -> tuple[int, ...]:
        """Few elements, sometimes none, now and then many in one dim."""
        if self.rng.random() < 0.1:
            return (int(self.rng.integers(LONG)),)
        return tuple(self.rng.choice(SIZES, int(self.rng.integers(0, 4))).tolist())

    def values(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        """Values with many repetitions, now and then NaN, infinities and both zeros."""
        span = int(self.rng.choice([2, 5, 100, 10**6]))
        out = self.rng.integers(0, span, shape).astype(dtype)
        if out.dtype.kind in "fc":
            odd = self.rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.5], shape)
            out = np.where(self.rng.random(shape) < 0.2, odd, out - span // 2).astype(dtype)
        elif out.dtype.kind == "i":
            out = out - np.asarray(span // 2).astype(dtype)
        return out

    def array(self, values: np.ndarray[Any, Any], mesh: Mesh | None = None) -> Array:
        """The same values under any layout, sometimes with a reduction pending."""
        mesh = mesh or self.meshes[self.rng.integers(len(self.meshes))]
        types = list(layouts(mesh, dtype_of(values.dtype), values.shape))
        t = types[self.rng.integers(len(types))]
        a = pgas.asarray(values, type=t, comm=self.comm)
        if values.dtype.kind != "b" and self.rng.random() < 0.3:
            return self._pending(a)
        return a

    def _pending(self, a: Array) -> Array:
        idle = [
            ArrayType.of(a.mesh, "i8", (), (), {"max": [name]}).pending_axes
            for name, size in a.mesh.axes
            if size > 1 and not any(part.name == name for part in a.type.used)
        ]
        return Array(a.type.with_pending("max", idle[0]), a.comm, a.local) if idle else a


def whole(out: Array) -> np.ndarray[Any, Any] | None:
    """All of an array; None outside its mesh."""
    return out.to(ArrayType(out.mesh, out.type.dtype, out.shape, ((),) * out.ndim)).local


def same(out: Any, expected: Any, what: str) -> str | None:
    """What is wrong with a result."""
    expected = np.asarray(expected)
    if out.shape != expected.shape or out.dtype != expected.dtype:
        return f"{what}: {out.dtype}{out.shape}, not {expected.dtype}{expected.shape}"
    got = whole(out)
    if got is None:
        return None
    if not np.array_equal(got, expected, equal_nan=expected.dtype.kind in "fc"):
        return f"{what} of {out.type}: {got.tolist()}, not {expected.tolist()}"[:2000]
    if expected.dtype.kind == "f" and not np.array_equal(
        np.signbit(got)[got == 0], np.signbit(expected)[expected == 0]
    ):
        return f"{what}: signs of zeros differ"
    return None


def sorting(cases: Cases, values: np.ndarray[Any, Any], a: Array) -> str | None:
    """Sort and argsort along a random dim."""
    if values.ndim == 0:
        return None
    axis = int(cases.rng.integers(-values.ndim, values.ndim))
    down, stable = bool(cases.rng.integers(2)), bool(cases.rng.integers(2))
    given = np.flip(values, axis) if down else values
    order = np.argsort(given, axis=axis, kind="stable")
    if down:
        order = np.flip(values.shape[axis] - 1 - order, axis)
    expected = np.take_along_axis(values, order, axis)
    out = pgas.sort(a, axis=axis, descending=down, stable=stable)
    if not stable and values.dtype.kind == "f":
        out, expected = out + 0, expected + 0  # -0 may stand beside 0
    return same(out, expected, f"sort {axis} {down} {stable}") or same(
        pgas.argsort(a, axis=axis, descending=down), order, f"argsort {axis} {down}"
    )


def uniques(cases: Cases, values: np.ndarray[Any, Any], a: Array) -> str | None:
    """What is unique, and where; NaN may come in any order."""
    v, i, inverse, n = np.unique(values, True, True, True, equal_nan=False)
    out = pgas.unique_all(a)
    wrong = (
        same(pgas.unique_values(a) + 0, v + 0, "unique_values")
        or same(pgas.unique_counts(a).counts, n, "unique_counts")
        or same(out.values + 0, v + 0, "unique_all")
        or same(out.counts, n, "counts")
    )
    if wrong:
        return wrong
    first, known = whole(out.indices), v == v
    got, places = pgas.unique_inverse(a)
    there, at = whole(got), whole(places)
    if first is None or there is None or at is None:
        return None
    if not np.array_equal(first[known], i[known]) or set(first.tolist()) != set(i.tolist()):
        return f"indices {first.tolist()}, not {i.tolist()}"
    if at.shape != values.shape:
        return f"inverse of shape {at.shape}, not {values.shape}"
    if not np.array_equal(
        there[at] if at.size else values, values, equal_nan=values.dtype.kind == "f"
    ):
        return f"inverse {at.tolist()} of {there.tolist()}, not {inverse.tolist()}"
    return None


def searching(cases: Cases, values: np.ndarray[Any, Any], a: Array) -> str | None:
    """Places of values in a sorted array, and by a sorter."""
    search.SMALL_BYTES = int(cases.rng.choice([0, 2**20]))
    row = cases.values((int(cases.rng.choice(SIZES)),), str(values.dtype))
    side: Literal["left", "right"] = "left" if cases.rng.integers(2) else "right"
    first = cases.array(np.sort(row), a.mesh)
    expected = np.searchsorted(np.sort(row), values, side)
    wrong = same(pgas.searchsorted(first, a, side=side), expected, f"searchsorted {side}")
    if wrong or a.type.pending_op:
        return wrong
    order = np.argsort(row, kind="stable")
    b, s = cases.array(row, a.mesh), cases.array(order, a.mesh)
    out = pgas.searchsorted(b, a, side=side, sorter=s)
    return same(out, expected, f"searchsorted {side} by a sorter")


OFTEN: tuple[Check, ...] = (sorting, uniques, searching)


def large(cases: Cases) -> str | None:
    """Enough elements for several rounds, and a search that asks the holders."""
    n = 300_000
    values = cases.rng.integers(0, 1000, n).astype(np.float64)
    a = pgas.asarray(values, comm=cases.comm)
    order = np.argsort(values, kind="stable")
    sought = pgas.sort(a)
    return (
        same(sought, values[order], "large sort")
        or same(pgas.argsort(a), order, "large argsort")
        or same(pgas.unique_values(a), np.unique(values), "large unique")
        or same(
            pgas.searchsorted(sought, a), np.searchsorted(values[order], values), "large search"
        )
    )


def bare(cases: Cases) -> str | None:
    """Ranks that hold no rows beside ranks that do; it takes 3 times 2 of them."""
    if cases.comm.size != 6:
        return None
    values = cases.rng.integers(0, 9, (7, 1))
    a = pgas.asarray(values, type="{x}, {y}", mesh=Mesh(x=3, y=2), comm=cases.comm)
    order = np.argsort(values, axis=0, kind="stable")
    return same(pgas.sort(a, axis=0), np.sort(values, axis=0), "sort without rows") or same(
        pgas.argsort(a, axis=0), order, "argsort without rows"
    )


def figures(cases: Cases) -> str | None:
    """No rank receives more than its tile and the samples; nothing moves to explain; a limit holds."""
    values = cases.rng.random(50_000)
    a = pgas.asarray(values, comm=cases.comm)
    planned = redist.explain(lambda: pgas.sort(a))
    with redist.trace() as seen:
        pgas.sort(a)
    moves = 1 if cases.comm.size > 1 else 0
    if (len(planned.moves), len(seen.moves)) != (moves, moves):
        return f"{len(planned.moves)} moves planned and {len(seen.moves)} seen"
    others = cases.comm.size - 1
    samples = 4 * others * 8 * (MANY * others + 1)  # 4 rounds
    if any(m.received_bytes > a.type.tile_bytes + samples for m in (*seen.moves, *planned.moves)):
        return f"a tile has {a.type.tile_bytes} bytes, received: {seen}"
    if moves and (seen.received_bytes < a.type.tile_bytes // 4 or "sorting.py" not in str(seen)):
        return f"not all is told: {seen}"
    if moves:
        with redist.memory_limit(a.type.tile_bytes):
            for function in (pgas.sort, pgas.argsort, pgas.unique_values, pgas.unique_all):
                try:
                    function(a)
                except redist.MemoryLimitError:
                    continue
                return f"{function.__name__} does not keep the limit"
    return same(pgas.sort(a), np.sort(values), "sort after errors")


ONCE: tuple[Callable[[Cases], str | None], ...] = (large, bare, figures)
CHECKS = names_of([*OFTEN, *ONCE])


def program() -> int:
    """0 if every case agrees with NumPy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    cases = Cases(comm, args.seed)
    wrong = 0
    for number in range(args.n):
        values = cases.values(cases.shape(), str(cases.rng.choice(DTYPES)))
        a = cases.array(values)
        for check in OFTEN:
            wrong += not all_well(
                comm, check.__name__, check(cases, values, a), f"{number} {a.type} on {a.mesh}"
            )
    for last in ONCE:
        wrong += not all_well(comm, last.__name__, last(cases))
    if comm.rank == 0:
        print(
            f"{args.n * len(OFTEN) + len(ONCE) - wrong} agree, {wrong} do not ({comm.size} ranks)",
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
