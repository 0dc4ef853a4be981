"""Compile redistributions with XLA for forced host devices; ``python -m bench.xla.compile_child N``.

Reads a JSON list of questions and writes one of answers. Apart from the benchmark's own process,
because the number of devices is fixed once jax is imported.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from redist.lower.hlo import received_elems


def main() -> None:
    """Answer every question on stdin."""
    n_devices = int(sys.argv[1])
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={n_devices}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["JAX_ENABLE_X64"] = "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    answers = [_answer(question, n_devices) for question in json.load(sys.stdin)]
    json.dump(answers, sys.stdout)


def _answer(question: dict[str, Any], n_devices: int) -> tuple[int, int]:
    """Elements received by all devices, and bytes of temporaries on one."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    names = [name for name, _ in question["axes"]]
    grid = np.array(jax.devices()).reshape([size for _, size in question["axes"]])
    mesh = Mesh(grid, names)
    ends = [
        NamedSharding(mesh, PartitionSpec(*(tuple(dim) or None for dim in question[end])))
        for end in ("source", "target")
    ]
    move = jax.jit(lambda a: a, in_shardings=ends[0], out_shardings=ends[1])
    array = jax.ShapeDtypeStruct(tuple(question["shape"]), jax.numpy.dtype(question["dtype"]))
    compiled = move.lower(array).compile()
    memory = compiled.memory_analysis()
    return received_elems(compiled.as_text(), n_devices), int(memory.temp_size_in_bytes)


if __name__ == "__main__":
    main()
