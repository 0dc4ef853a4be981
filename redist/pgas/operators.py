"""Python's operators on global arrays, each a NumPy function on the tiles; matrix products too.

Lists, tuples and NumPy arrays are refused by name; any other operand that is neither a number nor a global
array is left to its own operators.
"""

from __future__ import annotations

import numpy as np

from redist.pgas.elementwise.apply import OPERANDS, Number, apply, update
from redist.pgas.elementwise.standard_limits import floor_divide
from redist.pgas.products.matmul import matmul, update_by_product
from redist.pgas.tiles.tiled import T, Tiled

ARRAYS = (Tiled, np.ndarray, list, tuple)
"""Operands of a matrix product; all but global arrays are refused by name."""


class Operators(Tiled):
    """The operators, as in ``a + b``, ``a < b`` and ``a += b``; **collective** if operands must move."""

    __slots__ = ()

    # Arithmetic

    def __add__(self: T, other: T | Number) -> T:
        return apply(np.add, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __radd__(self: T, other: Number) -> T:
        return apply(np.add, other, self) if isinstance(other, OPERANDS) else NotImplemented

    def __iadd__(self: T, other: T | Number) -> T:
        return update(np.add, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __sub__(self: T, other: T | Number) -> T:
        return apply(np.subtract, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rsub__(self: T, other: Number) -> T:
        return apply(np.subtract, other, self) if isinstance(other, OPERANDS) else NotImplemented

    def __isub__(self: T, other: T | Number) -> T:
        return update(np.subtract, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __mul__(self: T, other: T | Number) -> T:
        return apply(np.multiply, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rmul__(self: T, other: Number) -> T:
        return apply(np.multiply, other, self) if isinstance(other, OPERANDS) else NotImplemented

    def __imul__(self: T, other: T | Number) -> T:
        return update(np.multiply, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __truediv__(self: T, other: T | Number) -> T:
        return apply(np.true_divide, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rtruediv__(self: T, other: Number) -> T:
        return apply(np.true_divide, other, self) if isinstance(other, OPERANDS) else NotImplemented

    def __itruediv__(self: T, other: T | Number) -> T:
        return (
            update(np.true_divide, self, other) if isinstance(other, OPERANDS) else NotImplemented
        )

    def __floordiv__(self: T, other: T | Number) -> T:
        return apply(floor_divide, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rfloordiv__(self: T, other: Number) -> T:
        return apply(floor_divide, other, self) if isinstance(other, OPERANDS) else NotImplemented

    def __ifloordiv__(self: T, other: T | Number) -> T:
        return update(floor_divide, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __mod__(self: T, other: T | Number) -> T:
        return apply(np.remainder, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rmod__(self: T, other: Number) -> T:
        return apply(np.remainder, other, self) if isinstance(other, OPERANDS) else NotImplemented

    def __imod__(self: T, other: T | Number) -> T:
        return update(np.remainder, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __pow__(self: T, other: T | Number) -> T:
        return apply(np.power, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rpow__(self: T, other: Number) -> T:
        return apply(np.power, other, self) if isinstance(other, OPERANDS) else NotImplemented

    def __ipow__(self: T, other: T | Number) -> T:
        return update(np.power, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __and__(self: T, other: T | Number) -> T:
        return apply(np.bitwise_and, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rand__(self: T, other: Number) -> T:
        return apply(np.bitwise_and, other, self) if isinstance(other, OPERANDS) else NotImplemented

    def __iand__(self: T, other: T | Number) -> T:
        return (
            update(np.bitwise_and, self, other) if isinstance(other, OPERANDS) else NotImplemented
        )

    def __or__(self: T, other: T | Number) -> T:
        return apply(np.bitwise_or, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __ror__(self: T, other: Number) -> T:
        return apply(np.bitwise_or, other, self) if isinstance(other, OPERANDS) else NotImplemented

    def __ior__(self: T, other: T | Number) -> T:
        return update(np.bitwise_or, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __xor__(self: T, other: T | Number) -> T:
        return apply(np.bitwise_xor, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rxor__(self: T, other: Number) -> T:
        return apply(np.bitwise_xor, other, self) if isinstance(other, OPERANDS) else NotImplemented

    def __ixor__(self: T, other: T | Number) -> T:
        return (
            update(np.bitwise_xor, self, other) if isinstance(other, OPERANDS) else NotImplemented
        )

    def __lshift__(self: T, other: T | Number) -> T:
        return apply(np.left_shift, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rlshift__(self: T, other: Number) -> T:
        return apply(np.left_shift, other, self) if isinstance(other, OPERANDS) else NotImplemented

    def __ilshift__(self: T, other: T | Number) -> T:
        return update(np.left_shift, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rshift__(self: T, other: T | Number) -> T:
        return apply(np.right_shift, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __rrshift__(self: T, other: Number) -> T:
        return apply(np.right_shift, other, self) if isinstance(other, OPERANDS) else NotImplemented

    def __irshift__(self: T, other: T | Number) -> T:
        return (
            update(np.right_shift, self, other) if isinstance(other, OPERANDS) else NotImplemented
        )

    # Comparisons

    def __eq__(self: T, other: T | Number) -> T:  # type: ignore[override]
        return apply(np.equal, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __ne__(self: T, other: T | Number) -> T:  # type: ignore[override]
        return apply(np.not_equal, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __lt__(self: T, other: T | Number) -> T:
        return apply(np.less, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __le__(self: T, other: T | Number) -> T:
        return apply(np.less_equal, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __gt__(self: T, other: T | Number) -> T:
        return apply(np.greater, self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __ge__(self: T, other: T | Number) -> T:
        return (
            apply(np.greater_equal, self, other) if isinstance(other, OPERANDS) else NotImplemented
        )

    __hash__ = None  # type: ignore[assignment]

    # One operand

    def __neg__(self: T) -> T:
        return apply(np.negative, self)

    def __pos__(self: T) -> T:
        return apply(np.positive, self)

    def __abs__(self: T) -> T:
        return apply(np.absolute, self)

    def __invert__(self: T) -> T:
        return apply(np.invert, self)

    # Matrices

    def __matmul__(self: T, other: T) -> T:
        return matmul(self, other) if isinstance(other, ARRAYS) else NotImplemented

    def __rmatmul__(self: T, other: T) -> T:
        return matmul(other, self) if isinstance(other, ARRAYS) else NotImplemented

    def __imatmul__(self: T, other: T) -> T:
        return update_by_product(self, other) if isinstance(other, ARRAYS) else NotImplemented
