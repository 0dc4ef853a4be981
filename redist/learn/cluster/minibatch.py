"""MiniBatchKMeans on global arrays: batches are drawn and fetched over ranks, and each rank makes all steps.

In memory a step is scikit-learn's own. On a GPU it has the same bits, except that if two centres are equally
far from a row the other one may be chosen, as in :mod:`redist.learn.kernels.steps`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn.cluster
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.extmath import row_norms
from threadpoolctl import threadpool_limits

from redist.learn.borrowed import fit_context, mini_batch_step
from redist.learn.cluster.kmeans import (
    SPARSE_TOO,
    RowsOfCenters,
    check_counts,
    given_centers,
)
from redist.learn.cluster.lloyd import inertia_of, label_rows, mean_of, variance_of
from redist.learn.given import one_random_state, take_rows, take_weights
from redist.learn.kernels.cuda.lloyd import batch_step
from redist.runtime.cuda.arrays import to_device, to_host
from redist.spmd import Rows, RunningSums, largest
from redist.text.progress import stage

Values = NDArray[Any]


class MiniBatchKMeans(RowsOfCenters, sklearn.cluster.MiniBatchKMeans):  # type: ignore[misc]
    """K-means by batches over all ranks: ``sklearn.cluster.MiniBatchKMeans`` for global arrays.

    In an SPMD program::

        model = MiniBatchKMeans(n_clusters=64, random_state=0).fit(x)    # x: a global array
        model.labels_                                                    # global, cut as x

    The same random state draws the same rows for every number of ranks. A batch is fetched to every rank by
    one all-reduce of its values, and scikit-learn's own step runs on it; labels and inertia are computed
    where the rows are. If the rows are on GPUs, the steps are made there too, but the samples to start from
    are brought to memory. ``partial_fit`` takes a batch that is whole on every rank, or a global array,
    which it gathers.
    """

    verbose: Any
    _ewa_inertia: Any
    reassignment_ratio: float

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, progress: bool | None = None
    ) -> MiniBatchKMeans:
        """**Collective over** the communicator of ``X``. Find centres by steps on batches of its rows."""
        if issparse(X):
            return self._fit_whole(X, sample_weight=sample_weight)
        rows = take_rows(self, X, on_gpu=True, **SPARSE_TOO)
        check_counts(self, rows)
        self._settle_counts(rows)
        rows.need("fit MiniBatchKMeans to", 20, 4 * self._batch_size * rows.d * rows.dtype.itemsize)
        random_state = one_random_state(rows.comm, self.random_state)
        weights = take_weights(rows, sample_weight)
        self._n_threads = 1
        init = given_centers(self, rows)
        centers = self._best_start(rows, weights, init, random_state)
        steps = self._run_steps(rows, weights, centers, random_state)
        self._n_features_out = len(self.cluster_centers_)
        self.n_steps_ = steps
        self.n_iter_ = int(np.ceil(steps * self._batch_size / rows.n))
        if self.compute_labels:
            labels = label_rows(rows.local, self.cluster_centers_)
            self.labels_ = rows.answer(labels)
            self.inertia_ = inertia_of(rows, weights, self.cluster_centers_, labels)
        else:
            total = RunningSums.of(
                rows, weights.astype(np.float64), largest(rows.comm, weights)
            ).total
            self.inertia_ = self._ewa_inertia * total
        return self

    def _settle_counts(self, rows: Rows) -> None:
        """**Collective.** Sizes and tolerance that scikit-learn derives from all rows, not from a sample."""
        self._batch_size = min(self.batch_size, rows.n)
        asked = self.init_size
        size = 3 * self._batch_size if asked is None else asked
        size = 3 * self.n_clusters if size < self.n_clusters else size
        self._init_size = min(size, rows.n)
        centred = rows.holding(rows.local - rows.beside(mean_of(rows))) if self.tol else rows
        self._tol = variance_of(centred) * self.tol if self.tol else 0

    def _best_start(
        self, rows: Rows, weights: Values, init: Any, random_state: np.random.RandomState
    ) -> Values:
        """**Collective.** Of some starts from samples of rows, the one with the least inertia on another."""
        weighing = rows.holding(weights)
        numbers = random_state.randint(0, rows.n, self._init_size)
        tested, tested_weights = rows.fetch(numbers), weighing.fetch(numbers)
        best: tuple[float, Values] | None = None
        for i in range(self._n_init):
            if self.verbose and rows.comm.rank == 0:
                print(f"Init {i + 1}/{self._n_init} with method {init}")
            if self._init_size < rows.n:
                numbers = random_state.randint(0, rows.n, self._init_size)
            else:
                numbers = np.arange(rows.n)
            found = rows.fetch(numbers)
            centers = self._init_centroids(
                found,
                x_squared_norms=row_norms(found, squared=True),
                init=init,
                random_state=random_state,
                sample_weight=weighing.fetch(numbers),
            )
            labels = label_rows(tested, centers)
            apart = tested - centers[labels]
            inertia = float((np.einsum("ij,ij->i", apart, apart) * tested_weights).sum())
            if self.verbose and rows.comm.rank == 0:
                print(f"Inertia for init {i + 1}/{self._n_init}: {inertia}")
            if best is None or inertia < best[0]:
                best = inertia, np.array(centers)
        assert best is not None
        return best[1]

    def _run_steps(
        self, rows: Rows, weights: Values, centers: Values, random_state: np.random.RandomState
    ) -> int:
        """**Collective.** Steps on batches until they bring no more; how many there were."""
        new = np.empty_like(centers)
        self._counts = np.zeros(self.n_clusters, dtype=rows.dtype)
        self._ewa_inertia = self._ewa_inertia_min = None
        self._no_improvement = self._n_since_last_reassign = 0
        n_steps = self.max_iter * rows.n // self._batch_size
        shares = RunningSums.of(rows, weights.astype(np.float64), largest(rows.comm, weights))
        silent = self.verbose and rows.comm.rank != 0
        verbose, self.verbose = self.verbose, 0 if silent else self.verbose
        i = 0
        try:
            with threadpool_limits(limits=1, user_api="blas"):
                for i in range(n_steps):
                    stage(f"step {i + 1} of at most {n_steps}")
                    drawn = shares.find_shares(random_state.random_sample(self._batch_size))
                    step = self._step_on_gpu if rows.on_gpu else self._step
                    inertia = step(rows, drawn, centers, new, random_state)
                    moved = np.sum((new - centers) ** 2) if self._tol > 0.0 else 0
                    centers, new = new, centers
                    if self._mini_batch_convergence(i, n_steps, rows.n, moved, inertia):
                        break
        finally:
            self.verbose = verbose
        self.cluster_centers_ = centers
        return i + 1

    def _step(
        self, rows: Rows, drawn: Values, centers: Values, new: Values, random_state: Any
    ) -> float:
        """**Collective.** Write the centres after a batch into ``new``; how far its rows were, squared."""
        inertia = mini_batch_step(
            X=rows.fetch(drawn),
            sample_weight=np.ones(self._batch_size, dtype=rows.dtype),
            centers=centers,
            centers_new=new,
            weight_sums=self._counts,
            random_state=random_state,
            random_reassign=self._random_reassign(),
            reassignment_ratio=self.reassignment_ratio,
            verbose=self.verbose,
            n_threads=1,
        )
        return float(inertia)

    def _step_on_gpu(
        self, rows: Rows, drawn: Values, centers: Values, new: Values, random_state: Any
    ) -> float:
        """**Collective.** The same on a GPU; alone, a batch does not leave it."""
        alone = rows.comm.size == 1
        batch = rows.local[rows.beside(drawn)] if alone else rows.beside(rows.fetch(drawn))
        reassigns = self._random_reassign()  # looks at the counts before the step
        labels = label_rows(batch, centers)
        new[:], self._counts, far = batch_step(batch, labels, centers, self._counts)
        if reassigns and self.reassignment_ratio > 0:
            self._reassign(batch, new, random_state)
        return float(np.add.accumulate(far)[-1])

    def _reassign(self, batch: Values, new: Values, random_state: Any) -> None:
        """**Local.** Let centres that had few rows start again at rows of a batch, as scikit-learn has it."""
        counts, half = self._counts, int(0.5 * len(batch))
        few = counts < self.reassignment_ratio * counts.max()
        if few.sum() > 0.5 * len(batch):
            few[np.argsort(counts)[half:]] = False
        n = int(few.sum())
        if not n:
            return
        chosen = random_state.choice(len(batch), replace=False, size=n)
        if self.verbose:
            print(f"[MiniBatchKMeans] Reassigning {n} cluster centers.")
        new[few] = to_host(batch[to_device(chosen)])
        counts[few] = counts[~few].min()

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MiniBatchKMeans:
        """**Collective.** Make one step on the rows of ``X``, with all of them on every rank."""
        if issparse(X):
            super().partial_fit(X, y, sample_weight)
            return self
        rows = take_rows(self, X, reset=not hasattr(self, "cluster_centers_"), **SPARSE_TOO)
        weights = take_weights(rows, sample_weight)
        if not hasattr(self, "_random_state"):
            self._random_state = one_random_state(rows.comm, self.random_state)
        whole, every = rows.gather(rows.local), rows.gather(weights)
        super().partial_fit(whole, y, every)
        if self.compute_labels and rows.given is not None:
            lo = rows.first
            self.labels_ = rows.answer(self.labels_[lo : lo + len(rows.local)])
        return self
