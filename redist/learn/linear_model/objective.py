"""What logistic regression minimises: the mean loss of all rows plus a penalty, with gradient and Hessian.

With probabilities ``p`` of a row ``x`` of class ``y``, over all rows with weights ``v`` that sum to ``V``::

    value     sum of -log(p[y]) v / V  +  l2 / 2 |coefficients|^2
    gradient  sum of (p - e[y]) x v / V  +  l2 coefficients
    Hessian   sum of (diag(p) - p p') x x' v / V  +  l2

A rank goes through its rows in blocks that fit in a cache, and ranks add up only arrays as small as the
coefficients: one all-reduce for a value and a gradient, another for a Hessian. Two classes share one row of
coefficients, and ``p = 1 / (1 + exp(-z))``; with more classes each has its own row, and ``p`` is the
softmax.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.runtime.cuda.arrays import to_host
from redist.runtime.cuda.loops import functions_for
from redist.spmd import Rows, Totals

Values = NDArray[Any]
BLOCK_BYTES, GPU_BLOCK_BYTES = 2**20, 2**27
"""Rows times coefficients that a rank works on at a time."""


class LogisticLoss:
    """The objective. Coefficients are a flat array of ``n_rows`` rows, with the intercept last in each."""

    def __init__(
        self, rows: Rows, codes: Values, weights: Values, n_classes: int, l2: float, intercept: bool
    ) -> None:
        self._rows, self._codes, self._weights, self._l2 = rows, codes, weights, l2
        self.n_classes, self.n_rows = n_classes, 1 if n_classes == 2 else n_classes
        self.intercept, self.d = intercept, rows.d + intercept
        self.n = self.n_rows * self.d
        self._add_up = Totals(rows.comm, 1 + self.n)
        self._add_up_curves = Totals(rows.comm, self.n * self.n)
        self._xp = functions_for(rows.local)
        self._total = float(Totals(rows.comm, 1)(np.array([float(weights.sum())]))[0])

    @property
    def penalised(self) -> NDArray[np.bool_]:
        """Which coefficients are penalised: all but the intercepts, or none."""
        mask = np.full((self.n_rows, self.d), self._l2 > 0)
        if self.intercept:
            mask[:, -1] = False
        return mask.reshape(-1)

    def _blocks(self) -> Iterator[tuple[Any, Any, Any]]:
        """**Local.** Own rows in double precision, their codes, and their weights."""
        local = self._rows.local
        most = GPU_BLOCK_BYTES if self._rows.on_gpu else BLOCK_BYTES
        step = max(256, most // (8 * self.n))
        for at in range(0, len(local), step):
            part = slice(at, at + step)
            yield local[part].astype(np.float64, copy=False), self._codes[part], self._weights[part]

    def _taken_apart(self, flat: Values) -> tuple[Any, Any]:
        """**Local.** Coefficients where the rows lie, a column for each row of theirs, and intercepts."""
        table = flat.reshape(self.n_rows, self.d)
        constants = table[:, -1] if self.intercept else np.zeros(self.n_rows)
        columns = np.ascontiguousarray(table[:, : self._rows.d].T)
        return self._rows.beside(columns), self._rows.beside(constants.copy())

    def _chances(self, z: Any, codes: Any) -> tuple[Any, Any]:
        """**Local.** Probabilities of the second class, or of all, and the loss of every row."""
        xp = self._xp
        if self.n_rows == 1:
            z = z[:, 0]
            small = xp.exp(-xp.abs(z))
            chances = xp.where(z >= 0, 1.0, small) / (1 + small)
            return chances[:, None], xp.log1p(small) + xp.maximum(z, 0.0) - codes * z
        z -= z.max(axis=1, keepdims=True)
        own = z[xp.arange(len(z)), codes]
        chances = xp.exp(z)
        sums = chances.sum(axis=1)
        chances /= sums[:, None]
        return chances, xp.log(sums) - own

    def value_and_gradient(self, flat: Values) -> tuple[float, Values]:
        """**Collective.** The value and the gradient for the given coefficients."""
        columns, constants = self._taken_apart(flat)
        d, xp = self._rows.d, self._xp
        value, gradient = xp.zeros(()), xp.zeros((self.n_rows, self.d))
        for x, codes, weights in self._blocks():
            chances, losses = self._chances(x @ columns + constants, codes)
            value += losses @ weights
            if self.n_rows == 1:
                chances[:, 0] -= codes
            else:
                chances[xp.arange(len(x)), codes] -= 1.0
            chances *= weights[:, None]
            gradient[:, :d] += chances.T @ x
            if self.intercept:
                gradient[:, d] += chances.sum(axis=0)
        own = np.append(float(value), to_host(gradient).reshape(-1))
        total = self._add_up(own) / self._total
        penalised = np.where(self.penalised, flat, 0.0)
        found: Values = total[1:] + self._l2 * penalised
        return float(total[0] + 0.5 * self._l2 * (penalised @ penalised)), found

    def hessian(self, flat: Values) -> Values:
        """**Collective.** The Hessian for the given coefficients."""
        columns, constants = self._taken_apart(flat)
        d, xp = self.d, self._xp
        curves = xp.zeros((self.n, self.n))
        for x, codes, weights in self._blocks():
            chances = self._chances(x @ columns + constants, codes)[0]
            if self.n_rows == 1:
                scaled = self._scaled(x, xp.sqrt(chances * (1 - chances) * weights[:, None]))
                curves += scaled.T @ scaled
                continue
            roots = xp.sqrt(weights)[:, None]
            parts = [self._scaled(x, chances[:, k : k + 1] * roots) for k in range(self.n_rows)]
            together = xp.concatenate(parts, axis=1)
            curves -= together.T @ together
            for k in range(self.n_rows):
                scaled = self._scaled(x, xp.sqrt(chances[:, k : k + 1]) * roots)
                curves[k * d : (k + 1) * d, k * d : (k + 1) * d] += scaled.T @ scaled
        total = self._add_up_curves(to_host(curves)).reshape(self.n, self.n) / self._total
        total[np.diag_indices(self.n)] += np.where(self.penalised, self._l2, 0.0)
        return total

    def _scaled(self, x: Any, scale: Any) -> Any:
        """**Local.** Rows times a number each, which stands behind them if there is an intercept."""
        made = self._xp.empty((len(x), self.d))
        self._xp.multiply(x, scale, out=made[:, : self._rows.d])
        if self.intercept:
            made[:, -1:] = scale
        return made
