"""Dask: arrays in chunks over worker processes, which may spill.

Arguments are cut as redist's are, one chunk a worker; those that are whole are one chunk. Dask places chunks
and tasks itself. Bytes are what workers note of the transfers between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.layouts.workload import arrays_in
from bench.peers.programs import Call, NumPyNames, Programs, Results
from bench.problems.installed import version

LIMIT_S = 90
"""A call that takes longer is given up."""
SPILL_SHARE = 0.5
"""The share of a worker's memory from which on it spills: a limit is this share of what it is given."""


class DaskPrograms(Programs):
    """The graph is built anew for every call, as a user's loop does; workers keep the results.

    With a limit, workers hold so many bytes of chunks each, as Dask counts them; what is more is written to
    files. Nothing else of Dask's memory control is on.
    """

    def __init__(
        self, devices: int, limit_bytes: int | None = None, folder: str | None = None
    ) -> None:
        import dask
        import dask.array
        from dask.distributed import Client, LocalCluster

        more: dict[str, Any] = {}
        if limit_bytes is not None:
            control = {"target": SPILL_SHARE, "spill": False, "pause": False, "terminate": False}
            dask.config.set(
                {f"distributed.worker.memory.{key}": one for key, one in control.items()}
            )
            more = {"memory_limit": int(limit_bytes / SPILL_SHARE), "local_directory": folder}
        self._dask, self.library = dask, f"Dask {version('dask')}"
        self.xp, self._workers = DaskNames(dask.array), devices
        self._cluster: Any = LocalCluster(
            n_workers=devices, threads_per_worker=1, dashboard_address=None, **more
        )
        self.client: Any = Client(self._cluster)

    def place(self, array: Any, cut: int | None) -> Any:
        """An array that workers hold."""
        chunks = [-(-n // self._workers) if dim == cut else n for dim, n in enumerate(array.shape)]
        return self._kept([self._dask.array.from_array(array, chunks=chunks)])[0]

    def ready(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Call:
        """A call that waits for the workers."""
        return lambda: self._kept(arrays_in(function(*arrays)))

    def _kept(self, arrays: Results) -> Results:
        from dask.distributed import wait

        kept = list(self._dask.persist(*arrays))
        try:
            wait(kept, timeout=LIMIT_S)
        except TimeoutError:
            raise TimeoutError(f"takes more than {LIMIT_S} s") from None
        return kept

    def values(self, results: Results) -> Results:
        """Gathered by the client."""
        return [np.asarray(one.compute()) for one in results]

    def counted(self, call: Call) -> tuple[Results, int | None, int | None]:
        """By what workers note; None if one of them noted no more."""
        self.client.run(forget_transfers)
        results = call()
        noted = self.client.run(received_by_worker).values()
        if any(one is None for one in noted):
            return results, None, None
        return results, sum(one[0] for one in noted), sum(one[1] for one in noted)

    def spilled_bytes(self) -> int:
        """What all workers have on their disks now."""
        return sum(self.client.run(spilled_by_worker).values())

    def close(self) -> None:
        """End the workers."""
        self.client.close()
        self._cluster.close()


class DaskNames(NumPyNames):
    """Dask's arrays under the names that workloads use."""

    def einsum(self, notation: str, *operands: Any) -> Any:
        """An Einstein sum, two operands at a time within every chunk."""
        return self._module.einsum(notation, *operands, optimize=True)

    @property
    def fft(self) -> Any:
        """Transforms of arrays in any chunks: Dask's own want dims in one chunk each."""
        return self

    def fftn(self, x: Any) -> Any:
        """Forward, along all dims."""
        return self._along_all(self._module.fft.fft, x)

    def ifftn(self, x: Any) -> Any:
        """Back, along all dims."""
        return self._along_all(self._module.fft.ifft, x)

    @staticmethod
    def _along_all(transform: Any, x: Any) -> Any:
        """Dim by dim, each made whole before, as Dask's errors advise."""
        for dim in reversed(range(x.ndim)):
            if len(x.chunks[dim]) > 1:
                other = next(i for i in range(x.ndim) if i != dim)
                x = x.rechunk({dim: -1, other: -(-x.shape[other] // x.npartitions)})
            x = transform(x, axis=dim)
        return x


def forget_transfers(dask_worker: Any) -> None:
    """Begin to note what a worker receives."""
    dask_worker.transfer_incoming_log.clear()


def received_by_worker(dask_worker: Any) -> tuple[int, int] | None:
    """Bytes and number of the transfers that a worker has received since; None if it notes no more."""
    noted = dask_worker.transfer_incoming_log
    if len(noted) == noted.maxlen:
        return None
    return sum(one["total"] for one in noted), len(noted)


def spilled_by_worker(dask_worker: Any) -> int:
    """What a worker has on its disk now."""
    return int(getattr(dask_worker.data, "spilled_total", (0, 0))[1])


def fit_kmeans(x: Any, start: Any, rounds: int, ranks: int) -> tuple[Callable[[], Any], Any]:
    """A fit of dask-ml in threads, and what makes its centres an array of NumPy."""
    import dask.array
    from dask_ml.cluster import KMeans

    there = dask.array.from_array(x, chunks=(-(-len(x) // ranks), x.shape[1])).persist()
    model = KMeans(len(start), init=start, max_iter=rounds, tol=0)
    return lambda: model.fit(there), lambda fitted: np.asarray(fitted.cluster_centers_)
