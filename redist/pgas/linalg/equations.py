"""Linear equations and least squares: through QR if the matrix is tall, else on whole matrices.

Equations too large for a rank are solved by panels of columns, made orthogonal one after another. Rows stay
where they are. A panel gets its QR from all ranks together (:mod:`redist.pgas.linalg.tall_qr`) and is taken
out of the columns behind it and of the right sides; what that needs from the others is one sum of a few rows.
Then the triangle is solved from below. Modified Gram-Schmidt with the right sides as further columns is
backward stable, whatever the matrix's condition.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError
from redist.layout.array_type import ArrayType
from redist.pgas.elementwise.apply import apply, astype
from redist.pgas.elementwise.in_f32 import in_f32
from redist.pgas.kinds import float_limits, number_kind, promote
from redist.pgas.linalg import tall_qr
from redist.pgas.linalg.matrices import (
    check_matrices,
    functions_of,
    make_whole,
    refuse_together,
    run_together,
)
from redist.pgas.memory import SHARED_FROM, as_tile
from redist.pgas.products.contract import contract
from redist.pgas.shapes.permute import expand_dims, squeeze
from redist.pgas.tiles.arguments import check_arrays
from redist.pgas.tiles.arranging import asked
from redist.pgas.tiles.devices import check_alike
from redist.pgas.tiles.layouts import dtype_of, free_dims
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.tiled import T, Tile, Tiled, own_box
from redist.pgas.watch.seam import traffic
from redist.runtime.ranks.collectives import all_fit

WHOLE_BYTES = 2**26
"""A matrix that is to be solved may be whole on every rank of several up to this size."""


@in_f32
@asked
def solve(x1: T, x2: T, /) -> T:
    """**Collective.** Solve ``x1 x = x2`` for ``x``; ``x2`` is a vector (one dim) or a stack of matrices.

    The matrices are whole on their ranks (a stack is distributed over them); right-hand sides stay cut by
    columns. A single matrix of more than 64 MiB on several ranks, or for which the memory limit leaves no
    room, stays cut by rows.
    """
    check_arrays("solve", x2)
    check_matrices("solve", x1, square=True)
    check_alike("solve", x1, x2)
    vector = x2.ndim == 1
    if x2.shape[0 if vector else -2] != x1.shape[-1]:
        raise ArgumentError(f"cannot solve shapes {x1.shape} and {x2.shape}: the rows differ")
    dtype = promote(x1.dtype, x2.dtype)
    if number_kind(dtype) not in "fc":
        raise ArgumentTypeError(f"cannot solve with {dtype}: need floating-point numbers")
    if x1.ndim == 2 and x2.ndim <= 2 and x1.size and x2.size and is_large(x1):
        a, sides = astype(x1, dtype, copy=False), astype(x2, dtype, copy=False)
        out = solve_by_panels(a, expand_dims(sides, axis=1) if vector else sides)
        return squeeze(out, axis=1) if vector else out
    stack = np.broadcast_shapes(x1.shape[:-2], () if vector else x2.shape[:-2])
    a = make_whole("solve", x1)
    b = resolve_pending(x2)
    n = len(stack)
    lead = (*((),) * (n - a.ndim + 2), *(
        d if size == full else ()
        for d, size, full in zip(a.type.dims[:-2], a.shape[:-2], stack[n - a.ndim + 2 :], strict=True)
    ))  # fmt: skip
    a = move(a, a.type.with_dims((*_tail(lead, a.ndim - 2, a.shape, stack), (), ())))
    if vector:
        b = move(b, free_dims(b.type, frozenset({0})))
        b = move(b, b.type.with_dims(((),)))
        columns: Any = ()
    else:
        used = {part.name for dim in lead for part in dim}
        columns = () if used & {part.name for part in b.type.dims[-1]} else b.type.dims[-1]
        b = move(b, b.type.with_dims((*_tail(lead, b.ndim - 2, b.shape, stack), (), columns)))
    shape = (*stack, x1.shape[-1], *(() if vector else (x2.shape[-1],)))
    t = ArrayType(a.mesh, dtype_of(dtype), shape, (*lead, (), *(() if vector else (columns,))))
    tile_a: Any = a.tile
    tile_b: Any = b.tile
    tile = run_together("solve", a, _solve, tile_a, tile_b)
    return a.new(t, None if tile is None else as_tile(tile, dtype))


def _solve(a: Tile, b: Tile) -> Tile:
    """**Local.** Solve equations of tiles."""
    return functions_of(a).solve(a, b)


def is_large(x: Tiled) -> bool:
    """**Collective** under a memory limit. Whether a matrix should not be whole on every rank."""
    size = x.size * x.dtype.itemsize
    if size > WHOLE_BYTES and x.mesh.n_devices > 1:
        return True
    if x.memory.limit_bytes is None or size < SHARED_FROM:
        return False
    return not all_fit(x.comm, 2 * size <= x.memory.limit_bytes - x.memory.live_bytes)


def _tail(lead: Any, n: int, shape: tuple[int, ...], stack: tuple[int, ...]) -> Any:
    """The cuts of the last ``n`` dims of a stack, where they are not stretched."""
    cut = lead[len(lead) - n :]
    sizes = stack[len(stack) - n :]
    return tuple(
        d if size == full else () for d, size, full in zip(cut, shape[:n], sizes, strict=True)
    )


@in_f32
@asked
def lstsq(a: T, b: T, /) -> T:
    """**Collective.** Find the ``x`` that minimizes the norm of ``a x - b``, for a tall ``a`` of full rank.

    ``pgas.linalg.lstsq(a, b)`` with ``a`` of type ``f64[m{x}, n]`` and ``b`` of type ``f64[m{x}]`` or
    ``f64[m{x}, k]``.
    """
    check_arrays("lstsq", b)
    check_matrices("lstsq", a)
    check_alike("lstsq", a, b)
    m, n = a.shape[-2:]
    if a.ndim != 2 or b.ndim not in (1, 2) or b.shape[0] != m or m < n:
        raise ArgumentError(
            f"cannot solve the least squares of shapes {a.shape} and {b.shape}: "
            "need one tall matrix, and right-hand sides with as many rows"
        )
    dtype = promote(a.dtype, b.dtype)
    a, b = astype(a, dtype, copy=False), astype(b, dtype, copy=False)
    q, r = tall_qr.qr(a)
    q = apply(np.conjugate, q) if number_kind(dtype) == "c" else q
    labels = ("row",) if b.ndim == 1 else ("row", "side")
    y = contract(q, b, ("row", "k"), labels, ("k", *labels[1:]), "lstsq")
    return solve(r, y)


# Equations too large for a rank.


PANEL = 96
"""Columns that are made orthogonal at a time."""


def solve_by_panels(a: T, b: T) -> T:
    """**Collective.** Solve ``a x = b`` of one square matrix, right sides as columns, cut by rows."""
    a = resolve_pending(a)
    a = move(a, tall_qr.by_rows(a.type))
    b = move(b, ArrayType(a.mesh, b.type.dtype, b.shape, (a.type.dims[0], ())))
    return _Solving(a, b).solution()


class _Solving:
    """One system under way, as a rank sees it."""

    def __init__(self, a: Tiled, b: Tiled) -> None:
        self.a, self.b, self.n, self.sides = a, b, a.shape[0], b.shape[1]
        self.cut, self.diagonal = a.type.dims[0], list[Any]()
        self.work: Tile | None = None
        self.low = self.high = 0
        if a.tile is not None and b.tile is not None:
            self.low, self.high = own_box(a)[0]
            self.work = a.memory.empty(
                (a.tile.shape[0], self.n + self.sides),
                a.dtype,
                a.type.tile_bytes + b.type.tile_bytes,
            )
            self.work[:, : self.n], self.work[:, self.n :] = a.tile, b.tile

    def solution(self) -> Any:
        """**Collective.** Turn the right sides into the unknowns, row by row."""
        rows = self.high - self.low
        triangle = y = None
        if self.work is not None:
            triangle = self.a.memory.empty((self.n, rows), self.a.dtype, self.a.type.tile_bytes)
            y = self.a.memory.empty((rows, self.sides), self.a.dtype, self.b.type.tile_bytes)
        for start in range(0, self.n, PANEL):
            self._take_out(start, min(self.n, start + PANEL), triangle, y)
        self.work = None
        self._check()
        for start in reversed(range(0, self.n, PANEL)):
            self._substitute(start, min(self.n, start + PANEL), triangle, y)
        return self.b.new(self.b.type, y)

    def _take_out(self, start: int, end: int, triangle: Tile | None, y: Tile | None) -> None:
        """**Collective.** Make a panel's columns orthogonal, and take them out of those behind it."""
        t, work = self.a.type, self.work
        panel = ArrayType(t.mesh, t.dtype, (self.n, end - start), (self.cut, ()))
        tile = None if work is None else self.a.memory.contiguous(work[:, start:end])
        q, r = tall_qr.qr(self.a.new(panel, tile))
        part = None
        if work is not None:
            part = np.zeros_like(work, shape=(end - start, work.shape[1]))
            part[:, end:] = q.tile.conj().T @ work[:, end:]
        rows = self._sum_on_all(part, (end - start, self.n + self.sides))
        self.diagonal.append(r.tile)
        if work is None or rows is None or triangle is None or y is None:
            return
        work[:, end:] -= q.tile @ rows[:, end:]
        first = max(self.low, end)
        triangle[start:end, max(0, first - self.low) :] = rows[:, first : self.high]
        lo, hi = self._own(start, end)
        y[lo - self.low : hi - self.low] = rows[lo - start : hi - start, self.n :]

    def _substitute(self, start: int, end: int, triangle: Tile | None, y: Tile | None) -> None:
        """**Collective.** Unknowns of a panel from those behind it; they take the place of y."""
        part = None
        lo, hi = self._own(start, end)
        if triangle is not None and y is not None:
            part = np.zeros_like(y, shape=(end - start, self.sides))
            first = max(self.low, end) - self.low
            part -= triangle[start:end, first:] @ y[first:]
            part[lo - start : hi - start] += y[lo - self.low : hi - self.low]
        rows = self._sum_on_all(part, (end - start, self.sides))
        if rows is not None and y is not None:
            found = _solve(self.diagonal[start // PANEL], rows)
            y[lo - self.low : hi - self.low] = found[lo - start : hi - start]

    def _own(self, start: int, end: int) -> tuple[int, int]:
        """Rows of a panel that are this rank's; none of them as an empty range inside its own."""
        lo = min(max(start, self.low), max(self.high, start))
        return lo, max(lo, min(end, self.high))

    def _sum_on_all(self, part: Tile | None, shape: tuple[int, int]) -> Tile | None:
        """**Collective.** Sum what the ranks have, on all of them."""
        t = self.a.type
        whole = ArrayType(t.mesh, t.dtype, shape, ((), ()))
        if not self.cut:
            return part
        return move(self.a.new(whole.with_pending("sum", self.cut), part), whole, asked=True).tile

    def _check(self) -> None:
        """Raise if the triangle says that the matrix is singular; all ranks have the same triangle."""
        if self.a.memory.is_ghost:
            traffic().require_data(
                f"a solution with the large matrix {self.a.type}", "it may be singular"
            )
        singular = False
        if self.diagonal and self.diagonal[0] is not None:
            size = np.abs(np.concatenate([np.diagonal(r) for r in self.diagonal]))
            singular = not bool(size.min() > float(float_limits(size.dtype).eps) * size.max())
        refuse_together("solve", self.a, singular)
