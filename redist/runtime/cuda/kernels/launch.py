"""Compiling the kernels for what a list needs, and launching it on a stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from redist.errors import TransferError
from redist.runtime.copies.addresses import Addresses, address_of
from redist.runtime.cuda.kernels.blocking import Tuning
from redist.runtime.cuda.kernels.pieces import WORD
from redist.runtime.cuda.kernels.records import THREAD_BITS
from redist.runtime.cuda.kernels.tables import Tables

INLINE_BASES = 64
"""Base addresses that are passed by value, as in moves.cu."""

MOST_KEPT = 4
"""Launches of one list, for different streams and alignments."""

T = TypeVar("T")
Start = Callable[[], None]
"""Starts work on a stream that was chosen before."""
Key = tuple[int, int, bytes]
"""A device, a stream of it, and where buffers lie, or how."""

ALL_KINDS = 0x48FFFF
ALL_FOLDED = 0xFFFF
"""Of reductions, which have no cells: what is compiled for nothing takes seconds."""
ALL_DIRECT = 0x9249


@lru_cache(maxsize=1)
def driver() -> Any:
    """The CUDA driver's library."""
    return ctypes.CDLL("libcuda.so.1")


def raise_if_refused(status: int, what: str) -> None:
    """An error where the driver refuses."""
    if status:
        raise TransferError(f"cannot {what} on the GPU: CUDA error {status}")


@lru_cache(maxsize=1)
def source() -> str:
    """The kernels: these files, one after another."""
    paths = [Path(__file__).with_name(f"{name}.cu") for name in ("tiles", "loose", "moves")]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled kernel and how many blocks of it the device holds."""

    module: Any
    function: int
    n_resident: int


def kernel_for(kinds: int, tuning: Tuning, prelude: str = "", fans_out: bool = False) -> Kernel:
    """The kernel for these kinds of tiles: one kind alone, or one of two for mixtures."""
    import cupy

    if kinds & kinds - 1:
        others = ALL_FOLDED if prelude else ALL_KINDS
        kinds = ALL_DIRECT if not kinds & ~ALL_DIRECT else others
    turns = ",".join(map(str, tuning.turns))
    options = (
        "-std=c++17",
        "-fmad=false",
        f"-DKINDS={kinds}",
        f"-DTURNS={turns}",
        f"-DFANS={str(fans_out).lower()}",
    )
    return _compile(options, prelude, cupy.cuda.Device().id)


@lru_cache(maxsize=256)
def _compile(options: tuple[str, ...], prelude: str, device: int) -> Kernel:
    import cupy

    module = cupy.RawModule(code=prelude + source(), options=options)
    found = module.get_function("redist_copy")
    function = int(getattr(found, "kernel", found).ptr)
    blocks = ctypes.c_int()
    status = driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(blocks), ctypes.c_void_p(function), 1 << THREAD_BITS, ctypes.c_size_t(0)
    )
    raise_if_refused(status, "ask for the occupancy of a kernel")
    count = cupy.cuda.Device(device).attributes["MultiProcessorCount"]
    return Kernel((module, found), function, max(1, blocks.value) * int(count))


class Launch:
    """Tables on the device and everything about a launch but the base addresses.

    It is for the stream on which it was made: the pool lends its memory again in that stream's order.
    """

    def __init__(self, tables: Tables, tuning: Tuning, prelude: str = "") -> None:
        import cupy

        self._kernel = kernel_for(tables.kinds, tuning, prelude, tables.fans_out)
        parts = [tables.rows, tables.shapes, tables.members, tables.hints]
        whole, starts = join_tables(parts)
        # CuPy copies from pinned memory of its own, in the stream's order: nobody waits for the
        # stream, which may itself wait for messages of a rank that has failed.
        self._device = cupy.asarray(whole)
        self._grid = tables.n_tiles
        waves = tuning.waves[2 if tables.is_ragged else bool(tables.kinds & ~ALL_DIRECT)]
        if waves:
            self._grid = min(tables.n_tiles, self._kernel.n_resident * waves)
        at = int(self._device.data.ptr)
        self._pointers = [ctypes.c_uint64(at + start) for start in starts]
        self._numbers = [ctypes.c_uint32(tables.hint_shift), ctypes.c_uint32(tables.n_tiles)]
        self._many: tuple[tuple[int, bytes], Any] | None = None

    def bind(self, bases: Addresses, stream: int) -> Start:
        """What starts the kernel with these bases on a stream; it may be called again and again.

        The kernel reads the bases before such a call returns, or a copy of them.
        """
        few = np.zeros(INLINE_BASES, np.uint64)
        many = ctypes.c_uint64(0)
        if len(bases) <= INLINE_BASES:
            few[: len(bases)] = bases
        else:
            many.value = self._uploaded(bases, stream)
        plain = *self._pointers, *self._numbers, many
        params = (ctypes.c_void_p * 8)(
            *map(ctypes.addressof, plain), ctypes.c_void_p(address_of(few))
        )
        sizes = (self._grid, 1, 1, 1 << THREAD_BITS, 1, 1, 0)
        arguments = (
            ctypes.c_void_p(self._kernel.function),
            *map(ctypes.c_uint, sizes),
            ctypes.c_void_p(stream),
            params,
            None,
        )
        launch = driver().cuLaunchKernel
        held = self._kernel, self._device, plain, few, self._many

        def start(held: Any = held) -> None:
            raise_if_refused(launch(*arguments), "start a copy")

        return start

    def _uploaded(self, bases: Addresses, stream: int) -> int:
        """The address of a table of bases on the device; the last one is kept."""
        import cupy

        key = stream, bases.tobytes()
        if self._many is None or self._many[0] != key:
            self._many = key, cupy.asarray(bases.astype(np.uint64))  # as the tables are
        return int(self._many[1].data.ptr)


def remembered(kept: dict[Key, T], buffers: Addresses, stream: int, make: Callable[[], T]) -> T:
    """What was made for a stream of this device and for these numbers of buffers; made where it is missing.

    Few are kept: tables take memory of the GPU. Devices may have streams of the same number.
    """
    import cupy

    key = cupy.cuda.runtime.getDevice(), stream, buffers.tobytes()
    found = kept.get(key)
    if found is None:
        if len(kept) >= MOST_KEPT:
            kept.clear()
        found = kept[key] = make()
    return found


def phases(bases: Addresses) -> Addresses:
    """How buffers lie in words of 16 bytes: one launch does for all that lie alike."""
    return bases & np.uintp(WORD - 1)


def join_tables(arrays: Sequence[NDArray[Any]]) -> tuple[NDArray[np.uint8], list[int]]:
    """Arrays as one, and where each begins: at multiples of 16 bytes.

    >>> whole, starts = join_tables([np.zeros(3, np.int64), np.ones(2, np.uint8)])
    >>> whole.size, starts
    (48, [0, 32])
    """
    starts, parts, at = [], [], 0
    for array in arrays:
        part = array.tobytes()
        part += bytes(-len(part) % 16)
        starts.append(at)
        parts.append(part)
        at += len(part)
    return np.frombuffer(b"".join(parts) or bytes(16), np.uint8), starts
