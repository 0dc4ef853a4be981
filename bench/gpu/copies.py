"""Copies on one GPU by CuPy's own strided copies, JAX and PyTorch, and how such work is timed.

Elements of CuPy's are those of the arrays, f32: a user of CuPy writes ``b[...] = a[:, 4:8]``.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from unittest.mock import patch

import numpy as np

from bench.gpu.cases import CopyCase
from bench.problems.installed import why_absent
from bench.report.jobs import SkippedError
from redist.measure.results.results import machine
from redist.measure.timing import Times
from redist.runtime.copies.addresses import Addresses
from redist.runtime.copies.copy_list import BufferCopy
from redist.runtime.cuda.kernels.rounds import CudaCopyList

WARM_UPS = 2


def need_gpu() -> None:
    """**Local.** Raise if nothing can be measured here."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
        cupy.zeros(1)
    except ImportError:
        raise SkippedError("CuPy is not installed") from None
    except Exception as error:
        raise SkippedError(f"no GPU answers ({error})") from None


def gpu_machine() -> dict[str, Any]:
    """**Local.** The host, its GPU and the software that the figures depend on."""
    import cupy

    runtime = cupy.cuda.runtime
    name = runtime.getDeviceProperties(cupy.cuda.Device().id)["name"]
    out = {
        **machine(),
        "gpu": name.decode() if isinstance(name, bytes) else str(name),
        "gpus": runtime.getDeviceCount(),
        "cupy": cupy.__version__,
        "cuda_driver": runtime.driverGetVersion(),
        "cuda_runtime": runtime.runtimeGetVersion(),
    }
    for module in ("jax", "torch"):
        with contextlib.suppress(PackageNotFoundError):
            out[module] = version(module)
    return out


def libraries() -> str:
    """**Local.** The GPU, CuPy, and PyTorch if it is there, in words."""
    found = gpu_machine()
    torch = [f"PyTorch {found['torch']}"] if "torch" in found else []
    return ", ".join([found["gpu"], f"CuPy {found['cupy']}", *torch])


def times_of(
    work: Callable[[], object], wait: Callable[[], object], repeats: int, row: int = 10
) -> Times:
    """**Local.** Seconds of one ``work``, of ``row`` started at once and waited for together."""
    for _ in range(WARM_UPS):
        work()
    wait()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(row):
            work()
        wait()
        seconds.append((time.perf_counter() - start) / row)
    return Times.of(seconds)


def copy_rate(n_bytes: int, repeats: int = 11) -> float:
    """**Local.** Bytes read and written in a second by the driver's contiguous copy."""
    import cupy

    wait = cupy.cuda.get_current_stream().synchronize
    return 2 * n_bytes / times_of(plain_copy(n_bytes), wait, repeats).median_s


def plain_copy(n_bytes: int) -> Callable[[], None]:
    """**Local.** What starts a contiguous copy of so many bytes by the driver."""
    import cupy

    a, b = (cupy.zeros(n_bytes, cupy.uint8) for _ in range(2))
    stream = cupy.cuda.get_current_stream()
    return lambda: cupy.cuda.runtime.memcpyAsync(b.data.ptr, a.data.ptr, n_bytes, 3, stream.ptr)


