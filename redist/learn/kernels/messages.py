"""A round of messages between points, as affinity propagation sends them, on the rows of one rank.

In C where it was built, else in NumPy, or on a GPU, with the same bits.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.learn.kernels.cuda.messages import MessagesOnGpu
from redist.learn.kernels.library import address, in_turns, library
from redist.runtime.copies.gpu_arrays import is_device
from redist.spmd import ExactGrid

Values = NDArray[Any]
PART = 64
"""Rows that NumPy works on at a time."""
TIMES = 4
"""So often a round goes through each number."""
IN_C = 64
"""Numbers of a row that C looks at together, as PART in native/affinity.c."""


@dataclass(slots=True)
class Messages:
    """Similarities, availabilities and responsibilities of rows ``first`` and following to all points."""

    similar: Values
    available: Values
    responsible: Values
    first: int
    damping: float
    speaks: NDArray[np.int8]
    """Whether, of each part of a row, a responsibility is above 0, for C."""
    columns: Values | None = None
    """Sums of columns from which availabilities are still to be renewed."""

    @staticmethod
    def of(similar: Values, first: int, damping: float) -> Messages | MessagesOnGpu:
        """**Local.** No messages yet, where the similarities lie."""
        if is_device(similar):
            return MessagesOnGpu.of(similar, first, damping)
        available, responsible = np.zeros_like(similar), np.zeros_like(similar)
        speaks = np.zeros((len(similar), -(-similar.shape[1] // IN_C)), np.int8)
        return Messages(similar, available, responsible, first, damping, speaks)

    @property
    def own(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where each row is the point itself."""
        rows = np.arange(len(self.similar))
        return rows, rows + self.first

    def chosen(self) -> NDArray[np.bool_]:
        """**Local.** Which of the own rows are exemplars after a round."""
        a, r = self.available[self.own], self.responsible[self.own]
        if self.columns is not None:
            a = a * self.damping - (r - self.columns[self.own[1]]) * (1 - self.damping)
        found: NDArray[np.bool_] = a + r > 0
        return found

    def respond(self) -> float:
        """**Local.** Renew messages up to responsibilities; the largest magnitude that is added up next."""
        c, columns, self.columns = library(), self.columns, None
        if c is None:
            if columns is not None:
                self._make_available(columns)
            return self._respond()
        room, most = np.empty(2 * self.similar.shape[1]), 0.0
        for part in in_turns(len(self.similar), TIMES * self.similar.shape[1]):
            rows = (self.similar[part], self.available[part], self.responsible[part])
            largest = c.redist_respond(
                *map(address, rows),
                *self._counts(part),
                ctypes.c_double(self.damping),
                address(columns),
                address(self.speaks[part]),
                address(room),
            )
            most = max(most, float(largest))
        return most

    def support(self, grid: ExactGrid) -> Values:
        """**Local.** Exact sums of columns, of what speaks for each point: ``2, n``."""
        c, sums = library(), np.zeros((2, self.similar.shape[1]))
        if c is None:
            for lo in range(0, len(self.similar), PART):
                sums += grid.sum_rows(self._speaks(lo))
            return sums
        for part in in_turns(len(self.similar), TIMES * self.similar.shape[1]):
            steps, speaks = map(ctypes.c_double, grid.steps), address(self.speaks[part])
            rows = address(self.responsible[part])
            c.redist_support(rows, *self._counts(part), speaks, *steps, address(sums))
        return sums

    def make_available(self, columns: Values) -> None:
        """**Local.** Let the next round renew availabilities, from the sums of columns over all ranks."""
        self.columns = np.ascontiguousarray(columns)

    def _counts(self, part: slice) -> tuple[ctypes.c_int64, ...]:
        m, n = part.stop - part.start, self.similar.shape[1]
        return tuple(map(ctypes.c_int64, (m, n, self.first + part.start)))

    def _speaks(self, lo: int) -> Values:
        """Responsibilities above 0, and each point's for itself, of a part of the rows."""
        r = self.responsible[lo : lo + PART]
        rows = np.arange(len(r))
        out = np.maximum(r, 0)
        out[rows, rows + lo + self.first] = r[rows, rows + lo + self.first]
        return out

    def _respond(self) -> float:
        most = 0.0
        for lo in range(0, len(self.similar), PART):
            s, r = self.similar[lo : lo + PART], self.responsible[lo : lo + PART]
            both = self.available[lo : lo + PART] + s
            rows, at = np.arange(len(s)), both.argmax(axis=1)
            best = both[rows, at]
            both[rows, at] = -np.inf
            new = s - best[:, None]
            new[rows, at] = s[rows, at] - both.max(axis=1)
            r *= self.damping
            r += new * (1 - self.damping)
            most = max(most, float(np.abs(self._speaks(lo)).max()))
        return most

    def _make_available(self, columns: Values) -> None:
        for lo in range(0, len(self.similar), PART):
            a, lacks = self.available[lo : lo + PART], self._speaks(lo) - columns
            rows = np.arange(len(a))
            diagonal = rows, rows + lo + self.first
            own = lacks[diagonal].copy()
            np.maximum(lacks, 0, out=lacks)
            lacks[diagonal] = own
            a *= self.damping
            a -= lacks * (1 - self.damping)
