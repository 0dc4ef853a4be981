"""The arrays that a call hands over: are they this rank's tiles?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType

Array = NDArray[Any]
Shape = tuple[int, ...]


def as_tile(array: Any, shape: Shape | None, t: ArrayType, what: str) -> Array | None:
    """The array, with NumPy's dtype for t's elements; an error if it is not a tile of type t.

    >>> from redist.layout.mesh import Mesh
    >>> t = ArrayType.parse("f32[4{x}]", Mesh(x=2))
    >>> as_tile(np.zeros(3, "f4"), (2,), t, "source tile")
    Traceback (most recent call last):
    redist.errors.RequestError: float32[3] is no source tile: f32[4{x}] puts float32[2] here
    """
    if shape is None:
        if array is not None:
            raise RequestError(f"no {what} is wanted here: the rank is not in the mesh; pass None")
        return None
    if not isinstance(array, (np.ndarray, np.generic)):
        kind = "None" if array is None else f"a {type(array).__name__}"
        raise RequestError(f"{kind} is no {what}: need a NumPy array {t.dtype}{list(shape)}")
    array = np.asarray(array)
    dtype = t.dtype.to_numpy()
    same = array.dtype == dtype or array.dtype.name == t.dtype.extended_name
    if not same or array.shape != shape:
        raise RequestError(
            f"{array.dtype}{list(array.shape)} is no {what}: {t} puts {dtype}{list(shape)} here"
        )
    return array if array.dtype == dtype else array.view(dtype)


def check_source(source: Array, donate: bool, what: str) -> None:
    """An error if a tile cannot be donated."""
    if donate and not source.flags.writeable:
        raise RequestError(f"the {what} is read-only and cannot be donated")


def check_out(out: Array, what: str) -> None:
    """An error if a result cannot be written there."""
    if not out.flags.writeable:
        raise RequestError(f"{what} is read-only")


def check_apart(sources: Mapping[str, Array | None], outs: Mapping[str, Array | None]) -> None:
    """An error if a result would be written over a source tile, or over another result."""
    seen = [(f"the source tile{name}", a) for name, a in sources.items() if a is not None]
    for name, out in outs.items():
        if out is None:
            continue
        for what, other in seen:
            if np.may_share_memory(other, out):
                raise RequestError(f"out{name} overlaps {what}")
        seen.append((f"out{name}", out))


def result_dtype(source: Array | None, dtype: DType) -> np.dtype[Any]:
    """The dtype of a new tile: the source's, where ``ml_dtypes`` has a name for it."""
    if source is not None and source.dtype.name == dtype.extended_name:
        return source.dtype
    return dtype.to_numpy()