def numbered(n_bytes: int) -> Any:
    """**Local.** Bytes that look random, the same in every run: no two words of 4 are alike."""
    import cupy

    words = cupy.arange((n_bytes + 3) // 4, dtype=cupy.uint32)
    return (words * cupy.uint32(2654435761)).view(cupy.uint8)[:n_bytes]


def word_of(move: BufferCopy) -> int:
    """The widest element, up to f32, in which a move can be written.

    >>> from redist.runtime.copies.strided import Strided
    >>> word_of(BufferCopy(0, 0, 1, 4, Strided(16, ((3, 16, 32),))))
    4
    """
    numbers = [move.form.block, move.dst_offset, move.src_offset]
    numbers += [stride for dim in move.form.dims for stride in dim[1:]]
    return math.gcd(4, *numbers)


def views(move: BufferCopy, bases: Sequence[int]) -> tuple[Any, Any]:
    """Destination and source of a move as arrays of CuPy, over memory that lies there."""
    import cupy

    word = math.gcd(word_of(move), *(int(bases[k]) for k in (move.dst, move.src)))
    shape = [*(dim[0] for dim in move.form.dims), move.form.block // word]
    out = []
    for number, offset, side in ((move.dst, move.dst_offset, 1), (move.src, move.src_offset, 2)):
        strides = [*(dim[side] for dim in move.form.dims), word]
        memory = cupy.cuda.UnownedMemory(int(bases[number]) + offset, 1, None)
        start = cupy.cuda.MemoryPointer(memory, 0)
        out.append(cupy.ndarray(shape, np.dtype(f"u{word}"), memptr=start, strides=strides))
    return out[0], out[1]


class GenericMoves:
    """A list of copies, one call of ``cupy.copyto`` for each; views are made once."""

    def __init__(self, moves: Sequence[BufferCopy]) -> None:
        self.moves = tuple(moves)
        self._views: dict[bytes, list[tuple[Any, Any]]] = {}

    def run(self, bases: Addresses) -> None:
        """Start them on the current stream."""
        import cupy

        key = bases.tobytes()
        if key not in self._views:
            self._views[key] = [views(move, bases.tolist()) for move in self.moves]
        for to, of in self._views[key]:
            cupy.copyto(to, of)


@contextlib.contextmanager
def generic_copies(lists: dict[int, GenericMoves]) -> Iterator[None]:
    """While inside, transfers on GPUs copy by CuPy's own copies instead of by our kernels.

    ``lists`` keeps what was made, by the number of the list that it stands for.
    """

    def bind(self: CudaCopyList, bases: Addresses, stream: int = 0) -> list[Callable[[], None]]:
        if not self.moves:
            return []
        return [partial(lists.setdefault(id(self), GenericMoves(self.moves)).run, bases)]

    with patch.object(CudaCopyList, "bind", bind):
        yield


Copy = tuple[Callable[[], Any], Callable[[], object]]
"""What starts a copy and gives its result, and what waits for all that were started."""


def torch_copy(case: CopyCase, source: Any, target: Any) -> Copy:
    """Torch's copy of a permuted view into memory that is there."""
    import torch

    of, to = (torch.from_dlpack(array) for array in (source, target))
    if case.unpacks:
        there, here = to.view(case.shape), of.view(case.packed_shape).permute(case.back)
    else:
        there, here = to.view(case.packed_shape), of.view(case.shape).permute(case.order)
    return lambda: there.copy_(here), torch.cuda.synchronize


def jax_copy(case: CopyCase, source: Any, target: Any) -> Copy:
    """JAX's compiled transpose; its result is a new array, as always."""
    import jax

    shape, order = case.shape, case.order
    if case.unpacks:
        shape, order = case.packed_shape, case.back
    move = jax.jit(lambda x: x.reshape(shape).transpose(order))
    held = jax.dlpack.from_dlpack(source)
    last: list[Any] = [None]

    def start() -> Any:
        last[0] = move(held)
        return last[0]

    return start, lambda: last[0].block_until_ready()


def missing(name: str) -> str | None:
    """Why a library is not compared here; None if it is."""
    module = {"JAX": "jax", "PyTorch": "torch"}[name]
    if why_absent(module):
        return "not installed"
    try:
        if name == "PyTorch":
            import torch

            return None if torch.cuda.is_available() else "sees no GPU"
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        import jax

        here = any(device.platform in ("gpu", "cuda") for device in jax.devices())
        return None if here else "sees no GPU"
    except Exception as error:
        return f"failed: {type(error).__name__}: {error}"


PEERS: dict[str, Callable[[CopyCase, Any, Any], Copy]] = {"JAX": jax_copy, "PyTorch": torch_copy}
