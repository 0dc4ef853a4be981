"""Small words that the texts of programs share: sizes, identities of reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from redist.layout.dtype import DType
from redist.lower.calls import Axes


def arguments(sizes: Sequence[int]) -> str:
    """Sizes as arguments of a call.

    >>> arguments((2, 3)), arguments(())
    ('2, 3', '()')
    """
    return ", ".join(map(str, sizes)) if sizes else "()"


def size_of(axes: Axes) -> int:
    """Members of a group over some axes."""
    return math.prod(axis.size for axis in axes)


def identity_text(op: str, dtype: DType) -> str:
    """The value that changes nothing when it is combined, as text.

    >>> identity_text("max", DType.parse("i8")), identity_text("min", DType.parse("f32"))
    ('-128', 'np.inf')
    """
    match op, dtype.to_numpy().kind:
        case "sum", _:
            return "0"
        case "prod", _:
            return "1"
        case _, "b":
            return str(op == "min")
        case _, "f":
            return "-np.inf" if op == "max" else "np.inf"
        case _:
            info = np.iinfo(dtype.to_numpy().name)
            return str(info.min if op == "max" else info.max)
