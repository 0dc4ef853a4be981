"""Addresses of arrays, and the memory at an address as an array."""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Addresses = NDArray[np.uintp]


def array_at(
    address: int, shape: Iterable[int], strides: Iterable[int], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """The memory at an address as an array. Whoever calls keeps the memory alive."""
    counts, steps = tuple(shape), tuple(strides)
    if 0 in counts:
        return np.empty(counts, dtype)
    low = sum((n - 1) * min(step, 0) for n, step in zip(counts, steps, strict=True))
    high = sum((n - 1) * max(step, 0) for n, step in zip(counts, steps, strict=True))
    memory: Any = (ctypes.c_char * (high - low + dtype.itemsize)).from_address(address + low)
    return np.ndarray(counts, dtype, memory, -low, steps)


def _asked_address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _read_address(array: NDArray[Any], at: int = object.__basicsize__) -> int:
    """The same in a fifth of the time, which repeated calls of few microseconds notice.

    It relies on CPython: an array's pointer to its data follows what every object begins with, which
    is larger in free-threaded builds. :func:`_address_function` tries it before it is used.
    """
    return ctypes.c_void_p.from_address(id(array) + at).value or 0


def _address_function() -> Callable[[NDArray[Any]], int]:
    """The quick way if it proves right here, else the documented one."""
    if sys.implementation.name == "cpython":
        samples = [np.zeros(3), np.zeros((2, 3))[1:, ::2], np.zeros(7, "u1")[::-1]]
        if all(_read_address(sample) == _asked_address(sample) for sample in samples):
            return _read_address
    return _asked_address


address_of = _address_function()
"""Address of the first element of an array."""


class _AskedCell:
    """The address of an array that is asked for it every time."""

    __slots__ = ("_array",)

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = weakref.ref(array)

    @property
    def value(self) -> int:
        array = self._array()
        return 0 if array is None else _asked_address(array)


def address_cell(array: NDArray[Any]) -> Any:
    """Something whose ``value`` is the address of an array's first element; look only while the array lives.

    It takes a sixth of the time of :func:`address_of`, and keeps no array alive.

    >>> a = np.zeros(3)
    >>> address_cell(a).value == address_of(a)
    True
    """
    if address_of is _read_address:
        return ctypes.c_size_t.from_address(id(array) + object.__basicsize__)
    return _AskedCell(array)


def addresses(arrays: Iterable[NDArray[Any]]) -> Addresses:
    """A table of base addresses."""
    return np.array([address_of(array) for array in arrays], dtype=np.uintp)
