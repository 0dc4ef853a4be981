"""What does an operation on a small global array cost beyond NumPy's own time on the tile?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.report.figures import quartiles, repeated, timed
from bench.report.report import Row, Table, Tables
from redist import pgas

ELEMS = 100
CALLS = 200
MOST_REPEATS = 25

Operation = Callable[[Any, Any, Any], Any]
OPERATIONS: dict[str, Operation] = {
    "x + y": lambda xp, x, y: x + y,
    "2.0 * x": lambda xp, x, y: 2.0 * x,
    "x < y": lambda xp, x, y: x < y,
    "x // y": lambda xp, x, y: x // y,
    "sin(x)": lambda xp, x, y: xp.sin(x),
    "sqrt(x)": lambda xp, x, y: xp.sqrt(x),
    "maximum(x, y)": lambda xp, x, y: xp.maximum(x, y),
    "where(x < y, x, y)": lambda xp, x, y: xp.where(x < y, x, y),
    "clip(x, 0, 1)": lambda xp, x, y: xp.clip(x, 0.0, 1.0),
    "isnan(x)": lambda xp, x, y: xp.isnan(x),
    "sum(x)": lambda xp, x, y: xp.sum(x),
    "max(x)": lambda xp, x, y: xp.max(x),
}


def run(n: int = MOST_REPEATS, seed: int = 0) -> Tables:
    """Time operations on 100 elements both ways in turn, on one rank."""
    rng = np.random.default_rng(seed)
    x, y = rng.random(ELEMS), rng.random(ELEMS) + 0.5
    a, b = pgas.asarray(x), pgas.asarray(y)
    rows: list[Row] = []
    for name, operation in OPERATIONS.items():
        ours, theirs = operation(pgas, a, b), operation(np, x, y)
        assert np.array_equal(ours.gather(), theirs), name
        times: tuple[list[float], list[float]] = [], []
        for _ in range(min(n, MOST_REPEATS)):
            times[0].append(_seconds(operation, pgas, a, b))
            times[1].append(_seconds(operation, np, x, y))
        beyond = 1e6 * (np.array(times[0]) - np.array(times[1]))
        low, middle, high = quartiles(beyond)
        cost = {"beyond numpy": middle, "from": low, "to": high}
        rows.append({"operation": name, "numpy": 1e6 * float(np.median(times[1])), **cost})
    title = f"Global arrays of {ELEMS} float64 on one rank, us a call"
    note = "medians, both ways in turn, results compared first; from, to: quartiles"
    return (Table.of("operations", title, rows, note),)


def _seconds(operation: Operation, *args: Any) -> float:
    return timed(lambda: repeated(operation, *args)(CALLS))[0] / CALLS
