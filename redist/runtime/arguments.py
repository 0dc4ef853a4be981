"""Validation of the arrays passed to a transfer: are they this rank's tiles?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import RedistError, RequestError, TransferError
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.ranks.agreement import ArrayPlace
from redist.runtime.schedule.stages import TransferStages

AnyArray = NDArray[Any]
Shape = tuple[int, ...]
Locals = AnyArray | None | Mapping[str, AnyArray | None]
"""What a call takes and gives: a tile, None outside the mesh, or a dict of them."""


class Own(Enum):
    """Says that a call is for the transfer's own buffers."""

    BUFFERS = 0


OWN = Own.BUFFERS


def place_of(local: Any, out: Any) -> ArrayPlace:
    """**Local.** Where the arrays of a call lie; on GPUs if one does, unknown if there is none."""
    found = ArrayPlace.UNKNOWN
    for given in (local, out):
        for array in given.values() if isinstance(given, Mapping) else (given,):
            if array is not None:
                if is_device(array):
                    return ArrayPlace.GPUS
                found = ArrayPlace.MEMORY
    return found


@dataclass(frozen=True)
class CallArguments:
    """The arrays of a transfer's calls in memory: by name in a batch, else one without a name."""

    schedule: TransferStages
    names: tuple[str, ...]
    is_batch: bool

    def check_call(self, local: Any, out: Any) -> tuple[list[Any], list[Any], RedistError | None]:
        """**Local.** Sources and targets, or the error of :meth:`check_arrays`."""
        try:
            return *self.check_arrays(local, out), None
        except RedistError as problem:
            return [], [], problem
        except MemoryError:
            return [], [], TransferError("there is no memory for the target tile")
        except Exception as problem:
            error = RequestError(f"cannot take the arrays of a call: {problem!r}")
            error.__cause__ = problem
            return [], [], error

    def check_arrays(self, local: Any, out: Any) -> tuple[list[Any], list[Any]]:
        """**Local.** Sources and targets in order; targets that ``out`` lacks are new."""
        given, results = self.in_order(local, "local"), self.in_order(out, "out")
        sources: list[Any] = []
        targets: list[Any] = []
        for item, (array, result) in enumerate(zip(given, results, strict=True)):
            sources.append(self.check_source(item, array))
            targets.append(self.check_target(item, result, array, sources[-1]))
            if result is not None and not getattr(targets[-1].flags, "writeable", True):
                raise RequestError(f"out{self.label(item)} is read-only")
        self._check_apart(
            sources, [t if r is not None else None for t, r in zip(targets, results, strict=True)]
        )
        return sources, targets

    def check_source(self, item: int, array: Any) -> Any:
        """**Local.** A source as a tile; an error if it is none, or is donated and read-only."""
        plan, what = self.schedule.plans[item], f"source tile{self.label(item)}"
        source = self.as_tile(array, self.schedule.shape_of(item, 0), plan.source, what)
        if plan.donate and source is not None and not getattr(source.flags, "writeable", True):
            raise RequestError(f"the {what} is read-only and cannot be donated")
        return source

    def check_target(self, item: int, array: Any, given: Any, source: Any) -> Any:
        """**Local.** The array for a result: the one given, the source if it stays, else a new one."""
        plan, shape = self.schedule.plans[item], self.target_shape(item)
        if array is not None:
            self.as_tile(array, shape, plan.target, f"out{self.label(item)}")
            return array
        if shape is None:
            return None
        if plan.donate and not plan.steps:
            return np.asarray(given)  # it stays where it is
        return np.empty(shape, _result_dtype(given, plan.target.dtype))

    def target_shape(self, item: int) -> Shape | None:
        """The shape of this rank's target tile, None outside the mesh."""
        return self.schedule.shape_of(item, self.schedule.last(item))

    def as_tile(self, array: Any, shape: Shape | None, t: ArrayType, what: str) -> Any:
        """**Local.** The array; an error if it is not a tile of type t in memory."""
        return as_tile(array, shape, t, what)

    def may_overlap(self, a: Any, b: Any) -> bool:
        """**Local.** Whether two arrays may share memory."""
        return bool(np.may_share_memory(a, b))

    def label(self, item: int) -> str:
        """The name of an array as error messages have it."""
        return f" {self.names[item]!r}" if self.is_batch else ""

    def by_name(self, arrays: Sequence[AnyArray | None]) -> Any:
        """Arrays in order as a call gives them."""
        return dict(zip(self.names, arrays, strict=True)) if self.is_batch else arrays[0]

    def results(self, arrays: Sequence[Any], out: Any) -> Any:
        """The same after a call: what was given for a result is the result, whoever's array it is."""
        given = self.in_order(out, "out")
        return self.by_name([a if g is None else g for a, g in zip(arrays, given, strict=True)])

    def try_in_order(self, local: Any, out: Any) -> tuple[list[Any], list[Any]] | None:
        """Both ends of a call in the order of the names; None if they are no ends of one."""
        try:
            return self.in_order(local, "local"), self.in_order(out, "out")
        except RequestError:
            return None

    def in_order(self, arrays: Any, what: str) -> list[Any]:
        """The arrays that a call was given, in the order of the names."""
        if not self.is_batch:
            return [arrays]
        if arrays is None:
            return [None] * len(self.names)
        if arrays.__class__ is dict and tuple(arrays) == self.names:
            return list(arrays.values())
        if not isinstance(arrays, Mapping) or set(arrays) - set(self.names):
            raise RequestError(f"{what} must be a dict with names among {', '.join(self.names)}")
        return [arrays.get(name) for name in self.names]

    def _check_apart(self, sources: Sequence[Any], outs: Sequence[Any]) -> None:
        """An error if a result would be written over a source tile, or over another result."""
        seen = [
            (f"the source tile{self.label(item)}", source)
            for item, source in enumerate(sources)
            if source is not None
        ]
        for item, out in enumerate(outs):
            if out is None:
                continue
            for what, other in seen:
                if self.may_overlap(other, out):
                    raise RequestError(f"out{self.label(item)} overlaps {what}")
            seen.append((f"out{self.label(item)}", out))


