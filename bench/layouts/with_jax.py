"""Workloads compiled by JAX for CPU devices of one process: ``python -m bench.layouts.with_jax``.

Arguments lie as redist's do, results lie as XLA likes. Bytes are counted in the compiled program. A device
of a group of g that puts L bytes into a collective receives L(g-1) in an all-gather, L(g-1)/g in an
all-to-all or reduce-scatter and 2L(g-1)/g in an all-reduce, as rings do; a permute moves whole operands.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from bench.layouts.rival import RivalRow, ask, check, measured
from bench.layouts.workload import Workload, arrays_in, error_of
from bench.peers.jax_child import force_devices
from bench.problems.installed import version
from bench.report.figures import quartiles
from redist.lower.hlo import received_bytes


def main() -> int:
    """Compile, count, check and time every workload."""
    asked = ask(__doc__)
    force_devices(asked.devices)
    library = f"JAX {version('jax')}"

    def measure(workload: Workload) -> RivalRow:
        return compiled_row(workload, library, asked.repeat)

    asked.write([measured(one, library, measure) for one in asked.chosen])
    return 0


def compiled_row(workload: Workload, library: str, repeat: int) -> RivalRow:
    """Compile a workload for all devices; its layouts are chosen by XLA."""
    import jax

    arrays = arguments(workload)
    compiled = jax.jit(workload.of(jax.numpy)).lower(*arrays).compile()
    n_bytes, transfers = received_bytes(compiled.as_text(), len(jax.devices()))
    results = [np.asarray(one) for one in arrays_in(compiled(*arrays))]
    check(workload, error_of(results, workload.reference()))
    seconds = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*arrays))
        seconds.append(time.perf_counter() - start)
    return RivalRow(
        workload.name, library, n_bytes, transfers, quartiles(seconds[1:]) if repeat else None
    )


def arguments(workload: Workload) -> list[Any]:
    """Arrays of JAX, cut as the workload says over all devices."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("x",))
    found = []
    for array, cut in zip(workload.make(), workload.cuts, strict=True):
        parts = ["x" if dim == cut else None for dim in range(array.ndim)]
        found.append(jax.device_put(array, NamedSharding(mesh, PartitionSpec(*parts))))
    return found


if __name__ == "__main__":
    sys.exit(main())
