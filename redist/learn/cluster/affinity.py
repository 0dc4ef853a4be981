"""AffinityPropagation on global arrays: matrices of messages are cut by rows over all ranks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import sklearn.cluster
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils.validation import check_is_fitted

from redist.learn.borrowed import fit_context
from redist.learn.cluster.lloyd import label_rows, squared_norms
from redist.learn.given import one_random_state, take_rows
from redist.learn.kernels.messages import Messages, MessagesOnGpu, fill_similar
from redist.learn.kernels.steps import try_candidates
from redist.learn.over_ranks import ClustersRows
from redist.learn.vectors.affinities import diagonal_of
from redist.runtime.cuda.arrays import to_host
from redist.runtime.cuda.loops import functions_for
from redist.spmd import (
    ExactGrid,
    Rows,
    Totals,
    Visits,
    all_rows,
    largest,
    median_of_all,
    total_of,
    whole_of,
)
from redist.text.progress import stage

Values = NDArray[Any]
NOISE_BYTES = 2**23
"""Random numbers that are drawn at a time: every rank draws those of all rows, and keeps its own."""
NUMBERS: dict[str, Any] = {"dtype": "numeric", "order": None, "accept_sparse": "csr"}
"""What rows may be; scikit-learn's own fit takes sparse ones."""


def similarities(rows: Rows) -> Values:
    """**Collective.** Minus the squared distances of this rank's rows to all rows, where the rows lie."""
    dtype = rows.dtype if rows.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    own = functions_for(rows.local).ascontiguousarray(rows.local, dtype=dtype)
    if rows.on_gpu:
        return _similar_on_gpu(rows.holding(own))
    out, norms = np.empty((len(own), rows.n), dtype), squared_norms(own)
    grid = ExactGrid.for_sum(1.0, 1)
    for first, tile in Visits(rows.holding(own)):
        if len(own) and len(tile):
            there, n = np.ascontiguousarray(tile), len(tile)
            given = there, squared_norms(there), np.zeros(n), own, norms, np.full(n, np.inf), grid
            np.negative(
                try_candidates(*given)[0], out=out[:, first : first + n], casting="same_kind"
            )
    places = np.arange(len(own))
    out[places, places + rows.first] = 0
    return out


def _similar_on_gpu(rows: Rows) -> Values:
    """**Collective.** The same on a GPU; norms are added up column by column."""
    xp, own, norms = functions_for(rows.local), rows.local, squared_norms(rows.local)
    out: Values = xp.empty((len(own), rows.n), own.dtype)
    for first, tile in Visits(rows):
        there = xp.ascontiguousarray(tile)
        fill_similar(own, norms, rows.first, there, squared_norms(there), first, out)
    return out


def all_alike(matrix: Rows, preference: Values) -> float | None:
    """**Collective.** The last similarity of row 0 if all are equal, and preferences too; else None."""
    start = matrix.fetch([0])[0]
    last = float(start[-1])
    if matrix.n == 1:
        return last
    same = matrix.local == start[1]
    same[diagonal_of(matrix)] = True
    every = all_rows(matrix.comm, np.array([bool(same.all())])).all()
    return last if every and (preference == preference.flat[0]).all() else None


