"""What to write instead of a name that is not here: NumPy's names and those of the standard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

RENAMED = {
    "absolute": "abs", "amax": "max", "amin": "min", "arccos": "acos", "arccosh": "acosh",
    "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2",
    "arctanh": "atanh", "argwhere": "nonzero", "concatenate": "concat",
    "conjugate": "conj", "cross": "linalg.cross", "cumprod": "cumulative_prod",
    "cumsum": "cumulative_sum", "diag": "linalg.diagonal", "diagonal": "linalg.diagonal",
    "dot": "matmul", "flatten": "reshape", "fromfunction": "from_function", "hstack": "concat",
    "inner": "vecdot", "invert": "bitwise_invert", "left_shift": "bitwise_left_shift",
    "mod": "remainder", "norm": "linalg.vector_norm", "outer": "linalg.outer", "power": "pow",
    "ravel": "reshape", "right_shift": "bitwise_right_shift", "swapaxes": "permute_dims",
    "trace": "linalg.trace", "transpose": "permute_dims", "true_divide": "divide",
    "unique": "unique_values", "vstack": "concat",
}  # fmt: skip
"""NumPy's name, and ours."""


def explain_missing(where: str, name: str, offered: Mapping[str, Any]) -> str:
    """What an error says of a name that a module or the array does not have; ``offered`` are pgas's own.

    >>> explain_missing("pgas", "concatenate", {})
    "pgas has no 'concatenate'; write pgas.concat"
    >>> explain_missing("an Array", "roll", {"roll": np.roll})
    "an Array has no 'roll'; write pgas.roll"
    >>> explain_missing("pgas", "median", {})
    "pgas has no 'median': it is not offered; numpy.median takes a.gather()"
    """
    said = f"{where} has no {name!r}"
    if name.startswith("_"):
        return said
    if name in RENAMED:
        return f"{said}; write pgas.{RENAMED[name]}"
    if where != "pgas" and callable(offered.get(name)):
        return f"{said}; write pgas.{name}"
    if callable(getattr(np, name, None)):
        return f"{said}: it is not offered; numpy.{name} takes a.gather()"
    return said
