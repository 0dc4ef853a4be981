"""Race plans against XLA's own reshardings on forced host devices, in one process.

``python -m bench.xla.lowered_child N_DEVICES N_PROBLEMS SEED BYTES REPEAT --json FILE`` writes a list, a row
a problem; started by ``python -m bench lowered``.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from bench.peers.jax_child import force_devices
from bench.races.jax_job import cases
from redist.lower.hlo import elems, received_elems
from redist.measure.cases import Case
from redist.text.progress import track


def main() -> None:
    """Measure every problem and write what was found."""
    n_devices, n, seed, n_bytes, repeat = map(int, sys.argv[1:6])
    force_devices(n_devices)
    asked = cases(n, seed, n_bytes, n_devices)
    rows = [race(case, n_devices, repeat) for case in track(asked, n, "bench lowered")]
    Path(sys.argv[-1]).write_text(json.dumps(rows), encoding="utf-8")


def race(case: Case, n_devices: int, repeat: int) -> dict[str, Any]:
    """One problem: XLA's own way and the plan in turn, checked first."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import redist.jax
    from redist.jax.choose import XLA, goes_as_bits
    from redist.lower.lowering import lower_plan
    from redist.lower.memory import peak_bytes

    source, target = case.source, case.target
    grid = np.array(jax.devices()).reshape([size for _, size in source.mesh.axes])
    mesh = Mesh(grid, [name for name, _ in source.mesh.axes])
    ends = [
        NamedSharding(mesh, PartitionSpec(*redist.to_partition_spec(t))) for t in (source, target)
    ]
    values = np.random.default_rng(0).integers(0, 100, source.shape)
    x = jax.device_put(values.astype(source.dtype.to_numpy()), ends[0])
    plan = redist.jax.plan_for(x, ends[1])
    as_bits = goes_as_bits(source.dtype, jax.devices()[0].platform)
    ways = [
        jax.jit(lambda a: a, out_shardings=ends[1]),
        jax.jit(redist.jax.to_jax(plan, mesh, topology=XLA), out_shardings=ends[1]),
    ]
    theirs, ours = (way(x) for way in ways)
    wrong = not np.array_equal(np.asarray(theirs), np.asarray(ours))
    del theirs, ours
    times: list[list[float]] = [[], []]
    for _ in range(repeat):
        for way, took in zip(ways, times, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(way(x))
            took.append(time.perf_counter() - start)
    compiled = [way.lower(x).compile() for way in ways]
    texts = [one.as_text() for one in compiled]
    item = source.dtype.itemsize
    memory = [one.memory_analysis() for one in compiled]
    held = [
        m.argument_size_in_bytes + m.output_size_in_bytes + m.temp_size_in_bytes for m in memory
    ]
    return {
        "case": f"{source} -> {target} on {source.mesh}",
        "wrong": wrong,
        "steps": [step.op for step in plan.steps],
        "times_s": times,
        "received_bytes": [received_elems(text, n_devices) * item for text in texts],
        "planned_bytes": plan.received_bytes,
        "gathers_all": gathers_all(texts[0], source.global_elems)
        and target.tile_bytes < source.global_elems * item,
        "held_bytes": held,
        "bound_bytes": peak_bytes(lower_plan(plan, XLA), as_bits=as_bits),
        "certified_bytes": plan.peak_bytes,
    }


def gathers_all(text: str, n_elems: int) -> bool:
    """Whether a compiled program gathers the whole array somewhere.

    >>> gathers_all("  %g = f32[8,16]{1,0} all-gather(%p), replica_groups={}", 128)
    True
    """
    found = re.findall(r"= (\(.*?\)|\S+) all-gather(?:-start)?\(", text)
    return any(elems(shape) >= n_elems for shape in found)


if __name__ == "__main__":
    main()
