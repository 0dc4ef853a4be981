"""The place of a named tensor in a stored array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from redist.errors import ShapeError


@dataclass(frozen=True, slots=True)
class Part:
    """A named tensor inside a stored array, digit by digit.

    ``digits`` are sizes, and their product is the size of the tensor: in C order it is an array of shape
    ``digits``. Digit ``j`` runs along the stored dim ``dims[j]``, and one step of it goes ``steps[j]``
    indices along that dim. The tensor begins at index ``starts[d]`` of every stored dim ``d``. No digit
    belongs to two dims of the tensor.

    >>> from redist.names import Names
    >>> names = Names("*.qkv[2*(q|64|64), :] = *.q, *.k, *.v")
    >>> names.parts_of("a.qkv", (768, 512))[1]
    Part(name='a.k', shape=(128, 512), digits=(2, 64, 512), dims=(0, 0, 1), steps=(384, 1, 1),
         starts=(256, 0))
    """

    name: str
    shape: tuple[int, ...]
    digits: tuple[int, ...]
    dims: tuple[int, ...]
    steps: tuple[int, ...]
    starts: tuple[int, ...]


def whole(name: str, shape: Sequence[int]) -> Part:
    """The part that is the whole stored tensor, for a tensor that is stored under its own name.

    >>> whole("norm", (8,))
    Part(name='norm', shape=(8,), digits=(8,), dims=(0,), steps=(1,), starts=(0,))
    """
    sizes = tuple(int(size) for size in shape)
    n = len(sizes)
    return Part(name, sizes, sizes, tuple(range(n)), (1,) * n, (0,) * n)


def part_view(part: Part, array: NDArray[Any]) -> NDArray[Any]:
    """The elements of a part, as a view of the stored array; its shape is ``part.digits``.

    ``part_view(part, array).reshape(part.shape)`` is the named tensor, and
    ``part_view(part, array)[...] = tensor.reshape(part.digits)`` writes it.

    >>> from redist.names import Names
    >>> stored = np.arange(12).reshape(6, 2)
    >>> part = Names("kernel[2*(1|a), m] = b[2, m], w[m, 2*a]").parts_of("kernel", (6, 2))[1]
    >>> part_view(part, stored).reshape(part.shape)
    array([[ 2,  4,  8, 10],
           [ 3,  5,  9, 11]])
    """
    last = list(part.starts)
    for size, dim, step in zip(part.digits, part.dims, part.steps, strict=True):
        last[dim] += (size - 1) * step
    inside = len(last) == array.ndim and all(i < n for i, n in zip(last, array.shape, strict=True))
    if not inside and 0 not in part.digits:
        raise ShapeError(
            f"cannot view {part.name!r} in an array of {array.shape}: it ends at {last}"
        )
    strides = [array.strides[dim] * step for dim, step in zip(part.dims, part.steps, strict=True)]
    if 0 in part.digits:
        return np.empty(part.digits, array.dtype)
    # Slices of length 1 stand where the part begins.
    first = array[tuple(slice(start, start + 1) for start in part.starts)]
    return as_strided(first, part.digits, strides)
