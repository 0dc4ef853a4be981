"""The arrays that a call hands over: are they this rank's tiles?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import RedistError, RequestError, TransferError
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.plan.plan import Plan
from redist.runtime.cuda.arrays import (
    MOST_DIMS,
    as_device,
    current_gpu,
    gpu_of,
    is_device,
    is_read_only,
    overlap,
)
from redist.runtime.cuda.donation import why_kept
from redist.runtime.cuda.kernels.reductions import can_combine
from redist.runtime.schedule.stages import TransferStages

AnyArray = NDArray[Any]
Shape = tuple[int, ...]
Locals = AnyArray | None | Mapping[str, AnyArray | None]
"""What a call takes and gives: a tile, None outside the mesh, or a dict of them."""


class Own(Enum):
    """Says that a call is for the transfer's own buffers."""

    BUFFERS = 0


OWN = Own.BUFFERS


@dataclass(frozen=True, slots=True)
class Operands:
    """The arrays of a transfer's calls: by name in a batch, one without a name else."""

    route: TransferStages
    names: tuple[str, ...]
    is_batch: bool

    def on_device(self, local: Any, out: Any) -> bool | None:
        """Whether a call is for arrays of a GPU; None where it has no array at all."""
        arrays = []
        for given in (local, out):
            arrays += list(given.values()) if isinstance(given, Mapping) else [given]
        found = {is_device(array) for array in arrays if array is not None}
        return None if not found else True in found

    def tried(
        self, local: Any, out: Any, on_device: bool, gpu: int | None
    ) -> tuple[list[Any], list[Any], RedistError | None]:
        """Sources and targets, or the error of :meth:`taken`; ``gpu`` is the one that ranks know of."""
        try:
            if on_device and gpu is not None and gpu != current_gpu():
                raise RequestError(
                    f"cannot use GPU {current_gpu()}: the ranks of this communicator know of GPU {gpu} "
                    "here; use that one, or a communicator of its own"
                )
            return *self.taken(local, out, on_device), None
        except RedistError as problem:
            return [], [], problem
        except MemoryError:
            return [], [], TransferError("there is no memory for the target tile")
        except Exception as problem:
            error = RequestError(f"cannot take the arrays of a call: {problem!r}")
            error.__cause__ = problem
            return [], [], error

    def taken(self, local: Any, out: Any, on_device: bool = False) -> tuple[list[Any], list[Any]]:
        """Sources and targets in order, checked; new targets in memory where ``out`` has none."""
        route = self.route
        if on_device:
            check_on_device(route.plans)
        given, results = self._listed(local, "local"), self._listed(out, "out")
        sources: list[Any] = []
        targets: list[Any] = []
        where = [f" {name!r}" if self.is_batch else "" for name in self.names]
        for item, plan in enumerate(route.plans):
            what = f"source tile{where[item]}"
            if on_device:
                check_place(given[item], f"the {what}", plan.donate)
                check_place(results[item], f"out{where[item]}", True)
            source = as_tile(given[item], route.shape_of(item, 0), plan.source, what)
            if plan.donate and source is not None and not getattr(source.flags, "writeable", True):
                raise RequestError(f"the {what} is read-only and cannot be donated")
            if plan.donate and source is not None and on_device:
                check_donated(plan, source, what)
            shape, target = route.shape_of(item, route.last(item)), results[item]
            if target is None and shape is not None and plan.donate and not plan.steps:
                target = source if on_device else np.asarray(given[item])  # it stays where it is
            elif target is None and shape is not None and not on_device:
                target = np.empty(shape, _result_dtype(given[item], plan.target.dtype))
            elif target is not None:
                tile = as_tile(target, shape, plan.target, f"out{where[item]}")
                if on_device:
                    check_early(route, plan, f"out{where[item]}")
                    target = tile
                    steps = zip(tile.strides, tile.shape, strict=True)
                    if tile.size and any(step == 0 and n > 1 for step, n in steps):
                        raise RequestError(f"out{where[item]} has elements in one place")
                if not getattr(target.flags, "writeable", True):
                    raise RequestError(f"out{where[item]} is read-only")
            sources.append(source)
            targets.append(target)
        outs = [t if r is not None else None for t, r in zip(targets, results, strict=True)]
        _check_apart(dict(zip(where, sources, strict=True)), dict(zip(where, outs, strict=True)))
        return sources, targets

    def named(self, arrays: Sequence[AnyArray | None]) -> Any:
        """Arrays in order as a call gives them."""
        return dict(zip(self.names, arrays, strict=True)) if self.is_batch else arrays[0]

    def returned(self, arrays: Sequence[Any], out: Any) -> Any:
        """The same after a call: what was given for a result is the result, whoever's array it is."""
        given = self._listed(out, "out")
        return self.named([a if g is None else g for a, g in zip(arrays, given, strict=True)])

    def _listed(self, arrays: Any, what: str) -> list[Any]:
        if not self.is_batch:
            return [arrays]
        if arrays is None:
            return [None] * len(self.names)
        if not isinstance(arrays, Mapping) or set(arrays) - set(self.names):
            raise RequestError(f"{what} must be a dict with names among {', '.join(self.names)}")
        return [arrays.get(name) for name in self.names]


