"""NumPy's functions called with global arrays: ``numpy.mean(a)`` is ``pgas.mean(a)``.

Each line has NumPy's names and order of arguments. What has no counterpart is refused, with what to write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError
from redist.pgas.kinds import number_kind, promote
from redist.pgas.methods import Methods, dot, refuse_arguments
from redist.pgas.ordering.sorting import is_stable
from redist.pgas.suggestions import explain_function, explain_options
from redist.pgas.tiles.arguments import check_arrays, dim_of
from redist.pgas.tiles.tiled import Tiled

Function = Callable[..., Any]
Table = dict[str, Function]

METHODS = (
    "all", "any", "argmax", "argmin", "argsort", "astype", "cumprod", "cumsum", "diagonal", "max",
    "mean", "min", "nonzero", "prod", "ravel", "repeat", "round", "squeeze", "std",
    "sum", "swapaxes", "take", "trace", "transpose", "var",
)  # fmt: skip
"""Functions of NumPy that are methods with the same arguments."""
SAME = (
    "broadcast_arrays", "concat", "cumulative_prod", "cumulative_sum", "einsum", "matrix_transpose",
    "meshgrid",
    "permute_dims", "result_type", "can_cast", "unique_all", "unique_counts", "unique_inverse",
    "unique_values", "unstack",
)  # fmt: skip
"""Functions of the standard, which NumPy has with the same arguments."""
SAME_LINALG = (
    "cross", "det", "diagonal", "eig", "eigvals", "inv", "matmul", "matrix_norm", "matrix_power",
    "matrix_transpose", "outer", "slogdet", "solve", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
)  # fmt: skip
FIRST = ("a", "A", "x", "m", "ar", "arr", "array", "arrays", "tup", "condition", "ary", "v")
"""How NumPy calls the first argument."""

TAKEN = frozenset(
    ("array_equal", "array_split", "split", "iscomplexobj", "isrealobj", "flatnonzero")
)
"""Functions that only NumPy has, and that take global arrays."""


def call_function(
    function: Function, args: Sequence[Any], options: Mapping[str, Any], xp: ModuleType
) -> Any:
    """**Collective** as the function of the namespace ``xp`` is. Answer ``numpy.<function>(...)``."""
    where, name = function.__module__, function.__name__
    ours = tables(xp).get(where, {}).get(name)
    if ours is None:
        raise ArgumentTypeError(explain_function(where, name, vars(xp)))
    named = dict(options)
    if not args:
        args = [named.pop(first) for first in list(named)[:1] if first in FIRST]
    try:
        return ours(*args, **named)
    except TypeError as error:
        why = explain_options(function, ours, options, xp, str(error))
        if why is None or isinstance(error, ArgumentTypeError):
            raise
    raise ArgumentTypeError(why)


@lru_cache(maxsize=1)
def tables(xp: Any) -> dict[str, Table]:
    """Functions of NumPy and of its modules, by their names, written with those of a namespace."""
    given = {"numpy": _functions(xp), "numpy.linalg": _linalg(xp), "numpy.fft": _fft(xp)}
    return {
        where: {name: refuse_arguments(one, name) for name, one in table.items()}
        for where, table in given.items()
    }


def _functions(xp: Any) -> Table:
    return {
        **{name: _method(name) for name in METHODS},
        **{name: getattr(xp, name) for name in SAME},
        "allclose": lambda a, b, rtol=1e-5, atol=1e-8, equal_nan=False: xp.allclose(
            a, b, rtol=rtol, atol=atol, equal_nan=equal_nan
        ),
        "amax": _method("max"),
        "amin": _method("min"),
        "append": lambda arr, values, axis=None: xp.concat(  # flat if no dim is named
            _promoted("append", [arr, values]), axis=axis
        ),
        "argwhere": lambda a: xp.stack(a.nonzero(), axis=1),
        "around": _method("round"),
        "array2string": lambda a: str(a),
        "array_equal": lambda a1, a2: a1.shape == a2.shape and xp.all(xp.equal(a1, a2)),
        "array_repr": lambda arr: repr(arr),
        "array_split": lambda ary, indices_or_sections, axis=0: _split(
            ary, indices_or_sections, axis, even=False
        ),
        "array_str": lambda a: str(a),
        "average": lambda a, axis=None, weights=None, keepdims=False: xp.average(
            a, axis=axis, weights=weights, keepdims=keepdims
        ),
        "bincount": lambda x, weights=None, minlength=0: xp.bincount(x, weights, minlength),
        "broadcast_to": lambda array, shape: xp.broadcast_to(
            array, shape if isinstance(shape, (tuple, list)) else (shape,)
        ),
        "clip": lambda a, a_min=None, a_max=None, min=None, max=None: a.clip(
            a_min if min is None else min, a_max if max is None else max
        ),
        "column_stack": lambda tup: xp.concat(
            [x if x.ndim > 1 else x.reshape(-1, 1) for x in _promoted("column_stack", tup)], axis=1
        ),
        "concatenate": lambda arrays, axis=0, dtype=None: _in_dtype(
            xp.concat(_promoted("concatenate", arrays), axis=axis), dtype
        ),
        "convolve": lambda a, v, mode="full": xp.convolve(a, v, mode=mode),
        "copy": lambda a: a.copy(),
        "corrcoef": lambda x, y=None, rowvar=True: xp.corrcoef(x, y, rowvar=rowvar),
        "count_nonzero": lambda a, axis=None, keepdims=False: xp.count_nonzero(
            a, axis=axis, keepdims=keepdims
        ),
        "cov": lambda m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None: (
            xp.cov(m, y, rowvar=rowvar, bias=bias, ddof=ddof, fweights=fweights, aweights=aweights)
        ),
        "cross": lambda a, b, axis=-1: xp.linalg.cross(a, b, axis=axis),
        "diag": lambda v, k=0: xp.diag(v, k),
        "digitize": lambda x, bins, right=False: xp.digitize(x, bins, right=right),
        "diff": lambda a, n=1, axis=-1, prepend=None, append=None: xp.diff(
            a, n=n, axis=axis, prepend=prepend, append=append
        ),
        "dot": lambda a, b: dot(a, b),
        "empty_like": lambda prototype, dtype=None: xp.empty_like(prototype, dtype=dtype),
        "expand_dims": lambda a, axis: xp.expand_dims(a, axis=axis),
        "flatnonzero": lambda a: a.ravel().nonzero()[0],
        "flip": lambda m, axis=None: xp.flip(m, axis=axis),
        "fliplr": lambda m: xp.flip(m, axis=1),
        "flipud": lambda m: xp.flip(m, axis=0),
        "full_like": lambda a, fill_value, dtype=None: xp.full_like(a, fill_value, dtype=dtype),
        "histogram": lambda a, bins=10, range=None, density=False, weights=None: xp.histogram(
            a, bins, range=range, density=bool(density), weights=weights
        ),
        "hstack": lambda tup: _hstacked(xp, _promoted("hstack", tup)),
        "imag": lambda val: val.imag,
        "inner": lambda a, b: (
            dot(a, b, "inner")
            if not (_is_array(a) and _is_array(b))
            else xp.tensordot(a, b, axes=([-1], [-1]))
        ),
        "isclose": lambda a, b, rtol=1e-5, atol=1e-8, equal_nan=False: xp.isclose(
            a, b, rtol=rtol, atol=atol, equal_nan=equal_nan
        ),
        "iscomplexobj": lambda x: number_kind(x.dtype) == "c",
        "isin": lambda element, test_elements, assume_unique=False, invert=False, *, kind=None: (
            xp.isin(element, test_elements, invert=invert)
        ),
        "isrealobj": lambda x: number_kind(x.dtype) != "c",
        "median": lambda a, axis=None, keepdims=False: xp.median(a, axis=axis, keepdims=keepdims),
        "moveaxis": lambda a, source, destination: xp.moveaxis(a, source, destination),
        **{name: _without_nan(getattr(xp, name)) for name in ("nanmax", "nanmedian", "nanmin")},
        **{name: _without_nan(getattr(xp, name), True) for name in ("nanmean", "nanstd", "nanvar")},
        **{name: _adding(getattr(xp, name)) for name in ("nanprod", "nansum")},
        **{
            name: _at_shares(getattr(xp, name))
            for name in ("nanpercentile", "nanquantile", "percentile", "quantile")
        },
        "nan_to_num": lambda x, copy=True, nan=0.0, posinf=None, neginf=None: xp.nan_to_num(
            x, copy=copy, nan=nan, posinf=posinf, neginf=neginf
        ),
        "ndim": lambda a: a.ndim,
        "ones_like": lambda a, dtype=None: xp.ones_like(a, dtype=dtype),
        "outer": lambda a, b: xp.linalg.outer(*(x.ravel() for x in _arrays("outer", a, b))),
        "pad": lambda array, pad_width, mode="constant", *, constant_values=0: xp.pad(
            array, pad_width, mode, constant_values=constant_values
        ),
        "ptp": lambda a, axis=None, keepdims=False: xp.ptp(a, axis=axis, keepdims=keepdims),
        "real": lambda val: val.real,
        "reshape": lambda a, shape=None, newshape=None, copy=None: a.reshape(
            newshape if shape is None else shape, copy=copy
        ),
        "roll": lambda a, shift, axis=None: xp.roll(a, shift, axis=axis),
        "searchsorted": lambda a, v, side="left", sorter=None: xp.searchsorted(
            a, v, side=side, sorter=sorter
        ),
        "shape": lambda a: a.shape,
        "size": lambda a, axis=None: a.size if axis is None else a.shape[axis],
        "sort": lambda a, axis=-1, kind=None, *, stable=None: _sorted(
            xp, a, axis, is_stable(kind, stable)
        ),
        "split": lambda ary, indices_or_sections, axis=0: _split(
            ary, indices_or_sections, axis, even=True
        ),
        "stack": lambda arrays, axis=0, dtype=None: _in_dtype(
            xp.stack(_promoted("stack", arrays), axis=axis), dtype
        ),
        "take_along_axis": lambda arr, indices, axis=-1: xp.take_along_axis(
            arr, indices, axis=axis
        ),
        "tensordot": lambda a, b, axes=2: xp.tensordot(a, b, axes=axes),
        "tile": lambda a, reps: xp.tile(a, reps if isinstance(reps, (tuple, list)) else (reps,)),
        "tril": lambda m, k=0: xp.tril(m, k=k),
        "triu": lambda m, k=0: xp.triu(m, k=k),
        "unique": lambda *args, **options: _unique(xp, *args, **options),
        "vdot": lambda a, b: xp.vecdot(*(x.ravel() for x in _arrays("vdot", a, b))),
        "vecdot": lambda x1, x2, axis=-1: xp.vecdot(x1, x2, axis=axis),
        "vstack": lambda tup: xp.concat(
            [x if x.ndim > 1 else x.reshape(1, -1) for x in _promoted("vstack", tup)], axis=0
        ),
        "where": lambda condition, *values: (
            xp.where(condition, *values) if values else condition.nonzero()
        ),
        "zeros_like": lambda a, dtype=None: xp.zeros_like(a, dtype=dtype),
    }


def _linalg(xp: Any) -> Table:
    ours = xp.linalg
    return {
        **{name: getattr(ours, name) for name in SAME_LINALG},
        "cholesky": lambda a, upper=False: ours.cholesky(a, upper=upper),
        "eigh": lambda a, UPLO="L": ours.eigh(_lower(a, UPLO)),  # noqa: N803
        "eigvalsh": lambda a, UPLO="L": ours.eigvalsh(_lower(a, UPLO)),  # noqa: N803
        "matrix_rank": lambda a, rtol=None: ours.matrix_rank(a, rtol=rtol),
        "norm": lambda x, ord=None, axis=None, keepdims=False: _norm(xp, x, ord, axis, keepdims),
        "pinv": lambda a, rtol=None: ours.pinv(a, rtol=rtol),
        "qr": lambda a, mode="reduced": ours.qr(a, mode=mode),
        "svd": lambda a, full_matrices=True, compute_uv=True: (
            ours.svd(a, full_matrices=full_matrices) if compute_uv else ours.svdvals(a)
        ),
    }


def _fft(xp: Any) -> Table:
    def one(name: str) -> Function:
        function = getattr(xp.fft, name)
        return lambda a, n=None, axis=-1, norm=None: function(
            a, n=n, axis=axis, norm=norm or "backward"
        )

    def several(name: str, last: tuple[int, ...] | None = None) -> Function:
        function = getattr(xp.fft, name)
        return lambda a, s=None, axes=last, norm=None: function(
            a, s=s, axes=axes, norm=norm or "backward"
        )

    return {
        **{name: one(name) for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")},
        **{name: several(name) for name in ("fftn", "ifftn", "rfftn", "irfftn")},
        **{f"{name}2": several(f"{name}n", (-2, -1)) for name in ("fft", "ifft", "rfft", "irfft")},
        "fftshift": lambda x, axes=None: xp.fft.fftshift(x, axes=axes),
        "ifftshift": lambda x, axes=None: xp.fft.ifftshift(x, axes=axes),
    }


def _method(name: str) -> Function:
    method = getattr(Methods, name)

    def called(a: Any, *args: Any, **options: Any) -> Any:
        check_arrays(name, a)
        return method(a, *args, **options)

    return called


def _without_nan(function: Function, takes_dtype: bool = False) -> Function:
    if not takes_dtype:
        return lambda a, axis=None, **given: function(a, axis=axis, **given)
    return lambda a, axis=None, dtype=None, **given: function(
        _in_dtype(a, dtype), axis=axis, **given
    )


def _adding(function: Function) -> Function:
    return lambda a, axis=None, dtype=None, keepdims=False: function(
        a, axis=axis, dtype=dtype, keepdims=keepdims
    )


def _at_shares(function: Function) -> Function:
    return lambda a, q, axis=None, method="linear", keepdims=False: function(
        a, q, axis=axis, method=method, keepdims=keepdims
    )


def _is_array(x: Any) -> bool:
    return isinstance(x, Tiled) and x.ndim > 0


def _in_dtype(x: Any, dtype: Any) -> Any:
    return x if dtype is None else x.astype(dtype, copy=False)


def _arrays(name: str, *arrays: Any) -> tuple[Any, ...]:
    check_arrays(name, *arrays)
    return arrays


def _promoted(name: str, arrays: Sequence[Any]) -> list[Any]:
    """Arrays of one dtype, as NumPy joins them by the function of a name."""
    given = list(arrays)
    check_arrays(name, *given)
    kind = promote(*(x.dtype for x in given)) if given else None
    return [_in_dtype(x, kind) for x in given]


def _hstacked(xp: Any, arrays: list[Any]) -> Any:
    return xp.concat(arrays, axis=1 if max((x.ndim for x in arrays), default=0) > 1 else 0)


def _sorted(xp: Any, a: Any, axis: int | None, stable: bool) -> Any:
    check_arrays("sort", a)
    x, dim = (a.ravel(), -1) if axis is None else (a, axis)
    return xp.sort(x, axis=dim, stable=stable)


def _split(x: Any, where: Any, axis: int, even: bool) -> list[Any]:
    """Parts along a dim: this many, or between indices."""
    check_arrays("split", x)
    dim = dim_of(axis, x.ndim)
    n = x.shape[dim]
    if np.ndim(where):
        edges = [0, *(slice(None, int(i)).indices(n)[1] for i in where), n]
    else:
        each, more = divmod(n, int(where))
        if even and more:
            raise ArgumentError(f"cannot split {n} into {where} equal parts: use array_split")
        edges = [k * each + min(k, more) for k in range(int(where) + 1)]
    before = (slice(None),) * dim
    return [x[(*before, slice(lo, max(lo, hi)))] for lo, hi in pairwise(edges)]


def _lower(a: Any, which: str) -> Any:
    """A matrix of which the lower triangle counts, as decompositions here take it."""
    if which.upper() not in ("L", "U"):
        raise ArgumentError(f"unknown triangle {which!r}; known: 'L', 'U'")
    return a if which.upper() == "L" else a.conj().mT


def _norm(xp: Any, x: Any, ord: Any, axis: Any, keepdims: bool) -> Any:
    """``numpy.linalg.norm``: of vectors, or of matrices if two dims are named, or ord and two dims given."""
    if axis is None and (ord is None or x.ndim == 1):
        return xp.linalg.vector_norm(x, axis=None, keepdims=keepdims, ord=2 if ord is None else ord)
    dims = (0, 1) if axis is None else axis
    if axis is None and x.ndim != 2:
        raise ArgumentError(f"cannot take this norm of {x.ndim} dims: name one or two with axis=")
    if not isinstance(dims, (tuple, list)) or len(dims) == 1:
        return xp.linalg.vector_norm(x, axis=dims, keepdims=keepdims, ord=2 if ord is None else ord)
    first, second = (dim_of(i, x.ndim) for i in dims)
    ends = xp.moveaxis(x, (first, second), (-2, -1))
    out = xp.linalg.matrix_norm(ends, ord="fro" if ord is None else ord)
    return xp.expand_dims(out, axis=tuple(sorted((first, second)))) if keepdims else out


def _unique(
    xp: Any, ar: Any, return_index: bool = False, return_inverse: bool = False,
    return_counts: bool = False, axis: int | None = None, *, equal_nan: bool = True,
    sorted: bool = True,
) -> Any:  # fmt: skip
    """``numpy.unique``, whose NaN are one value unless ``equal_nan`` is false."""
    if axis is not None:
        raise ArgumentTypeError(
            "cannot use axis= in unique of a global array: rows are not compared; use unique of a column"
        )
    if return_index or return_inverse:
        values, index, inverse, counts = xp.unique_all(ar)
    else:
        (values, counts), index, inverse = xp.unique_counts(ar), None, None
    extra = 0
    if equal_nan and number_kind(values.dtype) in "fc" and values.size:
        extra = max(0, int(xp.sum(xp.isnan(values), dtype=np.int64)) - 1)
    if extra:
        n = values.size - extra
        last = xp.sum(counts[n - 1 :], keepdims=True).settled()
        counts = xp.concat([counts[: n - 1], last])
        values = values[:n]
        index = None if index is None else index[:n]
        inverse = None if inverse is None else xp.minimum(inverse, n - 1)
    more = (index, return_index), (inverse, return_inverse), (counts, return_counts)
    asked = [one for one, is_asked in more if is_asked]
    return (values, *asked) if asked else values
