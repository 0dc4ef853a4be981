"""Rows passed on to other ranks: who gets which is settled once, then values of them go there and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.learn.ranks.totals import all_rows
from redist.pgas.watch.seam import traffic
from redist.runtime.ranks.world import Comm

Values = NDArray[Any]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Passing:
    """Which rows this rank gives, in order of the ranks that get them, and how many it gets of each rank."""

    comm: Comm
    rows: Numbers
    given: Numbers
    got: Numbers

    @staticmethod
    def of(comm: Comm, rows: Numbers, ranks: Numbers) -> Passing:
        """**Collective.** Give ``rows[i]`` to ``ranks[i]``; a row may go to several ranks."""
        order = np.argsort(ranks, kind="stable")
        given = np.bincount(ranks, minlength=comm.size).astype(np.int64)
        got = all_rows(comm, given)[:, comm.rank].copy()
        return Passing(comm, rows[order], given, got)

    @property
    def from_ranks(self) -> Numbers:
        """For each row that this rank gets, who gave it."""
        return np.repeat(np.arange(self.comm.size), self.got)

    def there(self, values: Values) -> Values:
        """**Collective.** Pass values of rows on: those that this rank gets, in order of who gave them."""
        return _exchange(self.comm, values[self.rows], self.given, self.got)

    def back(self, values: Values) -> Values:
        """**Collective.** Pass values of the rows that were got back: in the order of :attr:`rows`."""
        return _exchange(self.comm, values, self.got, self.given)


def _exchange(comm: Comm, values: Values, given: Numbers, got: Numbers) -> Values:
    data = np.ascontiguousarray(values)
    if comm.size == 1:
        return data.copy()
    out = np.empty((int(got.sum()), *data.shape[1:]), data.dtype)
    width = int(np.prod(data.shape[1:], dtype=np.int64))
    sent, received = ((n * width, (np.cumsum(n) - n) * width) for n in (given, got))
    traffic().exchange(comm, data.reshape(-1), sent, out.reshape(-1), received)
    return out


def all_parts(comm: Comm, values: Values) -> tuple[Values, Numbers]:
    """**Collective.** The values of all ranks, one after another, though each has as many as it likes.

    Also where those of each rank begin, and at the end how many there are.
    """
    counts = all_rows(comm, np.int64(len(values)))
    padded = np.zeros((int(counts.max()), *values.shape[1:]), values.dtype)
    padded[: len(values)] = values
    every = all_rows(comm, padded)
    joined = np.concatenate([part[:n] for part, n in zip(every, counts.tolist(), strict=True)])
    return joined, np.append(0, np.cumsum(counts))
