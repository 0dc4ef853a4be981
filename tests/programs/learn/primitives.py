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

import redist.errors
from redist.learn.kernels.steps import join_lists
from redist.learn.near.components import number_parts
from redist.learn.near.near_lists import near_lists
from redist.learn.near.nearest import distances_to_nearest, nearest_rows
from redist.learn.near.searching import Search
from redist.learn.near.slabs import Slabs
from redist.learn.ranks.order_statistics import kth_of_all, median_of_all
from redist.learn.ranks.passing import Passing, all_parts
from redist.learn.ranks.rows import Rows, even_out, own_range
from redist.learn.ranks.visits import Visits
from redist.learn.vectors.affinities import (
    ScaledAffinity,
    diagonal_of,
    gaussian_rows,
    nearest_affinity,
)
from redist.learn.vectors.blocks import inner, orthonormal
from redist.learn.vectors.eigenvectors import block_width, largest_eigenvectors, start_block
from redist.learn.vectors.singular_vectors import exact_singular_vectors, random_singular_vectors
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


def rows_are_passed_there_and_back() -> str | None:
    mine = np.arange(5) + 10 * RANK
    to = (np.arange(5) + RANK) % SIZE
    passing = Passing.of(COMM, np.arange(5), to)
    got = passing.there(np.stack([mine, mine * 2], axis=1))
    want = [10 * r + i for r in range(SIZE) for i in range(5) if (i + r) % SIZE == RANK]
    if got[:, 0].tolist() != want or passing.from_ranks.tolist() != [one // 10 for one in want]:
        return f"{got[:, 0]} and not {want}"
    if not np.array_equal(passing.back(got[:, 0]), mine[passing.rows]):
        return "back"
    joined, begin = all_parts(COMM, np.arange(RANK))
    right = joined.tolist() == [i for r in range(SIZE) for i in range(r)]
    return None if right and begin[-1] == len(joined) else f"{joined}"


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


def chosen_rows_are_evened_out() -> str | None:
    x = sets()["normal"]
    rows = rows_of(x)
    odd = (np.arange(rows.first, rows.first + len(rows.local)) % 7) < 2 + RANK
    counts = COMM.allgather(int(odd.sum()))
    chosen = Rows(rows.local[odd], sum(counts[:RANK]), sum(counts), COMM, None, is_even=False)
    even = even_out(chosen)
    lo, hi = own_range(COMM, even.n)
    whole = chosen.gather(chosen.local)
    right = np.array_equal(even.local, whole[lo:hi]) and even.first == lo
    return None if right else "other rows"


def visits_see_every_row_once() -> str | None:
    for name, x in sets().items():
        rows = rows_of(x)
        for node_size in (None, 1, 2):
            for prefetch, keep in ((True, 0), (False, 0), (True, 2**20)):
                visits = Visits(rows, prefetch=prefetch, keep_bytes=keep, node_size=node_size)
                for _ in range(2):
                    seen = [(first, np.array(tile)) for first, tile in visits]
                    if seen[0][0] != rows.first and len(rows.local):
                        return f"{name}: others come before the own rows"
                    found = np.concatenate(
                        [tile for _, tile in sorted(seen, key=lambda one: one[0])]
                    )
                    if not np.array_equal(found, x):
                        return f"{name}, nodes of {node_size}: {len(found)} rows of {len(x)}"
    return None


def visits_count_what_they_do() -> str | None:
    x = sets()["large"]
    rows, far = rows_of(x), SIZE - 1
    others = x.nbytes - rows.local.nbytes
    near = Visits(rows)
    for _ in near:
        pass
    if near.counts.in_place != SIZE or near.counts.fetched_bytes:
        return f"on one node: {near.counts}"
    for keep, fetched in ((0, 2 * far), (2**30, far)):
        apart = Visits(rows, node_size=1, keep_bytes=keep)
        for _ in range(2):
            for _ in apart:
                pass
        want = (2, fetched, 2 * far - fetched, others * (2 if keep == 0 else 1))
        got = apart.counts
        if (got.in_place, got.fetched, got.kept, got.fetched_bytes) != want:
            return f"on nodes of one rank, {keep} kept: {got} and not {want}"
    return None


def visits_are_traced() -> str | None:
    rows, far = rows_of(sets()["large"]), SIZE - 1
    for prefetch, keep in ((True, 0), (False, 0), (True, 2**30)):
        visits = Visits(rows, prefetch=prefetch, keep_bytes=keep, node_size=1)
        with redist.trace() as t:
            for _ in range(3):
                for _ in visits:
                    pass
        (counts,) = t.visits.values()
        fetched = far if keep else 3 * far
        want = (3, 3, fetched, fetched if prefetch else 0, 3 * far - fetched)
        if counts[:5] != want or counts != visits.counts:
            return f"prefetch={prefetch}, keep_bytes={keep}: {counts} and not {want}"
        if counts.fetched_bytes != sum(move.received_bytes for move in t.moves):
            return f"{counts.fetched_bytes} bytes, but\n{t}"
        if "bytes fetched" not in str(t) or (SIZE == 1 and "no array moved" in str(t)):
            return f"{t}"
    with redist.trace() as t:
        for _ in Visits(rows):
            pass
    (counts,) = t.visits.values()
    if counts.in_place != SIZE or counts.in_place_bytes != rows.n * rows.d * 8 or t.moves:
        return f"{t}"
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


def medians_are_numpys() -> str | None:
    rng = np.random.RandomState(4)
    kinds = {
        "normal": rng.normal(size=60000),
        "few values": rng.randint(0, 3, 50000).astype(float),
        "equal": np.ones(40001),
        "skewed": np.exp(4 * rng.normal(size=45000)),
        "two": np.array([3.0, 1.0]),
        "sorted": np.sort(rng.rand(70001)),
    }
    for name, values in kinds.items():
        lo, hi = own_range(COMM, len(values))
        for own in (values[lo:hi], values if RANK == SIZE - 1 else values[:0]):
            found = median_of_all(COMM, own)
            if found != np.median(values):
                return f"{name}: {found} and not {np.median(values)}"
        for k in (0, len(values) // 3, len(values) - 1):
            if kth_of_all(COMM, values[lo:hi], k) != np.sort(values)[k]:
                return f"{name}: number {k}"
    return None


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
    rows_are_passed_there_and_back, slabs_hold_every_row_once, chosen_rows_are_evened_out,
    visits_see_every_row_once, visits_count_what_they_do, visits_are_traced, nearest_are_those_of_all_rows,
    lists_and_parts_are_those_of_all_rows, medians_are_numpys,
    eigenvectors_are_lapacks, vectors_have_the_same_bits_on_one_rank,
    nearest_rows_are_the_first_ones, blocks_are_made_orthonormal,
)  # fmt: skip
CHECKS = tuple(check.__name__ for check in CHECKED)


def program() -> int:
    """0 if nothing is wrong."""
    return run_named({check.__name__: check for check in CHECKED})


if __name__ == "__main__":
    main(program)
