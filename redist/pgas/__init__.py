"""Global arrays in the style of the array API standard: NumPy's functions over the ranks of a job.

In an SPMD program::

    from redist import pgas

    a = pgas.zeros((4096, 4096), type="{x}, {}")
    b = pgas.sin(a) + 1
    print(b.type, float(pgas.sum(b)))

Tiles lie in memory, or on the ranks' GPUs: ``pgas.zeros(shape, device="cuda")``, ``a.to_device("cuda")``.
"""

# ruff: noqa: I001  (names stand side by side)
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING, NoReturn as _NoReturn

from numpy import (
    bool, complex64, complex128, e, float16, float32, float64, inf, int8, int16, int32, int64, nan,
    newaxis, pi, uint8, uint16, uint32, uint64,
)  # fmt: skip

import redist.runtime.mpi_library as _mpi_library  # noqa: F401  (first: it says what is missing)
from redist.errors import MissingNameError as _MissingNameError
from redist.pgas import fft, linalg, random
from redist.pgas.call_check import check_calls as _check_calls
from redist.pgas.global_array import Array
from redist.pgas.conversion import array, asarray, from_dlpack, from_local
from redist.pgas.creation import (
    arange, empty, empty_like, eye, from_function, full, full_like, linspace, ones, ones_like,
    zeros, zeros_like,
)  # fmt: skip
from redist.pgas.elementwise.apply import astype
from redist.pgas.elementwise.binary import (
    add, atan2, bitwise_and, bitwise_left_shift, bitwise_or, bitwise_right_shift, bitwise_xor,
    copysign, divide, equal, floor_divide, greater, greater_equal, hypot, less, less_equal,
    logaddexp, logical_and, logical_or, logical_xor, maximum, minimum, multiply, nextafter,
    not_equal, pow, remainder, subtract,
)  # fmt: skip
from redist.pgas.elementwise.binary import isclose
from redist.pgas.elementwise.binary import clip, nan_to_num, where
from redist.pgas.elementwise.unary import (
    abs, acos, acosh, asin, asinh, atan, atanh, bitwise_invert, ceil, conj, cos, cosh, exp, expm1,
    floor, imag, isfinite, isinf, isnan, log, log1p, log2, log10, logical_not, negative, positive,
    real, reciprocal, round, sign, signbit, sin, sinh, sqrt, square, tan, tanh, trunc,
)  # fmt: skip
from redist.pgas.indexing.boolean import compress, nonzero
from redist.pgas.namespace_info import (
    API_VERSIONS, __array_namespace_info__, can_cast, finfo, iinfo, isdtype, result_type,
)  # fmt: skip
from redist.pgas.joins.ein import ein
from redist.pgas.linalg.powers import diag
from redist.pgas.numpy_functions import TAKEN as _NUMPY_TAKEN
from redist.pgas.ordering.searching import digitize, isin, searchsorted
from redist.pgas.ordering.sorting import argsort, sort
from redist.pgas.ordering.topk import topk
from redist.pgas.ordering.uniques import unique_all, unique_counts, unique_inverse, unique_values
from redist.pgas.products.einsum import einsum
from redist.pgas.products.convolve import convolve
from redist.pgas.products.matmul import matmul, tensordot, vecdot
from redist.pgas.reductions import (
    all, allclose, any, argmax, argmin, count_nonzero, cumulative_prod, cumulative_sum, max, mean, min,
    prod, std, sum, var,
)  # fmt: skip
from redist.pgas.shapes.join import concat, stack
from redist.pgas.shapes.pad import pad
from redist.pgas.shapes.permute import (
    expand_dims, matrix_transpose, moveaxis, permute_dims, squeeze,
)  # fmt: skip
from redist.pgas.shapes.repeat import (
    broadcast_arrays, broadcast_shapes, broadcast_to, meshgrid, tile,
)  # fmt: skip
from redist.pgas.shapes.shift import diff, flip, roll
from redist.pgas.shapes.take import take, take_along_axis, unstack
from redist.pgas.shapes.diagonals import tril, triu
from redist.pgas.statistics import (
    average, bincount, corrcoef, cov, histogram, median, nanmax, nanmean, nanmedian, nanmin,
    nanpercentile, nanprod, nanquantile, nanstd, nansum, nanvar, percentile, ptp, quantile,
)  # fmt: skip
from redist.pgas.suggestions import explain_missing as _explain_missing
from redist.pgas.kinds import dtype_asked as _dtype_asked
from redist.pgas.tiles.move import move_together
from redist.pgas.tiles.reshape import reshape