def as_tile(array: Any, shape: Shape | None, t: ArrayType, what: str) -> Any:
    """The array, with NumPy's dtype for t's elements; an error if it is not a tile of type t in memory.

    >>> from redist.layout.mesh import Mesh
    >>> t = ArrayType.parse("f32[4{x}]", Mesh(x=2))
    >>> as_tile(np.zeros(3, "f4"), (2,), t, "source tile")
    Traceback (most recent call last):
    redist.errors.RequestError: passed float32[3] as source tile; its tile of f32[4{x}] is float32[2]
    """
    if shape is None:
        if array is not None:
            raise RequestError(f"no {what} is wanted here: the rank is not in the mesh; pass None")
        return None
    if not isinstance(array, (np.ndarray, np.generic)):
        kind = "None" if array is None else _an(type(array).__name__)
        is_global = hasattr(type(array), "gather") and hasattr(type(array), "local")
        hint = "; a.local is this rank's tile, and a.to(type) moves the array" if is_global else ""
        raise RequestError(
            f"{kind} is not a {what}: need a NumPy array {t.dtype}{list(shape)}{hint}"
        )
    refuse_masked(array)
    array = np.asarray(array)
    dtype = check_tile(array, shape, t, what)
    return array if array.dtype == dtype else array.view(dtype)


def refuse_masked(array: Any) -> None:
    """**Local.** Raise for an array of ``numpy.ma``: its mask would be lost.

    >>> refuse_masked(np.ma.masked_less([1, 2], 2))
    Traceback (most recent call last):
    redist.errors.RequestError: cannot take a MaskedArray: its mask would be lost; move a.data and a.mask \
apart, or give a.filled(value)
    """
    if type(array) is not np.ndarray and isinstance(array, np.ndarray) and hasattr(array, "mask"):
        raise RequestError(
            f"cannot take {_an(type(array).__name__)}: its mask would be lost; move a.data and a.mask "
            "apart, or give a.filled(value)"
        )


def check_tile(array: Any, shape: Shape, t: ArrayType, what: str) -> np.dtype[Any]:
    """NumPy's dtype for t's elements; an error unless an array has this shape and such elements."""
    dtype = t.dtype.to_numpy()
    same = array.dtype == dtype or array.dtype.name == t.dtype.extended_name
    if not same or array.shape != shape:
        raise RequestError(
            f"passed {array.dtype}{list(array.shape)} as {what}; its tile of {t} is "
            f"{dtype}{list(shape)}" + why_not_balanced(array.shape, shape, t)
        )
    return dtype


def _an(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def why_not_balanced(given: Shape, shape: Shape, t: ArrayType) -> str:
    """What to say of a tile that ``numpy.array_split`` would give, where redist cuts another way; or nothing.

    >>> from redist.layout.mesh import Mesh
    >>> print(why_not_balanced((9,), (10,), ArrayType.parse("f64[37{x}]", Mesh(x=4))))
    ; redist cuts 37 into 10, 10, 10, 7, not into 10, 9, 9, 9 as numpy.array_split does: \
redist.box_of(type, rank) gives each rank's indices, or pad every tile to 10 and the dim to 40
    """
    if len(given) != len(shape):
        return ""
    for dim, (have, want) in enumerate(zip(given, shape, strict=True)):
        size, n_tiles = t.shape[dim], t.cuts[dim]
        least, more = divmod(size, n_tiles)
        if have != want and more and have == least:
            ours = [hi - lo for lo, hi in pairwise(t.cut(dim).edges().tolist())]
            theirs = [least + (i < more) for i in range(n_tiles)]
            return (
                f"; redist cuts {size} into {_listed(ours)}, not into {_listed(theirs)} as "
                "numpy.array_split does: redist.box_of(type, rank) gives each rank's indices, or pad "
                f"every tile to {least + 1} and the dim to {(least + 1) * n_tiles}"
            )
    return ""


def _listed(sizes: list[int]) -> str:
    """Sizes in a row, the middle of many left out."""
    shown = [*map(str, sizes[:4]), "...", str(sizes[-1])] if len(sizes) > 8 else map(str, sizes)
    return ", ".join(shown)


def _result_dtype(source: AnyArray | None, dtype: DType) -> np.dtype[Any]:
    """The dtype of a new tile: the source's, if ``ml_dtypes`` has a name for it."""
    if source is not None and source.dtype.name == dtype.extended_name:
        return source.dtype
    return dtype.to_numpy()
