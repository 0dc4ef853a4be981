"""What NumPy would give, found without data: views of memory that is not there, and small arrays.

A view never looks at elements, so it is taken of an array whose strides are right and whose memory is one
element. Anything else is tried out on small arrays whose dims have sizes of their own, from which the sizes
of the result are read off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from redist.errors import CaptureError
from redist.pgas.kinds import number_kind, promote
from redist.pgas.structures import found_in, replaced

AnyArray = NDArray[Any]


@dataclass(frozen=True, slots=True)
class PretendedRanks:
    """Stands in for a communicator as far as nothing passes between its ranks."""

    size: int
    rank: int = 0


SMALL_SIZES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59)
"""Sizes of dims of small arrays: primes, so that none is made of others."""


def pretend(shape: Sequence[int], dtype: Any, order: Sequence[int] | None = None) -> AnyArray:
    """An array of this shape over one element: its elements must never be looked at.

    ``order`` has the dims from the outermost in memory to the innermost.
    """
    kind = np.dtype(dtype)
    strides = [0] * len(shape)
    step = kind.itemsize
    for dim in reversed(range(len(shape)) if order is None else order):
        strides[dim] = step
        step *= max(1, shape[dim])
    return as_strided(np.zeros(1, kind), tuple(shape), tuple(strides))


def order_of(array: AnyArray) -> list[int]:
    """The dims of an array from the outermost in memory to the innermost."""
    return sorted(range(array.ndim), key=lambda dim: (-abs(array.strides[dim]), dim))


class Sizes:
    """Gives every size of a dim a small one of its own, and knows them backwards."""

    def __init__(self, arrays: Iterable[AnyArray]) -> None:
        found = sorted({n for array in arrays for n in array.shape if n > 1})
        if len(found) > len(SMALL_SIZES):
            raise CaptureError(f"dims of {len(found)} sizes")
        self._small = dict(zip(found, SMALL_SIZES, strict=False)) | {0: 0, 1: 1}
        self._large = {small: n for n, small in self._small.items()}

    def shrink(self, array: AnyArray) -> AnyArray:
        """A small array in the place of a large one, with the same order of strides."""
        order = order_of(array)
        shape = [self._small[n] for n in array.shape]
        flat = _values([shape[dim] for dim in order], array.dtype)
        small = flat.transpose([order.index(dim) for dim in range(array.ndim)])
        for dim, (n, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
            if stride == 0 and n > 1:
                small = np.broadcast_to(small[(slice(None),) * dim + (slice(1),)], small.shape)
        return small

    def grow(self, small: Any) -> AnyArray:
        """What a large result looks like, from a small one."""
        array = np.asarray(small)
        try:
            shape = [self._large[n] for n in array.shape]
        except KeyError:
            raise CaptureError(f"a result of shape {array.shape}") from None
        return pretend(shape, array.dtype, order_of(array))


def _values(shape: Sequence[int], dtype: np.dtype[Any]) -> AnyArray:
    """Values that functions can use: random where they have fractions, else 0, an index of anything."""
    if number_kind(dtype) not in "fc":
        return np.zeros(shape, dtype)
    return (0.5 + np.random.default_rng(0).random(shape)).astype(dtype)


def try_out(function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """What a function of arrays gives, as arrays without memory; all arrays in ``args`` count as such."""
    sizes = Sizes(found_in((list(args), dict(options)), (np.ndarray,)))

    def shrink(thing: Any) -> Any:
        return replaced(thing, (np.ndarray,), sizes.shrink)

    with np.errstate(all="ignore"):
        try:
            made = function(*map(shrink, args), **{k: shrink(v) for k, v in options.items()})
        except np.linalg.LinAlgError:
            raise CaptureError(f"{function.__name__} of matrices that are not known") from None
    return _grow(made, sizes)


def _grow(made: Any, sizes: Sizes) -> Any:
    if isinstance(made, (tuple, list)):
        return [_grow(one, sizes) for one in made]
    if not isinstance(made, (np.ndarray, np.generic)):
        raise CaptureError(f"a {type(made).__name__}")
    return sizes.grow(made)


# Functions whose results have sizes of their own


def _joined(arrays: Sequence[AnyArray], axis: int = 0) -> AnyArray:
    n = sum(one.shape[axis] for one in arrays)
    return _with_size(arrays[0], axis, n, promote(*(one.dtype for one in arrays)))


def _stacked(arrays: Sequence[AnyArray], axis: int = 0) -> AnyArray:
    shape = list(arrays[0].shape)
    shape.insert(axis % (len(shape) + 1), len(arrays))
    return pretend(shape, promote(*(one.dtype for one in arrays)))


def _transformed(x: AnyArray, n: int | None = None, axis: int = -1, norm: Any = None) -> AnyArray:
    size = x.shape[axis] if n is None else n
    return _with_size(x, axis, size, promote(x.dtype, np.complex64))


def _half_transformed(x: AnyArray, n: int | None = None, axis: int = -1, norm: Any = None) -> Any:
    size = x.shape[axis] if n is None else n
    return _with_size(x, axis, size // 2 + 1, promote(x.dtype, np.complex64))


def _back_from_half(x: AnyArray, n: int | None = None, axis: int = -1, norm: Any = None) -> Any:
    size = 2 * (x.shape[axis] - 1) if n is None else n
    return _with_size(x, axis, size, np.zeros(0, promote(x.dtype, np.complex64)).real.dtype)


def _with_size(x: AnyArray, axis: int, n: int, dtype: Any) -> AnyArray:
    at = axis % x.ndim
    return pretend([n if dim == at else size for dim, size in enumerate(x.shape)], dtype)


def _repeated(x: AnyArray, repeats: Any, axis: int | None = None) -> AnyArray:
    if axis is None:
        return pretend((x.size * int(repeats),), x.dtype)
    counts = np.broadcast_to(repeats, x.shape[axis])
    return _with_size(x, axis, int(counts.sum()), x.dtype)


def _tiled(x: AnyArray, reps: Any) -> AnyArray:
    times = (reps,) if isinstance(reps, int) else tuple(reps)
    ndim = max(x.ndim, len(times))
    shape = (1,) * (ndim - x.ndim) + x.shape
    times = (1,) * (ndim - len(times)) + times
    return pretend([n * k for n, k in zip(shape, times, strict=True)], x.dtype)


def _differences(x: AnyArray, n: int = 1, axis: int = -1) -> AnyArray:
    return _with_size(x, axis, max(0, x.shape[axis] - n), x.dtype)


def _triangular(x: AnyArray, **options: Any) -> AnyArray:
    return pretend(x.shape, promote(x.dtype, np.float32))


def _crossed(a: AnyArray, b: AnyArray, **axes: Any) -> AnyArray:
    return pretend(np.broadcast_shapes(a.shape, b.shape), promote(a.dtype, b.dtype))


RULES: dict[Callable[..., Any], Callable[..., AnyArray]] = {
    np.concatenate: _joined,
    np.stack: _stacked,
    np.fft.fft: _transformed,
    np.fft.ifft: _transformed,
    np.fft.hfft: _back_from_half,
    np.fft.ihfft: _half_transformed,
    np.fft.rfft: _half_transformed,
    np.fft.irfft: _back_from_half,
    np.repeat: _repeated,
    np.tile: _tiled,
    np.diff: _differences,
    np.linalg.cholesky: _triangular,
    np.cross: _crossed,
}
"""By the function: what its result looks like."""
VIEWS = frozenset(
    {
        np.transpose, np.expand_dims, np.squeeze, np.broadcast_to, np.moveaxis, np.swapaxes,
        np.flip, np.diagonal, np.matrix_transpose, np.real, np.imag,
    }
)  # fmt: skip
"""Functions that give a view of their first argument."""
TRIED_OUT = frozenset(
    {
        np.sum, np.prod, np.max, np.min, np.mean, np.any, np.all, np.argmax, np.argmin, np.cumsum,
        np.cumprod, np.where, np.einsum, np.sort, np.argsort, np.take_along_axis, np.searchsorted,
        np.clip, np.zeros_like, np.ones_like, np.empty_like, np.full_like, np.triu, np.tril,
        np.trace, np.round, np.tensordot, np.vdot, np.outer, np.lexsort, np.roll,
        np.linalg.qr, np.linalg.svd, np.linalg.eig, np.linalg.eigvals, np.linalg.eigh, np.linalg.eigvalsh,
        np.linalg.inv, np.linalg.solve, np.linalg.pinv, np.linalg.norm, np.linalg.vector_norm,
        np.linalg.slogdet, np.linalg.det, np.linalg.matrix_norm, np.linalg.svdvals, np.nan_to_num,
        np.isclose,
    }
)  # fmt: skip
"""Functions whose results have sizes of their operands only."""


LIKE = frozenset({np.zeros_like, np.ones_like, np.empty_like, np.full_like})
"""Functions whose result looks like their first argument, unless another shape is named."""
KNOWN = VIEWS | TRIED_OUT | RULES.keys()
"""All functions of NumPy that ghosts know."""


def look_at(function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """What a function gives for arrays without memory: one such array, or a list of them."""
    if function in VIEWS:
        return function(*args, **options)
    if function in LIKE and options.get("shape") is not None:
        shape = options["shape"]
        like = function(*(np.empty(0, one.dtype) if one is args[0] else one for one in args))
        return pretend(shape, like.dtype)
    rule = RULES.get(function)
    if rule is not None:
        return rule(*args, **options)
    if isinstance(function, np.ufunc) or function in TRIED_OUT:
        return try_out(function, args, options)
    raise CaptureError(f"{function.__name__} has no rule")
