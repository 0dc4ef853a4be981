"""NumPy's own functions on global arrays: ``np.sin(a)`` works, what would gather is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.errors import ArgumentTypeError
from redist.pgas.elementwise.apply import OPERANDS, apply
from redist.pgas.elementwise.standard_limits import function_on_tiles
from redist.pgas.products.matmul import matmul

REDUCTIONS = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_or": "any",
    "logical_and": "all",
}  # fmt: skip

IN_PLACE = {
    "add": "+=", "subtract": "-=", "multiply": "*=", "divide": "/=", "floor_divide": "//=",
    "remainder": "%=", "power": "**=", "bitwise_and": "&=", "bitwise_or": "|=", "bitwise_xor": "^=",
    "left_shift": "<<=", "right_shift": ">>=", "matmul": "@=",
}  # fmt: skip
"""NumPy's functions, and the operators that write into their first operand."""


def call_ufunc(
    ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """**Collective** if operands must move. Answer ``numpy.<ufunc>(...)`` of global arrays."""
    if method == "__call__" and not options:
        if ufunc is np.matmul:
            return matmul(*inputs)
        if ufunc.signature is None and ufunc.nout == 1:
            if not all(isinstance(x, OPERANDS) for x in inputs):
                return NotImplemented
            return apply(function_on_tiles(ufunc.__name__), *inputs)
    name = ufunc.__name__ + ("" if method == "__call__" else f".{method}")
    said = f"cannot use numpy.{name} on a global array"
    if options:
        said += f" with {', '.join(options)}="
    if method == "__call__" and "out" in options:
        operands = ", ".join("abc"[: ufunc.nin])
        sign = IN_PLACE.get(ufunc.__name__)
        change = "" if sign is None else f"a {sign} b to change a, or "
        raise ArgumentTypeError(f"{said}; write {change}out[...] = numpy.{name}({operands})")
    if method == "reduce" and ufunc.__name__ in REDUCTIONS:
        raise ArgumentTypeError(f"{said}; write pgas.{REDUCTIONS[ufunc.__name__]}")
    raise ArgumentTypeError(f"{said}; write pgas's own functions, or use a.gather() or a.local")
