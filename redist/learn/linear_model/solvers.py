"""Two ways to minimise an objective: Newton's method with exact Hessians, and SciPy's L-BFGS-B.

Both run on every rank with the same numbers: the values of the objective that they get are sums over all
ranks. They step and stop as scikit-learn's solvers do, so they end at the same coefficients.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from redist.learn.linear_model.objective import LogisticLoss
from redist.text.progress import stage

Values = NDArray[np.float64]
HALVINGS = 21
"""So often is a Newton step halved before L-BFGS takes over."""
LEAST_GAIN = 2.0**-11
"""Of the gain that a gradient promises, this share must come true."""


class Found(NamedTuple):
    """Where a solver ended, and after how many iterations."""

    at: Values
    n_iter: int


def solve_lbfgs(loss: LogisticLoss, at: Values, tol: float, most: int) -> Found:
    """**Collective.** Minimise by L-BFGS-B; warn if it has not converged."""
    done = 0

    def told(where: Values) -> tuple[float, Values]:
        nonlocal done
        done += 1
        value, gradient = loss.value_and_gradient(where)
        stage(f"evaluation {done}, loss {value:.8g}")
        return value, gradient

    options = {"maxiter": most, "maxls": 50, "gtol": tol, "ftol": 64 * np.finfo(float).eps}
    found = scipy.optimize.minimize(told, at, method="L-BFGS-B", jac=True, options=options)
    if found.status != 0:
        warnings.warn(
            f"lbfgs failed to converge after {found.nit} iteration(s) (status={found.status}): "
            f"{found.message}. Increase max_iter, or scale the data, as with a StandardScaler.",
            ConvergenceWarning,
            stacklevel=4,
        )
    return Found(found.x, min(int(found.nit), most))


def solve_newton(loss: LogisticLoss, at: Values, tol: float, most: int) -> Found:
    """**Collective.** Minimise by Newton steps; if a step fails, L-BFGS takes over, with a warning."""
    fixed = _fixed(loss)
    at = _without_shift(loss, at, last=True)
    value, gradient = loss.value_and_gradient(at)
    for n in range(1, most + 1):
        stage(f"iteration {n}, loss {value:.8g}")
        curves = loss.hessian(at)
        step, why = _step(curves, gradient, ~fixed)
        ahead = None if why else _search(loss, at, value, gradient, step)
        if ahead is None:
            why = why or "no step along it goes down"
            warnings.warn(
                f"Newton's method found no step at iteration {n}: {why}. lbfgs goes on from here; remove "
                "features that are combinations of others, or choose a smaller C",
                ConvergenceWarning,
                stacklevel=4,
            )
            rest = solve_lbfgs(loss, at, tol, most - n + 1)
            return Found(_without_shift(loss, rest.at), n - 1 + rest.n_iter)
        at, value, gradient = ahead
        gradient[fixed] = 0
        if np.abs(gradient).max() <= tol and 0.5 * float(step @ curves @ step) <= tol:
            break
    else:
        warnings.warn(
            f"Newton solver did not converge after {most} iterations.",
            ConvergenceWarning,
            stacklevel=4,
        )
        n = most
    return Found(_without_shift(loss, at), n)


def _fixed(loss: LogisticLoss) -> NDArray[np.bool_]:
    """Coefficients of the last class that stay: one number added to those of all classes changes nothing."""
    fixed = np.zeros((loss.n_rows, loss.d), bool)
    if loss.n_rows > 1:
        fixed[-1] = ~loss.penalised.reshape(loss.n_rows, loss.d)[-1]
    return fixed.reshape(-1)


def _without_shift(loss: LogisticLoss, at: Values, last: bool = False) -> Values:
    """Coefficients that are not penalised with a mean of 0 over classes, or with 0 for the last one."""
    if loss.n_rows == 1:
        return at
    table = at.reshape(loss.n_rows, loss.d).copy()
    free = _fixed(loss).reshape(loss.n_rows, loss.d)[-1]
    table[:, free] -= table[-1, free] if last else table[:, free].mean(axis=0)
    return table.reshape(-1)


def _step(curves: Values, gradient: Values, free: NDArray[np.bool_]) -> tuple[Values, str]:
    """The Newton step, and why there is none."""
    step = np.zeros_like(gradient)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", scipy.linalg.LinAlgWarning)
            step[free] = scipy.linalg.solve(
                curves[np.ix_(free, free)], -gradient[free], check_finite=False, assume_a="sym"
            )
    except (np.linalg.LinAlgError, scipy.linalg.LinAlgWarning) as problem:
        return step, f"the Hessian is singular or nearly so ({problem})"
    return step, "" if float(gradient @ step) <= 0 else "the Newton step goes up"


def _search(
    loss: LogisticLoss, at: Values, value: float, gradient: Values, step: Values
) -> tuple[Values, float, Values] | None:
    """**Collective.** Halve a step until the value falls as it should; None if it never does.

    Near the end values differ by rounding alone: then the gradient must fall.
    """
    promise, length = float(gradient @ step), 1.0
    noise = abs(value) * 16 * np.finfo(float).eps
    for _ in range(HALVINGS):
        there = at + length * step
        new, slope = loss.value_and_gradient(there)
        gain = new - value
        falls = gain <= length * LEAST_GAIN * promise
        if falls or (abs(gain) <= noise and np.abs(slope).sum() < np.abs(gradient).sum()):
            return there, new, slope
        length *= 0.5
    return None
