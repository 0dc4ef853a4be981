"""Devices of tiles: their names, and copies between memory and GPU.

What has no rule for tiles on a GPU is done on copies in memory, and its results are copied back. A trace
lists these copies.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from redist.errors import ArgumentError, CaptureError, RequestError
from redist.pgas.kinds import as_tile_of
from redist.pgas.structures import mapped
from redist.pgas.tiles.tiled import T, Tiled, tile_in
from redist.pgas.watch.seam import CopiedRows, traffic
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import current_gpu, gpu_count, gpu_of, to_host
from redist.text.call_site import calling_line


def is_gpu(device: Any) -> bool:
    """**Local.** Whether the name of a device is that of this rank's GPU; raise if it is not a device.

    >>> is_gpu(None), is_gpu("cpu")
    (False, False)
    """
    if device in (None, "cpu"):
        return False
    kind, _, number = device.partition(":") if isinstance(device, str) else ("", "", "")
    if kind != "cuda" or not (number.isdigit() or device == "cuda"):
        raise ArgumentError(f"cannot use device {device!r}: use 'cpu', 'cuda' or 'cuda:<number>'")
    own = _current_gpu(device)
    if number and int(number) != own:
        raise ArgumentError(
            f"cannot use device {device!r}: this rank's GPU is number {own}; "
            f"choose another by cupy.cuda.Device({number}).use()"
        )
    return True


def _current_gpu(device: str) -> int:
    try:
        return current_gpu()
    except ImportError:
        raise ArgumentError(f"cannot use device {device!r}: CuPy is not installed") from None
    except Exception as problem:
        raise ArgumentError(f"cannot use device {device!r}: {problem}") from None


def names() -> list[str]:
    """**Local.** Devices for tiles: the CPU, and GPUs once CuPy is in use."""
    if "cupy" not in sys.modules:
        return ["cpu"]
    try:
        return ["cpu", *(f"cuda:{i}" for i in range(gpu_count()))]
    except Exception:  # CuPy without a GPU
        return ["cpu"]


def name_of(x: Tiled) -> str:
    """**Local.** Where the tile of this rank lies, or would."""
    if not x.memory.on_device:
        return "cpu"
    tile = tile_in(x)
    is_here = tile is None or x.memory.is_ghost
    return f"cuda:{current_gpu() if is_here else gpu_of(tile)}"


def kind_of(x: Tiled) -> str:
    """**Local.** Where new tiles beside those of an array go: ``cpu``, or ``cuda``, the current GPU."""
    return "cuda" if x.memory.on_device else "cpu"


def check_alike(what: str, *arrays: Any) -> None:
    """**Local.** Raise if some tiles lie in memory and some on GPUs, or some are no part of a program."""
    given = [x for x in arrays if isinstance(x, Tiled)]
    if len({x.memory.is_ghost for x in given}) > 1:
        real = next(x for x in given if not x.memory.is_ghost)
        raise CaptureError(
            f"cannot use {real.type} in {what} of a program ({calling_line()}): it is not part of the "
            "program; give it as an argument"
        )
    if len({x.memory.on_device for x in given}) > 1:
        raise RequestError(
            f"cannot use arrays in memory and on a GPU in {what}: "
            'bring them together by a.to_device("cuda") or a.to_device("cpu")'
        )


def to_device(x: T, device: Any) -> T:
    """**Local.** Copy the tiles of an array to ``cpu`` or ``cuda``; itself if they are there."""
    on_device = is_gpu(device)
    if on_device == x.memory.on_device:
        return x
    memory = x.memory.beside(on_device)
    memory.check_room(x.type.tile_bytes)
    own = tile_in(x)
    if own is None:
        tile = None
    elif on_device:
        tile = memory.asarray(own)
    else:
        host = as_tile_of(x.type.dtype, x.memory.host(own))
        tile = memory.empty(own.shape, host.dtype, x.type.tile_bytes)
        np.copyto(tile, host)
    made = x.__class__(x.type, x.comm, tile, memory)
    made._owes = x._owes
    return made


def copy_to_host(thing: Any) -> Any:
    """**Local.** Copy arrays on a GPU to memory, for work that is not done there, and note it for a trace.

    Also those in tuples, lists, dicts and slices.
    """

    def copy(one: Any) -> Any:
        if isinstance(one, Tiled):
            tile = tile_in(one) if one.memory.on_device and not one.memory.is_ghost else None
            if tile is not None:
                traffic().note(calling_line(), CopiedRows(1, tile.nbytes))
            return to_device(one, "cpu")
        return to_host(one) if is_device(one) else one

    return mapped(thing, copy)


def copy_to_gpu(thing: Any) -> Any:
    """**Local.** Copy arrays in memory to the GPU, also those in tuples of results."""
    return mapped(thing, lambda one: to_device(one, "cuda") if isinstance(one, Tiled) else one)
