"""Joins by name, by a function of NumPy or of ``pgas``, and what they are of so many operands."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError
from redist.pgas.elementwise import binary, unary
from redist.pgas.joins.fixed_join import as_fixed

FOLDED = (
    "add", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor",
    "maximum", "minimum", "multiply", "subtract",
)  # fmt: skip
"""Functions of two operands that join any number: the first two, then the result and the third, and so on."""


def _copy(x: Any) -> Any:
    return x


NAMES: dict[str, tuple[Callable[..., Any], int]] = {
    "copy": (_copy, 1),
    **{name: (getattr(unary, name), 1) for name in unary.__all__},
    **{name: (getattr(binary, name), 2) for name in binary.__all__},
}
"""Every join that has a name, and of how many operands it is."""


def find_join(what: str, join: Any, n_operands: int) -> tuple[Callable[..., Any], bool]:
    """**Local.** The function that joins so many operands; whether it does the same in every call.

    ``what`` begins an error, after "cannot".

    >>> find_join("join", "multiply", 3)[1], find_join("join", lambda a, b: a - b, 2)[1]
    (True, True)
    """
    if isinstance(join, str):
        if join not in NAMES:
            raise ArgumentError(
                f"cannot {what}: no join is called {join!r}; use a name of an element-wise function, as "
                "'multiply' or 'subtract', or a function of the operands' elements"
            )
        return _of_operands(what, join, n_operands), True
    if isinstance(join, np.ufunc):
        if join.__name__ in FOLDED:
            return _of_operands(what, join.__name__, n_operands), True
        if join.signature is not None or (join.nin, join.nout) != (n_operands, 1):
            raise ArgumentError(
                f"cannot {what}: numpy.{join.__name__} does not join {n_operands} elements into one"
            )
        return join, True
    if not callable(join):
        raise ArgumentTypeError(
            f"cannot {what}: the join is {type(join).__name__}, not a function or a name of one"
        )
    for name, (function, _) in NAMES.items():
        if join is function:
            return _of_operands(what, name, n_operands), True
    fixed = as_fixed(join)
    return (join, False) if fixed is None else (fixed, True)


def _of_operands(what: str, name: str, n_operands: int) -> Callable[..., Any]:
    function, n = NAMES[name]
    if name in FOLDED:
        return _folded(function)
    if n != n_operands:
        raise ArgumentError(
            f"cannot {what}: {name} joins {n} operand{'s' * (n > 1)}, not {n_operands}"
        )
    return function


@lru_cache(maxsize=64)
def _folded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of two as a function of any number."""
    return lambda *elements: reduce(function, elements)
