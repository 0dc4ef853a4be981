"""Linear equations too large for a rank: panels of columns made orthogonal, one after another.

Rows stay where they are. A panel gets its QR from all ranks together (:mod:`redist.pgas.linalg.tall_qr`) and
is taken out of the columns behind it and of the right sides; what that needs from the others is one
sum of a few rows. Then the triangle is solved from below. Modified Gram-Schmidt with the right sides
as further columns is backward stable, whatever the matrix's condition.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.layout.array_type import ArrayType
from redist.pgas.linalg import tall_qr
from redist.pgas.linalg.matrices import refuse_together
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.tiled import T, Tile, Tiled, own_box
from redist.pgas.watch.seam import traffic

PANEL = 96
"""Columns that are made orthogonal at a time."""


def solve(a: T, b: T) -> T:
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
            part = np.zeros((end - start, work.shape[1]), self.a.dtype)
            np.matmul(q.tile.conj().T, work[:, end:], out=part[:, end:])
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
            part = np.zeros((end - start, self.sides), self.a.dtype)
            first = max(self.low, end) - self.low
            part -= triangle[start:end, first:] @ y[first:]
            part[lo - start : hi - start] += y[lo - self.low : hi - self.low]
        rows = self._sum_on_all(part, (end - start, self.sides))
        if rows is not None and y is not None:
            found = np.linalg.solve(self.diagonal[start // PANEL], rows)
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
        if self.diagonal and self.diagonal[0] is not None:
            size = np.abs(np.concatenate([np.diagonal(r) for r in self.diagonal]))
            singular = not size.min() > np.finfo(size.dtype).eps * size.max()
        else:
            singular = False
        refuse_together("solve", self.a, singular)
