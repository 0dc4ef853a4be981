"""LogisticRegression on global arrays: rows stay on their ranks, which add up small sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn.linear_model
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import check_array, compute_class_weight
from sklearn.utils.extmath import softmax
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from redist.errors import ArgumentError
from redist.learn.borrowed import fit_context
from redist.learn.given import FLOATS, seeded_alike, take_rows, take_weights
from redist.learn.linear_model.objective import LogisticLoss
from redist.learn.linear_model.solvers import solve_lbfgs, solve_newton
from redist.learn.over_ranks import OverRanks
from redist.runtime.cuda.arrays import to_host
from redist.runtime.cuda.loops import functions_for
from redist.spmd import Rows, all_parts, is_global, same_error, total_of, whole_of

Values = NDArray[Any]
SOLVERS = {"lbfgs": solve_lbfgs, "newton-cholesky": solve_newton}


class LogisticRegression(OverRanks, sklearn.linear_model.LogisticRegression):  # type: ignore[misc]
    """Class probabilities from linear models, over all ranks: ``sklearn.linear_model.LogisticRegression``.

    In an SPMD program::

        model = LogisticRegression(solver="newton-cholesky").fit(x, y)    # x, y: global arrays
        model.coef_                                                       # NumPy's, the same on every rank
        model.predict(x), model.score(x, y)                               # global, cut as x; a number

    Coefficients agree with scikit-learn's up to rounding, and vary by rounding with the number of ranks.
    Labels are numbers in a global array, or anything in a NumPy array or a list that is the same on all
    ranks.

    ``solver="newton-cholesky"`` passes over all rows twice in each of a few iterations, and ranks add up the
    square of the number of coefficients. ``"lbfgs"`` passes over them once in each of many iterations, and
    ranks add up as many numbers as there are coefficients. Both compute in float64; rows on GPUs stay there.

    Other solvers, penalties with an L1 part and sparse rows are passed to scikit-learn's own ``fit`` if the
    rows are the same on every rank, and are refused for global arrays.
    """

    _per_row = ()

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, progress: bool | None = None
    ) -> LogisticRegression:
        """**Collective over** the communicator of ``X``. Find coefficients for the rows' labels ``y``."""
        if self._is_left_to_scikit_learn(X):
            with seeded_alike(self):
                super().fit(X, whole_of(y), sample_weight=whole_of(sample_weight))
            return self
        rows, labels, self.classes_ = self._take(X, y)
        rows.need("fit LogisticRegression to", 32)
        n = len(self.classes_)
        if n < 2:
            raise ValueError(
                "This solver needs samples of at least 2 classes in the data, but the data contains only one "
                f"class: {self.classes_[0]!r}"
            )
        codes = np.searchsorted(self.classes_, labels)
        weights = to_host(take_weights(rows, sample_weight, dtype=np.float64))
        if self.class_weight is not None:
            weights = weights * self._class_weights(rows, codes, weights)[codes]
        total = float(total_of(rows.comm, np.array([weights.sum()]))[0])
        c = np.inf if self.penalty is None else self.C
        loss = LogisticLoss(
            rows, rows.beside(codes), rows.beside(weights), n, 1.0 / (c * total), self.fit_intercept
        )
        found = SOLVERS[self.solver](loss, self._start(loss), self.tol, self.max_iter)
        table = found.at.reshape(loss.n_rows, loss.d).astype(rows.dtype, copy=False)
        self.coef_ = np.ascontiguousarray(table[:, : rows.d])
        none = np.zeros(loss.n_rows, rows.dtype)
        self.intercept_ = table[:, -1].copy() if self.fit_intercept else none
        self.n_iter_ = np.array([found.n_iter], np.int32)
        return self

    def _is_left_to_scikit_learn(self, x: Any) -> bool:
        """**Local.** Whether its own fit does it; an error if that would need all of a global array."""
        ratio = getattr(self, "l1_ratio", None)
        squares = self.penalty in ("l2", None) or (
            self.penalty == "deprecated" and ratio in (0, None)
        )
        ours = self.solver in SOLVERS and squares and not self.dual
        if ours and not issparse(x):
            return False
        if is_global(x):
            raise ArgumentError(
                f"cannot fit LogisticRegression(solver={self.solver!r}, penalty={self.penalty!r}, "
                f"l1_ratio={ratio!r}, dual={self.dual!r}) to {x.type}: only squares of coefficients are "
                f"penalised over ranks, by the solvers {' and '.join(map(repr, SOLVERS))}"
            )
        return True

    def _take(self, x: Any, y: Any) -> tuple[Rows, Values, Values]:
        """**Collective.** The rows of this rank, their labels, and the different labels of all."""
        if not is_global(x):
            x, y = validate_data(
                self, x, whole_of(y), dtype=list(FLOATS), order="C", accept_sparse="csr"
            )
            rows = Rows.share(x)
            return rows, *labels_of(rows, y)
        rows = take_rows(self, x, on_gpu=True)
        return rows, *labels_of(rows, y)

    def _class_weights(self, rows: Rows, codes: Values, weights: Values) -> Values:
        """**Collective.** The weight of each class."""
        if self.class_weight != "balanced":
            found: Values = compute_class_weight(
                self.class_weight, classes=self.classes_, y=self.classes_
            )
            return found
        n = len(self.classes_)
        sums = total_of(rows.comm, np.bincount(codes, weights=weights, minlength=n))
        return np.asarray(sums.sum() / (n * sums))

    def _start(self, loss: LogisticLoss) -> Values:
        """**Local.** The coefficients to start from: zeros, or those of the fit before."""
        table = np.zeros((loss.n_rows, loss.d))
        if self.warm_start and hasattr(self, "coef_"):
            table[:, : self.coef_.shape[1]] = self.coef_
            if self.fit_intercept:
                table[:, -1] = self.intercept_
        return table.reshape(-1)

    def decision_function(self, X: Any) -> Any:
        """**Collective** for a global array. How far each row is on the side of each class; cut as ``X``."""
        if not is_global(X):
            return super().decision_function(X)
        rows = self._rows_to_judge(X)
        return rows.answer(self._scores(rows))

    def predict(self, X: Any) -> Any:
        """**Collective** for a global array. The most likely class of every row; global, cut as ``X``.

        Labels that are not numbers are returned as a NumPy array, whole on every rank.
        """
        if not is_global(X):
            return super().predict(X)
        rows = self._rows_to_judge(X)
        codes = self._likeliest(rows)
        if self.classes_.dtype.kind not in "biuf":
            return self.classes_[rows.gather(codes)]
        return rows.answer(rows.beside(self.classes_)[codes])

    def predict_proba(self, X: Any) -> Any:
        """**Collective** for a global array. The probability of each class, a column each; cut as ``X``."""
        if not is_global(X):
            return super().predict_proba(X)
        rows = self._rows_to_judge(X)
        scores, xp = self._scores(rows), functions_for(rows.local)
        if scores.ndim == 1:
            small = xp.exp(-xp.abs(scores))
            second = xp.where(scores >= 0, 1.0, small) / (1 + small)
            return rows.answer(xp.stack([1 - second, second], axis=1).astype(scores.dtype))
        if not rows.on_gpu:
            return rows.answer(softmax(scores, copy=False))
        chances = xp.exp(scores - scores.max(axis=1, keepdims=True))
        return rows.answer(chances / chances.sum(axis=1, keepdims=True))

    def predict_log_proba(self, X: Any) -> Any:
        """**Collective** for a global array. The logarithms of :meth:`predict_proba`."""
        return np.log(self.predict_proba(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """**Collective** for a global array. The weighted share of rows that :meth:`predict` gets right."""
        if not is_global(X):
            return float(super().score(X, whole_of(y), sample_weight=whole_of(sample_weight)))
        rows = self._rows_to_judge(X)
        right = self.classes_[to_host(self._likeliest(rows))] == labels_of(rows, y)[0]
        weights = to_host(take_weights(rows, sample_weight, dtype=np.float64))
        said = total_of(rows.comm, np.array([(right * weights).sum(), weights.sum()]))
        return float(said[0] / said[1])

    def _rows_to_judge(self, x: Any) -> Rows:
        """**Collective.** The own rows of a global array, as many columns as were fitted."""
        check_is_fitted(self)
        return take_rows(self, x, reset=False, on_gpu=True)

    def _scores(self, rows: Rows) -> Any:
        """**Local.** What :meth:`decision_function` gives, of own rows."""
        scores = rows.local @ rows.beside(self.coef_).T + rows.beside(self.intercept_)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def _likeliest(self, rows: Rows) -> Any:
        """**Local.** The number of the likeliest class of every own row."""
        scores = self._scores(rows)
        return (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)


def labels_of(rows: Rows, y: Any) -> tuple[Values, Values]:
    """**Collective.** The labels of this rank's rows, in memory, and the distinct labels of all ranks."""
    if not is_global(y):
        if y is None or len(whole := column_or_1d(y, warn=True)) != rows.n:
            n = None if y is None else len(whole)
            raise ValueError(f"cannot use {n} labels for {rows.n} rows: need one for each")
        check_classification_targets(whole)
        return whole[rows.first : rows.first + len(rows.local)], np.unique(whole)
    if y.shape != (rows.n,):
        raise ValueError(
            f"cannot use labels of shape {y.shape} for {rows.n} rows: need one for each"
        )
    own = Rows.of(y).local
    with same_error(rows.comm):
        found: Values = check_array(
            own, ensure_2d=False, ensure_min_samples=0, dtype=None, input_name="y"
        )
        if len(found):
            check_classification_targets(np.repeat(np.unique(found), 3))
    return found, np.unique(all_parts(rows.comm, np.unique(found))[0])