def prepare(matrix: Rows, preference: Values, random_state: np.random.RandomState) -> None:
    """**Local.** Write preferences to the diagonal, and noise that removes ties to all similarities."""
    local, n = matrix.local, matrix.n
    own = slice(matrix.first, matrix.first + len(local))
    given = preference if preference.ndim == 0 else preference[own]
    local[diagonal_of(matrix)] = matrix.beside(given.astype(local.dtype))
    step = max(1, NOISE_BYTES // (8 * n))
    limits = np.finfo(local.dtype)
    for lo in range(0, n, step):
        noise = random_state.standard_normal(size=(min(step, n - lo), n))
        first, last = max(lo, matrix.first), min(lo + len(noise), matrix.first + len(local))
        if first < last:
            part = local[first - matrix.first : last - matrix.first]
            part += (limits.eps * part + limits.tiny * 100) * matrix.beside(
                noise[first - lo : last - lo]
            )


Numbers = NDArray[np.int64]


class AffinityPropagation(ClustersRows, sklearn.cluster.AffinityPropagation):  # type: ignore[misc]
    """Clusters around exemplars, over all ranks: ``sklearn.cluster.AffinityPropagation``.

    In an SPMD program::

        model = AffinityPropagation(random_state=0).fit(x)     # x: a global array
        model.labels_, model.affinity_matrix_                  # global, cut as x by rows
        model.cluster_centers_indices_                         # NumPy, the same on every rank

    A rank holds its rows of three matrices, ``3 n^2 / p`` numbers. A round is one all-reduce of ``2 n``
    numbers and two of a few numbers. Messages are added up exactly, and the same random numbers break ties,
    so labels are the same for every number of ranks. Rows on GPUs stay there, and so do the matrices.
    """

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, progress: bool | None = None) -> AffinityPropagation:
        """**Collective over** the communicator of ``X``. Find exemplars of the rows of ``X``."""
        if issparse(X):
            return self._fit_whole(X)
        if self.affinity == "precomputed":
            rows = take_rows(self, X, on_gpu=True, dtype="numeric", order=None)
            if rows.n != rows.d:
                raise ValueError(
                    "The matrix of similarities must be a square array. "
                    f"Got {(rows.n, rows.d)} instead."
                )
            rows.need("fit AffinityPropagation to", 24 * rows.n)
            similar = functions_for(rows.local).array(rows.local, order="C")
        else:
            rows = take_rows(self, X, on_gpu=True, **NUMBERS)
            rows.need("fit AffinityPropagation to", 24 * rows.n)
            stage("similarities")
            similar = similarities(rows)
        matrix = rows.holding(similar)
        preference = self.preference
        if preference is None:
            preference = median_of_all(rows.comm, similar)
        random_state = one_random_state(rows.comm, self.random_state)
        chosen, labels, self.n_iter_ = self._propagate(matrix, np.asarray(preference), random_state)
        self.cluster_centers_indices_ = chosen
        self.labels_ = rows.answer(labels)
        self.affinity_matrix_ = matrix.answer(similar)
        if self.affinity != "precomputed":
            self.cluster_centers_ = rows.fetch(np.asarray(chosen, dtype=np.int64))
        return self

    def predict(self, X: Any) -> Any:
        """**Collective.** The nearest exemplar of every row; global, cut as ``X``, if ``X`` is."""
        check_is_fitted(self)
        if issparse(X) or not hasattr(self, "cluster_centers_"):
            return super().predict(whole_of(X))
        rows = take_rows(self, X, reset=False, on_gpu=True, **NUMBERS)
        labels = np.full(len(rows.local), -1)
        if not len(self.cluster_centers_):
            warnings.warn(
                "This model does not have any cluster centers because affinity propagation did not "
                "converge. Labeling every sample as '-1'.",
                ConvergenceWarning,
                stacklevel=2,
            )
        elif rows.on_gpu:
            labels = label_rows(rows.local, self.cluster_centers_.astype(np.float64))
        elif len(labels):
            labels = pairwise_distances_argmin(rows.local, self.cluster_centers_)
        return rows.answer(labels)

    def _propagate(
        self, matrix: Rows, preference: Values, random_state: np.random.RandomState
    ) -> tuple[Any, Numbers, int]:
        """**Collective.** The exemplars, the own rows' labels, and how many rounds there were."""
        n = matrix.n
        alike = all_alike(matrix, preference)
        if alike is not None:
            warnings.warn(
                "All samples have mutually equal similarities. Returning arbitrary cluster center(s).",
                stacklevel=5,
            )
            own = np.arange(matrix.first, matrix.first + len(matrix.local))
            if preference.flat[0] > alike:
                return np.arange(n), own, 0
            return np.array([0]), np.zeros_like(own), 0
        prepare(matrix, preference, random_state)
        similar = functions_for(matrix.local).ascontiguousarray(matrix.local, dtype=np.float64)
        messages = Messages.of(similar, matrix.first, self.damping)
        is_exemplar, rounds, converged = self._run(matrix, messages)
        exemplars = np.flatnonzero(matrix.gather(is_exemplar))
        if not len(exemplars):
            warnings.warn(
                "Affinity propagation did not converge and this model will not have any cluster "
                "centers.",
                ConvergenceWarning,
                stacklevel=5,
            )
            return [], np.full(len(similar), -1), rounds
        if not converged:
            warnings.warn(
                "Affinity propagation did not converge, this model may return degenerate cluster "
                "centers and labels.",
                ConvergenceWarning,
                stacklevel=5,
            )
        chosen, labels = _refine(matrix.holding(similar), exemplars)
        return chosen, labels, rounds

    def _run(
        self, matrix: Rows, messages: Messages | MessagesOnGpu
    ) -> tuple[NDArray[np.bool_], int, bool]:
        """**Collective.** Rounds until exemplars stay: the own rows', how many, and whether they do."""
        n, comm, talks = matrix.n, matrix.comm, self.verbose and matrix.comm.rank == 0
        add_up, count, most = (
            Totals(comm, 2 * n),
            Totals(comm, 2, dtype=np.int64),
            Totals(comm, 1, "max"),
        )
        history = np.zeros((len(matrix.local), self.convergence_iter))
        chosen = np.zeros(len(matrix.local), bool)
        for it in range(self.max_iter):
            stage(f"round {it + 1} of at most {self.max_iter}")
            bound = float(most(np.array([messages.respond()]))[0])
            sums = messages.support(ExactGrid.for_sum(bound, n))
            messages.make_available(add_up(sums).reshape(2, n).sum(axis=0))
            chosen = messages.chosen()
            history[:, it % self.convergence_iter] = chosen
            if it >= self.convergence_iter:
                often = history.sum(axis=1)
                settled = np.count_nonzero((often == self.convergence_iter) | (often == 0))
                said = np.array([settled, np.count_nonzero(chosen)])
                n_settled, n_chosen = count(said).tolist()
                if n_settled == n and n_chosen > 0:
                    if talks:
                        print(f"Converged after {it} iterations.")
                    return chosen, it + 1, True
        if talks:
            print("Did not converge")
        return chosen, self.max_iter, False


