"""Layers on a GPU within a quarter of their memory: ``mpirun -n 2 python -m bench.larger.gpu_race``.

Every rank has a stack of its own; ranks that share a GPU share its link. Weights lie in pinned memory. Beside
it: all weights on the GPU, two buffers by hand, one vertex at a time, and PyTorch moving layers with ``.to``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from bench.gpu.command import no_gpu
from bench.larger.gpu_contenders import (
    Run,
    StackOnGpu,
    all_there,
    graphs_of,
    largest_node,
    limited,
    link_rate,
    torch_layers,
    two_buffers,
)
from bench.larger.gpu_report import (
    ALONE,
    BY_HAND,
    LIMITED,
    ONE_BY_ONE,
    TORCH,
    TORCH_ALONE,
    TORCH_PINNED,
    report_of,
)
from bench.larger.gpu_stacks import GpuStack, blocks, chain
from bench.report.report import save_json
from bench.report.timing import slowest_s
from redist.runtime.cuda.transports.ipc import enough_cores, own_cores
from redist.text.units import format_bytes

SHARE = 0.25
ERROR = 1e-3


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. **Collective over all ranks of the job.**"""
    args = _parser().parse_args(arguments)
    problem = no_gpu()
    if problem is not None:
        print(f"bench larger: cannot measure: {problem}", file=sys.stderr)
        return 2
    comm = MPI.COMM_WORLD
    say: Callable[[str], None] = (
        (lambda text: print(text, flush=True)) if comm.rank == 0 else lambda text: None
    )
    stacks = {
        "chain": chain(args.chain_layers, args.rows, args.chain_side),
        "blocks": blocks(args.block_layers, args.rows, args.block_side),
    }
    rows = []
    for name in args.stacks.split(","):
        rows.append(measure(comm, stacks[name], args.repeat, args.torch_device, say))
    report = report_of(rows, libraries(args.torch_device))
    say(str(report))
    if comm.rank == 0 and args.json is not None:
        save_json(args.json, [report], {name: str(value) for name, value in vars(args).items()})
    return int(any(row["wrong"] for row in rows))


def measure(
    comm: MPI.Intracomm, stack: GpuStack, repeats: int, device: str, say: Callable[[str], None]
) -> dict[str, Any]:
    """All ways in turn, after one turn whose results are compared. **Collective over `comm`.**"""
    begin = time.perf_counter()
    values = StackOnGpu(stack, comm.rank)
    comm.Barrier()
    alone = link_rate(values, 3, time.perf_counter) if comm.rank == 0 else 0.0
    alone = comm.bcast(alone)
    comm.Barrier()
    together = comm.allreduce(link_rate(values, 3, time.perf_counter))
    ways: dict[str, Run] = {ALONE: all_there(values)}
    want = values.cupy.asnumpy(ways[ALONE]())
    first_s = slowest_s(comm, ways[ALONE])
    byte_fs = int(1e15 * comm.size / together)
    graph, peak = graphs_of(stack, SHARE, int(first_s * 1e12), byte_fs)
    awake = enough_cores(comm.allgather(own_cores()))
    ways[LIMITED] = limited(values, graph, "longest path", awake)
    ways[ONE_BY_ONE] = limited(values, graph, "synchronous", awake)
    ways[BY_HAND] = two_buffers(values)
    torch = find_torch(device)
    if torch is not None:
        ways[TORCH] = torch_layers(values, torch, device)
        ways[TORCH_PINNED] = torch_layers(values, torch, device, pinned=True)
        ways[TORCH_ALONE] = torch_layers(values, torch, device, stays=True, pinned=True)
    limit = graph.places[0].limit_bytes or 0
    io_s = graph.moved_bytes["load"] * byte_fs / 1e15
    say(
        f"{comm.size} ranks, {stack.name}: {stack.n_layers} layers, {stack.rows} rows, weights of "
        f"{format_bytes(stack.weight_bytes)}; limit {format_bytes(limit)} of {format_bytes(peak)}, "
        f"{limit / largest_node(graph):.1f} times the largest node; link {alone / 1e9:.1f} GB/s alone, "
        f"{together / 1e9:.1f} GB/s all ranks together; set up in {time.perf_counter() - begin:.1f} s"
    )
    wrong = {}
    grown = 0
    for name, way in ways.items():
        pool = values.cupy.get_default_memory_pool()
        before = getattr(pool, "total_bytes", pool.used_bytes)()
        found = way()
        after = getattr(pool, "total_bytes", pool.used_bytes)()
        grown = after - before if name == LIMITED else grown
        wrong[name] = error_of(host_array(values, found), want)
        del found
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            times[name].append(slowest_s(comm, way))
    worst = {name: comm.allreduce(one, MPI.MAX) for name, one in wrong.items()}
    values.close()
    free_pools(values.cupy, torch)
    row = {
        "ranks": comm.size, "stack": stack.name, "layers": stack.n_layers, "rows": stack.rows,
        "weight_bytes": stack.weight_bytes, "limit_bytes": limit, "peak_bytes": peak,
        "pool_grew_bytes": grown, "link_bytes_per_s": alone, "link_together_bytes_per_s": together,
        "compute_over_io": float(np.median(times[ALONE])) / io_s, "times": times,
        "wrong": any(one > ERROR for one in worst.values()),
    }  # fmt: skip
    said = {name: f"{one:.1e}{'' if one <= ERROR else ' WRONG'}" for name, one in worst.items()}
    say(f"{stack.name}: largest errors {said}")
    return row


def libraries(device: str) -> str:
    """The GPU, MPI, CuPy and PyTorch, in words."""
    import cupy

    gpu = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    mpi = MPI.Get_library_version().splitlines()[0].split(",")[0].strip()
    torch = find_torch(device)
    said = [gpu, mpi, f"CuPy {cupy.__version__}"]
    return ", ".join(said if torch is None else [*said, f"PyTorch {torch.__version__}"])


def find_torch(device: str) -> Any:
    """PyTorch, if it is there and has the device."""
    try:
        import torch
    except ImportError:
        return None
    if device == "cuda" and not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


def host_array(values: StackOnGpu, found: Any) -> Any:
    """A result as an array of NumPy, whichever library's it is."""
    return found.cpu().numpy() if hasattr(found, "cpu") else values.cupy.asnumpy(found)


def error_of(found: Any, want: Any) -> float:
    """The largest difference over the largest value."""
    return float(np.abs(found - want).max() / np.abs(want).max())


def free_pools(cupy: Any, torch: Any) -> None:
    """Give memory back that nobody uses."""
    for pool in ("get_default_memory_pool", "get_default_pinned_memory_pool"):
        free = getattr(getattr(cupy, pool, lambda: None)(), "free_all_blocks", None)
        if free is not None:
            free()
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.larger.gpu_race", description=__doc__)
    parser.add_argument("--stacks", default="chain,blocks")
    parser.add_argument("--rows", type=int, default=8192, help="a rank (%(default)s)")
    parser.add_argument("--chain-layers", type=int, default=40)
    parser.add_argument("--chain-side", type=int, default=4096)
    parser.add_argument("--block-layers", type=int, default=24)
    parser.add_argument("--block-side", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=4)
    parser.add_argument("--torch-device", default="cuda")
    parser.add_argument("--json", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
