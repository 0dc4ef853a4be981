"""Global arrays in the style of the array API standard: NumPy's functions over the ranks of a job.

In an SPMD program::

    from redist import pgas

    a = pgas.zeros((4096, 4096), type="{x}, {}")
    b = pgas.sin(a) + 1
    print(b.type, float(pgas.sum(b)))

Tiles lie in memory, or on the ranks' GPUs: ``pgas.zeros(shape, device="cuda")``, ``a.to_device("cuda")``.
"""

# ruff: noqa: I001  (names stand side by side)
from typing import Any as _Any

import numpy as _np

from redist.pgas import fft
from redist.pgas import linalg
from redist.pgas import random
from redist.pgas.array import Array
from redist.pgas.tiles.move_together import move_together
from redist.pgas.creation import (
    arange, asarray, empty, empty_like, eye, from_dlpack, from_function, from_local, full,
    full_like, linspace, ones, ones_like, zeros, zeros_like,
)  # fmt: skip
from redist.pgas.products.einsum import einsum
from redist.pgas.elementwise.apply import astype
from redist.pgas.elementwise.functions import FUNCTIONS as _FUNCTIONS
from redist.pgas.elementwise.functions import clip, where
from redist.pgas.info import DTYPES as _DTYPES
from redist.pgas.info import (
    API_VERSIONS, __array_namespace_info__, can_cast, finfo, iinfo, isdtype, result_type,
)  # fmt: skip
from redist.pgas.shapes.manipulation import (
    broadcast_arrays, broadcast_to, concat, diff, expand_dims, flip, matrix_transpose, meshgrid,
    moveaxis, nonzero, permute_dims, repeat, reshape, roll, squeeze, stack, take,
    take_along_axis, tile, tril, triu, unstack,
)  # fmt: skip
from redist.pgas.suggestions import missing as _missing
from redist.pgas.tiles.array_arguments import OF_ARRAYS as _OF_ARRAYS
from redist.pgas.tiles.array_arguments import OF_SEVERAL as _OF_SEVERAL
from redist.pgas.tiles.array_arguments import of_array as _of_array
from redist.pgas.tiles.array_arguments import of_arrays as _of_arrays
from redist.pgas.products.named import matmul, tensordot, vecdot
from redist.pgas.reductions.named import (
    all, any, argmax, argmin, count_nonzero, cumulative_prod, cumulative_sum, max, mean, min,
    prod, std, sum, var,
)  # fmt: skip
from redist.pgas.ordering.searching import searchsorted
from redist.pgas.ordering.sorting import argsort, sort
from redist.pgas.ordering.uniques import unique_all, unique_counts, unique_inverse, unique_values

__all__ = [
    "API_VERSIONS", "Array", "__array_namespace_info__", "all", "any", "arange", "argmax",
    "argmin", "argsort", "asarray", "astype", "broadcast_arrays", "broadcast_to", "can_cast",
    "clip", "concat", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "e",
    "einsum", "empty", "empty_like", "expand_dims", "eye", "fft", "finfo", "flip",
    "from_dlpack", "from_function", "from_local", "full", "full_like", "iinfo", "inf",
    "isdtype", "linalg", "linspace", "matmul", "matrix_transpose", "max", "mean", "meshgrid",
    "min", "move_together", "moveaxis", "nan", "newaxis", "nonzero", "ones", "ones_like",
    "permute_dims", "pi", "prod", "random", "repeat", "reshape", "result_type", "roll",
    "searchsorted", "sort", "squeeze", "stack", "std", "sum", "take", "take_along_axis",
    "tensordot", "tile", "tril", "triu", "unique_all", "unique_counts", "unique_inverse",
    "unique_values", "unstack", "var", "vecdot", "where", "zeros", "zeros_like",
]  # fmt: skip
"""Beside these: the element-wise functions and the dtypes of the standard, by their names."""

__array_api_version__ = "2024.12"
e, pi, inf, nan, newaxis = _np.e, _np.pi, _np.inf, _np.nan, None
globals().update(_FUNCTIONS)
globals().update(_DTYPES)
globals().update({_name: _of_array(globals()[_name]) for _name in _OF_ARRAYS})
globals().update({_name: _of_arrays(globals()[_name]) for _name in _OF_SEVERAL})


def __getattr__(name: str) -> _Any:
    raise AttributeError(_missing("pgas", name))
