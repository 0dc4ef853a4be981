"""Building blocks for methods over ranks: own rows, exact totals, visits to all rows, and C loops in step.

In an SPMD program::

    from redist import spmd

    rows = spmd.Rows.of(x)                                  # this rank's rows of a global array
    mean = spmd.exact_total(rows.comm, rows.local) / rows.n # the same bits on any number of ranks
    for first, tile in spmd.Visits(rows):                   # the rows of all ranks, a tile at a time
        ...

``redist.learn`` is built on these.
"""

import redist.runtime.mpi_library as _mpi_library  # noqa: F401  (first: it says what is missing)
from redist.spmd.neighbours import include, neighbour_tiles, node_loops
from redist.spmd.rows import Passing, Rows, cut_like, is_global, lies_on_gpu, own_range, whole_of
from redist.spmd.statistics import RunningSums, draw, draw_distinct, kth_of_all, median_of_all
from redist.spmd.totals import (
    ExactGrid,
    RowsOfAll,
    Totals,
    all_parts,
    all_rows,
    exact_total,
    largest,
    same_error,
    total_of,
)
from redist.spmd.visits import Visits

__all__ = [
    "ExactGrid",
    "Passing",
    "Rows",
    "RowsOfAll",
    "RunningSums",
    "Totals",
    "Visits",
    "all_parts",
    "all_rows",
    "cut_like",
    "draw",
    "draw_distinct",
    "exact_total",
    "include",
    "is_global",
    "kth_of_all",
    "largest",
    "lies_on_gpu",
    "median_of_all",
    "neighbour_tiles",
    "node_loops",
    "own_range",
    "same_error",
    "total_of",
    "whole_of",
]
