"""Choose who copies a step within a node: the receivers fetch, or the senders bring.

Reading is what costs where runs are short: memory that is read here and there misses the caches of
addresses and the rows of the memory chips, while writing in a few ascending streams does not. So that
rank copies on whose side memory is read in order. If the rows of a source are dealt out to many targets
(a matrix from rows to columns), the sender brings; if the rows of a target are put together from many
sources (columns to rows), the receiver fetches.
"""

from __future__ import annotations

from redist.layout.array_type import ArrayType

BROUGHT_RUN_BYTES = 2**20
"""Runs of this size are read equally fast from anywhere: receivers fetch, as they always may."""


def is_brought(before: ArrayType, after: ArrayType) -> bool:
    """Whether senders bring: runs in the source are short, and shorter than in the target.

    It depends on the types alone, so all ranks answer alike.

    >>> from redist import Mesh
    >>> rows = ArrayType.parse("f64[64{x}, 64]", Mesh(x=4))
    >>> columns = ArrayType.parse("f64[64, 64{x}]", Mesh(x=4))
    >>> is_brought(rows, columns), is_brought(columns, rows)
    (True, False)
    """
    source, target = before.tile_shape, after.tile_shape
    shape = tuple(map(min, source, target))
    run = _run(shape, source)
    return run < _run(shape, target) and run * before.dtype.itemsize < BROUGHT_RUN_BYTES


def _run(shape: tuple[int, ...], tile: tuple[int, ...]) -> int:
    """Elements of a box that lie together in a tile."""
    run = 1
    for n, whole in zip(reversed(shape), reversed(tile), strict=True):
        run *= n
        if n != whole:
            break
    return run
