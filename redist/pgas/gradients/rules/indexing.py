"""Rules of what takes elements by indices, masks and slices, and of what orders them."""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.pgas.gradients.cotangents import along, full
from redist.pgas.gradients.rules.table import Owed, constant, rule, rule_of_one
from redist.pgas.indexing import dispatch, inspected
from redist.pgas.indexing.adding import add_along, add_at
from redist.pgas.indexing.boolean import compress
from redist.pgas.kinds import is_half
from redist.pgas.ordering.searching import searchsorted
from redist.pgas.ordering.sorting import argsort, sort
from redist.pgas.ordering.topk import topk
from redist.pgas.shapes.take import take, take_along_axis
from redist.pgas.tiles.layouts import resolved_type, with_dtype
from redist.pgas.tiles.tiled import Tiled

constant(argsort, searchsorted)


rule_of_one(dispatch.get)(lambda g, y, x, key: add_at(g, key, x.shape))
rule_of_one(add_at)(lambda g, y, values, key, shape: dispatch.get(g, key))
rule_of_one(inspected.add_at)(lambda g, y, values, key, t: inspected.get(g, key))
rule_of_one(add_along)(lambda g, y, values, indices, dim, n: take_along_axis(g, indices, axis=dim))


@rule_of_one(inspected.get)
def _get_inspected(g: Any, y: Any, x: Any, key: Any) -> Any:
    if is_half(x.dtype):  # added up in f32
        return add_at(g, key, x.shape)
    return inspected.add_at(g, key, with_dtype(resolved_type(x.type), g.type.dtype))


@rule_of_one(take)
def _take(g: Any, y: Any, x: Any, indices: Any, *, axis: int | None = None) -> Any:
    dim = 0 if axis is None else axis % x.ndim
    return add_at(g, along(dim, indices), x.shape)


@rule_of_one(take_along_axis)
def _take_along_axis(g: Any, y: Any, x: Any, indices: Any, *, axis: int = -1) -> Any:
    dim = axis % x.ndim
    if isinstance(indices, Tiled) and g.shape == indices.shape and _is_alike(x, indices, dim):
        return add_along(g, indices, dim, x.shape[dim])
    key: list[Any] = [
        np.arange(n).reshape([-1 if i == d else 1 for i in range(x.ndim)])
        for d, n in enumerate(x.shape)
    ]
    key[dim] = indices
    return add_at(g, tuple(key), x.shape)


def _is_alike(x: Any, indices: Any, dim: int) -> bool:
    pairs = zip(x.shape, indices.shape, strict=True)
    return all(n == m for i, (n, m) in enumerate(pairs) if i != dim)


@rule(compress)
def _compress(owed: Owed) -> list[Any]:
    condition, x = owed.args
    dim = owed.options.get("axis", 0) % x.ndim
    g = add_at(owed.whole, along(dim, condition), x.shape)
    return [g if one is x else None for one in owed.operands]


@rule(topk)
def _topk(owed: Owed) -> list[Any]:
    """Each value goes back to where it stood."""
    x, *_ = owed.args
    dim = owed.options.get("axis", -1) % x.ndim
    g = full(owed.g.values, owed.y.values.shape)
    return [add_along(g, owed.y.indices, dim, x.shape[dim])]


@rule_of_one(sort)
def _sort(g: Any, y: Any, x: Any, *, axis: int = -1, **options: Any) -> Any:
    """Each value goes back to where it came from."""
    places = argsort(argsort(x, axis=axis, **options), axis=axis)
    return take_along_axis(g, places, axis=axis)
