"""jax.Arrays as global arrays and back: ``mpirun -n 2 python -m tests.programs.jax.shared``."""

from __future__ import annotations

import os
import socket

from mpi4py import MPI

comm = MPI.COMM_WORLD
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = ""
os.environ["JAX_ENABLE_X64"] = "1"

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

import redist  # noqa: E402
import redist.jax  # noqa: E402
from redist import pgas  # noqa: E402
from tests.programs.together import main  # noqa: E402


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return int(one.getsockname()[1])


def program() -> int:
    port = comm.bcast(free_port() if comm.rank == 0 else None)
    jax.distributed.initialize(f"localhost:{port}", comm.size, comm.rank)
    mesh = Mesh(np.array(jax.devices()), ("x",))
    whole = np.arange(8 * comm.size * 6.0).reshape(8 * comm.size, 6)
    rows = NamedSharding(mesh, PartitionSpec("x"))
    x = jax.make_array_from_callback(whole.shape, rows, lambda key: whole[key])
    a = redist.jax.to_global(x)
    (shard,) = x.addressable_shards
    assert a.local is not None and a.local.ctypes.data == shard.data.unsafe_buffer_pointer(), (
        "copied"
    )

    total = pgas.sum(a)
    assert float(total) == whole.sum()

    back = redist.jax.from_global(a, mesh)
    assert back.sharding.is_equivalent_to(rows, 2)
    assert np.array_equal(back.addressable_shards[0].data, shard.data)

    other = Mesh(np.array(jax.devices()), ("y",))
    try:
        redist.jax.from_global(a, other)
    except redist.ConversionError as error:
        assert "same axes" in str(error), error
    else:
        raise AssertionError("another mesh is accepted")
    comm.Barrier()
    return 0


if __name__ == "__main__":
    main(program)
