"""Functions of whole matrices: stacks are spread over the ranks, single matrices are whole on each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError, MatrixError, RequestError
from redist.layout.array_type import ArrayType
from redist.pgas.creation import make
from redist.pgas.kinds import number_kind
from redist.pgas.memory import as_tile
from redist.pgas.tiles.arguments import check_arrays
from redist.pgas.tiles.devices import kind_of
from redist.pgas.tiles.layouts import dtype_of, free_dims
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.tiled import T, Tile, Tiled
from redist.pgas.watch.seam import ElementExchange, traffic
from redist.runtime.copies.gpu_arrays import is_cupy_array
from redist.runtime.cuda import matrices
from redist.runtime.ranks.collectives import least_available
from redist.text.units import format_bytes

LARGEST_BYTES = 2**28
"""A matrix that must be whole on each of several ranks may be so large."""
WORK_MATRICES = 12
"""This many square matrices are the most that a decomposition of one takes: singular values with both sides
take the matrix, both sides, and 8 of workspace."""
R = TypeVar("R")


def check_matrices(name: str, x: Any, *, square: bool = False, floating: bool = True) -> None:
    """Raise unless ``x`` is a global stack of matrices of the wanted kind."""
    check_arrays(name, x)
    if x.ndim < 2:
        raise ArgumentError(
            f"cannot use an array of shape {x.shape} in {name}: need at least 2 dims"
        )
    if square and x.shape[-1] != x.shape[-2]:
        raise ArgumentError(
            f"cannot use matrices of {x.shape[-2]} x {x.shape[-1]} in {name}: need square ones"
        )
    if floating and number_kind(x.dtype) not in "fc":
        raise ArgumentTypeError(
            f"cannot use matrices of {x.dtype} in {name}: need floating-point numbers"
        )


def make_whole(name: str, x: T) -> T:
    """**Collective.** Make the matrices of a stack whole; their axes go to the dims of the stack."""
    x = resolve_pending(x)
    inner = frozenset({x.ndim - 2, x.ndim - 1})
    size = x.shape[-1] * x.shape[-2] * x.dtype.itemsize
    if size > LARGEST_BYTES and x.mesh.n_devices > 1:
        raise RequestError(
            f"cannot use {x.type} in {name}: a matrix of {format_bytes(size)} would be whole on a rank, the "
            f"limit is {format_bytes(LARGEST_BYTES)}; only norms, solve and inv of one matrix, and qr, "
            "lstsq and svd of tall matrices work on cut matrices"
        )
    return move(x, free_dims(x.type, inner))


def run_together(name: str, x: Tiled, work: Callable[..., R], *tiles: Any) -> R | None:
    """**Collective.** ``work(*tiles)``; raise on every rank if it refuses a matrix on one."""
    if not x.memory.is_ghost:
        return _run_together(name, x, work, tiles)[0]
    x.memory.check_room(work_bytes(x, tiles))
    exchange = ElementExchange(name, x.type, x.type)
    given = name, x, work, tiles
    instead = None if x.tile is None else work(*tiles)
    return traffic().perform(exchange, _run_together, given, lambda: instead)


def work_bytes(x: Tiled, tiles: Sequence[Any]) -> int:
    """At most what NumPy and LAPACK take on the way to matrices of a stack, which come one after another."""
    side = max(x.shape[-2:])
    copies = sum(tile.nbytes for tile in tiles if hasattr(tile, "nbytes"))
    return WORK_MATRICES * side * side * x.dtype.itemsize + copies


def _run_together(
    name: str, x: Tiled, work: Callable[..., R], tiles: Sequence[Any]
) -> tuple[R | None, int]:
    out, fine = None, True
    try:
        if x.tile is not None:
            out = work(*tiles)
    except np.linalg.LinAlgError:
        fine = False
    refuse_together(name, x, not fine)
    return out, 0


def refuse_together(name: str, x: Tiled, bad: bool) -> None:
    """**Collective.** Raise on every rank if a matrix is bad on one."""
    if least_available(x.comm, int(not bad)) == 0:
        raise MatrixError(
            f"cannot use {x.type} in {name}: a matrix is refused, as singular, not positive definite, or "
            "without convergence"
        )


def functions_of(tile: Any) -> Any:
    """**Local.** Functions of matrices by NumPy's names: NumPy's, or those of a tile on a GPU."""
    return matrices if is_cupy_array(tile) else np.linalg


def per_matrix(
    name: str, x: T, ends: Sequence[tuple[tuple[int, ...], Any]], **options: Any
) -> list[T]:
    """**Collective.** Apply NumPy's function of this name to the matrices of a stack.

    ``ends`` says for each result the dims behind those of the stack, and the dtype.
    """
    x = make_whole(name, x)
    found = run_together(name, x, _run, name, x.tile, options)
    types = [_type(x, *end) for end in ends]
    if found is None or x.tile is None:
        return [x.new(t, None) for t in types]
    stack = x.tile.shape[:-2]
    return [
        x.new(t, as_tile(value, dtype).reshape((*stack, *shape)))
        for t, value, (shape, dtype) in zip(types, found, ends, strict=True)
    ]


def identity_like(x: Tiled) -> Any:
    """**Collective** if a reduction is pending. Make identity matrices with the type of a stack."""

    def fill(tile: Any, box: Any) -> None:
        (r0, r1), (c0, c1) = box[-2:]
        tile[...] = np.arange(r0, r1)[:, None] == np.arange(c0, c1)[None, :]

    t = resolve_pending(x).type
    t = ArrayType(t.mesh, t.dtype, t.shape, t.dims)
    return make(x.shape, x.dtype, fill, t, comm=x.comm, device=kind_of(x))


def _run(name: str, tile: Tile, options: dict[str, Any]) -> Sequence[Any]:
    out = getattr(functions_of(tile), name)(tile, **options)
    return out if isinstance(out, (tuple, list)) else (out,)


def _type(x: Tiled, shape: tuple[int, ...], dtype: Any) -> ArrayType:
    n = x.ndim - 2
    dims = (*x.type.dims[:n], *((),) * len(shape))
    return ArrayType(x.mesh, dtype_of(np.dtype(dtype)), (*x.shape[:n], *shape), dims)
