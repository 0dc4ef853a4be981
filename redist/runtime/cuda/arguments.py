"""Validation of arrays on a GPU that are passed to a transfer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.plan.plan import Plan
from redist.runtime.arguments import CallArguments, Shape, check_tile
from redist.runtime.copies.gpu_arrays import is_cupy_array, is_device
from redist.runtime.copies.reduce import combines_on_gpu
from redist.runtime.cuda.arrays import (
    MOST_DIMS,
    as_device,
    current_gpu,
    current_stream,
    device_address,
    empty_on_device,
    gpu_of,
    is_read_only,
    overlap,
)
from redist.runtime.schedule.stages import TransferStages
from redist.text.latest import Latest

# Donated arrays of a GPU give their memory back to CuPy's pool, though their owners still hold them.


def why_kept(array: Any) -> str:
    """**Local.** Why the memory of an array of CuPy would stay if it were given up; empty if not."""
    if not array.nbytes:
        return ""
    problem = _not_its_own(array)
    if problem:
        return problem
    return "" if _holders(array) == _alone() else "there are views of it"


def give_up(array: Any) -> None:
    """**Local.** Make an array empty if its memory is its own; the pool has that memory again.

    Views of CuPy keep it alive, and then it stays. What another library made of the array holds the
    array, not its memory, and must not be used again. The pool may lend it to another stream at
    once: what was put onto the current one, and what that waits for, is done before.
    """
    if array.nbytes and not _not_its_own(array):
        current_stream().synchronize()
        _empty(array)


def _not_its_own(array: Any) -> str:
    """Say why emptying an array is not allowed or would free nothing; empty if it is and would."""
    from cupy.cuda.memory import PooledMemory

    if not isinstance(array.data.mem, PooledMemory):
        return "its memory is not of CuPy's pool"
    if array.base is not None:
        return "it is a view"
    return "" if _alone() else "this CuPy cannot empty an array"


def _empty(array: Any) -> None:
    """Let an array forget its memory.

    CuPy has no public way. ``_init`` makes a new array of an old one, but for its shape, to which it
    appends; so the array is one without dims before.
    """
    array._set_shape_and_strides((), (), True, True)
    array._init((0,), array.dtype)


def _holders(array: Any) -> tuple[int, int]:
    """How many hold an array's pointer, and its memory: views have the one or the other."""
    return sys.getrefcount(array.data), sys.getrefcount(array.data.mem)


@lru_cache(maxsize=1)
def _alone() -> tuple[int, int] | None:
    """The holders of an array without views; None where this CuPy cannot empty one."""
    array = empty_on_device((1, 1), np.dtype(np.uint8))
    found = _holders(array)
    memory = array.data.mem
    before = sys.getrefcount(memory)
    try:
        _empty(array)
    except (AttributeError, TypeError, ValueError):
        return None
    is_empty = array.shape == (0,) and len(array.strides) == 1 and array.nbytes == 0
    return found if is_empty and sys.getrefcount(memory) == before - 1 else None


MOST_PASSED = 64
"""Calls whose arrays are remembered as right."""


