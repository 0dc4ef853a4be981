"""Kernels against their NumPy twins."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

if find_spec("sklearn") is None:
    pytest.skip(
        "needs scikit-learn: make learn has an environment with it", allow_module_level=True
    )

from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import pdist

from redist.learn.kernels import library, messages, steps
from redist.learn.kernels.messages import Messages
from redist.learn.near import nearest_chain
from redist.learn.near.spanning_tree import (
    Apart,
    OutsideTree,
    grow_tree,
    is_fused_by_scipy,
    loop_of,
    step_of,
)
from redist.learn.vectors import eigenvectors
from redist.spmd import ExactGrid

needs_c = pytest.mark.skipif(
    library.library() is None, reason="needs the compiled kernels of clustering"
)


@needs_c
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("n", "d", "k"), [(0, 3, 2), (1, 1, 1), (101, 3, 7), (997, 20, 8), (64, 5, 33)]
)
def test_a_lloyd_step_is_its_twin(n: int, d: int, k: int, dtype) -> None:
    rng = np.random.default_rng(n)
    rows, centers = rng.normal(size=(n, d)).astype(dtype), rng.normal(size=(k, d)).astype(dtype)
    weights = rng.uniform(0.5, 2, n).astype(dtype)
    norms = (centers * centers).sum(axis=1)
    most = float(np.abs(rows).max(initial=1)) * 2
    grids = ExactGrid.for_sum(most, n), ExactGrid.for_sum(2.0, n)
    found = []
    for step in (steps.lloyd_step, steps._lloyd_step):
        labels = np.full(n, -1, np.int32)
        changed, sums = step(rows, weights, centers, norms, labels, grids)
        assert changed == n and sums is not None and sums.shape == (k, 2, d + 1)
        again, none = step(rows, weights, centers, norms, labels, None)
        assert (again, none) == (0, None)
        found.append((labels, sums))
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])


@needs_c
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_candidates_are_their_twin(dtype) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(321, 4)).astype(dtype)
    norms = (rows.astype(float) ** 2).sum(axis=1)
    weights, closest = rng.uniform(size=321), rng.uniform(0, 5, 321)
    candidates = rows[[3, 200, 20]]
    grid = ExactGrid.for_sum(float(4 * norms.max()), 321)
    given = rows, norms, weights, candidates, norms[[3, 200, 20]], closest, grid
    for one, other in zip(steps.try_candidates(*given), steps._try_candidates(*given), strict=True):
        assert np.array_equal(one, other)


@needs_c
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sums_of_rows_are_their_twins(dtype) -> None:
    rng = np.random.default_rng(1)
    rows, centers = rng.normal(size=(5001, 3)).astype(dtype), rng.normal(size=(4, 3)).astype(dtype)
    weights = rng.uniform(size=5001).astype(dtype)
    labels, into = (rng.integers(0, 4, 5001).astype(np.int32) for _ in range(2))
    grid = ExactGrid.for_sum(300.0, 5001)
    for squared in (False, True):
        one, other = (f(rows, grid, squared) for f in (steps.column_sums, steps._column_sums))
        assert np.array_equal(one, other)
    if dtype is np.float64:
        for squared in (False, True):
            one, other = (f(rows, grid, squared) for f in (steps.pair_sums, steps._pair_sums))
            assert np.array_equal(np.triu(one, 1), np.triu(other, 1))
    given = rows, weights, centers, labels, into, 4, grid
    assert np.array_equal(steps.inertia_sums(*given), steps._inertia_sums(*given))


@needs_c
def test_joined_lists_are_their_twin() -> None:
    rng = np.random.default_rng(2)
    ends = np.append(0, np.cumsum(rng.integers(0, 4, 60)))
    indices = rng.integers(0, 90, ends[-1]).astype(np.int32)
    marked = rng.random(90) < 0.7
    one, other = np.arange(90), np.arange(90)
    for first in (0, 30):
        steps.join_lists(ends, indices, first, marked, one)
        steps._join_lists(ends, indices, first, marked, other)
    while not np.array_equal(one, one[one]):
        one = one[one]
    assert np.array_equal(one, other)


@needs_c
@pytest.mark.parametrize("spread", [2, 1000])
@pytest.mark.parametrize("apart", [Apart(), Apart(0.7), Apart(most=9.5, unit=10.0**15, both=False)])
def test_a_growing_tree_is_its_twin(spread: int, apart: Apart) -> None:
    rng = np.random.default_rng(spread)
    rows = rng.integers(0, spread, (150, 3)).astype(float)  # where distances tie, numbers decide
    core = rng.uniform(0, spread / 9, 150)
    core[7] = np.inf
    one, other, alone = (OutsideTree(rows, core, 40) for _ in range(3))
    for outside in (one, other, alone):
        outside.state[1] = 0
    found, added = np.zeros((150, 3)), np.array([0, 40, 0, core[0], *rows[0]])
    last = added.copy()
    loop, step = loop_of(alone, apart, last, found), step_of(one, apart)
    assert loop is not None
    assert [loop(n, None) for n in (20, 149)] == [0, 0]
    offers = np.zeros((2, 7))
    for i in range(149):
        step(added, offers[0])
        grow_tree(other, apart, added, offers[1])
        assert np.array_equal(*offers) and np.array_equal(offers[0, :3], found[i + 1])
        added[:] = offers[0]
        assert np.array_equal(one.reach[: one.m], other.reach[: one.m])
        assert np.array_equal(one.nearest[: one.m], other.nearest[: one.m])
    assert np.array_equal(added, last)
    step(added, offers[0])
    assert one.m == 0 and offers[0, 0] == np.inf


@needs_c
def test_distances_may_be_scipys() -> None:
    assert is_fused_by_scipy() in (
        False,
        True,
    )  # another SciPy may know a third way: then say so here


@needs_c
def test_messages_are_their_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    similar = -rng.uniform(size=(70, 130))
    one, other = (Messages.of(similar, 40, 0.6) for _ in range(2))
    for _ in range(4):
        bounds, sums = [], []
        for which, found in ((one, library.library()), (other, None)):
            monkeypatch.setattr(messages, "library", lambda found=found: found)
            bounds.append(which.respond())
            sums.append(which.support(ExactGrid.for_sum(bounds[-1], 130)))
            which.make_available(sums[-1].sum(axis=0))
        assert bounds[0] == bounds[1] and np.array_equal(sums[0], sums[1])
        assert np.array_equal(one.responsible, other.responsible)
        assert np.array_equal(one.available, other.available)


@needs_c
@pytest.mark.parametrize(("n", "m", "k"), [(0, 3, 2), (1, 1, 1), (7, 5, 4), (101, 700, 13)])
def test_blocks_are_their_twins(monkeypatch: pytest.MonkeyPatch, n: int, m: int, k: int) -> None:
    rng = np.random.default_rng(n)
    wide, small = rng.normal(size=(n, m + 2)), rng.normal(size=(m, k))
    rows, other = wide[:, :m], rng.normal(size=(n, k))  # rows that are not beside each other
    grid = ExactGrid.for_sum(float(np.abs(rows).max(initial=0) * np.abs(other).max(initial=0)), n)
    found = []
    for which in (library.library(), None):
        monkeypatch.setattr(eigenvectors, "library", lambda which=which: which)
        product = eigenvectors.times(rows, small)
        assert product.shape == (n, k) and np.array_equal(
            product[1:], eigenvectors.times(rows[1:], small)
        )
        found.append((product, eigenvectors._inner_sums(rows, other, grid)))
    assert np.allclose(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])


@needs_c
@pytest.mark.parametrize("linkage", nearest_chain.LINKAGES)
@pytest.mark.parametrize("n", [2, 3, 9, 150])
def test_chains_are_their_twins(monkeypatch: pytest.MonkeyPatch, linkage: str, n: int) -> None:
    rng = np.random.default_rng(n)
    points = rng.integers(0, 9, (n, 2)).astype(float) if n > 9 else rng.normal(size=(n, 2))
    far = np.sqrt(((points[:, None] - points) ** 2).sum(axis=2))
    np.fill_diagonal(far, np.inf)
    sizes = rng.integers(0, 4, n).astype(float)
    rows, places = [], []
    for which in (library.library(), None):
        monkeypatch.setattr(nearest_chain, "library", lambda which=which: which)
        rows.append(far[1].copy())
        nearest_chain.merge_rows(linkage, far[0], rows[-1], float(far[0, 1]), 2.0, 3.0, sizes)
        places.append([nearest_chain.least_of(row) for row in far])
    assert np.array_equal(rows[0], rows[1], equal_nan=True) and places[0] == places[1]
    monkeypatch.undo()
    merges = nearest_chain.merge_alone(linkage, far)
    assert merges is not None
    want = scipy_linkage(pdist(points), linkage)
    assert np.allclose(np.sort(merges[:, 2]), want[:, 2], rtol=1e-13, atol=0)
