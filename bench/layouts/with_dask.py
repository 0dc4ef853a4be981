"""Workloads on Dask's arrays over worker processes: ``python -m bench.layouts.with_dask``.

Arguments are cut as redist's are, one chunk a worker; those that are whole are one chunk. Dask places chunks
and tasks itself. Bytes are what workers note of the transfers between them.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from bench.layouts.rival import RivalRow, ask, check, measured
from bench.layouts.workload import Workload, arrays_in, error_of
from bench.problems.installed import version
from bench.report.figures import quartiles

LIMIT_S = 60
"""A call that takes longer is given up."""


class DaskNames:
    """Dask's arrays under the names that workloads use."""

    def __getattr__(self, name: str) -> Any:
        import dask.array

        return getattr(dask.array, name)

    @staticmethod
    def astype(x: Any, dtype: Any) -> Any:
        """The same values as another dtype."""
        return x.astype(dtype)

    @staticmethod
    def einsum(notation: str, *operands: Any) -> Any:
        """An Einstein sum, two operands at a time within every chunk."""
        import dask.array

        return dask.array.einsum(notation, *operands, optimize=True)

    @property
    def fft(self) -> Any:
        """Transforms of arrays in any chunks: Dask's own want dims in one chunk each."""
        return DaskTransforms()


class DaskTransforms:
    """Transforms dim by dim, each with its dim made whole before, as Dask's errors advise."""

    def fftn(self, x: Any) -> Any:
        """Forward, along all dims."""
        return self._along_all("fft", x)

    def ifftn(self, x: Any) -> Any:
        """Back, along all dims."""
        return self._along_all("ifft", x)

    @staticmethod
    def _along_all(name: str, x: Any) -> Any:
        import dask.array

        for dim in reversed(range(x.ndim)):
            if len(x.chunks[dim]) > 1:
                other = next(i for i in range(x.ndim) if i != dim)
                x = x.rechunk({dim: -1, other: -(-x.shape[other] // x.npartitions)})
            x = getattr(dask.array.fft, name)(x, axis=dim)
        return x


def main() -> int:
    """Check and time every workload on a cluster of local workers."""
    from dask.distributed import Client, LocalCluster

    asked = ask(__doc__)
    library = f"Dask {version('dask')}"
    cluster: Any = LocalCluster(
        n_workers=asked.devices, threads_per_worker=1, dashboard_address=None
    )
    with cluster, Client(cluster) as client:

        def measure(workload: Workload) -> RivalRow:
            return dask_row(workload, library, client, asked.devices, asked.repeat)

        asked.write([measured(one, library, measure) for one in asked.chosen])
    return 0


def dask_row(workload: Workload, library: str, client: Any, workers: int, repeat: int) -> RivalRow:
    """Build the graph anew for every call, as a user's loop does, and let the workers keep the results."""
    import dask
    import dask.array
    from dask.distributed import wait

    arrays = []
    for array, cut in zip(workload.make(), workload.cuts, strict=True):
        chunks = [-(-n // workers) if dim == cut else n for dim, n in enumerate(array.shape)]
        arrays.append(dask.array.from_array(array, chunks=chunks))
    arrays = list(dask.persist(*arrays))
    wait(arrays)
    function = workload.of(DaskNames())

    def call() -> tuple[Any, ...]:
        results: tuple[Any, ...] = dask.persist(*arrays_in(function(*arrays)))
        try:
            wait(results, timeout=LIMIT_S)
        except TimeoutError:
            raise TimeoutError(f"takes more than {LIMIT_S} s") from None
        return results

    client.run(forget_transfers)
    results = call()
    noted = client.run(received_by_worker).values()
    found = [np.asarray(one.compute()) for one in results]
    check(workload, error_of(found, workload.reference()))
    del results
    are_all_noted = all(one is not None for one in noted)
    n_bytes = sum(one[0] for one in noted if one) if are_all_noted else None
    transfers = sum(one[1] for one in noted if one)
    seconds = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    times = quartiles(seconds[1:]) if repeat else None
    return RivalRow(workload.name, library, n_bytes, transfers, times)


def forget_transfers(dask_worker: Any) -> None:
    """Begin to note what a worker receives."""
    dask_worker.transfer_incoming_log.clear()


def received_by_worker(dask_worker: Any) -> tuple[int, int] | None:
    """Bytes and number of the transfers that a worker has received since; None if it notes no more."""
    noted = dask_worker.transfer_incoming_log
    if len(noted) == noted.maxlen:
        return None
    return sum(one["total"] for one in noted), len(noted)


if __name__ == "__main__":
    sys.exit(main())
