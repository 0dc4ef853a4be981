"""Workers of a Dask cluster that are ranks: what they hold becomes a global array, and tiles their blocks.

As in ``python -m tests.programs.foreign.dask_cluster 3``, which starts a cluster on this machine.
"""

from __future__ import annotations

import faulthandler
import sys
from typing import Any

import numpy as np

LIMIT_S = 120.0
FULL = np.arange(23 * 10.0).reshape(23, 10)
TYPES = ("{x}, {}", "{}, {x}", "{}, {}")


def work(rank: int, size: int, folder: str, x: Any) -> Any:
    """**Collective.** One rank, in a task of its worker: join, take the array in, and give arrays back."""
    from distributed import secede

    import redist

    secede()  # so that this worker also does what its Dask array asks for
    comm = redist.join(rank, size, folder, timeout_s=60)
    from redist import pgas

    given = []
    for cut in TYPES:
        a = pgas.asarray(x, type=cut, limit_bytes="2MiB")
        if not np.array_equal(a.gather(), FULL + 1):
            raise AssertionError(f"to {cut}: {a.gather()}")
        given.append(pgas.to_dask(a * 2))
        a *= 0  # Dask has copies
        again = pgas.asarray(given[-1])
        if not np.array_equal(again.gather(), 2 * FULL + 2):
            raise AssertionError(f"back from {cut}: {again.gather()}")
    comm.Barrier()
    return given


def main(size: int) -> int:
    """Start a cluster, let its workers be ranks, and compute with what they give."""
    import tempfile

    import dask.array as da
    from distributed import Client, LocalCluster

    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    folder = tempfile.mkdtemp(prefix="redist-")
    with (
        LocalCluster(n_workers=size, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        x = (da.from_array(FULL, chunks=(6, 4)) + 1).persist()
        ranks = [
            client.submit(work, rank, size, folder, x, workers=[worker], pure=False)
            for rank, worker in enumerate(client.scheduler_info(n_workers=-1)["workers"])
        ]
        given = client.gather(ranks)
        for cut, one in zip(TYPES, given[0], strict=True):
            if not np.array_equal(one.compute(), 2 * FULL + 2):
                print(f"WRONG {cut}: {one.compute()}", flush=True)
                return 1
            print(f"well {cut}: chunks {one.chunks}", flush=True)
    return 0


if __name__ == "__main__":
    from tests.programs.foreign import dask_cluster  # the function that workers find by its name

    sys.exit(dask_cluster.main(int(sys.argv[1])))
