"""Kernels that are recorded once, and launched together: a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redist.runtime.copies.gpu_arrays import is_cupy_array

Kernels = Callable[..., tuple[Any, ...]]


class KernelRecording:
    """What a function of arrays on a GPU launches, recorded: its kernels need no Python between them.

    The graph reads and writes memory of its own, so arguments are copied in and results out.
    """

    def __init__(
        self, graph: Any, inputs: Sequence[Any], outputs: Sequence[Any], pool: Any
    ) -> None:
        self._graph, self._inputs, self._outputs, self._pool = graph, inputs, outputs, pool

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """**Local.** What the function gives, in new memory; the stream has yet to come to it."""
        for own, array in zip(self._inputs, arrays, strict=True):
            own[...] = array
        self._graph.launch()
        return tuple(one.copy() for one in self._outputs)


def record_kernels(function: Kernels, arrays: Sequence[Any]) -> KernelRecording | None:
    """**Local.** Record what a function launches for such arrays; None if it cannot be recorded.

    The function is run to see; it must depend on its arguments alone, and give arrays that share no memory
    with them. It is not recorded if anything does not lie in C order, or lies in memory.
    """
    if not all(is_cupy_array(one) and one.flags.c_contiguous for one in arrays):
        return None
    import cupy

    inputs = [one.copy() for one in arrays]
    pool = cupy.cuda.MemoryPool()
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    outputs: tuple[Any, ...] = ()
    try:
        with cupy.cuda.using_allocator(pool.malloc), stream:
            outputs = function(
                *inputs
            )  # compiles, and leaves the pool the memory for the next time
            if not all(is_cupy_array(one) and one.flags.c_contiguous for one in outputs):
                return None
            outputs = ()
            stream.synchronize()
            stream.begin_capture()
            try:
                outputs = function(*inputs)
            finally:
                graph = stream.end_capture()
    except (RuntimeError, NotImplementedError, cupy.cuda.memory.OutOfMemoryError):
        return None
    return KernelRecording(graph, inputs, outputs, pool)
