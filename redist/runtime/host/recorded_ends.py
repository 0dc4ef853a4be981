"""The arrays of a recorded call: is an array like the one before, or the very same?"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.runtime.copies.addresses import Addresses, address_of

Arrays = Sequence[Any]
"""The arrays of a call at one end, one of every array that moves; None outside its mesh."""


@dataclass(slots=True, eq=False)
class RecordedEnd:
    """An array of a recorded call at one end: what it is like, and the last one that it was.

    If the neighbours read or write it in place, ``is_fixed``, it must be the same array every time.
    ``pointers`` are where its address stands in the tables.
    """

    like: tuple[Any, ...] | None
    is_fixed: bool
    pointers: list[tuple[Addresses, int]]
    last: Any
    place: int

    @staticmethod
    def of(array: Any, is_fixed: bool, pointers: list[tuple[Addresses, int]]) -> RecordedEnd:
        """An end that is this array now."""
        like = None if array is None else (array.dtype, array.shape, array.strides)
        return RecordedEnd(like, is_fixed, pointers, _weak(array), _place(array))

    def is_again(self, array: Any) -> bool:
        """Whether this is the very array of the last call, as it was."""
        return (
            array is not None
            and self.last() is array
            and (array.dtype, array.shape, array.strides) == self.like
            and address_of(array) == self.place
        )

    def fits(self, array: Any) -> bool:
        """Whether an array is like the ones before, and the same one if it must be."""
        if self.like is None:
            return array is None
        return (
            type(array) is np.ndarray
            and (array.dtype, array.shape, array.strides) == self.like
            and (not self.is_fixed or self.last() is array)
        )

    def point_at(self, array: Any) -> None:
        """Take an array for the next run."""
        self.last, self.place = _weak(array), _place(array)
        for table, base in self.pointers:
            table[base] = self.place


def are_apart(outs: Arrays, sources: Arrays) -> bool:
    """Whether no result would be written over a source, or over another result."""
    for number, out in enumerate(outs):
        if any(np.may_share_memory(out, other) for other in (*sources, *outs[:number])):
            return False
    return True


def _weak(array: Any) -> Any:
    """A reference that keeps no memory alive."""
    return _nothing if array is None else weakref.ref(array)


def _place(array: Any) -> int:
    return 0 if array is None else address_of(array)


def _nothing() -> None:
    return None
