"""A round of messages between points, as affinity propagation sends them, on the rows of one rank.

In C where it was built, else in NumPy, or on a GPU, with the same bits. On a GPU a round reads
responsibilities twice, similarities and availabilities once, and writes both messages once: what
:meth:`MessagesOnGpu.make_available` is given waits until the next round reads the row anyway.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.learn.kernels.library import C_TYPES, address, in_turns, library, source_of
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.cuda.loops import MOST_SHARED_BYTES, functions_for, n_processors, run_loop
from redist.spmd import ExactGrid

Values = NDArray[Any]
MOST_THREADS = 2048
"""That a processor works on together."""
WIDE = 256
"""Threads of a block that looks at columns."""
PART = 64
"""Rows that NumPy works on at a time."""
TIMES = 4
"""So often a round goes through each number."""
IN_C = 64
"""Numbers of a row that C looks at together, as PART in native/affinity.c."""


@dataclass(slots=True)
class MessagesOnGpu:
    """As :class:`Messages`, of rows that lie on a GPU."""

    similar: Any
    available: Any
    responsible: Any
    first: int
    damping: float
    columns: Any = None
    """Sums of columns from which availabilities are still to be renewed."""

    @staticmethod
    def of(similar: Any, first: int, damping: float) -> MessagesOnGpu:
        """**Local.** No messages yet."""
        xp = functions_for(similar)
        return MessagesOnGpu(
            similar, xp.zeros(similar.shape), xp.zeros(similar.shape), first, damping
        )

    def respond(self) -> float:
        """**Local.** Renew messages up to responsibilities; the largest magnitude that is added up."""
        m, n = self.similar.shape
        if not m:
            return 0.0
        threads, holds, room = block_of(n)
        beside = max(1, min(MOST_THREADS // threads, MOST_SHARED_BYTES // room))
        blocks = min(m, beside * n_processors())
        most = functions_for(self.similar).empty(blocks)
        run_loop(
            source_of("messages"), "respond", blocks, threads, self.similar, self.available,
            self.responsible, self.columns, m, n, self.first, float(self.damping), most,
            options=_options(threads, holds), shared_bytes=room,
        )  # fmt: skip
        self.columns = None
        return float(most.max())

    def support(self, grid: ExactGrid) -> Values:
        """**Local.** Exact sums of columns, of what speaks for each point: ``2, n``, in memory."""
        m, n = self.similar.shape
        sums = functions_for(self.similar).zeros((2, n))
        if m:
            wide = -(-n // WIDE)
            parts = max(1, min(-(-m // 64), 32 * n_processors() // wide))
            run_loop(
                source_of("messages"), "support", wide * parts, WIDE, self.responsible, m, n,
                self.first, parts, *map(float, grid.steps), sums, options=_options(WIDE),
            )  # fmt: skip
        return np.asarray(to_host(sums))

    def make_available(self, columns: Values) -> None:
        """**Local.** Note the sums of columns over all ranks: availabilities follow from them."""
        self.columns = to_device(np.ascontiguousarray(columns))

    def chosen(self) -> NDArray[np.bool_]:
        """**Local.** Which of the own rows are exemplars after a round, in memory."""
        m, n = self.similar.shape
        out = functions_for(self.similar).zeros(m, np.uint8)
        if m:
            run_loop(
                source_of("messages"), "chosen", -(-m // WIDE), WIDE, self.available,
                self.responsible, self.columns, m, n, self.first, float(self.damping), out,
                options=_options(WIDE),
            )  # fmt: skip
        return np.asarray(to_host(out)).astype(bool)


def fill_similar(
    own: Any, norms: Any, first: int, there: Any, their_norms: Any, begin: int, out: Any
) -> None:
    """**Local.** Write minus the squared distances of own rows to others into their columns of ``out``.

    Own rows are ``first`` and following of all, the others ``begin`` and following; a row is 0 from itself.
    """
    (m, d), n_there = own.shape, len(there)
    if not m or not n_there:
        return
    turned = functions_for(there).ascontiguousarray(there.T)
    blocks = min(-(-n_there // WIDE) * -(-m // 8), 64 * n_processors())
    run_loop(
        source_of("messages"), "similar", blocks, WIDE, own, norms, m, d, first, turned, their_norms,
        n_there, begin, out, out.shape[1], options=_options(WIDE, real=C_TYPES[own.dtype]),
    )  # fmt: skip


def block_of(n: int) -> tuple[int, int, int]:
    """**Local.** Threads for a row of ``n``, how many copies of rows their memory holds, and its bytes.

    The row's similarities and responsibilities are held, or similarities alone, or what is read twice is left
    to the GPU's cache.

    >>> block_of(1000), block_of(20_000), block_of(50_000)
    ((256, 2, 24192), (1024, 1, 192768), (1024, 0, 32768))
    """
    threads = 256 if n <= 4096 else 512 if n <= 6656 else 1024
    plain = 32 * threads
    holds = max(h for h in (2, 1, 0) if plain + 8 * h * n <= MOST_SHARED_BYTES or not h)
    return threads, holds, plain + 8 * holds * n


def _options(threads: int, holds: int = 0, real: str = "double") -> tuple[str, ...]:
    return f"-DTHREADS={threads}", f"-DHOLDS={holds}", f"-DREAL={real}"


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
