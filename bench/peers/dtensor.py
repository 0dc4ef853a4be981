"""PyTorch's DTensor on CPU, with gloo between processes."""

from __future__ import annotations

import atexit
import logging
import math
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from mpi4py import MPI

import redist
from bench.problems.installed import version, why_absent
from redist.layout.array_type import ArrayType
from redist.measure.cases import Case
from redist.measure.contenders.contender import Contender, Ends
from redist.measure.values import parts, source_values


class DTensorGloo(Contender):
    """``DTensor.redistribute``; the result is a new tensor every time."""

    label = "DTensor (gloo)"
    uses_ends = False

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        import torch
        from torch.distributed.tensor import DTensor

        super().__init__(case, comm, ends)
        _join(comm)
        self.label = f"DTensor {version('torch')} (gloo)"
        self._mesh = _mesh(case.source.mesh.axes)
        assert self.source_box is not None, "every rank is in the mesh"
        part = parts(case.source)[comm.rank]
        tile = torch.from_numpy(source_values(case.source, self.source_box, part))
        whole = torch.empty(case.source.shape, dtype=tile.dtype, device="meta")
        self._array: Any = DTensor.from_local(
            tile,
            self._mesh,
            _placements(case.source),
            run_check=False,
            shape=whole.shape,
            stride=whole.stride(),
        )
        self._to = _placements(case.target)
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
            redist.to_placements(case.source)
            redist.to_placements(case.target)
        except redist.ConversionError as error:
            return str(error).partition(" to placements: ")[2] or str(error)
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


def _placements(t: ArrayType) -> list[Any]:
    """Our placements as PyTorch's."""
    from torch.distributed import tensor

    out = []
    for placement in redist.to_placements(t):
        values = [getattr(placement, name) for name in placement.__dataclass_fields__]
        out.append(getattr(tensor, type(placement).__name__)(*values))
    return out


@lru_cache(maxsize=64)
def _mesh(axes: tuple[tuple[str, int], ...]) -> Any:
    """One mesh for all cases on it: each keeps process groups for ever."""
    import torch
    from torch.distributed.device_mesh import DeviceMesh

    sizes = [size for _, size in axes]
    ranks = torch.arange(math.prod(sizes)).reshape(sizes)
    return DeviceMesh("cpu", ranks, mesh_dim_names=tuple(name for name, _ in axes))


def _join(comm: MPI.Intracomm) -> None:
    """Make a process group of all ranks, once. **Collective over `comm`.**"""
    import torch
    from torch import distributed

    if distributed.is_initialized():
        return
    logging.disable(logging.WARNING)  # it warns of each fallback on each rank
    torch.set_num_threads(1)
    folder = tempfile.TemporaryDirectory() if comm.rank == 0 else None
    meeting = Path(comm.bcast(folder and folder.name)) / "meeting"
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(str(meeting), comm.size), rank=comm.rank,
        world_size=comm.size,
    )  # fmt: skip
    atexit.register(_leave, folder)


def _leave(folder: tempfile.TemporaryDirectory[str] | None) -> None:
    from torch import distributed

    distributed.destroy_process_group()
    if folder is not None:
        folder.cleanup()