def as_tile(array: Any, shape: Shape | None, t: ArrayType, what: str) -> Any:
    """The array, in memory with NumPy's dtype for t's elements; an error if it is no tile of type t.

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
    on_device = is_device(array)
    if not on_device and not isinstance(array, (np.ndarray, np.generic)):
        kind = "None" if array is None else f"a {type(array).__name__}"
        raise RequestError(f"{kind} is no {what}: need a NumPy array {t.dtype}{list(shape)}")
    array = _brought(array, what) if on_device else np.asarray(array)
    dtype = t.dtype.to_numpy()
    same = array.dtype == dtype or array.dtype.name == t.dtype.extended_name
    if not same or array.shape != shape:
        raise RequestError(
            f"{array.dtype}{list(array.shape)} is no {what}: {t} puts {dtype}{list(shape)} here"
        )
    return array if on_device or array.dtype == dtype else array.view(dtype)


def _brought(array: Any, what: str) -> Any:
    """An array of a GPU, taken in; an error where its owner refuses, or where another GPU has it."""
    try:
        taken = as_device(array)
    except Exception as problem:
        raise RequestError(f"cannot take the {what} from a GPU: {problem}") from None
    if gpu_of(taken) != current_gpu():
        raise RequestError(
            f"cannot take the {what}: it lies on GPU {gpu_of(taken)}, and GPU {current_gpu()} is the "
            f"current one; call under cupy.cuda.Device({gpu_of(taken)})"
        )
    return taken


def check_place(array: Any, what: str, writes: bool) -> None:
    """An error where an array is not on a GPU though others are, or must be written and cannot be."""
    if array is None:
        return
    if not is_device(array):
        raise RequestError(f"{what} is in memory and other arrays of the call are on a GPU")
    try:
        locked = writes and is_read_only(array)
    except Exception as problem:
        raise RequestError(f"cannot take {what} from a GPU: {problem}") from None
    if locked:
        raise RequestError(f"{what} is read-only")


def check_on_device(plans: Sequence[Plan]) -> None:
    """An error where GPUs cannot do what a plan asks."""
    for plan in plans:
        t = plan.source
        if t.pending_op is not None and not can_combine(t.pending_op, t.dtype):
            raise RequestError(f"cannot take the {t.pending_op} of {t.dtype} on a GPU")
        if len(t.shape) > MOST_DIMS:
            raise RequestError(f"cannot move {len(t.shape)} dims between GPUs: need {MOST_DIMS}")


def check_donated(plan: Plan, source: Any, what: str) -> None:
    """An error where a donated source of a GPU cannot be given up, and the limit has no room for it.

    Then it stays to the end, as if it were kept: ``plan.peak_bytes_if_kept`` is the bound. Nothing is
    given up where a plan has no step: the result is the source.
    """
    limit, bound = plan.limit_bytes, plan.peak_bytes_if_kept
    if limit is None or bound <= limit or not plan.steps:
        return
    problem = why_kept(source)
    if problem:
        raise RequestError(
            f"cannot donate the {what}: {problem}, so that it stays on the GPU, where the transfer then "
            f"takes {bound} bytes and the limit is {limit}; give a CuPy array that owns its memory, or "
            "a limit with room for it"
        )


def check_early(route: TransferStages, plan: Plan, what: str) -> None:
    """An error where a limit has no room for a target of a GPU that is there from the start.

    In memory its pages are given back until they are needed.
    """
    if plan.limit_bytes is not None and route.is_tight:
        raise RequestError(
            f"cannot keep to the limit of {plan.limit_bytes} bytes with {what} on a GPU: it is there "
            "before the plan has room for it; leave it away and take the result"
        )


def _check_apart(
    sources: Mapping[str, AnyArray | None], outs: Mapping[str, AnyArray | None]
) -> None:
    """An error if a result would be written over a source tile, or over another result."""
    seen = [(f"the source tile{name}", a) for name, a in sources.items() if a is not None]
    for name, out in outs.items():
        if out is None:
            continue
        for what, other in seen:
            if overlap(other, out):
                raise RequestError(f"out{name} overlaps {what}")
        seen.append((f"out{name}", out))


def _result_dtype(source: AnyArray | None, dtype: DType) -> np.dtype[Any]:
    """The dtype of a new tile: the source's, where ``ml_dtypes`` has a name for it."""
    if source is not None and source.dtype.name == dtype.extended_name:
        return source.dtype
    return dtype.to_numpy()
