"""Global arrays in the style of the array API standard: NumPy's functions over the ranks of a job.

In an SPMD program::

    from redist import pgas

    a = pgas.zeros((4096, 4096), type="{x}, {}")
    b = pgas.sin(a) + 1
    print(b.type, float(pgas.sum(b)))
"""

import numpy as _np

from redist.pgas.array import Array
from redist.pgas.batches import move_together
from redist.pgas.creation import (
    arange, asarray, empty, empty_like, eye, from_dlpack, from_function, from_local, full, full_like, linspace,
    ones, ones_like, zeros, zeros_like,
)  # fmt: skip
from redist.pgas.elementwise import astype
from redist.pgas.functions import FUNCTIONS as _FUNCTIONS
from redist.pgas.functions import clip, where
from redist.pgas.info import (
    API_VERSIONS, DTYPES as _DTYPES, __array_namespace_info__, can_cast, finfo, iinfo, isdtype,
    result_type,
)  # fmt: skip
from redist.pgas.manipulation import (
    broadcast_arrays, broadcast_to, concat, diff, expand_dims, flip, matrix_transpose, meshgrid,
    moveaxis, nonzero, permute_dims, repeat, reshape, roll, squeeze, stack, take, take_along_axis, tile,
    tril, triu, unstack,
)  # fmt: skip
from redist.pgas.reductions import (
    all, any, argmax, argmin, count_nonzero, cumulative_prod, cumulative_sum, max, mean, min, prod,
    std, sum, var,
)  # fmt: skip

__array_api_version__ = "2024.12"
e, pi, inf, nan, newaxis = _np.e, _np.pi, _np.inf, _np.nan, None
globals().update(_FUNCTIONS)
globals().update(_DTYPES)
from redist.pgas.searching import searchsorted
from redist.pgas.sorting import argsort, sort
from redist.pgas.uniques import unique_all, unique_counts, unique_inverse, unique_values
from redist.pgas.einsums import einsum
from redist.pgas.products import matmul, tensordot, vecdot

from redist.pgas import fft, linalg, random  # isort: skip
