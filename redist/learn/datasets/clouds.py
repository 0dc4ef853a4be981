"""Clouds of rows around centres: blobs, and corners of a cube with extra uninformative columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from redist.pgas.global_array import Array
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
    """**Local** if ``random_state`` is an int. Make rows spread around centres, and each row's centre number.

    In an SPMD program::

        x, y = make_blobs(1_000_000, 8, centers=5, random_state=0, type="{x}, {}")

    The arguments are those of scikit-learn's ``make_blobs``; the random draws differ from it, and are the
    same for every number of ranks and every type. The rows are multiplied by the matrix ``transformation``:
    ``[[0.6, -0.6], [-0.4, 0.8]]`` makes long, slanted clusters. The labels are cut as the rows are.
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
    """**Local.** Rows times a small matrix; the bits do not depend on how many rows there are.

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


@dataclass(frozen=True, slots=True)
class Columns:
    """The numbers of columns that are informative, redundant, repeated, and noise."""

    informative: int
    redundant: int
    repeated: int
    noise: int

    @property
    def n(self) -> int:
        """The total number of columns."""
        return self.informative + self.redundant + self.repeated + self.noise


def make_classification(
    n_samples: int = 100, n_features: int = 20, *, n_informative: int = 2, n_redundant: int = 2,
    n_repeated: int = 0, n_classes: int = 2, n_clusters_per_class: int = 2,
    weights: Sequence[float] | None = None, flip_y: float = 0.01, class_sep: float = 1.0,
    hypercube: bool = True, shift: float = 0.0, scale: float = 1.0, shuffle: bool = True,
    random_state: Any = None, dtype: Any = np.float64, type: Type | None = None,
    mesh: MeshLike | None = None, comm: Comm | None = None, device: Any = None,
) -> tuple[Array, Array]:  # fmt: skip
    """**Local** if ``random_state`` is an int. Make rows of several classes, each with several clusters.

    ``x, y = make_classification(1_000_000, 20, n_classes=3, n_informative=4, random_state=0)``. Clusters lie
    at the corners of a cube (near them with ``hypercube=False``), each stretched by a matrix of its own.
    These informative columns are followed by linear combinations of them, by copies, and by noise. The
    arguments are those of scikit-learn's function, but the random draws are not; a share ``flip_y`` of the
    labels is redrawn.
    """
    k = n_classes * n_clusters_per_class
    columns = Columns(
        n_informative,
        n_redundant,
        n_repeated,
        n_features - n_informative - n_redundant - n_repeated,
    )
    if columns.noise < 0:
        raise ArgumentError(
            f"cannot make {n_features} columns: {n_informative} informative, {n_redundant} redundant and "
            f"{n_repeated} repeated are more"
        )
    if k > 2**n_informative:
        raise ArgumentError(
            f"cannot place {k} clusters at the corners of a cube of {n_informative} dims: it has "
            f"{2**n_informative}; ask for more informative columns"
        )
    seed = seed_of(random_state, comm)
    counts = _counts(n_samples, n_classes, n_clusters_per_class, weights)
    mix = _Mixture(columns, k, class_sep, hypercube, shuffle, seed)
    order, noise, flips = order_of(n_samples, shuffle, seed), RowDraws(seed, 1), RowDraws(seed, 2)

    def labels(lo: int, hi: int) -> Values:
        own = group_of(order(np.arange(lo, hi)), counts)[0] % n_classes
        flipped = flips.uniform(lo, hi, 2)
        other = (n_classes * flipped[:, 1]).astype(np.int64)
        return np.where(flipped[:, 0] < flip_y, other, own)

    def rows(lo: int, hi: int) -> Values:
        group = group_of(order(np.arange(lo, hi)), counts)[0]
        drawn = noise.normal(lo, hi, columns.informative + columns.noise)
        return (mix.rows(group, drawn) + shift) * scale

    x = make_rows((n_samples, columns.n), rows, Place(dtype, type, mesh, comm, device))
    return x, label_rows(x, labels)


def _counts(n: int, n_classes: int, per_class: int, weights: Sequence[float] | None) -> list[int]:
    """**Local.** Rows of each cluster; cluster ``i`` is of class ``i % n_classes``."""
    shares = [1 / n_classes] * n_classes if weights is None else [float(w) for w in weights]
    if len(shares) == n_classes - 1:
        shares.append(1 - sum(shares))
    if len(shares) != n_classes:
        raise ArgumentError(f"cannot weigh {n_classes} classes by {len(shares)} weights")
    counts = [int(n * shares[i % n_classes] / per_class) for i in range(n_classes * per_class)]
    for i in range(n - sum(counts)):
        counts[i % len(counts)] += 1
    return counts


class _Mixture:
    """What every rank has alike: corners, a matrix for each cluster, which columns are which."""

    def __init__(
        self, columns: Columns, k: int, apart: float, at_corners: bool, shuffle: bool, seed: int
    ) -> None:
        rng, c = RowDraws(seed, 0).alike(), columns
        corners = (
            rng.choice(2**c.informative, k, replace=False) if c.informative < 20 else (np.arange(k))
        )
        bits = (corners[:, None] >> np.arange(c.informative)) & 1
        self.columns = c
        self.middle = (2.0 * bits - 1) * apart
        if not at_corners:
            self.middle *= rng.uniform(size=(k, 1)) * rng.uniform(size=(1, c.informative))
        self.stretch = rng.uniform(-1, 1, (k, c.informative, c.informative))
        self.sums = rng.uniform(-1, 1, (c.informative, c.redundant))
        self.copied = rng.integers(0, max(1, c.informative + c.redundant), c.repeated)
        self.places = rng.permutation(c.n) if shuffle else np.arange(c.n)

    def rows(self, group: Values, drawn: Values) -> Values:
        """**Local.** All columns of rows of known clusters."""
        c = self.columns
        first = np.empty((len(group), c.informative))
        for k in np.unique(group):
            own = group == k
            first[own] = times(drawn[own, : c.informative], self.stretch[k]) + self.middle[k]
        useful = np.concatenate([first, times(first, self.sums)], axis=1)
        parts = [useful, useful[:, self.copied], drawn[:, c.informative :]]
        return np.concatenate(parts, axis=1)[:, self.places]
