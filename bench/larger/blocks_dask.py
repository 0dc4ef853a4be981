"""The same blocks by Dask, whose workers spill: ``python -m bench.larger.blocks_dask``.

Weights are cut as redist's are, one chunk a worker. Workers may hold ``--limit`` bytes of chunks each, as
Dask counts them; what is more is written to files. Nothing else of Dask's memory control is on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.larger.blocks import CUTS, BlockStack, stack_from
from bench.layouts.with_dask import DaskNames
from bench.problems.installed import version
from examples import transformer

LIMIT_S = 90
ERROR = 1e-4
TARGET = 0.5
"""The share of a worker's memory from which on it spills: the limit is this share of what it is given."""


def main() -> int:
    """Check, time and write."""
    import dask
    from dask.distributed import Client, LocalCluster

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stack", nargs=4, default=["24", "1024", "1", "64"])
    parser.add_argument("--limit", type=int, required=True, help="bytes a worker; 0 is no limit")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", default="/tmp")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    memory = {"target": TARGET, "spill": False, "pause": False, "terminate": False}
    dask.config.set({f"distributed.worker.memory.{name}": one for name, one in memory.items()})
    cluster: Any = LocalCluster(
        n_workers=args.workers, threads_per_worker=1, dashboard_address=None,
        memory_limit=int(args.limit / TARGET), local_directory=args.folder,
    )  # fmt: skip
    with cluster, Client(cluster) as client:
        data = measure(stack_from(args.stack), args.workers, args.repeat, client)
    if args.json is not None:
        args.json.write_text(json.dumps(data), encoding="utf-8")
    return 0


def measure(stack: BlockStack, workers: int, repeat: int, client: Any) -> dict[str, Any]:
    """Build the graph anew for every call, as a user's loop does."""
    import dask
    import dask.array
    from dask.distributed import wait

    def cut(array: Any, dim: int | None) -> Any:
        chunks = [-(-n // workers) if at == dim else n for at, n in enumerate(array.shape)]
        there = dask.persist(dask.array.from_array(array, chunks=chunks))[0]
        wait(there)
        return there

    given = cut(stack.x(), None)
    weights = [
        {name: cut(w, CUTS[name]) for name, w in stack.layer(number).items()}
        for number in range(stack.n_layers)
    ]
    forward = partial(transformer.stack, DaskNames())

    def call() -> Any:
        (found,) = dask.persist(forward(given, weights))
        wait(found, timeout=LIMIT_S)
        return found

    want = stack.by_numpy()
    found = np.asarray(call().compute())
    error = float(np.abs(found - want).max() / np.abs(want).max())
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
        print(f"bench larger: Dask {seconds[-1]:.3f} s", file=sys.stderr, flush=True)
    spilled = sum(client.run(spilled_bytes).values())
    return {
        "library": f"Dask {version('dask')}", "times": seconds, "wrong": bool(error > ERROR),
        "spilled_bytes": spilled,
    }  # fmt: skip


def spilled_bytes(dask_worker: Any) -> int:
    """What a worker has on its disk now."""
    return int(getattr(dask_worker.data, "spilled_total", (0, 0))[1])


if __name__ == "__main__":
    sys.exit(main())
