"""Operands must be global arrays: one error where they are not."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from redist.errors import RequestError
from redist.pgas.tiles.tiled import Tiled

OF_ARRAYS = (
    "all", "any", "argmax", "argmin", "argsort", "astype", "broadcast_to", "count_nonzero",
    "cumulative_prod", "cumulative_sum", "diff", "empty_like", "expand_dims", "flip",
    "full_like", "matrix_transpose", "max", "mean", "min", "moveaxis", "nonzero", "ones_like",
    "permute_dims", "prod", "repeat", "reshape", "roll", "searchsorted", "sort", "squeeze", "std",
    "sum", "take", "take_along_axis", "tile", "tril", "triu", "unique_all", "unique_counts",
    "unique_inverse", "unique_values", "unstack", "var", "zeros_like",
)  # fmt: skip
"""Functions of the namespace that take one."""
OF_SEVERAL = ("broadcast_arrays", "meshgrid")
"""Functions that take any number of them."""


def of_array(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with an error of its own for what is not a global array."""

    @wraps(function)
    def checked(x: Any, /, *args: Any, **options: Any) -> Any:
        check_arrays(function.__name__, x)
        return function(x, *args, **options)

    return checked


def of_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a function of any number of global arrays."""

    @wraps(function)
    def checked(*arrays: Any, **options: Any) -> Any:
        check_arrays(function.__name__, *arrays)
        return function(*arrays, **options)

    return checked


def check_arrays(name: str, *arrays: Any) -> None:
    """An error where one is no global array."""
    for x in arrays:
        if not isinstance(x, Tiled):
            raise RequestError(
                f"cannot {name} {type(x).__name__}: it is no global array; "
                "make it one with pgas.asarray"
            )
