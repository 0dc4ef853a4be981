"""The best choice by an integer program, for tangled networks and under limits; needs SciPy."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from redist.arrange.solving.network import FORBIDDEN, CostNetwork, LiveRows, Solution

SLACK = 1e-6
"""Share of the cost by which a bound in floating point may be too high."""
Reals = NDArray[np.float64]


@dataclass(slots=True, eq=False)
class _Program:
    """Columns and rows as they grow: one column for each value of each variable, which is 0 or 1.

    And one for every entry of a table of several variables, whose sums along its axes these are. Tables of
    the same variables share their columns.
    """

    network: CostNetwork
    first: NDArray[np.int64]
    costs: Reals
    starts: dict[tuple[int, ...], int] = field(default_factory=dict)
    shut: list[NDArray[np.int64]] = field(default_factory=list)
    entries: list[tuple[NDArray[np.int64], NDArray[np.int64], Reals]] = field(default_factory=list)
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)
    constant: int = 0
    unbounded: list[int] = field(default_factory=list)
    """Columns that may be more than 1."""

    @staticmethod
    def of(network: CostNetwork) -> _Program:
        first = np.concatenate([[0], np.cumsum(network.sizes)]).astype(np.int64)
        program = _Program(network, first, np.zeros(int(first[-1])))
        for v, size in enumerate(network.sizes):
            program.add_row(np.arange(size) + first[v], np.ones(size), 1.0, 1.0)
        for table in network.tables:
            flat = table.costs.reshape(-1)
            if not table.variables:
                program.constant += int(table.costs)
                continue
            columns = np.arange(len(flat)) + program.start(table.variables)
            program.costs[columns] += np.where(flat < FORBIDDEN, flat, 0)
            program.shut.append(columns[flat >= FORBIDDEN])
        return program

    def start(self, variables: tuple[int, ...]) -> int:
        """The first column of a table over these variables, which is made if there is none."""
        if len(variables) == 1:
            return int(self.first[variables[0]])
        if variables not in self.starts:
            shape = tuple(self.network.sizes[v] for v in variables)
            start = self.starts[variables] = len(self.costs)
            places = np.indices(shape).reshape(len(shape), -1)
            columns = np.arange(math.prod(shape)) + start
            self.costs = np.concatenate([self.costs, np.zeros(len(columns))])
            for axis, v in enumerate(variables):
                row, one = len(self.lows), np.arange(shape[axis])
                self.entries.append((row + places[axis], columns, np.ones(len(columns))))
                self.entries.append((row + one, one + self.first[v], -np.ones(len(one))))
                self.lows += [0.0] * len(one)
                self.highs += [0.0] * len(one)
        return self.starts[variables]

    def add_column(self) -> int:
        """One more column, of any size, which costs 1."""
        self.costs = np.append(self.costs, 1.0)
        self.unbounded.append(len(self.costs) - 1)
        return self.unbounded[-1]

    def add_row(self, columns: NDArray[np.int64], values: Reals, low: float, high: float) -> None:
        """The sum of some columns is between these."""
        self.entries.append((np.full(len(columns), len(self.lows)), columns, values))
        self.lows.append(low)
        self.highs.append(high)

    def add_live_rows(self, rows: LiveRows, high: float, peak: int | None) -> None:
        """What is live at any time, in units, is at most ``high``, or the column ``peak``."""
        unit = rows.unit
        for number in range(rows.n_rows):
            columns, values = [np.zeros(0, np.int64)], [np.zeros(0)]
            for one in rows.tables:
                if one.first <= number <= one.last:
                    flat = one.table.costs.reshape(-1) // unit
                    some = np.flatnonzero(flat)
                    columns.append(some + self.start(one.table.variables))
                    values.append(flat[some].astype(np.float64))
            if peak is not None:
                columns.append(np.array([peak]))
                values.append(np.array([-1.0]))
            self.add_row(np.concatenate(columns), np.concatenate(values), -np.inf, high)

    def run(self, n_nodes: int | None) -> tuple[tuple[int, ...], float] | None:
        """Values of all variables and the bound that is proved; None if there are none, or no SciPy."""
        try:
            from scipy.optimize import LinearConstraint, milp
            from scipy.sparse import coo_array
        except ImportError:
            return None
        n_columns, n_whole = len(self.costs), int(self.first[-1])
        rows, columns, values = (np.concatenate(part) for part in zip(*self.entries, strict=True))
        matrix = coo_array((values, (rows, columns)), shape=(len(self.lows), n_columns)).tocsr()
        upper = np.ones(n_columns)
        upper[self.unbounded] = np.inf
        for shut in self.shut:
            upper[shut] = 0.0
        options: dict[str, float] = {"mip_rel_gap": 0.0}
        if n_nodes is not None:
            options["node_limit"] = n_nodes
        found = milp(
            self.costs, constraints=LinearConstraint(matrix, self.lows, self.highs),
            integrality=np.arange(n_columns) < n_whole, bounds=(np.zeros(n_columns), upper),
            options=options,
        )  # fmt: skip
        if found.x is None:
            return None
        picked = tuple(int(np.argmax(found.x[a:b])) for a, b in itertools.pairwise(self.first))
        return picked, found.mip_dual_bound or 0.0


def solve_by_program(
    network: CostNetwork,
    rows: LiveRows | None = None,
    limit_bytes: int = 0,
    n_nodes: int | None = None,
) -> Solution | None:
    """The best choice found by HiGHS, with the bound that it proves; None if there is none, or no SciPy.

    With ``rows``, of the choices that keep at most ``limit_bytes`` live at any time. It looks at ``n_nodes``
    nodes of its search at most; no clock ends it, so that all ranks find the same.
    """
    program = _Program.of(network)
    if rows is not None:
        program.add_live_rows(rows, float(limit_bytes // rows.unit), None)
    found = program.run(n_nodes)
    if found is None:
        return None
    values, proved = found
    cost = network.cost(values)
    if cost >= FORBIDDEN or (rows is not None and rows.peak(values) > limit_bytes):
        return None
    bound = program.constant + math.ceil(proved - SLACK * max(1.0, proved))
    return Solution(values, cost, min(cost, max(0, bound)))


def least_peak_by_program(
    network: CostNetwork, rows: LiveRows, n_nodes: int | None = None
) -> Solution | None:
    """The choice with the least bytes live at once, its cost; None if there is none, or no SciPy."""
    program = _Program.of(network)
    program.costs[:] = 0
    program.add_live_rows(rows, 0.0, program.add_column())
    found = program.run(n_nodes)
    if found is None or network.cost(found[0]) >= FORBIDDEN:
        return None
    values, proved = found
    peak, bound = rows.peak(values), math.ceil(proved - SLACK * max(1.0, proved)) * rows.unit
    return Solution(values, peak, min(peak, max(0, bound)))
