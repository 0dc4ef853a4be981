"""Matrices made of blocks of similar values, with rows and columns shuffled, as biclustering looks for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.layout.tiles import Box
from redist.learn.datasets.making import Place, RowDraws, group_of, make_rows, order_of, seed_of
from redist.pgas.creation import Type, make
from redist.pgas.global_array import Array
from redist.pgas.tiles.devices import kind_of
from redist.pgas.tiles.layouts import MeshLike, dtype_of
from redist.pgas.tiles.tiled import Tile
from redist.runtime.ranks.world import Comm

Values = NDArray[Any]


def make_biclusters(
    shape: tuple[int, int], n_clusters: int, *, noise: float = 0.0, minval: float = 10,
    maxval: float = 100, shuffle: bool = True, random_state: Any = None, dtype: Any = np.float64,
    type: Type | None = None, mesh: MeshLike | None = None, comm: Comm | None = None,
    device: Any = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """**Local** if ``random_state`` is an int. Make a matrix with constant blocks along its diagonal.

    ``x, rows, columns = make_biclusters((30_000, 200), 5, random_state=0)``: ``rows[c]`` says which rows are
    in block ``c``, and is cut as the rows of ``x`` are; ``columns`` says the same of the columns.
    """
    return _blocks(
        shape, (n_clusters, n_clusters), True, noise, (minval, maxval), shuffle, random_state,
        Place(dtype, type, mesh, comm, device),
    )  # fmt: skip


def make_checkerboard(
    shape: tuple[int, int], n_clusters: int | tuple[int, int], *, noise: float = 0.0,
    minval: float = 10, maxval: float = 100, shuffle: bool = True, random_state: Any = None,
    dtype: Any = np.float64, type: Type | None = None, mesh: MeshLike | None = None,
    comm: Comm | None = None, device: Any = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """**Local** if ``random_state`` is an int. Make a matrix of constant blocks.

    Like :func:`make_biclusters`, but with a value for each pair of a row cluster and a column cluster. Block
    ``c`` is row cluster ``c // n`` and column cluster ``c % n``, where ``n`` is the number of column
    clusters.
    """
    of = (n_clusters, n_clusters) if isinstance(n_clusters, (int, np.integer)) else n_clusters
    return _blocks(
        shape, (int(of[0]), int(of[1])), False, noise, (minval, maxval), shuffle, random_state,
        Place(dtype, type, mesh, comm, device),
    )  # fmt: skip


def _blocks(
    shape: tuple[int, int], n_clusters: tuple[int, int], diagonal: bool, noise: float,
    bounds: tuple[float, float], shuffle: bool, random_state: Any, place: Place,
) -> tuple[Array, Array, Array]:  # fmt: skip
    seed = seed_of(random_state, place.comm)
    rng, spread = RowDraws(seed, 0).alike(), RowDraws(seed, 1)
    counts = [
        rng.multinomial(n, np.full(k, 1 / k)).tolist()
        for n, k in zip(shape, n_clusters, strict=True)
    ]
    height = rng.uniform(*bounds, n_clusters[0])
    values = np.diag(height) if diagonal else rng.uniform(*bounds, n_clusters)
    orders = [order_of(n, shuffle, seed + i) for i, n in enumerate(shape)]

    def cluster(dim: int, lo: int, hi: int) -> Values:
        return group_of(orders[dim](np.arange(lo, hi)), counts[dim])[0]

    def rows(lo: int, hi: int) -> Values:
        exact = values[np.ix_(cluster(0, lo, hi), cluster(1, 0, shape[1]))]
        return exact + noise * spread.normal(lo, hi, shape[1]) if noise else exact

    x = make_rows((int(shape[0]), int(shape[1])), rows, place)
    n_blocks = n_clusters[0] if diagonal else n_clusters[0] * n_clusters[1]

    def members(dim: int) -> Array:
        of_block = np.arange(n_blocks)
        if not diagonal:
            of_block = of_block // n_clusters[1] if dim == 0 else of_block % n_clusters[1]

        def fill(tile: Tile, box: Box) -> None:
            tile[...] = of_block[slice(*box[0]), None] == cluster(dim, *box[1])

        dims = ((), x.type.dims[dim])
        t = ArrayType(x.mesh, dtype_of(np.dtype(bool)), (n_blocks, x.shape[dim]), dims)
        return make(t.shape, np.dtype(bool), fill, t, None, x.comm, kind_of(x))

    return x, members(0), members(1)
