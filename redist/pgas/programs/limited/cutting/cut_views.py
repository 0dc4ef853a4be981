"""Where a dim of memory is found again in a view of it, and the same view of a block."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from redist.pgas.ghosts.ghost import reshaped
from redist.pgas.ghosts.tape import Task

VIEWS = (
    np.transpose,
    np.swapaxes,
    np.matrix_transpose if hasattr(np, "matrix_transpose") else np.transpose,
    np.expand_dims,
    np.squeeze,
    np.real,
    np.imag,
    np.broadcast_to,
    operator.getitem,
)
"""Functions that look at memory in another way, whatever its order, and never copy."""
Shape = tuple[int, ...]


def dim_in_view(views: Sequence[Task], shape: Shape, dim: int) -> int | None:
    """**Local.** Which dim of a view is a dim of memory of some shape, all of it in order; None if none is.

    >>> from redist.pgas.ghosts.tape import Ref, TaskKind
    >>> turned = Task(TaskKind.PURE, np.transpose, (Ref(0), (1, 0)), {}, 1, (0,), (), 0)
    >>> part = Task(TaskKind.PURE, operator.getitem, (Ref(1), slice(0, 2)), {}, 2, (0,), (), 0)
    >>> dim_in_view([turned], (6, 4), 0), dim_in_view([turned, part], (6, 4), 0)
    (1, 1)
    >>> dim_in_view([turned, part], (6, 4), 1) is None
    True
    """
    found: int | None = dim
    for view in views:
        if found is None:
            return None
        shape, found = _one_view(view, shape, found)
    return found


def view_of_block(view: Task, shape: Shape, dim: int, n: int) -> tuple[Task, Shape, int]:
    """**Local.** A view of memory as one of a block of ``n`` along a dim; its shape, and that dim in it."""
    whole, found = _one_view(view, shape, dim)
    assert found is not None
    if view.function is reshaped:
        sizes = (*whole[:found], n, *whole[found + 1 :])
        view = replace(view, args=(view.args[0], sizes))
    return view, whole, found


def _one_view(view: Task, shape: Shape, dim: int) -> tuple[Shape, int | None]:
    """The shape of a view of something with a shape, and where one of its dims is there."""
    rest = view.args[1:]
    if view.function is reshaped:
        return _one_reshape(shape, rest[0], dim)
    if view.function not in VIEWS or shape[dim] < 2:
        return (), None
    like = _without_memory(shape)
    try:
        seen = view.function(like, *rest, **view.options)
    except (TypeError, ValueError, IndexError):
        return (), None
    step = like.strides[dim]
    offset = seen.__array_interface__["data"][0] - like.__array_interface__["data"][0]
    if (offset // step) % shape[dim]:
        return seen.shape, None
    there = [at for at, n in enumerate(seen.shape) if n == shape[dim] and seen.strides[at] == step]
    return seen.shape, there[0] if len(there) == 1 else None


def _one_reshape(shape: Shape, sizes: Any, dim: int) -> tuple[Shape, int | None]:
    whole = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if -1 in whole:
        known = -math.prod(whole)
        whole = tuple(math.prod(shape) // max(1, known) if n == -1 else n for n in whole)
    before = math.prod(shape[:dim])
    there = [
        at for at, n in enumerate(whole) if n == shape[dim] and math.prod(whole[:at]) == before
    ]
    return whole, there[0] if there else None


def _without_memory(shape: Shape) -> Any:
    """An array of a shape whose elements nobody may look at: each dim has a stride of its own."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(1, n)
    return as_strided(np.zeros(1, np.uint8), shape, strides[::-1], writeable=False)
