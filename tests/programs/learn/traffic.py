"""What rounds of clustering exchange, to the byte: every collective of one more round, and no other.

As in ``mpirun -n 3 python -m tests.programs.learn.traffic``.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from sklearn.metrics import DistanceMetric

from redist import pgas
from redist.learn.cluster import DBSCAN, AffinityPropagation, KMeans
from redist.learn.kernels.library import library
from redist.learn.metrics import adjusted_rand_score
from redist.learn.near.spanning_tree import spanning_tree
from redist.pgas.watch.seam import (
    ElementExchange,
    RankTraffic,
    TileMove,
    WrappedTraffic,
    through,
    traffic,
)
from redist.runtime.copies.kernels import kernels
from redist.runtime.transfer import Transfer
from redist.spmd import Rows, own_range
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
P = COMM.size
RNG = np.random.RandomState(0)
X = RNG.rand(400, 3)


class Counted(WrappedTraffic):
    """Traffic that happens as without it; every collective is counted by its name, with its bytes here."""

    def __init__(self, inner: RankTraffic) -> None:
        super().__init__(inner)
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        own: Any = self
        own.exchange, own.tell_all = self._exchange, self._tell_all
        own.redistribute_together = inner.redistribute_together

    def redistribute(
        self, move: TileMove, comm: Any, limit_bytes: int | None
    ) -> tuple[Any, Transfer | None]:
        """Move one array."""
        tile, transfer = self.inner.redistribute(move, comm, limit_bytes)
        if transfer is not None:
            steps = ", ".join(step.op for step in transfer.plan.steps)
            if P == 2 and steps == "reduce_scatter" and max(move.target.cuts) == 1:
                steps = "all_reduce"  # either rank adds up all of it: nothing is left to gather
            self._note(f"{steps} {move.source}", transfer.received_bytes)
        return tile, transfer

    def _exchange(self, comm: Any, data: Any, sent: Any, out: Any, received: Any) -> int:
        n_bytes = self.inner.exchange(comm, data, sent, out, received)
        self._note("exchange", n_bytes)
        return n_bytes

    def _tell_all(self, comm: Any, row: Any) -> Any:
        out = self.inner.tell_all(comm, row)
        self._note(f"tell_all {row.dtype}{list(row.shape)}", (comm.size - 1) * row.nbytes)
        return out

    def perform(
        self, exchange: ElementExchange, work: Any, args: Any, *more: Any, **options: Any
    ) -> Any:
        """Do the work, and count its bytes."""

        def counted(*given: Any) -> tuple[Any, int]:
            result, n_bytes = work(*given)
            self._note(exchange.what, n_bytes)
            return result, n_bytes

        return self.inner.perform(exchange, counted, args, *more, **options)

    def _note(self, name: str, n_bytes: int) -> None:
        self.calls[name] += 1
        self.bytes[name] += n_bytes


def counted(work: Callable[[], Any]) -> Counted:
    found = Counted(traffic())
    with through(found), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work()
    return found


def more_of(found: Sequence[Counted], more: dict[str, tuple[int, int]]) -> str | None:
    """Why not, if the second did not just make these calls more, with so many bytes for all ranks."""
    one, other = found
    calls = {name: other.calls[name] - one.calls[name] for name in one.calls | other.calls}
    calls = {name: n for name, n in calls.items() if n}
    want = {name: n for name, (n, _) in more.items()} if P > 1 else {}
    if calls != want:
        return f"{calls} and not {want}"
    for name in want:
        n_bytes = COMM.allreduce(other.bytes[name] - one.bytes[name])
        if n_bytes != more[name][1]:
            return f"{name}: {n_bytes} bytes and not {more[name][1]}"
    return None


def all_reduced_bytes(n: int, calls: int) -> int:
    """What all ranks receive: every element goes to the one that adds it up, and its sum to the others."""
    return calls * 2 * (P - 1) * n * 8


def a_lloyd_round_is_one_all_reduce() -> str | None:
    x, (k, d) = pgas.asarray(X, type="{x}, {}"), (7, 3)
    runs = [KMeans(k, init=X[:k], n_init=1, max_iter=rounds, tol=0) for rounds in (2, 6)]
    found = [counted(partial(model.fit, x)) for model in runs]
    if [model.n_iter_ for model in runs] != [2, 6]:
        return f"{[model.n_iter_ for model in runs]} rounds"
    n = 2 * k * (d + 1) + 1
    return more_of(found, {f"all_reduce f64[{n}] sum{{x}}": (4, all_reduced_bytes(n, 4))})


def a_round_of_messages_is_two_all_reduces() -> str | None:
    n = 40
    x = pgas.asarray(X[:n], type="{x}, {}")
    runs = [
        AffinityPropagation(max_iter=rounds, convergence_iter=90, random_state=0)
        for rounds in (60, 63)
    ]
    found = [counted(partial(model.fit, x)) for model in runs]
    if len({len(model.cluster_centers_indices_) for model in runs}) > 1:
        return "other numbers of exemplars"
    more = {
        "all_reduce f64[1] max{x}": (3, all_reduced_bytes(1, 3)),
        f"all_reduce f64[{2 * n}] sum{{x}}": (3, all_reduced_bytes(2 * n, 3)),
    }
    return more_of(found, more)


def grow(step: Any, n: int) -> None:
    lo, hi = own_range(COMM, n)
    rows = Rows(X[lo:hi].copy(), lo, n, COMM, None)
    spanning_tree(rows, np.zeros(hi - lo), metric=step)


def a_step_of_a_spanning_tree_is_one_all_gather() -> str | None:
    """In another metric, which C does not know."""
    metric = DistanceMetric.get_metric("manhattan")
    name = f"all_gather f64[{P}{{x}}, {3 + 4}]"
    more = {name: (8, 8 * P * (P - 1) * (3 + 4) * 8)}
    return more_of([counted(partial(grow, metric, n)) for n in (60, 68)], more)


def a_tree_on_a_node_is_one_exchange() -> str | None:
    """Every step of it brings as many bytes as an all-gather would."""
    if library() is None or kernels() is None:
        return None
    found = [counted(partial(grow, None, n)) for n in (60, 68)]
    calls = [one.calls["grow a tree"] for one in found]
    if calls != [int(P > 1)] * 2:
        return f"{calls} exchanges"
    n_bytes = found[1].bytes["grow a tree"] - found[0].bytes["grow a tree"]
    want = 8 * (P - 1) * (3 + 4) * 8
    return None if n_bytes == want else f"{n_bytes} bytes and not {want}"


def tables_of_labels_are_small() -> str | None:
    """Twice the rows with the same labels bring not a byte more."""

    def compare(n: int) -> None:
        y = np.arange(n) % 5
        adjusted_rand_score(pgas.asarray(y), pgas.asarray(y[::-1].copy()))

    found = [counted(partial(compare, n)) for n in (200, 400)]
    return more_of(found, {})


def searches_by_slabs_take_as_many_collectives() -> str | None:
    """However many rows there are."""
    sets = [pgas.asarray(X[:n], type="{x}, {}") for n in (300, 400)]
    found = [counted(partial(DBSCAN(eps=0.05).fit, x)) for x in sets]
    calls = [one.calls["exchange"] for one in found]
    return None if calls[0] == calls[1] else f"{calls} exchanges"


CHECKED = (
    a_lloyd_round_is_one_all_reduce, a_round_of_messages_is_two_all_reduces,
    a_step_of_a_spanning_tree_is_one_all_gather, a_tree_on_a_node_is_one_exchange, tables_of_labels_are_small,
    searches_by_slabs_take_as_many_collectives,
)  # fmt: skip
CHECKS = tuple(check.__name__ for check in CHECKED)


def program() -> int:
    """0 if nothing is wrong."""
    return run_named({check.__name__: check for check in CHECKED})


if __name__ == "__main__":
    main(program)
