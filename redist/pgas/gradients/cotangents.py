"""Cotangents: arrays that say how the value changes with another array. They may be thin.

A cotangent has as many dims as its array. Along a dim where all its values are alike it may have size 1: that
of a sum is the cotangent of its result with the dims put back, and nothing is stretched before it must be.

They follow JAX where numbers are complex: a small change ``dz`` changes the value by the real part of the sum
of ``g * dz``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redist.pgas import reductions
from redist.pgas.elementwise.apply import astype
from redist.pgas.elementwise.unary import real
from redist.pgas.kinds import number_kind
from redist.pgas.shapes.repeat import broadcast_to

Shape = tuple[int, ...]


def full(g: Any, shape: Sequence[int]) -> Any:
    """A cotangent that is not thin."""
    return g if g.shape == tuple(shape) else broadcast_to(g, tuple(shape))


def along(dim: int, key: Any) -> tuple[Any, ...]:
    """A key of an array that is one of its dim ``dim``.

    >>> along(1, slice(3))
    (slice(None, None, None), slice(None, 3, None))
    """
    return (*(slice(None),) * dim, key)


def unstretched(g: Any, own: Shape, shape: Shape) -> Any:
    """Sum a cotangent over the dims along which an operand of shape ``own`` was stretched to ``shape``.

    Where the cotangent is thin, a sum of ``n`` equal values is ``n`` times one of them.
    """
    lead = len(shape) - len(own)
    stretched = [i for i in range(lead, len(shape)) if own[i - lead] == 1 != shape[i]]
    scale = 1
    for i in (*range(lead), *stretched):
        if g.shape[i] != shape[i]:
            scale *= shape[i]
    if scale != 1:
        g = g * scale
    if wide := [i for i in stretched if g.shape[i] != 1]:
        g = reductions.sum(g, axis=tuple(wide), keepdims=True)
    return reductions.sum(g, axis=tuple(range(lead))) if lead else g


def in_dtype(g: Any, x: Any) -> Any:
    """A cotangent in the dtype of its array: of a real one, its real part."""
    if g.dtype == x.dtype:
        return g
    if number_kind(g.dtype) == "c" and number_kind(x.dtype) != "c":
        g = real(g)
    return g if g.dtype == x.dtype else astype(g, x.dtype)
