"""Clusters of normally spread rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError
from redist.learn.datasets.making import (
    Place,
    RowDraws,
    counts_of,
    group_of,
    label_rows,
    make_rows,
    order_of,
    seed_of,
)
from redist.pgas.creation import Type
from redist.pgas.tiles.layouts import MeshLike
from redist.runtime.ranks.world import Comm

Values = NDArray[Any]


def make_blobs(
    n_samples: int | Sequence[int] = 100, n_features: int = 2, *, centers: Any = None,
    cluster_std: float | Sequence[float] = 1.0, center_box: tuple[float, float] = (-10.0, 10.0),
    transformation: Any = None, shuffle: bool = True, random_state: Any = None,
    return_centers: bool = False, dtype: Any = np.float64, type: Type | None = None,
    mesh: MeshLike | None = None, comm: Comm | None = None, device: Any = None,
) -> Any:  # fmt: skip
    """**Local** if ``random_state`` is an int. Make rows spread around centres, and the centre of each.

    In an SPMD program::

        x, y = make_blobs(1_000_000, 8, centers=5, random_state=0, type="{x}, {}")

    Arguments are those of scikit-learn's ``make_blobs``; the draws are others, the same for every number
    of ranks and every type. ``transformation`` is a matrix that rows are multiplied with: ``[[0.6,
    -0.6], [-0.4, 0.8]]`` makes long, slanted clusters. Labels are cut as the rows are.
    """
    seed = seed_of(random_state, comm)
    per_group = None if isinstance(n_samples, (int, np.integer)) else list(n_samples)
    middle = _centers(centers, per_group, n_features, center_box, seed)
    counts = counts_of(n_samples, len(middle))
    spread = np.asarray(cluster_std, float)
    if spread.ndim and spread.shape != middle.shape[:1]:
        raise ArgumentError(
            f"cannot make {len(middle)} blobs: cluster_std has {spread.size} numbers"
        )
    spread = np.broadcast_to(spread, len(middle))
    turn = None if transformation is None else np.asarray(transformation, float)
    if turn is not None and (turn.ndim != 2 or len(turn) != middle.shape[1]):
        raise ArgumentError(
            f"cannot multiply rows of {middle.shape[1]} columns with a transformation of {turn.shape}"
        )
    n = sum(counts)
    order, noise = order_of(n, shuffle, seed), RowDraws(seed, 1)

    def labels(lo: int, hi: int) -> Values:
        return group_of(order(np.arange(lo, hi)), counts)[0]

    def rows(lo: int, hi: int) -> Values:
        group = labels(lo, hi)
        around = middle[group] + spread[group, None] * noise.normal(lo, hi, middle.shape[1])
        return around if turn is None else times(around, turn)

    place = Place(dtype, type, mesh, comm, device)
    x = make_rows((n, middle.shape[1] if turn is None else turn.shape[1]), rows, place)
    y = label_rows(x, labels)
    return (x, y, middle if turn is None else times(middle, turn)) if return_centers else (x, y)


def times(rows: Values, matrix: Values) -> Values:
    """**Local.** Rows times a small matrix, with bits that do not depend on how many rows there are.

    >>> times(np.ones((2, 2)), np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[4.0, 6.0], [4.0, 6.0]]
    """
    out = np.zeros((len(rows), matrix.shape[1]))
    for k, line in enumerate(matrix):
        out += rows[:, k, None] * line
    return out


def _centers(
    centers: Any, per_group: list[int] | None, d: int, box: tuple[float, float], seed: int
) -> Values:
    """**Local.** Centres as given, or drawn in a box, the same on every rank."""
    if centers is None or isinstance(centers, (int, np.integer)):
        k = int(centers) if centers is not None else 3 if per_group is None else len(per_group)
        low, high = box
        return low + (high - low) * RowDraws(seed, 0).uniform(0, k, d)
    found = np.asarray(centers, dtype=np.float64)
    if found.ndim != 2:
        raise ArgumentError(f"cannot use centers of shape {found.shape}: need one row for each")
    return found
