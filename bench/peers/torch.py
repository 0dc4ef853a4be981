"""PyTorch: DTensors on CPU, with gloo between processes.

DTensor chooses layouts call by call. Bytes are counted at the collectives that it issues, by the formulas of
rings: see :mod:`bench.peers.jax_devices`. Where gloo has no all-to-all DTensor gathers instead; that counts
as the all-to-all that it is elsewhere. Sums that results leave pending are done, as redist's are.
"""

from __future__ import annotations

import atexit
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mpi4py import MPI

import redist
from bench.layouts.workload import arrays_in
from bench.peers.programs import Call, NumPyNames, Programs, Results
from bench.problems.installed import version, why_absent
from bench.report.figures import timed
from redist.layout.specs_and_placements import StridedShard
from redist.measure.cases import Case
from redist.measure.contenders.contender import Contender, Ends
from redist.measure.values import parts, source_values

FACTORS: dict[str, Callable[[int], float]] = {
    "all_gather_into_tensor": lambda g: g - 1,
    "reduce_scatter_tensor": lambda g: (g - 1) / g,
    "all_reduce": lambda g: 2 * (g - 1) / g,
    "all_to_all_single": lambda g: (g - 1) / g,
    "shard_dim_alltoall": lambda g: (g - 1) / g,
}
"""What a device receives, over what it puts in, in a group of g."""
NO_TRANSFER = ("wait_tensor", "_wrap_tensor_autograd")
"""Calls beside collectives in which nothing is received."""


class DTensorGloo(Contender):
    """``DTensor.redistribute``; the result is a new tensor every time."""

    label = "DTensor (gloo)"
    uses_ends = False

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        import torch
        from torch.distributed.tensor import DTensor

        from redist.torch.layouts import placements_of

        super().__init__(case, comm, ends)
        join(comm)
        self.label = f"DTensor {version('torch')} (gloo)"
        self._mesh = _mesh(case.source.mesh.axes)
        assert self.source_box is not None, "every rank is in the mesh"
        part = parts(case.source)[comm.rank]
        tile = torch.from_numpy(source_values(case.source, self.source_box, part))
        whole = torch.empty(case.source.shape, dtype=tile.dtype, device="meta")
        self._array: Any = DTensor.from_local(
            tile,
            self._mesh,
            placements_of(case.source),
            run_check=False,
            shape=whole.shape,
            stride=whole.stride(),
        )
        self._to = placements_of(case.target)
        self._result: Any = None

    @classmethod
    def absent(cls) -> str | None:
        """It may not be installed."""
        return why_absent("torch")

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        """What its placements do not say."""
        if case.source.mesh != case.target.mesh:
            return "two meshes"
        try:
            ends = [*redist.to_placements(case.source), *redist.to_placements(case.target)]
        except redist.ConversionError as error:
            return str(error).partition(" to placements: ")[2] or str(error)
        if any(isinstance(one, StridedShard) for one in ends):
            return "the order of axes is a private placement"
        return None

    def run(self) -> None:
        """One call. **Collective over all ranks.**"""
        self.output = self._result = None
        self._result = self._array.redistribute(self._mesh, self._to).to_local()
        if hasattr(self._result, "wait"):
            self._result = self._result.wait()
        self.output = self._result.numpy()

    def close(self) -> None:
        """Let the arrays go. **Local.**"""
        super().close()
        self._array = self._result = None


@lru_cache(maxsize=64)
def _mesh(axes: tuple[tuple[str, int], ...]) -> Any:
    """One mesh for all cases on it: each keeps process groups for ever."""
    import torch
    from torch.distributed.device_mesh import DeviceMesh

    sizes = [size for _, size in axes]
    ranks = torch.arange(math.prod(sizes)).reshape(sizes)
    return DeviceMesh("cpu", ranks, mesh_dim_names=tuple(name for name, _ in axes))


def join(comm: MPI.Intracomm) -> None:
    """Make a process group of all ranks of MPI, once. **Collective over `comm`.**"""
    from torch import distributed

    if not distributed.is_initialized():
        from tests.programs.torch import together

        folder = tempfile.TemporaryDirectory() if comm.rank == 0 else None
        meeting = Path(comm.bcast(folder and folder.name)) / "meeting"
        who = {"RANK": comm.rank, "WORLD_SIZE": comm.size, "STORE": meeting}
        os.environ |= {name: str(value) for name, value in who.items()}
        together.join()
        atexit.register(_leave, folder)


def _leave(folder: tempfile.TemporaryDirectory[str] | None) -> None:
    from torch import distributed

    distributed.destroy_process_group()
    if folder is not None:
        folder.cleanup()


