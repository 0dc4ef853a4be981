"""Rows along curves and rolled-up surfaces: half moons, circles, and sheets in three dims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def make_moons(
    n_samples: int | tuple[int, int] = 100, *, shuffle: bool = True, noise: float | None = None,
    random_state: Any = None, dtype: Any = np.float64, type: Type | None = None,
    mesh: MeshLike | None = None, comm: Comm | None = None, device: Any = None,
) -> tuple[Array, Array]:  # fmt: skip
    """**Local** if ``random_state`` is an int. Make two interleaving half circles.

    ``x, y = make_moons(100_000, noise=0.05, random_state=0, type="{x}, {}")``. The arguments are those of
    scikit-learn's function; without noise and shuffling, so are the rows.
    """
    counts = _halves(n_samples)

    def points(group: Values, number: Values) -> Values:
        turn = np.pi * number / np.maximum(np.asarray(counts) - 1, 1)[group]
        outer = np.stack([np.cos(turn), np.sin(turn)], axis=1)
        inner = np.stack([1 - np.cos(turn), 1 - np.sin(turn) - 0.5], axis=1)
        return np.where(group[:, None] == 0, outer, inner)

    place = Place(dtype, type, mesh, comm, device)
    return _two_curves(counts, points, shuffle, noise, random_state, place)


def make_circles(
    n_samples: int | tuple[int, int] = 100, *, shuffle: bool = True, noise: float | None = None,
    random_state: Any = None, factor: float = 0.8, dtype: Any = np.float64,
    type: Type | None = None, mesh: MeshLike | None = None, comm: Comm | None = None,
    device: Any = None,
) -> tuple[Array, Array]:  # fmt: skip
    """**Local** if ``random_state`` is an int. Make a circle, and one of radius ``factor`` inside it.

    ``x, y = make_circles(100_000, factor=0.5, random_state=0)``; otherwise like :func:`make_moons`.
    """
    counts = _halves(n_samples)

    def points(group: Values, number: Values) -> Values:
        turn = 2 * np.pi * number / np.maximum(np.asarray(counts), 1)[group]
        radius = np.where(group == 0, 1.0, factor)
        return np.stack([np.cos(turn) * radius, np.sin(turn) * radius], axis=1)

    place = Place(dtype, type, mesh, comm, device)
    return _two_curves(counts, points, shuffle, noise, random_state, place)


def make_swiss_roll(
    n_samples: int = 100, *, noise: float = 0.0, random_state: Any = None, hole: bool = False,
    dtype: Any = np.float64, type: Type | None = None, mesh: MeshLike | None = None,
    comm: Comm | None = None, device: Any = None,
) -> tuple[Array, Array]:  # fmt: skip
    """**Local** if ``random_state`` is an int. Make a sheet rolled up in three dims, and rows' places on it.

    ``x, t = make_swiss_roll(10_000, random_state=0)``; with a ``hole``, the middle of the sheet is empty.
    """

    def points(draws: Values) -> tuple[Values, Values]:
        along, across = draws[:, 0], draws[:, 1]
        if hole:  # one of the eight ninths around the middle
            ninth = (8 * draws[:, 2]).astype(np.int64)
            ninth += ninth >= 4
            along, across = (ninth // 3 + along) / 3, (ninth % 3 + across) / 3
        t = 1.5 * np.pi * (1 + 2 * along)
        return np.stack([t * np.cos(t), 21 * across, t * np.sin(t)], axis=1), t

    place = Place(dtype, type, mesh, comm, device)
    return _sheet(n_samples, points, noise, random_state, place)


def make_s_curve(
    n_samples: int = 100, *, noise: float = 0.0, random_state: Any = None,
    dtype: Any = np.float64, type: Type | None = None, mesh: MeshLike | None = None,
    comm: Comm | None = None, device: Any = None,
) -> tuple[Array, Array]:  # fmt: skip
    """**Local** if ``random_state`` is an int. Make a sheet bent into an S, and each row's place on it.

    ``x, t = make_s_curve(10_000, random_state=0)``.
    """

    def points(draws: Values) -> tuple[Values, Values]:
        t = 3 * np.pi * (draws[:, 0] - 0.5)
        return np.stack([np.sin(t), 2 * draws[:, 1], np.sign(t) * (np.cos(t) - 1)], axis=1), t

    place = Place(dtype, type, mesh, comm, device)
    return _sheet(n_samples, points, noise, random_state, place)


def _halves(n_samples: int | tuple[int, int]) -> list[int]:
    """Rows of both curves; of an odd number the first has one less."""
    if isinstance(n_samples, (int, np.integer)):
        return [int(n_samples) // 2, int(n_samples) - int(n_samples) // 2]
    return counts_of(n_samples, 2)


def _two_curves(
    counts: list[int], points: Callable[[Values, Values], Values], shuffle: bool,
    noise: float | None, random_state: Any, place: Place,
) -> tuple[Array, Array]:  # fmt: skip
    """**Local** if the random state is an int. Rows on two curves, which of both is the label."""
    seed = seed_of(random_state, place.comm)
    order, draws = order_of(sum(counts), shuffle, seed), RowDraws(seed, 1)

    def labels(lo: int, hi: int) -> Values:
        return group_of(order(np.arange(lo, hi)), counts)[0]

    def rows(lo: int, hi: int) -> Values:
        exact = points(*group_of(order(np.arange(lo, hi)), counts))
        return exact if noise is None else exact + noise * draws.normal(lo, hi, 2)

    x = make_rows((sum(counts), 2), rows, place)
    return x, label_rows(x, labels)


def _sheet(
    n: int,
    points: Callable[[Values], tuple[Values, Values]],
    noise: float,
    random_state: Any,
    place: Place,
) -> tuple[Array, Array]:
    """**Local** if the random state is an int. Rows on a sheet, and their places along it."""
    seed = seed_of(random_state, place.comm)
    drawn, spread = RowDraws(seed, 0), RowDraws(seed, 1)

    def rows(lo: int, hi: int) -> Values:
        exact = points(drawn.uniform(lo, hi, 3))[0]
        return exact + noise * spread.normal(lo, hi, 3) if noise else exact

    x = make_rows((n, 3), rows, place)
    return x, label_rows(x, lambda lo, hi: points(drawn.uniform(lo, hi, 3))[1], place.dtype)
