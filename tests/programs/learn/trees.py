"""Spanning trees that grow over ranks: the least of all, alike in every way, and ended by a rank that fails.

As in ``mpirun -n 3 python -m tests.programs.learn.trees``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import minimum_spanning_tree
from sklearn.metrics import DistanceMetric
from sklearn.metrics.pairwise import pairwise_distances
from sklearn.neighbors import NearestNeighbors

import redist.errors
from redist.learn.near import spanning_tree as growing
from redist.learn.near.spanning_tree import Apart, OutsideTree, loop_of, spanning_tree, step_of
from redist.spmd import Rows
from tests.programs.learn.primitives import COMM, RANK, SIZE, rows_of, sets
from tests.programs.together import main, run_named


def trees_are_least() -> str | None:
    for name, x in sets().items():
        if name == "large":
            continue
        rows = rows_of(x)
        core = NearestNeighbors().fit(x).kneighbors(x, min(3, len(x)))[0][:, -1]
        own = core[rows.first : rows.first + len(rows.local)]
        for metric in ("euclidean", "manhattan"):
            measured = None if metric == "euclidean" else DistanceMetric.get_metric(metric)
            edges = spanning_tree(rows, own, 1.0, measured)
            far = np.maximum(pairwise_distances(x, metric=metric), np.maximum.outer(core, core))
            best = minimum_spanning_tree(csr_array(np.maximum(far, 1e-200))).sum()
            if not np.isclose(edges["distance"].sum(), best):
                return f"{name}: {edges['distance'].sum()} and not {best}"
            if sorted(edges["next_node"].tolist()) != list(range(1, len(x))):
                return f"{name}: not a tree"
            every = COMM.allgather(edges.tobytes())
            if len(set(every)) > 1:
                return f"{name}: ranks have other trees"
    return None


def points_of(rows: Rows) -> OutsideTree:
    """Points outside a tree of row 0."""
    outside = OutsideTree(rows.local, np.zeros(len(rows.local)), rows.first)
    outside.state[1] = 0 if rows.first == 0 and outside.m else -1
    return outside


def trees_grow_alike_with_and_without_a_node() -> str | None:
    rows = rows_of(sets()["grid"])
    added, want = growing.begin(rows, np.zeros(4))
    growing.grow_by_steps(rows, added, want, step_of(points_of(rows), Apart()))
    found = growing.grow(rows, points_of(rows), Apart(), np.zeros(4))
    return None if np.array_equal(found, want) else "other trees"


def a_rank_that_fails_ends_a_tree_on_all() -> str | None:
    comm = COMM.Dup()
    rows = replace(rows_of(sets()["normal"]), comm=comm)
    added, found = growing.begin(rows, np.zeros(4))
    loop = loop_of(points_of(rows), Apart(), added, found)
    if loop is None or SIZE == 1:
        return None

    def failing(steps: int, ranks: Any) -> int:
        if RANK == SIZE - 1 and steps > 20:
            raise ArithmeticError("no more points")
        return int(loop(steps, ranks))

    try:
        growing.grow_on_node(rows, failing, found, turn=7)
    except ArithmeticError:
        said = "no more points" if RANK == SIZE - 1 else ""
    except redist.errors.PeerError as error:
        said = str(error)
    else:
        return "nobody says anything"
    return None if "no more points" in said else said


CHECKED = (
    trees_are_least,
    trees_grow_alike_with_and_without_a_node,
    a_rank_that_fails_ends_a_tree_on_all,
)
CHECKS = tuple(check.__name__ for check in CHECKED)


def program() -> int:
    """0 if nothing is wrong."""
    return run_named({check.__name__: check for check in CHECKED})


if __name__ == "__main__":
    main(program)
