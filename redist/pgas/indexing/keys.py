"""What stands between the brackets: one item for every dim of an array, as NumPy reads it."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, IndexKeyError
from redist.pgas.kinds import number_kind
from redist.pgas.tiles.layouts import Shape
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.copies.gpu_arrays import is_device
from redist.text.units import count_of

Indices = NDArray[Any] | Tiled


@dataclass(frozen=True, slots=True)
class AtIndex:
    """One index of a dim, which goes away."""

    dim: int
    index: int


@dataclass(frozen=True, slots=True)
class InRange:
    """A range of a dim."""

    dim: int
    indices: range


@dataclass(frozen=True, slots=True)
class NewDim:
    """A new dim of size 1."""


@dataclass(frozen=True, slots=True, eq=False)
class AtIndices:
    """Any indices of a dim."""

    dim: int
    indices: Indices


@dataclass(frozen=True, slots=True, eq=False)
class ByMask:
    """Where a condition on several dims holds."""

    dims: tuple[int, ...]
    mask: Indices


@dataclass(frozen=True, slots=True)
class Gap:
    """An ellipsis that stands for no dim, between indices that it keeps apart.

    NumPy puts the dims of index arrays first in the result if something stands between them, even
    an ellipsis that covers no dim.
    """


Item = AtIndex | InRange | NewDim | AtIndices | ByMask | Gap


def parse(key: Any, shape: Shape) -> list[Item]:
    """Read a key as items that name every dim. **Collective** if an index is a 0-d global array.

    >>> parse((0, ..., None), (4, 5))
    [AtIndex(dim=0, index=0), InRange(dim=1, indices=range(0, 5)), NewDim()]
    """
    given = [_plain(one) for one in (key if isinstance(key, tuple) else (key,))]
    named = sum(_n_dims(one) for one in given)
    if named > len(shape):
        raise IndexKeyError(
            f"too many indices: {named} for an array of {count_of(len(shape), 'dim')}"
        )
    dots = sum(one is Ellipsis for one in given)
    if dots > 1:
        raise IndexKeyError("an index can have only one '...'")
    if not dots:
        given.append(Ellipsis)
    arrays = any(isinstance(one, (np.ndarray, Tiled)) for one in given)
    items: list[Item] = []
    dim = 0
    for one in given:
        if one is Ellipsis:
            skipped = len(shape) - named
            items += [InRange(i, range(shape[i])) for i in range(dim, dim + skipped)]
            dim += skipped
            if not skipped and arrays and dots:
                items.append(Gap())
        elif one is None:
            items.append(NewDim())
        else:
            items += _items(one, dim, shape)
            dim += _n_dims(one)
    return _without_idle_gap(items)


def _without_idle_gap(items: list[Item]) -> list[Item]:
    """Drop an empty ellipsis unless it stands between two indices or index arrays."""
    gap = next((k for k, item in enumerate(items) if isinstance(item, Gap)), None)
    if gap is None or (_picks(items[:gap]) and _picks(items[gap:])):
        return items
    return [item for item in items if not isinstance(item, Gap)]


def _picks(items: Sequence[Item]) -> bool:
    return any(
        isinstance(item, (AtIndex, AtIndices)) or (isinstance(item, ByMask) and item.dims)
        for item in items
    )


def _plain(one: Any) -> Any:
    """Lists as arrays; numbers, also those in arrays without dims, as ints."""
    if one is None or one is Ellipsis or isinstance(one, slice):
        return one
    if isinstance(one, (bool, np.bool_)):
        return np.asarray(one)
    if isinstance(one, (list, tuple, range)):
        one = np.asarray(one)
        one = one.astype(np.int64) if one.size == 0 else one
    if isinstance(one, (np.ndarray, Tiled)):
        if number_kind(one.dtype) == "b":
            return one
        if number_kind(one.dtype) not in "iu":
            raise IndexKeyError(
                f"cannot index by an array of {one.dtype}: use integers or booleans"
                f"{_of_columns(*one.flat) if isinstance(one, np.ndarray) else ''}"
            )
        return operator.index(one) if one.ndim == 0 else one  # type: ignore[arg-type]
    try:
        return operator.index(one)
    except TypeError:
        if hasattr(one, "__array__") and not is_device(one):  # a Series of pandas, for example
            return _plain(np.asarray(one))
        raise IndexKeyError(
            f"cannot index by {one!r}: use integers, slices, '...', None, or arrays of integers or "
            f"booleans{_of_columns(one)}"
        ) from None


def _of_columns(*names: Any) -> str:
    """What to write for names of columns, the first of them for example; nothing for anything else."""
    if not names or not isinstance(names[0], str):
        return ""
    return (
        f"; a column by name: a[:, names.index({str(names[0])!r})] with "
        "names = pgas.column_names(file)"
    )


def _n_dims(one: Any) -> int:
    if one is None or one is Ellipsis:
        return 0
    if isinstance(one, (np.ndarray, Tiled)) and number_kind(one.dtype) == "b":
        return one.ndim
    return 1


def _items(one: Any, dim: int, shape: Shape) -> list[Item]:
    if not isinstance(one, (np.ndarray, Tiled)) or number_kind(one.dtype) != "b":
        return [_item(one, dim, shape)]
    dims = tuple(range(dim, dim + one.ndim))
    sizes = tuple(shape[i] for i in dims)
    if one.shape == sizes:
        return [ByMask(dims, one)]
    if any(n not in (0, size) for n, size in zip(one.shape, sizes, strict=True)):
        raise IndexKeyError(
            f"cannot index dims {dims} of shape {shape} by a mask of shape {one.shape}: they must "
            "be the same"
        )
    return [
        AtIndices(i, np.empty(0, np.int64)) for i in dims
    ]  # a mask of no elements holds nowhere


def _item(one: Any, dim: int, shape: Shape) -> Item:
    size = shape[dim]
    if isinstance(one, slice):
        return InRange(dim, _range(one, size))
    if isinstance(one, (np.ndarray, Tiled)):
        return AtIndices(dim, one)
    if not -size <= one < size:
        raise out_of_bounds(one, dim, size)
    return AtIndex(dim, one % size)


def _range(one: slice, size: int) -> range:
    try:
        found = range(*one.indices(size))
    except ValueError:
        raise ArgumentError("slice step cannot be zero") from None
    return found if len(found) else range(0)


def out_of_bounds(index: Any, dim: int, size: int) -> IndexKeyError:
    """The error for an index outside a dim."""
    return IndexKeyError(f"index {index} is out of bounds for dim {dim} of size {size}")


def result_shape(items: Sequence[Item]) -> Shape:
    """The shape that items without arrays select."""
    return tuple(
        1 if isinstance(item, NewDim) else len(item.indices)
        for item in items
        if isinstance(item, (NewDim, InRange))
    )