def affinity_propagation(
    S: Any, *, preference: Any = None, convergence_iter: int = 15, max_iter: int = 200,
    damping: float = 0.5, copy: bool = True, verbose: bool = False, return_n_iter: bool = False,
    random_state: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """**Collective.** Exemplars and labels, as in :class:`AffinityPropagation`, from similarities."""
    model = AffinityPropagation(
        damping=damping, max_iter=max_iter, convergence_iter=convergence_iter, copy=copy,
        preference=preference, affinity="precomputed", verbose=verbose, random_state=random_state,
    ).fit(S)  # fmt: skip
    out = (model.cluster_centers_indices_, model.labels_)
    return (*out, model.n_iter_) if return_n_iter else out


def _refine(matrix: Rows, exemplars: Numbers) -> tuple[Numbers, Numbers]:
    """**Collective.** The best exemplar of each cluster, and the own rows' labels."""
    nearest = matrix.gather(_nearest(matrix, exemplars))
    own = nearest[matrix.first : matrix.first + len(matrix.local)]
    bound = largest(matrix.comm, matrix.local)
    grid, sums = ExactGrid.for_sum(bound, matrix.n), np.zeros((2, matrix.n))
    for k in range(len(exemplars)):
        columns, rows = np.flatnonzero(nearest == k), np.flatnonzero(own == k)
        meeting = tuple(matrix.beside(places) for places in np.ix_(rows, columns))
        sums[:, columns] += to_host(grid.sum_rows(matrix.local[meeting]))
    spoken = total_of(matrix.comm, sums).sum(axis=0)
    better = exemplars.copy()
    for k in range(len(exemplars)):
        columns = np.flatnonzero(nearest == k)
        better[k] = columns[spoken[columns].argmax()]
    labels = better[_nearest(matrix, better)]
    chosen = np.unique(matrix.gather(labels))
    return chosen, np.searchsorted(chosen, labels)


def _nearest(matrix: Rows, exemplars: Numbers) -> Numbers:
    """**Local.** For each own row the place of the exemplar that it is most similar to; its own, of one."""
    found = np.empty(0, np.int64)
    if len(matrix.local):
        found = to_host(matrix.local[:, matrix.beside(exemplars)].argmax(axis=1))
    here = matrix.holds(exemplars)
    found[exemplars[here] - matrix.first] = np.flatnonzero(here)
    return found
