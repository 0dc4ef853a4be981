"""The best choice by an integer program, for networks too tangled to eliminate; needs SciPy."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redist.arrange.network import FORBIDDEN, CostNetwork, Solution

SLACK = 1e-6
"""Share of the cost by which a bound in floating point may be too high."""


@dataclass(slots=True)
class _Rows:
    """Equations of a program as they grow: entries, and what each row sums to."""

    n_columns: int = 0
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    sums: list[float] = field(default_factory=list)

    def add(self, columns: Any, values: float, minus: int | None, total: float) -> None:
        """The sum of some columns, less another, is ``total``."""
        row = len(self.sums)
        self.rows += [row] * len(columns)
        self.columns += [int(c) for c in columns]
        self.values += [values] * len(columns)
        if minus is not None:
            self.rows.append(row)
            self.columns.append(minus)
            self.values.append(-1.0)
        self.sums.append(total)


def solve_by_program(network: CostNetwork, seconds: float | None = None) -> Solution | None:
    """The best choice found by HiGHS, with the bound that it proves; None if there is none, or no SciPy.

    One variable for each value of each variable, which is 0 or 1, and one for every entry of a table of
    several variables, whose sums along its axes these are.
    """
    try:
        from scipy.optimize import LinearConstraint, milp
        from scipy.sparse import coo_array
    except ImportError:
        return None
    first = np.concatenate([[0], np.cumsum(network.sizes)]).astype(int)
    costs = [np.zeros(int(first[-1]))]
    rows = _Rows(int(first[-1]))
    forbidden: list[int] = []
    for v, size in enumerate(network.sizes):
        rows.add(range(first[v], first[v] + size), 1.0, None, 1.0)
    constant = 0
    for table in network.tables:
        if not table.variables:
            constant += int(table.costs)
            continue
        flat = table.costs.reshape(-1)
        if len(table.variables) == 1:
            start = int(first[table.variables[0]])
            costs[0][start : start + len(flat)] += np.where(flat < FORBIDDEN, flat, 0)
            forbidden += [start + int(i) for i in np.flatnonzero(flat >= FORBIDDEN)]
            continue
        start = rows.n_columns
        rows.n_columns += len(flat)
        costs.append(np.where(flat < FORBIDDEN, flat, 0).astype(float))
        forbidden += [start + int(i) for i in np.flatnonzero(flat >= FORBIDDEN)]
        places = np.arange(len(flat)).reshape(table.costs.shape) + start
        for axis, v in enumerate(table.variables):
            for value, part in enumerate(np.moveaxis(places, axis, 0)):
                rows.add(part.reshape(-1), 1.0, int(first[v]) + value, 0.0)
    upper = np.ones(rows.n_columns)
    upper[forbidden] = 0.0
    whole = np.zeros(rows.n_columns)
    whole[: first[-1]] = 1
    matrix = coo_array(
        (rows.values, (rows.rows, rows.columns)), shape=(len(rows.sums), rows.n_columns)
    ).tocsr()
    options = {"mip_rel_gap": 0.0, **({} if seconds is None else {"time_limit": seconds})}
    found = milp(
        np.concatenate(costs), constraints=LinearConstraint(matrix, rows.sums, rows.sums),
        integrality=whole, bounds=(np.zeros(rows.n_columns), upper), options=options,
    )  # fmt: skip
    if found.x is None:
        return None
    values = tuple(int(np.argmax(found.x[a:b])) for a, b in itertools.pairwise(first))
    cost = network.cost(values)
    if cost >= FORBIDDEN:
        return None
    proved = found.mip_dual_bound or 0.0
    bound = constant + math.ceil(proved - SLACK * max(1.0, proved))
    return Solution(values, cost, min(cost, max(0, bound)))
