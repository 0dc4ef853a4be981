"""GPU arrays of others, by ``__cuda_array_interface__`` alone or by DLPack alone. Needs a GPU.

As in ``mpirun -n 2 python -m tests.programs.gpu.foreign``: PyTorch and JAX take part
where they are installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist.errors import RequestError
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import as_device, device_address, to_host
from tests.programs.together import all_well, main

SHAPE = (64, 96)
ROWS, COLUMNS = "f32[64{x}, 96]", "f32[64, 96{x}]"

Make = Callable[[Any], Any]


class Interface:
    """An array that has ``__cuda_array_interface__`` and nothing else."""

    def __init__(self, array: Any) -> None:
        self.__cuda_array_interface__ = array.__cuda_array_interface__
        self._kept = array


class Capsule:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self._kept = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._kept.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._kept.__dlpack_device__()


def kinds() -> Iterator[tuple[str, Make, bool]]:
    """Names of what there is, how to make one of a CuPy array, whether it may be written."""
    yield "interface", Interface, True
    yield "DLPack", Capsule, True
    try:
        import torch

        yield "PyTorch", lambda array: torch.as_tensor(array, device="cuda"), True
    except Exception:  # not installed, or without CUDA
        pass
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax.dlpack

        if any(device.platform == "gpu" for device in jax.devices()):
            yield "JAX", lambda array: jax.dlpack.from_dlpack(array), False
    except Exception:
        pass


def wrong(comm: MPI.Comm, name: str, make: Make, writable: bool) -> str | None:
    """What is wrong with one kind of array; None if nothing."""
    import cupy

    whole = np.arange(SHAPE[0] * SHAPE[1], dtype="f4").reshape(SHAPE)
    n, m = (-(-size // comm.size) for size in SHAPE)
    want = whole[:, m * comm.rank : m * (comm.rank + 1)]
    given = cupy.asarray(whole[n * comm.rank : n * (comm.rank + 1)])
    local = make(given)
    if not is_device(local) or device_address(as_device(local)) != device_address(given):
        return "taking it in made a copy"
    mesh = redist.Mesh(x=comm.size)
    got = redist.redistribute(local, ROWS, COLUMNS, comm, mesh=mesh)
    if not isinstance(got, cupy.ndarray) or not np.array_equal(to_host(got), want):
        return "the result is wrong"
    if not np.array_equal(to_host(given), whole[n * comm.rank : n * (comm.rank + 1)]):
        return "the source was modified"
    if not writable:
        return None
    memory = cupy.zeros(want.shape, "f4")
    out = make(memory)
    with redist.Transfer(ROWS, COLUMNS, comm, mesh=mesh) as transfer:
        if transfer(local, out) is not out:
            return "the result is not the array that was given for it"
    if not np.array_equal(to_host(memory), want):
        return "what was written into an array of theirs is wrong"
    return None


def mixed(comm: MPI.Comm) -> str | None:
    """What is wrong with an array of a GPU on some ranks and one in memory on others."""
    import cupy

    n = -(-SHAPE[0] // comm.size)
    tile = np.zeros((n, SHAPE[1]), "f4")
    local = cupy.asarray(tile) if comm.rank == 0 else tile
    try:
        redist.redistribute(local, ROWS, COLUMNS, comm, mesh=redist.Mesh(x=comm.size))
    except RequestError as error:
        return None if "GPU" in str(error) else f"it says {error}"
    return None if comm.size == 1 else "nobody minded"


def program() -> int:
    """0 if every kind is moved rightly."""
    comm = MPI.COMM_WORLD
    names = []
    good = True
    for name, make, writable in kinds():
        good &= all_well(comm, name, wrong(comm, name, make, writable))
        names.append(name)
    good &= all_well(comm, "mixed", mixed(comm))
    if comm.rank == 0 and good:
        print(f"arrays of others agree: {', '.join(names)} ({comm.size} ranks)", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    main(program)