if _TYPE_CHECKING:
    bfloat16: type
    float8_e4m3fn: type
    float8_e5m2: type
    from redist.pgas.files.column_names import column_names
    from redist.pgas.files.csv import read_csv
    from redist.pgas.files.csv_out import write_csv
    from redist.pgas.files.npy import read_npy, write_npy
    from redist.pgas.files.parquet import read_parquet, write_parquet
    from redist.pgas.files.zarr_arrays import read_hdf5, read_zarr
    from redist.pgas.files.zarr_out import write_zarr
    from redist.pgas.foreign.dask_arrays import to_dask
    from redist.pgas.foreign.ray_objects import to_ray
    from redist.pgas.gradients.checkpoint import checkpoint
    from redist.pgas.gradients.api import custom_gradient, grad, stop_gradient, value_and_grad
    from redist.pgas.programs.program import repeat, repeat_until
    from redist.pgas.programs.map_tiles import map_tiles
    from redist.pgas.programs.program import program

__all__ = [
    "API_VERSIONS", "Array", "__array_api_version__", "__array_namespace_info__", "abs", "acos", "acosh",
    "add", "all", "allclose", "any", "arange", "argmax", "argmin", "argsort", "array", "asarray", "asin",
    "asinh", "astype", "atan", "atan2", "atanh", "average", "bincount", "bitwise_and", "bitwise_invert",
    "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bool", "broadcast_arrays",
    "broadcast_shapes", "broadcast_to", "can_cast", "ceil", "checkpoint", "clip", "column_names",
    "complex64", "complex128", "compress", "concat", "conj", "convolve", "copysign", "corrcoef", "cos",
    "cosh", "count_nonzero", "cov", "cumulative_prod", "cumulative_sum", "custom_gradient", "diag", "diff",
    "digitize", "divide", "e", "ein", "einsum", "empty", "empty_like", "equal", "exp", "expand_dims",
    "expm1", "eye", "fft", "finfo", "flip", "float16", "float32", "float64", "floor", "floor_divide",
    "from_dlpack", "from_function", "from_local", "full", "full_like", "grad", "greater", "greater_equal",
    "histogram", "hypot", "iinfo", "imag", "inf", "int8", "int16", "int32", "int64", "isclose", "isdtype",
    "isfinite", "isin", "isinf", "isnan", "less", "less_equal", "linalg", "linspace", "log", "log1p",
    "log2", "log10", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "map_tiles",
    "matmul", "matrix_transpose", "max", "maximum", "mean", "median", "meshgrid", "min", "minimum",
    "move_together", "moveaxis", "multiply", "nan", "nan_to_num", "nanmax", "nanmean", "nanmedian",
    "nanmin", "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum", "nanvar", "negative",
    "newaxis", "nextafter", "nonzero", "not_equal", "ones", "ones_like", "pad", "percentile",
    "permute_dims", "pi", "positive", "pow", "prod", "program", "ptp", "quantile", "random", "read_csv",
    "read_hdf5", "read_npy", "read_parquet", "read_zarr", "real", "reciprocal", "remainder", "repeat",
    "repeat_until", "reshape", "result_type", "roll", "round", "searchsorted", "sign", "signbit", "sin",
    "sinh", "sort", "sqrt", "square", "squeeze", "stack", "std", "stop_gradient", "subtract", "sum", "take",
    "take_along_axis", "tan", "tanh", "tensordot", "tile", "to_dask", "to_ray", "topk", "tril", "triu",
    "trunc", "uint8", "uint16", "uint32", "uint64", "unique_all", "unique_counts", "unique_inverse",
    "unique_values", "unstack", "value_and_grad", "var", "vecdot", "where", "write_csv", "write_npy",
    "write_parquet", "write_zarr", "zeros", "zeros_like",
]  # fmt: skip
"""The names of the standard, Array and what makes arrays from functions and tiles."""

__array_api_version__ = "2025.12"


_LATER = {
    "column_names": "files.column_names", "checkpoint": "gradients.checkpoint",
    "custom_gradient": "gradients.api", "grad": "gradients.api",
    "stop_gradient": "gradients.api", "value_and_grad": "gradients.api",
    "map_tiles": "programs.map_tiles", "program": "programs.program",
    "read_csv": "files.csv", "read_hdf5": "files.zarr_arrays", "read_npy": "files.npy",
    "read_parquet": "files.parquet", "read_zarr": "files.zarr_arrays",
    "repeat": "programs.program", "repeat_until": "programs.program", "to_dask": "foreign.dask_arrays",
    "to_ray": "foreign.ray_objects", "write_csv": "files.csv_out",
    "write_npy": "files.npy", "write_parquet": "files.parquet", "write_zarr": "files.zarr_out",
}  # fmt: skip
"""Files, programs and gradients, a third of all modules: each is loaded when it is first used."""


_SMALL = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Dtypes of ``ml_dtypes``, which need not be installed."""


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> _NoReturn:
    if name in _LATER:
        globals()[name] = getattr(_import_module(f"redist.pgas.{_LATER[name]}"), name)
        return globals()[name]  # type: ignore[misc]
    if name in _SMALL:
        globals()[name] = _dtype_asked(name).type
        return globals()[name]  # type: ignore[misc]
    raise _MissingNameError(_explain_missing("pgas", name, globals(), _NUMPY_TAKEN))


_check_calls(globals())
