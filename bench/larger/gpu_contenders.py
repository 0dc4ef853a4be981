"""Ways to run a stack on a GPU: all weights there, within a limit, by hand with two buffers, by PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.larger.blocks import N_NUMBERS, fill
from bench.larger.gpu_stacks import F32, GpuStack, StackKernels, bytes_of_shape
from bench.report.figures import timed
from redist.check.certify_memory import certify_memory, within_bounds
from redist.offload.admission import content_edges
from redist.offload.compile import compile_memory, least_memory
from redist.program.memory_graph import MemoryGraph, MemoryPlace
from redist.program.tasks import TaskList
from redist.runtime.cuda.arrays import empty_on_device
from redist.runtime.cuda.pinned_store import PinnedStore, SeparateMemory, launched
from redist.runtime.lanes.run_graph import GraphRunner
from redist.runtime.lanes.vertex_table import LanePolicy, TaskWork

Run = Callable[[], Any]
TO_DEVICE = 1


class StackOnGpu:
    """The values of a stack: weights in pinned memory, the input on the GPU."""

    def __init__(self, stack: GpuStack, seed: int) -> None:
        import cupy

        self.stack, self.cupy, self.kernels = stack, cupy, StackKernels(cupy)
        self.store = PinnedStore()
        self.store.reserve(stack.weight_bytes)
        self.per_layer = len(stack.weights) // stack.n_layers
        self.spaces = []
        numbers = np.random.default_rng(seed).standard_normal(N_NUMBERS, dtype=F32)
        for n, shape in enumerate(stack.weights):
            self.spaces.append(self.store.take(bytes_of_shape(shape)))
            fill(self.host_weight(n), numbers * F32.type(shape[0] ** -0.5), 7919 * n)
        x = np.empty((stack.rows, stack.side), F32)
        fill(x, numbers, 0)
        self.x = cupy.asarray(x)
        cupy.cuda.get_current_stream().synchronize()

    def host_weight(self, number: int) -> Any:
        """A weight in pinned memory, as an array of NumPy."""
        memory = self.store.memory_of(self.spaces[number])
        return memory.view(F32).reshape(self.stack.weights[number])

    def numbers(self, layer: int) -> range:
        """The weights of a layer."""
        return range(layer * self.per_layer, (layer + 1) * self.per_layer)

    def empty(self, shape: tuple[int, ...]) -> Any:
        """A new array on the GPU."""
        return self.cupy.empty(shape, F32)

    def copied(self, number: int, out: Any, stream: Any) -> None:
        """Start to copy a weight to the GPU."""
        weight = self.host_weight(number)
        to, of = out.data.ptr, weight.ctypes.data
        self.cupy.cuda.runtime.memcpyAsync(to, of, weight.nbytes, TO_DEVICE, stream.ptr)

    def close(self) -> None:
        """Give pinned memory back."""
        self.store.close()


def all_there(values: StackOnGpu) -> Run:
    """Kernels queued one behind the other, with all weights on the GPU."""
    stack, stream = values.stack, values.cupy.cuda.Stream(non_blocking=True)
    weights = [values.empty(shape) for shape in stack.weights]
    for number, weight in enumerate(weights):
        values.copied(number, weight, stream)
    stream.synchronize()

    def run() -> Any:
        with stream:
            found = stack.run(
                values.kernels,
                lambda layer: [weights[n] for n in values.numbers(layer)],
                values.x,
                values.empty,
            )
            stream.synchronize()
        return found

    return run


def two_buffers(values: StackOnGpu) -> Run:
    """By hand: weights of a layer are copied while the layer before it is computed; all is queued at once."""
    stack, cupy = values.stack, values.cupy
    compute, copies = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    shapes = stack.weights[: values.per_layer]
    buffers = [[values.empty(shape) for shape in shapes] for _ in range(2)]

    def run() -> Any:
        loaded: dict[int, Any] = {}

        def load(layer: int) -> None:
            for number, out in zip(values.numbers(layer), buffers[layer % 2], strict=True):
                values.copied(number, out, copies)
            loaded[layer] = copies.record()

        def layer_of(layer: int) -> list[Any]:
            if layer:  # the layer before is queued: its buffers are free behind it
                copies.wait_event(compute.record())
                if layer + 1 < stack.n_layers:
                    load(layer + 1)
            compute.wait_event(loaded[layer])
            return buffers[layer % 2]

        with compute:
            for layer in range(min(2, stack.n_layers)):
                load(layer)
            found = stack.run(values.kernels, layer_of, values.x, values.empty)
            compute.synchronize()
        return found

    return run


def graphs_of(
    stack: GpuStack, share: float, stack_ps: int, byte_fs: int
) -> tuple[MemoryGraph, int]:
    """The graph within a share of what the stack holds without a limit, and that."""
    tasks, host = stack.tasks(stack_ps), MemoryPlace("pinned", None, byte_fs)
    peak = unlimited_bytes(tasks)
    limit = max(least_memory(tasks)[0], int(share * peak))
    graph = compile_memory(tasks, (MemoryPlace("gpu", limit), host))
    certificate = certify_memory(graph)
    assert certificate.verdict == "proved", certificate
    return graph, peak


def unlimited_bytes(tasks: TaskList) -> int:
    """The most that tasks hold one after another if all that is given stays, and values go when unused."""
    last = {tile: n for n, task in enumerate(tasks.tasks) for tile in (*task.reads, *task.makes)}
    live = sum(tile.size_bytes for tile in tasks.tiles if tile.begins)
    most = live
    for n, task in enumerate(tasks.tasks):
        live += sum(tasks.tiles[tile].size_bytes for tile in task.makes)
        most = max(most, live + task.staging_bytes)
        for tile in (*task.reads, *task.makes):
            if last[tile] == n and not tasks.tiles[tile].begins:
                live -= tasks.tiles[tile].size_bytes
    return most


def limited(values: StackOnGpu, graph: MemoryGraph, policy: str, awake: bool) -> Run:
    """A memory graph, event-driven or one vertex at a time; ``awake`` if every rank has a core for itself."""
    stack = values.stack
    shapes: list[tuple[int, ...]] = [*stack.shapes]
    apart = SeparateMemory()

    def tiles(tile: int) -> Any:
        with apart:
            return empty_on_device(shapes[tile], F32)

    def work(stage: Any) -> TaskWork:
        def function(*arrays: Any) -> None:
            weight, rest = (None, arrays) if stage.weight is None else (arrays[0], arrays[1:])
            stage.function(values.kernels, weight, *rest)

        return launched(function)

    admits = policy == "longest path"  # as programs run
    bounds = certify_memory(graph, admitted=content_edges(graph)).bound_bytes
    runner = GraphRunner(
        within_bounds(graph, bounds) if admits else graph,
        [work(one) for one in stack.functions()], [values.store], tiles,
        policy=LanePolicy(policy, admits=admits),
    )  # fmt: skip
    given = {(number, 1): space for number, space in enumerate(values.spaces)}
    stream = values.cupy.cuda.Stream(non_blocking=True)
    last = len(shapes) - 1

    def run() -> Any:
        with stream:
            outcome = runner.run({**given, (len(stack.weights), 0): values.x}, awake=awake)
        assert outcome.peak_bytes[0] <= (graph.places[0].limit_bytes or 0)
        return outcome.held[last, 0]

    return run


def torch_layers(
    values: StackOnGpu, torch: Any, device: str, *, stays: bool = False, pinned: bool = False
) -> Run:
    """PyTorch: every layer's weights brought ``.to(device)`` and dropped; or all there, if it ``stays``.

    Weights lie in memory as anybody has it, or pinned.
    """
    stack, kernels = values.stack, StackKernels(torch)
    weights = (values.host_weight(n) for n in range(len(stack.weights)))
    host = [torch.from_numpy(one if pinned else one.copy()) for one in weights]
    x = torch.from_numpy(values.cupy.asnumpy(values.x)).to(device)
    there = [one.to(device) for one in host] if stays else []

    def empty(shape: tuple[int, ...]) -> Any:
        return torch.empty(shape, dtype=torch.float32, device=device)

    def layer_of(layer: int) -> list[Any]:
        if stays:
            return [there[n] for n in values.numbers(layer)]
        return [host[n].to(device) for n in values.numbers(layer)]

    def run() -> Any:
        with torch.no_grad():
            found = stack.run(kernels, layer_of, x, empty)
            if device == "cuda":
                torch.cuda.synchronize()
        return found

    return run


def link_rate(values: StackOnGpu, repeats: int) -> float:
    """Bytes a second from pinned memory to the GPU, the best of several copies of the largest weight."""
    sizes = [bytes_of_shape(shape) for shape in values.stack.weights]
    number = sizes.index(max(sizes))
    out = values.empty(values.stack.weights[number])
    stream = values.cupy.cuda.Stream(non_blocking=True)

    def copy() -> None:
        for _ in range(4):
            values.copied(number, out, stream)
        stream.synchronize()

    return 4 * sizes[number] / min(timed(copy)[0] for _ in range(repeats))
