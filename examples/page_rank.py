"""PageRank of a graph whose edges are listed by rows: reads at indices that are inspected once.

``mpirun -n 4 python examples/page_rank.py --n 100000``. Page ``i`` has links from ``sources[k]`` for every
``k`` with ``rows[k] == i``, as in a sparse matrix by rows. Ranks tell each other in the first step which
pages they ask for; later steps pass values alone.
"""

from __future__ import annotations

import argparse

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas

KEPT = 0.85


def make(n: int, links: int) -> tuple[pgas.Array, pgas.Array, pgas.Array]:
    """Of every link the page that it leads to, in order, and where it is; links from each page."""
    draw = np.random.default_rng(5)
    rows = np.sort(draw.integers(0, n, links))
    sources = draw.integers(0, n, links) ** 2 // n  # some pages have many
    n_out = np.bincount(sources, minlength=n)
    return tuple(pgas.asarray(one).to("{x}") for one in (rows, sources, n_out))  # type: ignore[return-value]


@pgas.program
def step(rank: pgas.Array, rows: pgas.Array, sources: pgas.Array, n_out: pgas.Array) -> pgas.Array:
    """**Collective.** Each page gives its links equal parts of its rank; pages without links give all."""
    n = rank.shape[0]
    part = rank / pgas.maximum(n_out, 1)
    rest = pgas.sum(pgas.where(n_out == 0, rank, 0.0))
    got = pgas.zeros_like(rank)
    got.accumulate(rows, part.get(sources))  # one exchange of values each
    return KEPT * (got + rest / n) + (1 - KEPT) / n


def alone(n: int, graph: tuple[pgas.Array, ...], steps: int) -> np.ndarray:
    """The same by NumPy, on one rank."""
    rows, sources, n_out = (one.gather() for one in graph)
    rank = np.full(n, 1 / n)
    for _ in range(steps):
        part = rank / np.maximum(n_out, 1)
        got = np.bincount(rows, part[sources], minlength=n)
        rank = KEPT * (got + rank[n_out == 0].sum() / n) + (1 - KEPT) / n
    return rank


def main() -> None:
    """Rank the pages of a random graph, and look at what passed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    comm, n = MPI.COMM_WORLD, args.n
    graph = make(n, 8 * n)
    rank = pgas.full((n,), 1 / n, type="{x}")
    rank = step(rank, *graph)
    with redist.trace() as t:
        for _ in range(args.steps - 1):
            rank = step(rank, *graph)
    told = sum(one.inspected for one in t.by_lists.values())
    whole = rank.gather()
    assert np.allclose(whole, alone(n, graph, args.steps)) and abs(whole.sum() - 1) < 1e-9
    if comm.rank == 0:
        print(f"page rank: {n} pages, {args.steps} steps, inspected {told} times after the first")


if __name__ == "__main__":
    main()
