"""``python -m bench larger gpu``: layers on a GPU within a quarter of their memory.

Every rank has a stack of its own; ranks that share a GPU share its link. Weights lie in pinned memory. Beside
it: all weights on the GPU, two buffers by hand, one vertex at a time, and PyTorch moving layers with ``.to``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from bench.gpu.copies import need_gpu
from bench.larger.blocks import error_of
from bench.larger.gpu_contenders import (
    Run,
    StackOnGpu,
    all_there,
    graphs_of,
    limited,
    link_rate,
    torch_layers,
    two_buffers,
)  # fmt: skip
from bench.larger.gpu_stacks import GpuStack, blocks, chain
from bench.report.figures import in_turn, met, quartiles, slowest_s
from bench.report.job import say
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Row, Table, Tables
from redist.runtime.ranks.cores import enough_cores, own_cores
from redist.text.units import format_bytes

ALONE, LIMITED, ONE_BY_ONE, BY_HAND = "all there", "limited", "one at a time", "two buffers"
TORCH, TORCH_PINNED, TORCH_ALONE = "torch .to", "torch .to, pinned", "torch all there"
AIMS = {ALONE: 1.5, BY_HAND: 1.05, TORCH: 1 / 1.3, TORCH_PINNED: 1 / 1.3}
"""What the time of a limited run should be at most, over others'."""
SHARE = 0.25
ERROR = 1e-3


def run(
    ranks: int = 2, stacks: str = "chain,blocks", rows: int = 8192, chain_layers: int = 40,
    chain_side: int = 4096, block_layers: int = 24, block_side: int = 2048, repeat: int = 4,
    torch_device: str = "cuda",
) -> Tables:  # fmt: skip
    """Measure on ranks that share a GPU; needs CuPy, and PyTorch for its rows.

    rows: of a rank; layers and sides: of the stacks.
    """
    need_gpu()
    sizes = {"chain": (chain_layers, rows, chain_side), "blocks": (block_layers, rows, block_side)}
    asked = {name: sizes[name] for name in stacks.split(",")}
    start = on_ranks(ranks, one_thread=False)
    options = {"stacks": asked, "repeat": repeat, "device": torch_device}
    return table(found_by(start, "bench.larger.gpu_race", **options))


def measure(stacks: dict[str, list[int]], repeat: int, device: str) -> dict[str, Any]:
    """Every stack on the ranks of this job. **Collective over all of them.**"""
    kinds = {"chain": chain, "blocks": blocks}
    made = [kinds[name](*sizes) for name, sizes in stacks.items()]
    rows = [measure_stack(MPI.COMM_WORLD, stack, repeat, device) for stack in made]
    return {"rows": rows, "libraries": libraries(device)}


def table(data: Mapping[str, Any]) -> Tables:
    """Every way beside all weights there, limited beside every way."""
    rows: Sequence[Mapping[str, Any]] = data["rows"]
    about = [row["about"] for row in rows]
    title = (
        f"stacks of layers within a quarter of their memory, {rows[0]['rows']} rows of f32 a rank, "
        f"ranks share one GPU; {data['libraries']}"
    )
    notes = (*about, "results are compared first; ratios are medians of those of every turn")
    lines = [line for row in rows for line in _lines(row)]
    wrong = any(row["wrong"] for row in rows)
    return (Table.of("gpu", title, lines, *notes, keys=3, is_wrong=wrong),)


def _lines(row: Mapping[str, Any]) -> list[Row]:
    times = {name: np.array(one) for name, one in row["times"].items()}
    out: list[Row] = []
    for name, one in times.items():
        low, middle, high = quartiles(list(1e3 * one))
        ratio = None if name == LIMITED else float(np.median(times[LIMITED] / one))
        aim = AIMS.get(name)
        out.append(
            {
                "ranks": row["ranks"], "stack": row["stack"], "way": name, "ms": middle,
                "quartiles": f"{low:.1f}-{high:.1f}", "of all there": float(np.median(one / times[ALONE])),
                "limited / way": ratio, "aim": aim,
                "reached": None if aim is None or ratio is None else met(ratio <= aim),
            }
        )  # fmt: skip
    return out


def measure_stack(
    comm: MPI.Intracomm, stack: GpuStack, repeats: int, device: str
) -> dict[str, Any]:
    """All ways in turn, after one turn whose results are compared. **Collective over `comm`.**"""
    values = StackOnGpu(stack, comm.rank)
    comm.Barrier()
    alone = comm.bcast(link_rate(values, 3) if comm.rank == 0 else 0.0)
    comm.Barrier()
    together = comm.allreduce(link_rate(values, 3))
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
    wrong, grown = {}, {}
    pool = values.cupy.get_default_memory_pool()
    pool_bytes = getattr(pool, "total_bytes", pool.used_bytes)
    for name, way in ways.items():
        before = pool_bytes()
        found = way()
        grown[name] = pool_bytes() - before
        wrong[name] = error_of(host_array(values, found), want)
        del found
    times = in_turn(ways, repeats, partial(slowest_s, comm))
    worst = {name: comm.allreduce(one, MPI.MAX) for name, one in wrong.items()}
    values.close()
    free_pools(values.cupy, torch)
    about = (
        f"{comm.size} ranks, {stack.name}: {stack.n_layers} layers, weights of "
        f"{format_bytes(stack.weight_bytes)}, limit {format_bytes(limit)} of {format_bytes(peak)}, "
        f"CuPy's pool grew by {format_bytes(grown[LIMITED])}; link {alone / 1e9:.1f} GB/s alone, "
        f"{together / 1e9:.1f} by all ranks; computing / loading {np.median(times[ALONE]) / io_s:.1f}"
    )
    said = {name: f"{one:.1e}{'' if one <= ERROR else ' WRONG'}" for name, one in worst.items()}
    say(f"{about}; largest errors {said}")
    return {
        "ranks": comm.size, "stack": stack.name, "rows": stack.rows, "about": about, "times": times,
        "wrong": any(one > ERROR for one in worst.values()),
    }  # fmt: skip


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


def free_pools(cupy: Any, torch: Any) -> None:
    """Give memory back that nobody uses."""
    for pool in ("get_default_memory_pool", "get_default_pinned_memory_pool"):
        free = getattr(getattr(cupy, pool, lambda: None)(), "free_all_blocks", None)
        if free is not None:
            free()
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