@dataclass(frozen=True)
class GpuArguments(CallArguments):
    """The arrays of a transfer's calls on GPUs.

    ``gpu`` is the number of the one that the ranks have been told this rank uses, None if it may be any.
    """

    gpu: int | None = None
    _passed: Latest[Any, None] = field(default_factory=lambda: Latest(MOST_PASSED), compare=False)
    """What arrays looked like that were right: those that look the same are right too."""

    def check_arrays(self, local: Any, out: Any) -> tuple[list[Any], list[Any]]:
        """**Local.** Sources and targets in order; a target is None if the executor shall make it."""
        gpu = current_gpu()
        if self.gpu is not None and self.gpu != gpu:
            raise RequestError(
                f"cannot use GPU {gpu}: the ranks of this communicator know of GPU "
                f"{self.gpu} here; use that one, or a communicator of its own"
            )
        given, results = self.in_order(local, "local"), self.in_order(out, "out")
        looks = (gpu, *map(look_of, given), *map(look_of, results))
        is_known = not self._donates and None not in looks
        if is_known and looks in self._passed:
            return given, results
        check_on_device(self.schedule.plans)
        for item, plan in enumerate(self.schedule.plans):
            check_place(given[item], f"the source tile{self.label(item)}", plan.donate)
            check_place(results[item], f"out{self.label(item)}", True)
        checked = super().check_arrays(local, out)
        if is_known:
            self._passed[looks] = None
        return checked

    @cached_property
    def _donates(self) -> bool:
        """Whether a source is given up: then it matters who else holds it."""
        return any(plan.donate for plan in self.schedule.plans)

    def check_source(self, item: int, array: Any) -> Any:
        """**Local.** A source as a tile; an error if it is donated and cannot be."""
        source = super().check_source(item, array)
        plan = self.schedule.plans[item]
        if plan.donate and source is not None:
            check_donated(plan, source, f"source tile{self.label(item)}")
        return source

    def check_target(self, item: int, array: Any, given: Any, source: Any) -> Any:
        """**Local.** The array for a result as a tile; None if the executor shall make it."""
        plan, what = self.schedule.plans[item], f"out{self.label(item)}"
        if array is None:
            return source if plan.donate and not plan.steps else None  # it stays where it is
        tile = self.as_tile(array, self.target_shape(item), plan.target, what)
        check_early(self.schedule, plan, what)
        strides = zip(tile.strides, tile.shape, strict=True)
        if tile.size and any(stride == 0 and n > 1 for stride, n in strides):
            raise RequestError(f"{what} has elements in one place")
        return tile

    def as_tile(self, array: Any, shape: Shape | None, t: ArrayType, what: str) -> Any:
        """**Local.** The array as one of CuPy; an error if it is not a tile of type t on this GPU."""
        if shape is None or not is_device(array):
            return super().as_tile(array, shape, t, what)
        array = _take_in(array, what)
        check_tile(array, shape, t, what)
        return array

    def may_overlap(self, a: Any, b: Any) -> bool:
        """**Local.** Whether two arrays may share memory."""
        return overlap(a, b)


def look_of(array: Any) -> tuple[Any, ...] | None:
    """All that a check asks of an array of CuPy; None if it may ask for more.

    >>> look_of(None), look_of([1.0])
    ((), None)
    """
    if array is None:
        return ()
    if not is_cupy_array(array):
        return None
    return device_address(array), gpu_of(array), array.shape, array.strides, array.dtype


def _take_in(array: Any, what: str) -> Any:
    """Take in an array of a GPU; an error if its owner refuses, or if another GPU holds it."""
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
    """An error if an array is not on a GPU though others are, or must be written and cannot be."""
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
    """An error if GPUs cannot do what a plan asks."""
    for plan in plans:
        t = plan.source
        if t.pending_op is not None and not combines_on_gpu(t.pending_op, t.dtype):
            raise RequestError(f"cannot take the {t.pending_op} of {t.dtype} on a GPU")
        if len(t.shape) > MOST_DIMS:
            raise RequestError(f"cannot move {len(t.shape)} dims between GPUs: need {MOST_DIMS}")


def check_donated(plan: Plan, source: Any, what: str) -> None:
    """An error if a donated source of a GPU cannot be given up, and the limit has no room for it.

    Then it stays to the end, as if it were kept: ``plan.peak_bytes_if_kept`` is the bound. Nothing is
    given up if a plan has no step: the result is the source.
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


def check_early(schedule: TransferStages, plan: Plan, what: str) -> None:
    """An error if a limit has no room for a target of a GPU that is there from the start.

    In memory its pages are given back until they are needed.
    """
    if plan.limit_bytes is not None and schedule.is_tight:
        raise RequestError(
            f"cannot keep to the limit of {plan.limit_bytes} bytes with {what} on a GPU: it is there "
            "before the plan has room for it; leave it away and take the result"
        )
