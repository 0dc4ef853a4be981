"""Ten Lloyd rounds from given centres by one library, timed: a program that ``rivals`` starts."""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROUNDS, REPEAT = 10, 5


@dataclass(frozen=True, slots=True)
class Size:
    """Rows, dims and centres."""

    n: int
    d: int
    k: int

    @property
    def name(self) -> str:
        """For tables."""
        words = f"{self.n // 1000}k" if self.n < 10**6 else f"{self.n // 10**6}M"
        return f"{words} x {self.d}, k={self.k}"

    def rows(self) -> Any:
        """Points anywhere in a cube, the same in every process, and the first of them to start from.

        So no cluster is ever empty, which the libraries treat in different ways, and none of them is done
        before the last round.
        """
        x = np.random.default_rng(0).random((self.n, self.d))
        return x, x[: self.k].copy()


SIZES = (Size(100_000, 8, 8), Size(100_000, 32, 64), Size(1_000_000, 8, 8))
Fit = Callable[[], Any]


def by_redist(x: Any, start: Any, ranks: int) -> tuple[Fit, Callable[[Any], Any]]:
    """A fit of redist, and its centres."""
    from redist import pgas
    from redist.learn.cluster import KMeans

    there = pgas.asarray(x, type="{x}, {}")

    def fit() -> Any:
        model = KMeans(len(start), init=start, n_init=1, max_iter=ROUNDS, tol=0).fit(there)
        assert model.n_iter_ == ROUNDS
        return model

    return fit, lambda model: model.cluster_centers_


def by_heat(x: Any, start: Any, ranks: int) -> tuple[Fit, Callable[[Any], Any]]:
    """A fit of Heat."""
    import heat

    there = heat.array(x, split=0)
    centers = heat.array(start)

    def fit() -> Any:
        model = heat.cluster.KMeans(n_clusters=len(start), init=centers, max_iter=ROUNDS, tol=-1.0)
        model.fit(there)
        return model

    return fit, lambda model: model.cluster_centers_.numpy()


def by_dask(x: Any, start: Any, ranks: int) -> tuple[Fit, Callable[[Any], Any]]:
    """A fit of dask-ml, in threads."""
    import dask.array
    from dask_ml.cluster import KMeans

    there = dask.array.from_array(x, chunks=(-(-len(x) // ranks), x.shape[1])).persist()

    def fit() -> Any:
        return KMeans(len(start), init=start, max_iter=ROUNDS, tol=0).fit(there)

    return fit, lambda model: np.asarray(model.cluster_centers_)


WAYS = {"redist": by_redist, "heat": by_heat, "dask-ml": by_dask}


def main() -> int:
    """Time all sizes; the first rank writes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=WAYS)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    comm: Any = None
    if args.library != "dask-ml":
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    seconds, centers = {}, {}
    for size in SIZES:
        x, start = size.rows()
        fit, centers_of = WAYS[args.library](x, start, args.ranks)
        model, turns = fit(), []
        for _ in range(REPEAT):
            if comm is not None:
                comm.Barrier()
            begin = time.perf_counter()
            model = fit()
            turns.append(time.perf_counter() - begin)
        seconds[size.name] = float(np.median(turns))
        centers[size.name] = np.asarray(centers_of(model)).tolist()
    if comm is None or comm.rank == 0:
        args.json.write_text(json.dumps({"seconds": seconds, "centers": centers}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
