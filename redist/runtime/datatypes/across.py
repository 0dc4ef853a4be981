"""Pack between a GPU and the host, in the way that is quickest by a small model.

Three ways, as in TEMPI, each with a price that grows with what it moves::

    device      a kernel packs on the GPU, a copy brings it over    a launch, a copy, packed bytes twice
    one-shot    a kernel writes to pinned memory of the host        a launch, packed bytes by single words
    staged      a copy brings all there is, the host packs          a copy, all bytes, packed bytes

The prices are those of :mod:`redist.plan.rates`; ``python -m bench gpu packs`` measures them on a machine.
"""

from __future__ import annotations

import ctypes
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from redist.errors import ArgumentError
from redist.plan.rates import (
    GPU,
    HOST_BYTE_FS,
    LAUNCH_PS,
    NEAR_BYTE_FS,
    PAGEABLE_BYTE_FS,
    PINNED_WORD_FS,
    START_PS,
)
from redist.runtime.cuda.arrays import (
    TO_DEVICE,
    TO_HOST,
    current_stream,
    device_address,
    empty_on_device,
)
from redist.runtime.datatypes.memory import Memory
from redist.runtime.datatypes.type_copies import TypeCopies

Way = Literal["device", "one-shot", "staged"]
"""Where data is packed on its way from a GPU to the host, or unpacked on the way back."""
PACKS: tuple[Way, ...] = get_args(Way)
UNPACKS: tuple[Way, ...] = ("device", "one-shot")
"""Whoever brought all over to unpack it on the host would write back what lies between."""


class Load(NamedTuple):
    """What moves: packed bytes, those from the first to the last, and whether the host's are pinned."""

    packed_bytes: int
    span_bytes: int
    is_pinned: bool


def time_fs(way: Way, load: Load) -> int:
    """Modelled femtoseconds of a way.

    >>> small, large = Load(2**10, 2**20, True), Load(2**28, 2**30, True)
    >>> time_fs("one-shot", small) < time_fs("device", small)
    True
    >>> time_fs("device", large) < time_fs("one-shot", large)
    True
    """
    packed, launch, start = load.packed_bytes, 1000 * LAUNCH_PS, 1000 * START_PS
    to_user = 0 if load.is_pinned else NEAR_BYTE_FS
    match way:
        case "device":
            over = HOST_BYTE_FS if load.is_pinned else PAGEABLE_BYTE_FS
            return launch + start + packed * (2 * GPU.byte_fs + over)
        case "one-shot":
            return launch + packed * (PINNED_WORD_FS + to_user)
        case "staged":
            return start + load.span_bytes * HOST_BYTE_FS + packed * NEAR_BYTE_FS


def check_way(asked: str | None, ways: tuple[Way, ...]) -> None:
    """**Local.** An error if there is no such way."""
    if asked is not None and asked not in ways:
        known = ", ".join(map(repr, ways))
        raise ArgumentError(f"cannot use way={asked!r}: known here are {known}, and None")


def choose_way(load: Load, asked: Way | None, ways: tuple[Way, ...] = PACKS) -> Way:
    """The way that is asked for, or the quickest one by the model.

    >>> several = (2**10, 2**20, 2**28)
    >>> [choose_way(Load(n, 2 * n, True), None) for n in several], choose_way(Load(8, 8, True), "device")
    (['staged', 'one-shot', 'device'], 'device')
    """
    if asked is not None:
        return asked
    return min(ways, key=lambda way: time_fs(way, load))


def pack_across(copies: TypeCopies, target: Memory, start: int, asked: Way | None) -> None:
    """**Local.** Pack what is on the GPU into memory of the host; it is there in the end."""
    n, (low, high) = copies.n_bytes, copies.span
    is_pinned = target.is_pinned
    way = choose_way(Load(n, high - low, is_pinned), asked)
    if way == "device":
        scratch = empty_on_device((n,), np.dtype(np.uint8))
        copies.run_on_gpu(device_address(scratch), start, unpacks=False)
        _copy(target.address, device_address(scratch), n, TO_HOST)
        current_stream().synchronize()
    elif way == "one-shot":
        pinned = _Pinned(n, target.address if is_pinned else None)
        copies.run_on_gpu(pinned.address, start, unpacks=False)
        current_stream().synchronize()
        if not is_pinned:
            ctypes.memmove(target.address, pinned.address, n)
    else:
        pinned = _Pinned(high - low)
        _copy(pinned.address, start + low, high - low, TO_HOST)
        current_stream().synchronize()
        copies.run_on_host(target.address, pinned.address - low, unpacks=False)


def unpack_across(copies: TypeCopies, source: Memory, start: int, asked: Way | None) -> None:
    """**Local.** Unpack bytes of the host on the GPU; they may change afterwards."""
    n, (low, high) = copies.n_bytes, copies.span
    is_pinned = source.is_pinned
    way = choose_way(Load(n, high - low, is_pinned), asked, UNPACKS)
    if way == "device":
        scratch: Any = empty_on_device((n,), np.dtype(np.uint8))
        _copy(device_address(scratch), source.address, n, TO_DEVICE)
        copies.run_on_gpu(device_address(scratch), start, unpacks=True)
    else:
        pinned = _Pinned(n, source.address if is_pinned else None)
        if not is_pinned:
            ctypes.memmove(pinned.address, source.address, n)
        copies.run_on_gpu(pinned.address, start, unpacks=True)
    current_stream().synchronize()


class _Pinned:
    """Pinned memory of the host, from CuPy's pool, until nobody holds it; or what is at an address."""

    def __init__(self, n_bytes: int, address: int | None = None) -> None:
        import cupy

        self._held: Any = None
        if address is None:
            self._held = cupy.cuda.alloc_pinned_memory(n_bytes)
            address = int(self._held.ptr)
        self.address = address


def _copy(to: int, of: int, n_bytes: int, kind: int) -> None:
    from cupy.cuda import runtime

    runtime.memcpyAsync(to, of, n_bytes, kind, current_stream().ptr)
