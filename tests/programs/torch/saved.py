"""DTensors saved, read by PyTorch, loaded into other types and back: ``mpirun -n 2 python -m ...``."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import redist
from redist.torch import from_global

COMM = MPI.COMM_WORLD


def main() -> None:
    """Raise unless everything comes back."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(COMM.bcast(name))
        store = dist.FileStore(str(folder / "group"), COMM.size)
        dist.init_process_group("gloo", store=store, rank=COMM.rank, world_size=COMM.size)
        mesh = init_device_mesh("cpu", (COMM.size,), mesh_dim_names=("x",))
        torch.manual_seed(0)
        w, h = torch.randn(7, 6), torch.randn(8, 4).to(torch.bfloat16)
        given = {"w": (w, Shard(0)), "h": (h, Shard(1)), "r": (2 * w, Replicate())}
        model = {key: distribute_tensor(one, mesh, [how]) for key, (one, how) in given.items()}
        path = folder / "t.safetensors"
        redist.save(path, {"model": model})
        types = {"model.w": "{}, {x}", "*": None}
        found = redist.load(path, types, mesh=redist.Mesh(x=COMM.size))
        assert torch.equal(from_global(found["model.w"], mesh).full_tensor(), w)
        assert torch.equal(from_global(found["model.h"], mesh).full_tensor(), h)
        data = path.read_bytes()
        for key, (one, _) in given.items():
            entry = redist.stored(path)[f"model.{key}"]
            raw = one.contiguous().view(torch.uint8).numpy().tobytes()
            assert data[entry.begin : entry.end] == raw, key
        COMM.Barrier()
        dist.destroy_process_group()
    print("saved and loaded", flush=True)


if __name__ == "__main__":
    main()
