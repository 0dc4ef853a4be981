"""What clustering stands on, over ranks, against all rows in one place.

As in ``mpirun -n 3 python -m tests.programs.learn.primitives``: passing, slabs, visits, neighbours, parts
of a graph, blocks of vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from scipy.sparse.csgraph import connected_components
from sklearn.neighbors import NearestNeighbors, radius_neighbors_graph
from sklearn.utils.extmath import randomized_svd

from redist.learn.kernels.steps import join_lists
from redist.learn.near.near_lists import near_lists, number_parts
from redist.learn.near.nearest import distances_to_nearest, nearest_rows
from redist.learn.near.searching import Search, Slabs
from redist.learn.vectors.affinities import (
    ScaledAffinity,
    diagonal_of,
    gaussian_rows,
    nearest_affinity,
)
from redist.learn.vectors.eigenvectors import (
    block_width,
    inner,
    largest_eigenvectors,
    orthonormal,
    start_block,
)
from redist.learn.vectors.singular_vectors import exact_singular_vectors, random_singular_vectors
from redist.spmd import Rows, all_parts, own_range
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size


def sets() -> dict[str, Any]:
    rng = np.random.RandomState(0)
    return {
        "normal": rng.normal(size=(120, 3)),
        "grid": np.array([(i, j) for i in range(9) for j in range(8)], dtype=float),
        "doubled": np.repeat(rng.rand(9, 2), 7, axis=0),
        "few": rng.rand(2, 2),
        "equal": np.ones((11, 2)),
        "large": rng.normal(size=(4000, 4)),
    }


def rows_of(x: Any) -> Rows:
    lo, hi = own_range(COMM, len(x))
    return Rows(x[lo:hi].copy(), lo, len(x), COMM, None)


def slabs_hold_every_row_once() -> str | None:
    for name, x in sets().items():
        rows = rows_of(x)
        slabs = Slabs.of(rows)
        every, _ = all_parts(COMM, slabs.numbers)
        if sorted(every.tolist()) != list(range(len(x))):
            return f"{name}: {sorted(every.tolist())}"
        if not np.array_equal(slabs.rows, x[slabs.numbers]):
            return f"{name}: other rows"
        if not np.array_equal(
            slabs.take_back(slabs.numbers), np.arange(len(rows.local)) + rows.first
        ):
            return f"{name}: rows come back elsewhere"
        if not np.array_equal(slabs.bring(rows.local[:, 0]), slabs.rows[:, 0]):
            return f"{name}: other values are brought"
    return None


OPTIONS: tuple[dict[str, Any], ...] = (
    {"algorithm": "kd_tree"},
    {"algorithm": "ball_tree", "metric": "chebyshev"},
    {"algorithm": "ball_tree", "metric": "canberra"},
    {"algorithm": "brute", "metric": "manhattan"},
)


def nearest_are_those_of_all_rows() -> str | None:
    for name, x in sets().items():
        rows = rows_of(x)
        for options in OPTIONS[: 1 if name == "large" else None]:
            for k in (1, 2, min(7, len(x))):
                search = Search.of(len(x), x.shape[1], **options)
                found = distances_to_nearest(rows, k, search)
                want = NearestNeighbors(**options).fit(x).kneighbors(x, k)[0]
                own = want[rows.first : rows.first + len(rows.local)]
                if not np.array_equal(found, own):
                    return f"{name} {options} k = {k}: off by {np.abs(found - own).max(initial=0)}"
    return None


def lists_and_parts_are_those_of_all_rows() -> str | None:
    for name, x in sets().items():
        rows = rows_of(x)
        for options in OPTIONS[: 1 if name == "large" else None]:
            for radius in (0.15, 1.0):
                search = Search.of(len(x), x.shape[1], **options)
                lists = near_lists(rows, radius, search)
                graph = radius_neighbors_graph(
                    x, radius, include_self=True, metric=options.get("metric", "minkowski")
                )
                counts = np.zeros(lists.n_own, np.int64)
                marked = lists.numbers % 5 > 0
                parent = np.arange(len(marked))
                for part in lists.lists():
                    here = slice(part.first, part.first + len(part.ends) - 1)
                    counts[here] += np.diff(part.ends)
                    join_lists(part.ends, part.indices, part.first, marked, parent)
                want = np.diff(graph.indptr)[lists.numbers[: lists.n_own]]
                if not np.array_equal(counts, want):
                    return f"{name} {options} {radius}: other counts"
                found = lists.take_back(number_parts(COMM, lists, marked, parent)[: lists.n_own])
                right = _parts(graph, np.arange(len(x)) % 5 > 0)
                if not np.array_equal(found, right[rows.first : rows.first + len(rows.local)]):
                    return f"{name} {options} {radius}: other parts"
    return None


def _parts(graph: Any, marked: Any) -> Any:
    """Parts of the marked rows, in the order of their first rows."""
    items = np.flatnonzero(marked)
    _, parts = connected_components(graph[items][:, items], directed=False)
    _, first, inverse = np.unique(parts, return_index=True, return_inverse=True)
    out = np.full(len(marked), -1)
    out[items] = np.argsort(np.argsort(first))[inverse]
    return out


def scaled(n: int, **given: Any) -> tuple[Rows, ScaledAffinity]:
    x = np.random.RandomState(n).normal(size=(n, 3)) + 3 * (np.arange(n) % 4)[:, None]
    rows = rows_of(x)
    own: Any = gaussian_rows(rows, 0.2)
    if given:
        own = nearest_affinity(rows, nearest_rows(rows, 6, Search.of(n, 3)))
    own[diagonal_of(rows)] = 0
    return rows, ScaledAffinity.of(rows, own)


def eigenvectors_are_lapacks() -> str | None:
    for n, near in ((9, {}), (200, {}), (400, {}), (400, {"near": True})):
        rows, affinity = scaled(n, **near)
        k = 5
        mine = (rows.first, rows.first + len(rows.local))
        start = start_block(n, mine, block_width(n, k))
        found = largest_eigenvectors(affinity.symmetric(), k, start)
        whole = rows.gather(affinity.multiply(np.eye(n)[slice(*mine)]))
        values, vectors = np.linalg.eigh((whole + whole.T) / 2)
        if not np.allclose(found.values, values[::-1][:k], atol=1e-11):
            return f"{n} {near}: {found.values} and not {values[::-1][:k]}"
        every = rows.gather(found.vectors)
        angles = np.linalg.svd(every.T @ vectors[:, ::-1][:, :k])[1]
        if angles.min() < 1 - 1e-10:
            return f"{n} {near}: another span, {angles}"
        if not np.allclose(every.T @ every, np.eye(k), atol=1e-11):
            return f"{n} {near}: not orthonormal"
        if len(set(COMM.allgather(every.tobytes()))) > 1:
            return f"{n} {near}: ranks have other vectors"
    return None


def vectors_have_the_same_bits_on_one_rank() -> str | None:
    rng = np.random.RandomState(1)
    for n, d in ((700, 120), (120, 700)):
        x = rng.rand(n, d) + 3 * (rng.rand(n, 1) > 0.5) * (rng.rand(1, d) > 0.5)
        rows, alone = rows_of(x), Rows(x, 0, n, MPI.COMM_SELF, None)
        for find in (
            lambda one: random_singular_vectors(one, 3, 10, 0),
            lambda one: exact_singular_vectors(one, 3),
        ):
            ours, want = find(rows), find(alone)
            if not np.array_equal(rows.gather(ours.of_rows), want.of_rows):
                return f"{n} x {d}: other vectors of rows"
            if not np.array_equal(ours.of_columns, want.of_columns):
                return f"{n} x {d}: other vectors of columns"
        u, _, vt = randomized_svd(x, 3, random_state=0)
        found = random_singular_vectors(alone, 3, 10, 0)
        if not np.allclose(found.of_rows, u) or not np.allclose(found.of_columns, vt.T):
            return f"{n} x {d}: not those of scikit-learn"
    return None


def nearest_rows_are_the_first_ones() -> str | None:
    for name, x in sets().items():
        k = min(4, len(x))
        rows = rows_of(x)
        for how in ("kd_tree", "brute"):
            search = Search.of(len(x), x.shape[1], algorithm=how)
            found = rows.gather(nearest_rows(rows, k, search))
            many = len(x) if len(x) < 200 else 50
            far = NearestNeighbors(algorithm=how).fit(x).kneighbors(x, many)
            order = np.lexsort((far[1], far[0]))
            want = np.take_along_axis(far[1], order, axis=1)[:, :k]
            if not np.array_equal(found, want):
                return f"{name} {how}: {np.count_nonzero(found != want)} differ"
    return None


def blocks_are_made_orthonormal() -> str | None:
    rng = np.random.RandomState(2)
    x = rng.normal(size=(150, 7))
    x[:, 5] = x[:, 1] - 2 * x[:, 2]
    rows = rows_of(x)
    made, factor = orthonormal(COMM, 150, rows.local)
    whole = rows.gather(made)
    if whole.shape[1] != 6 or not np.allclose(whole.T @ whole, np.eye(6)):
        return f"{whole.shape}"
    if not np.allclose(whole @ factor, x):
        return "the factor is another"
    kept = orthonormal(COMM, 150, orthonormal(COMM, 150, rows.local, drop=False)[0], drop=False)[0]
    if not np.allclose(inner(COMM, 150, kept, kept), np.eye(7), atol=1e-6):
        return "columns that were kept are not orthonormal"
    return None


CHECKED = (
    slabs_hold_every_row_once,
    nearest_are_those_of_all_rows,
    lists_and_parts_are_those_of_all_rows,
    eigenvectors_are_lapacks, vectors_have_the_same_bits_on_one_rank,
    nearest_rows_are_the_first_ones, blocks_are_made_orthonormal,
)  # fmt: skip
CHECKS = tuple(check.__name__ for check in CHECKED)


def program() -> int:
    """0 if nothing is wrong."""
    return run_named({check.__name__: check for check in CHECKED})


if __name__ == "__main__":
    main(program)
