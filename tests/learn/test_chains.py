"""Hierarchies by chains of nearest neighbours: in C, step by step, in NumPy, and SciPy's."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from mpi4py import MPI

if find_spec("sklearn") is None:
    pytest.skip(
        "needs scikit-learn: make learn has an environment with it", allow_module_level=True
    )

from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import pdist

from redist.learn.near import nearest_chain
from redist.learn.near.nearest_chain import merge_all
from redist.spmd import Rows


@pytest.mark.parametrize("linkage", nearest_chain.LINKAGES)
@pytest.mark.parametrize("n", [2, 3, 9, 150])
def test_merges_are_the_same_in_every_way(
    monkeypatch: pytest.MonkeyPatch, linkage: str, n: int
) -> None:
    rng = np.random.default_rng(n)
    points = rng.integers(0, 9, (n, 2)).astype(float) if n > 9 else rng.normal(size=(n, 2))
    far = np.sqrt(((points[:, None] - points) ** 2).sum(axis=2))
    np.fill_diagonal(far, np.inf)
    rows = Rows(points, 0, n, MPI.COMM_SELF, None)
    found = [merge_all(rows, far.copy(), linkage)]
    monkeypatch.setattr(nearest_chain, "merge_alone", lambda *given: None)
    found.append(merge_all(rows, far.copy(), linkage))
    monkeypatch.setattr(nearest_chain, "library", lambda: None)
    found.append(merge_all(rows, far.copy(), linkage))
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
    want = scipy_linkage(pdist(points), linkage)
    assert np.allclose(found[0][:, 2], want[:, 2], rtol=1e-13, atol=0)
    if n < 10:  # no ties
        assert np.array_equal(found[0][:, [0, 1, 3]], want[:, [0, 1, 3]])
