"""Workloads on PyTorch's DTensors, gloo between processes: ``python -m bench.layouts.with_torch`` a rank.

Arguments lie as redist's do; DTensor chooses layouts call by call. Bytes are counted at the collectives
that it issues, by the formulas of :mod:`bench.layouts.with_jax`. Where gloo has no all-to-all DTensor
gathers instead; that counts as the all-to-all that it is elsewhere. Sums that results leave pending are
done, as redist's are.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import placement_types
from torch.utils._python_dispatch import TorchDispatchMode

from bench.layouts.rival import RivalRow, ask, check, measured
from bench.layouts.workload import Workload, arrays_in, error_of
from bench.problems.installed import version
from bench.report.figures import quartiles

FACTORS = {
    "all_gather_into_tensor": lambda g: g - 1,
    "reduce_scatter_tensor": lambda g: (g - 1) / g,
    "all_reduce": lambda g: 2 * (g - 1) / g,
    "all_to_all_single": lambda g: (g - 1) / g,
    "shard_dim_alltoall": lambda g: (g - 1) / g,
}
"""What a device receives, over what it puts in, in a group of g."""
NO_TRANSFER = ("wait_tensor", "_wrap_tensor_autograd")
"""Calls beside collectives in which nothing is received."""


class CollectiveCounter(TorchDispatchMode):  # type: ignore[misc]
    """Counts what this rank receives in collectives while it is active."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.ranks, self.received_bytes, self.transfers = ranks, 0.0, 0
        self._gathers_instead = False

    def add(self, name: str, given: torch.Tensor) -> None:
        """Note one collective."""
        self.received_bytes += given.numel() * given.element_size() * FACTORS[name](self.ranks)
        self.transfers += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and note it if it is a collective; DTensors are taken apart first."""
        if any(issubclass(kind, tensor.DTensor) for kind in types):
            return NotImplemented
        space, _, name = func._schema.name.partition("::")
        if "c10d" in space and name not in NO_TRANSFER:
            if name not in FACTORS:
                raise ValueError(f"cannot count {func}")
            if not self._gathers_instead:
                self.add(name, args[0])
        return func(*args, **(kwargs or {}))

    def shard_dim_alltoall(self, given: torch.Tensor, *rest: Any) -> Any:
        """Note an all-to-all, however it is done."""
        self.add("shard_dim_alltoall", given)
        self._gathers_instead = True
        try:
            return ALL_TO_ALL(given, *rest)
        finally:
            self._gathers_instead = False

    def __enter__(self) -> Any:
        placement_types.shard_dim_alltoall = self.shard_dim_alltoall
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        placement_types.shard_dim_alltoall = ALL_TO_ALL
        super().__exit__(*error)


ALL_TO_ALL = placement_types.shard_dim_alltoall


class NumPyNames:
    """PyTorch under the names that workloads use."""

    max, min = torch.amax, torch.amin
    fft = SimpleNamespace(fftn=torch.fft.fftn, ifftn=torch.fft.ifftn)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def astype(x: Any, dtype: Any) -> Any:
        """The same values as another dtype."""
        return x.to(dtype)

    @staticmethod
    def maximum(x: Any, least: float) -> Any:
        """No value below a number."""
        return torch.clamp(x, min=least)


def main() -> int:
    """Count, check and time every workload; rank 0 writes."""
    asked = ask(__doc__)
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(os.environ["STORE"], ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("x",))
    library = f"DTensor {version('torch')}"

    def measure(workload: Workload) -> RivalRow:
        return dtensor_row(workload, library, mesh, asked.repeat)

    rows = [measured(one, library, measure) for one in asked.chosen]
    if rank == 0:
        asked.write(rows)
    dist.barrier()
    dist.destroy_process_group()
    return 0


def dtensor_row(workload: Workload, library: str, mesh: DeviceMesh, repeat: int) -> RivalRow:
    """**Collective.** Run a workload eagerly: every operation decides for itself."""
    arrays = []
    for array, cut in zip(workload.make(), workload.cuts, strict=True):
        place = tensor.Replicate() if cut is None else tensor.Shard(cut)
        whole = torch.from_numpy(array)
        arrays.append(tensor.distribute_tensor(whole, mesh, [place], src_data_rank=None))
    function = workload.of(NumPyNames())

    def call() -> list[Any]:
        return [finished(one, mesh) for one in arrays_in(function(*arrays))]

    with torch.no_grad():
        with CollectiveCounter(mesh.size()) as counter:
            results = call()
        whole_results = [one.full_tensor().numpy() for one in results]
        check(workload, error_of(whole_results, workload.reference()))
        seconds = []
        for _ in range(repeat + 1):
            dist.barrier()
            start = time.perf_counter()
            call()
            taken = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
            dist.all_reduce(taken, dist.ReduceOp.MAX)
            seconds.append(float(taken))
    received = torch.tensor(counter.received_bytes, dtype=torch.float64)
    dist.all_reduce(received)
    times = quartiles(seconds[1:]) if repeat else None
    return RivalRow(workload.name, library, round(float(received)), counter.transfers, times)


def finished(array: Any, mesh: DeviceMesh) -> Any:
    """**Collective.** A result with its pending sum done, each rank a part of it if it can be cut evenly."""
    if not any(place.is_partial() for place in array.placements):
        found = array
    else:
        n = mesh.size()
        cut = next((dim for dim, size in enumerate(array.shape) if size % n == 0), None)
        place = tensor.Replicate() if cut is None else tensor.Shard(cut)
        found = array.redistribute(mesh, [place])
    local = found._local_tensor
    if hasattr(local, "wait"):
        local.wait()
    return found


if __name__ == "__main__":
    sys.exit(main())
