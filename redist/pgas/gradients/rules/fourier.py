"""Rules of Fourier transforms: each is linear, and read backwards it is a transform of the same kind.

A transform of ``n`` values first cuts its operand to ``n``, or fills it with zeros; backwards, the cotangent
is filled or cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redist.pgas.creation import zeros_like
from redist.pgas.elementwise.unary import conj, real
from redist.pgas.fft import functions as fft
from redist.pgas.gradients.cotangents import along
from redist.pgas.gradients.rules.table import rule_of_one
from redist.pgas.indexing import dispatch
from redist.pgas.shapes.join import concat
from redist.pgas.shapes.repeat import broadcast_to

INVERSE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}
"""The norm by which a transform the other way is scaled alike."""


def fitting(x: Any, n: int, dim: int) -> Any:
    """The first ``n`` values along a dim, with zeros behind them if there are fewer."""
    have = x.shape[dim]
    if have >= n:
        return x if have == n else dispatch.get(x, along(dim, slice(n)))
    one = dispatch.get(x, along(dim, slice(1)))
    sizes = tuple(n - have if i == dim else m for i, m in enumerate(x.shape))
    return concat([x, zeros_like(broadcast_to(one, sizes))], axis=dim)


def _both(transform: Any) -> Any:
    """The rule of a transform that is its own transpose."""

    def found(
        g: Any, y: Any, x: Any, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Any:
        dim = axis % x.ndim
        return fitting(transform(g, axis=dim, norm=norm), x.shape[dim], dim)

    return found


rule_of_one(fft.fft)(_both(fft.fft))
rule_of_one(fft.ifft)(_both(fft.ifft))


def half_back(g: Any, shape: tuple[int, ...], n: int, dim: int, norm: str) -> Any:
    """Of a transform of ``n`` real values that gives half of the frequencies."""
    return fitting(real(fft.fft(fitting(g, n, dim), axis=dim, norm=norm)), shape[dim], dim)


def whole_back(g: Any, shape: tuple[int, ...], dim: int, norm: str) -> Any:
    """Of a transform from half of the frequencies: all but the ends count twice, for those left out too."""
    n = g.shape[dim]
    found = conj(fft.rfft(g, axis=dim, norm=INVERSE[norm]))
    keys = slice(0, 1), slice(1, (n + 1) // 2), slice((n + 1) // 2, n // 2 + 1)
    first, middle, last = (dispatch.get(found, along(dim, key)) for key in keys)
    parts = [first, middle * 2, last]
    found = concat([one for one in parts if one.shape[dim]], axis=dim)
    return fitting(found, shape[dim], dim)


@rule_of_one(fft.rfft)
def _rfft(
    g: Any, y: Any, x: Any, *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Any:
    dim = axis % x.ndim
    return half_back(g, x.shape, x.shape[dim] if n is None else n, dim, norm)


@rule_of_one(fft.irfft)
def _irfft(
    g: Any, y: Any, x: Any, *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Any:
    return whole_back(g, x.shape, axis % x.ndim, norm)


@rule_of_one(fft.hfft)
def _hfft(
    g: Any, y: Any, x: Any, *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Any:
    """``hfft(x)`` is ``irfft(conj(x))`` by the other norm."""
    return conj(whole_back(g, x.shape, axis % x.ndim, INVERSE[norm]))


@rule_of_one(fft.ihfft)
def _ihfft(
    g: Any, y: Any, x: Any, *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Any:
    """``ihfft(x)`` is ``conj(rfft(x))`` by the other norm."""
    dim = axis % x.ndim
    return half_back(conj(g), x.shape, x.shape[dim] if n is None else n, dim, INVERSE[norm])


def _dims(x: Any, s: Any, axes: Any) -> tuple[int, ...]:
    """The dims of a transform along several."""
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    return tuple(i % x.ndim for i in axes)


def _all(transform: Any) -> Any:
    """The rule of a transform along several dims that is its own transpose."""

    def found(
        g: Any, y: Any, x: Any, *, s: Any = None, axes: Any = None, norm: str = "backward"
    ) -> Any:
        return _fitted(transform, g, x.shape, _dims(x, s, axes), norm)

    return found


def _fitted(transform: Any, g: Any, shape: tuple[int, ...], dims: Sequence[int], norm: str) -> Any:
    """A transform along some dims, each cut or filled to its size in a shape."""
    if dims:
        g = transform(g, axes=tuple(dims), norm=norm)
    for dim in dims:
        g = fitting(g, shape[dim], dim)
    return g


rule_of_one(fft.fftn)(_all(fft.fftn))
rule_of_one(fft.ifftn)(_all(fft.ifftn))


@rule_of_one(fft.rfftn)
def _rfftn(
    g: Any, y: Any, x: Any, *, s: Any = None, axes: Any = None, norm: str = "backward"
) -> Any:
    """Half a transform along the last dim, whole ones along the others: undone in the other order."""
    *dims, last = _dims(x, s, axes)
    g = _fitted(fft.fftn, g, x.shape, dims, norm)
    n = x.shape[last] if s is None else s[-1]
    return half_back(g, x.shape, n, last, norm)


@rule_of_one(fft.irfftn)
def _irfftn(
    g: Any, y: Any, x: Any, *, s: Any = None, axes: Any = None, norm: str = "backward"
) -> Any:
    *dims, last = _dims(x, s, axes)
    return _fitted(fft.ifftn, whole_back(g, x.shape, last, norm), x.shape, dims, norm)


rule_of_one(fft.fftshift)(lambda g, y, x, **options: fft.ifftshift(g, **options))
rule_of_one(fft.ifftshift)(lambda g, y, x, **options: fft.fftshift(g, **options))
