"""DTensors as global arrays and back: the same memory, the same values after moves, one error on all ranks.

As in ``mpirun -n 4 python -m tests.programs.torch.global_arrays``, which makes a group of gloo of the ranks;
with ``gpu``, of DTensors on the GPU that they share.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import Partial

import redist
import redist.torch
from redist import pgas
from tests.programs.pgas.reading import refused
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
N = COMM.size
FULL = torch.arange(24 * 40, dtype=torch.float32).reshape(24, 40)
LARGE = (torch.arange(512.0 * 256) % 97).reshape(512, 256)
"""Its tiles are so large that those of pgas would lie in shared memory."""


def turned(rank: int) -> int:
    """The rank in PyTorch of a rank of MPI, where both number them in other orders."""
    return (rank + 1) % N


def join(number: Callable[[int], int]) -> None:
    """**Collective.** Make a group of PyTorch of all ranks of MPI."""
    folder = COMM.bcast(tempfile.mkdtemp(prefix="redist-") if COMM.rank == 0 else None)
    store = dist.FileStore(f"{folder}/store", N)
    dist.init_process_group("gloo", store=store, rank=number(COMM.rank), world_size=N)


def line() -> DeviceMesh:
    return init_device_mesh("cpu", (N,), mesh_dim_names=("tp",))


def same_memory(x: DTensor, a: Any) -> bool:
    local: Any = x._local_tensor
    return a.local is not None and a.local.__array_interface__["data"][0] == local.data_ptr()


def alike(x: DTensor, y: DTensor) -> bool:
    """Whether placements are the same; on one rank there are several names for one."""
    return N == 1 or bool(x.placements == y.placements)


def dtensors_share_memory() -> str | None:
    mesh = line()
    for kind in (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool):
        for full in (FULL, LARGE, FULL[: 2 * N - 1]):
            for placement in (Shard(0), Shard(1), Replicate()):
                x = distribute_tensor(full, mesh, [placement]).to(kind)
                known = kind not in (torch.bfloat16, torch.float8_e4m3fn)
                a = pgas.asarray(x) if known else redist.torch.to_global(x)
                y = redist.torch.from_global(a, mesh)
                local: Any = y._local_tensor
                if not same_memory(x, a) and x._local_tensor.numel():
                    return f"{a.type} was copied"
                if not alike(x, y) or local.data_ptr() != x._local_tensor.data_ptr():
                    return f"{y.placements} of {a.type} is another"
                if redist.torch.type_of(x).dims != a.type.dims or a.shape != tuple(full.shape):
                    return f"{x.placements} became {a.type}"
    x = distribute_tensor(FULL, mesh, [Shard(0)])
    a = pgas.asarray(x)
    a *= 2
    if not torch.equal(x.full_tensor(), 2 * FULL):
        return "what is written to the array is not in the DTensor"
    x.add_(1)
    return None if np.array_equal(a.gather(), 2 * FULL.numpy() + 1) else "and the other way round"


def values_survive_moves() -> str | None:
    """Tiles in private memory move as others do, uneven ones too, to every layout and back."""
    meshes = [line()]
    if N % 2 == 0:
        meshes.append(init_device_mesh("cpu", (2, N // 2), mesh_dim_names=("dp", "tp")))
    for mesh in meshes:
        for full in (FULL, LARGE, FULL[:, :7]):
            for placement in (Shard(0), Shard(1)):
                x = distribute_tensor(full, mesh, [*[Replicate()] * (mesh.ndim - 1), placement])
                a = pgas.asarray(x)
                for cut in ("{tp}, {}", "{}, {tp}", "{}, {}"):
                    moved = a.to(cut)
                    back = redist.torch.from_global(moved, mesh)
                    if not torch.equal(back.full_tensor(), full):
                        return f"{a.type} to {moved.type}"
                if not np.array_equal(pgas.sum(a, axis=0).gather(), full.sum(0).numpy()):
                    return f"the sum of {a.type}"
    return None


def pending_sums_stay() -> str | None:
    mesh = line()
    for op, whole in (("sum", FULL * N), ("max", FULL)):
        x = DTensor.from_local(FULL.clone(), mesh, [Partial(op)])
        a = pgas.asarray(x)
        if (N > 1 and a.type.pending_op != op) or not same_memory(x, a):
            return f"{x.placements} became {a.type}"
        y = redist.torch.from_global(a, mesh)
        if not alike(x, y):
            return f"{a.type} became {y.placements}"
        if not np.array_equal(a.to("{tp}, {}").gather(), whole.numpy()):
            return f"the {op} of {a.type}"
    return None


def gradients_do_not_pass() -> str | None:
    weight = torch.nn.Parameter(distribute_tensor(FULL, line(), [Shard(0)]))
    a = pgas.asarray(weight)
    y = redist.torch.from_global(a, line())
    return "a gradient" if y.requires_grad or not same_memory(weight.data, a) else None


def options_are_those_of_arrays() -> str | None:
    mesh = line()
    x = distribute_tensor(FULL, mesh, [Shard(0)])
    copy, half = pgas.asarray(x, copy=True), pgas.asarray(x, dtype="f8")
    if (
        same_memory(x, copy)
        or half.dtype != np.float64
        or not same_memory(x, pgas.asarray(x, copy=False))
    ):
        return f"{copy.type}, {half.type}"
    made = redist.torch.from_global(pgas.ones((8, 4), type="{x}, {}", mesh=redist.Mesh(x=N)))
    again = redist.torch.from_global(pgas.ones((8, 4), type="{x}, {}", mesh=redist.Mesh(x=N)))
    if made.device_mesh is not again.device_mesh or made.device_mesh.mesh_dim_names != ("x",):
        return f"made {made.device_mesh} and {again.device_mesh}"
    return None if torch.equal(made.full_tensor(), torch.ones(8, 4)) else "other values"


def wrong_requests_are_one_error() -> str | None:
    mesh = line()
    x = distribute_tensor(FULL, mesh, [Shard(0)])
    short = FULL[: 24 // N - (COMM.rank == N - 1)] if N > 1 else FULL[:5]
    odd = DTensor.from_local(
        short, mesh, [Shard(0)], run_check=False, shape=FULL.shape, stride=(40, 1)
    )
    average = DTensor.from_local(FULL, mesh, [Partial("avg")])
    other = pgas.ones((4, 4), type="{}, {x}", mesh=redist.Mesh(x=N))
    elsewhere = DeviceMesh("meta", [*range(N)], mesh_dim_names=("tp",), _init_backend=False)
    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("use a.to(type)", partial(pgas.asarray, x, type="{}, {tp}")),
        ("use a.to(type)", partial(pgas.asarray, x, limit_bytes=2**20)),
        ("its tile is", partial(pgas.asarray, odd)),
        ("'avg'", partial(pgas.asarray, average)),
        ("give one with the same dims, names and ranks", partial(redist.torch.from_global, other, mesh)),
        ("its tiles are on cpu", partial(redist.torch.from_global, pgas.asarray(x), elsewhere)),
    ]  # fmt: skip
    if N > 1:
        whole = DTensor.from_local(FULL, mesh, [Replicate()], run_check=False)
        differ = whole if COMM.rank else x
        wrong.append(("ranks disagree", partial(pgas.asarray, differ)))
        half = COMM.Split(COMM.rank // ((N + 1) // 2))
        wrong.append(("is not in the communicator", partial(pgas.asarray, x, comm=half)))
    for words, work in wrong:
        said = refused(work)
        if words not in said:
            return f"{words}: {said}"
    return None


def other_numbers_are_found_out() -> str | None:
    """PyTorch numbers the ranks in another order than MPI: tiles still lie where they are."""
    dist.barrier()
    dist.destroy_process_group()
    join(turned)
    mesh = line()
    x = distribute_tensor(FULL, mesh, [Shard(0)])
    a = pgas.asarray(x)
    if list(a.mesh.ranks) != [(rank - 1) % N for rank in range(N)] or not same_memory(x, a):
        return f"{a.mesh}"
    if not np.array_equal(a.to("{}, {tp}").gather(), FULL.numpy()):
        return "other values"
    y = redist.torch.from_global(a.to("{}, {tp}"), mesh)
    if not torch.equal(y.full_tensor(), FULL):
        return f"{y.placements}"
    made = redist.torch.from_global(a)
    return None if torch.equal(made.full_tensor(), FULL) else "a mesh that was made"


def dtensors_on_gpus_share_memory() -> str | None:
    """Tensors on GPUs, which several ranks may share here: CuPy's arrays of the same memory, and back."""
    mesh = init_device_mesh("cuda", (N,), mesh_dim_names=("tp",))
    for kind in (torch.float32, torch.float64, torch.int64):
        for cut, placement in (("{}, {tp}", Shard(0)), ("{tp}, {}", Shard(1))):
            part = FULL.chunk(N, placement.dim)[COMM.rank].to("cuda", kind).contiguous()
            x = DTensor.from_local(part, mesh, [placement], run_check=False)
            a = pgas.asarray(x)
            tile: Any = a.local
            if a.device[:4] != "cuda" or tile.data.ptr != part.data_ptr():
                return f"{a.type} on {a.device} was copied"
            y = redist.torch.from_global(a, mesh)
            local: Any = y._local_tensor
            if not alike(x, y) or local.data_ptr() != part.data_ptr():
                return f"{y.placements} of {a.type} is another"
            a += 1
            moved = redist.torch.from_global(a.to(cut), mesh)
            torch.cuda.synchronize()
            want = (FULL + 1).chunk(N, 1 - placement.dim)[COMM.rank].to(kind)
            if not torch.equal(moved._local_tensor.cpu(), want):
                return f"{a.type} moved to {cut}"
    bits = DTensor.from_local(FULL.to("cuda", torch.bfloat16), mesh, [Replicate()], run_check=False)
    a = redist.torch.to_global(bits)
    back: Any = redist.torch.from_global(a, mesh)._local_tensor
    return (
        None
        if back.data_ptr() == bits._local_tensor.data_ptr() and back.dtype == bits.dtype
        else "bf16"
    )


ON_GPUS = {"DTensors on GPUs share memory": dtensors_on_gpus_share_memory}
CHECKS = {
    "DTensors share memory": dtensors_share_memory,
    "values survive moves": values_survive_moves,
    "pending sums stay": pending_sums_stay,
    "gradients do not pass": gradients_do_not_pass,
    "options": options_are_those_of_arrays,
    "wrong requests are one error": wrong_requests_are_one_error,
    "other numbers": other_numbers_are_found_out,
}


def program() -> int:
    """Join, and run all checks."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    join(lambda rank: rank)
    status = run_named(ON_GPUS if sys.argv[1:] == ["gpu"] else CHECKS)
    dist.barrier()
    dist.destroy_process_group()
    return status


if __name__ == "__main__":
    main(program)
    sys.exit()