def slowest_s(work: Callable[[], Any]) -> float:
    """Seconds until the last rank is done, after all have met. **Collective over all ranks.**"""
    import torch
    from torch import distributed

    distributed.barrier()
    most = torch.tensor(timed(work)[0], dtype=torch.float64)
    distributed.all_reduce(most, distributed.ReduceOp.MAX)
    return float(most)


class TorchPrograms(Programs):
    """Every operation decides for itself where its result lies."""

    def __init__(self, devices: int) -> None:
        import torch
        from torch.distributed import device_mesh

        from tests.programs.torch import together

        together.join()
        torch.set_grad_enabled(False)
        self.library, self.xp = f"DTensor {version('torch')}", TorchNames(torch)
        self._mesh = device_mesh.init_device_mesh("cpu", (devices,), mesh_dim_names=("x",))

    def place(self, array: Any, cut: int | None) -> Any:
        """A DTensor."""
        import torch
        from torch.distributed import tensor

        place = tensor.Replicate() if cut is None else tensor.Shard(cut)
        whole = torch.from_numpy(array)
        return tensor.distribute_tensor(whole, self._mesh, [place], src_data_rank=None)

    def ready(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Call:
        """A call that leaves nothing pending."""
        return lambda: [self._finished(one) for one in arrays_in(function(*arrays))]

    def _finished(self, array: Any) -> Any:
        """A result with its pending sum done, each rank a part of it if it can be cut evenly."""
        from torch.distributed import tensor

        if any(place.is_partial() for place in array.placements):
            n = self._mesh.size()
            cut = next((dim for dim, size in enumerate(array.shape) if size % n == 0), None)
            place = tensor.Replicate() if cut is None else tensor.Shard(cut)
            array = array.redistribute(self._mesh, [place])
        if hasattr(array._local_tensor, "wait"):
            array._local_tensor.wait()
        return array

    def values(self, results: Results) -> Results:
        """Gathered on all ranks."""
        return [one.full_tensor().numpy() for one in results]

    def counted(self, call: Call) -> tuple[Results, int | None, int | None]:
        """By the collectives that it issues."""
        import torch
        from torch import distributed

        with collective_counter(self._mesh.size()) as counter:
            results = call()
        received = torch.tensor(counter.received_bytes, dtype=torch.float64)
        distributed.all_reduce(received)
        return results, round(float(received)), counter.transfers

    def seconds_of(self, call: Call) -> float:
        """Of the slowest rank."""
        return slowest_s(call)

    def close(self) -> None:
        """Leave the group."""
        from torch import distributed

        distributed.barrier()
        distributed.destroy_process_group()


class TorchNames(NumPyNames):
    """PyTorch under the names that workloads use."""

    def __init__(self, torch: Any) -> None:
        super().__init__(torch)
        self.max, self.min = torch.amax, torch.amin
        self.fft = SimpleNamespace(fftn=torch.fft.fftn, ifftn=torch.fft.ifftn)

    @staticmethod
    def astype(x: Any, dtype: Any) -> Any:
        """The same values as another dtype."""
        return x.to(dtype)

    def maximum(self, x: Any, least: float) -> Any:
        """No value below a number."""
        return self._module.clamp(x, min=least)


def collective_counter(ranks: int) -> Any:
    """A context that counts what this rank receives in collectives while it is active."""
    from torch.distributed import tensor
    from torch.distributed.tensor import placement_types
    from torch.utils._python_dispatch import TorchDispatchMode

    all_to_all = placement_types.shard_dim_alltoall

    class Counter(TorchDispatchMode):  # type: ignore[misc]
        received_bytes, transfers, gathers_instead = 0.0, 0, False

        def add(self, name: str, given: Any) -> None:
            self.received_bytes += given.numel() * given.element_size() * FACTORS[name](ranks)
            self.transfers += 1

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if any(issubclass(kind, tensor.DTensor) for kind in types):
                return NotImplemented  # it is taken apart first
            space, _, name = func._schema.name.partition("::")
            if "c10d" in space and name not in NO_TRANSFER:
                if name not in FACTORS:
                    raise ValueError(f"cannot count {func}")
                if not self.gathers_instead:
                    self.add(name, args[0])
            return func(*args, **(kwargs or {}))

        def shard_dim_alltoall(self, given: Any, *rest: Any) -> Any:
            self.add("shard_dim_alltoall", given)
            self.gathers_instead = True
            try:
                return all_to_all(given, *rest)
            finally:
                self.gathers_instead = False

        def __enter__(self) -> Any:
            placement_types.shard_dim_alltoall = self.shard_dim_alltoall
            return super().__enter__()

        def __exit__(self, *error: Any) -> None:
            placement_types.shard_dim_alltoall = all_to_all
            super().__exit__(*error)

    return Counter()
