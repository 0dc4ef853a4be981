"""Random functions of arrays that change smoothly: 5 to 40 calls, in any library with NumPy's names.

``xp`` is ``redist.pgas``, NumPy or ``jax.numpy``: a program is drawn once, with its shapes, and run by all.
Values stay small, and far from where functions have poles, so that differences are precise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]
Run = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Step:
    """A function of the library and of some values, by number."""

    name: str
    run: Run
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SmoothProgram:
    """Steps, each of which adds a value to those before; the result weighs all that nothing else needs."""

    arguments: tuple[Values, ...]
    steps: tuple[Step, ...]
    last: tuple[int, ...]

    def __call__(self, xp: Any, *arguments: Any) -> Any:
        """The result: a number, as an array without dims."""
        values = list(arguments)
        for step in self.steps:
            values.append(step.run(xp, *(values[k] for k in step.operands)))
        total = None
        for k in self.last:
            x = values[k]
            one = xp.sum(xp.sin(x + 0.3 * k)) / max(1, x.size)
            total = one if total is None else total + one
        return total

    def __str__(self) -> str:
        return "; ".join(f"{step.name}{step.operands}" for step in self.steps)


def draw_program(rng: np.random.Generator) -> SmoothProgram:
    """A program of 5 to 40 calls, of 1 to 3 arguments."""
    arguments = tuple(
        rng.uniform(-1, 1, tuple(int(n) for n in rng.integers(1, 5, rng.integers(1, 4))))
        for _ in range(rng.integers(1, 4))
    )
    values: list[Values] = list(arguments)
    steps: list[Step] = []
    used: set[int] = set()
    n_calls = int(rng.integers(5, 41))
    while len(steps) < n_calls:
        kind = KINDS[rng.integers(len(KINDS))]
        first = len(values) - 1 if rng.random() < 0.6 else int(rng.integers(len(values)))
        found = kind(rng, values, first)
        if found is None:
            continue
        step = Step(f"{kind.__name__}", found[0], found[1])
        with np.errstate(all="ignore"):
            made = np.asarray(step.run(np, *(values[k] for k in step.operands)))
        if made.size > 400 or not np.isfinite(made).all() or np.abs(made).max(initial=0) > 30:
            continue
        steps.append(step)
        used.update(step.operands)
        values.append(made)
    last = tuple(k for k in range(len(arguments), len(values)) if k not in used)
    return SmoothProgram(arguments, tuple(steps), last)


Drawn = tuple[Run, tuple[int, ...]] | None


def beside(xp: Any, x: Any, values: Values) -> Any:
    """Values as an array of the library, on the ranks of another one."""
    return xp.asarray(values, mesh=x.mesh) if hasattr(x, "mesh") else xp.asarray(values)


def _choice(rng: np.random.Generator, some: Sequence[Any]) -> Any:
    return some[int(rng.integers(len(some)))]


def _like(rng: np.random.Generator, values: list[Values], x: Values) -> int:
    """A value that goes with another."""
    fits = []
    for k, one in enumerate(values):
        try:
            np.broadcast_shapes(one.shape, x.shape)
        except ValueError:
            continue
        fits.append(k)
    return int(_choice(rng, fits))


UNARY: tuple[Run, ...] = (
    lambda xp, x: xp.sin(x), lambda xp, x: xp.cos(x), lambda xp, x: xp.tanh(x),
    lambda xp, x: xp.exp(-x * x), lambda xp, x: xp.log(2 + xp.sin(x)), lambda xp, x: xp.sqrt(1 + x * x),
    lambda xp, x: xp.log1p(x * x), lambda xp, x: xp.expm1(0.1 * x), lambda xp, x: xp.square(xp.sin(x)),
    lambda xp, x: xp.reciprocal(1 + x * x), lambda xp, x: -x, lambda xp, x: xp.abs(x - 0.1),
    lambda xp, x: 1.5 - x, lambda xp, x: 2.0 / (3 + xp.cos(x)), lambda xp, x: (1 + x * x) ** 0.3,
    lambda xp, x: xp.sinh(xp.tanh(x)), lambda xp, x: xp.cosh(0.3 * xp.sin(x)), lambda xp, x: x ** 2,
    lambda xp, x: xp.tan(0.3 * xp.sin(x)), lambda xp, x: xp.clip(x, -0.7, 0.6),
    lambda xp, x: xp.where(x > 0, x, 0.2 * x), lambda xp, x: xp.positive(x),
    lambda xp, x: xp.log2(3 + xp.cos(x)), lambda xp, x: xp.log10(3 + xp.cos(x)),
    lambda xp, x: 1.2 ** x, lambda xp, x: xp.real((x + 1j * xp.sin(x)) * (2 - 1j * x)),
    lambda xp, x: xp.imag(xp.conj(x + 2j) * xp.exp(1j * x)), lambda xp, x: xp.abs(x + 1j * (2 + x)),
)  # fmt: skip


def unary(rng: np.random.Generator, values: list[Values], k: int) -> Drawn:
    return _choice(rng, UNARY), (k,)


BINARY: tuple[Run, ...] = (
    lambda xp, a, b: a + b, lambda xp, a, b: a - b, lambda xp, a, b: a * b,
    lambda xp, a, b: a / (2 + xp.sin(b)), lambda xp, a, b: xp.maximum(a, b),
    lambda xp, a, b: xp.minimum(a, b), lambda xp, a, b: xp.hypot(a, b + 3),
    lambda xp, a, b: xp.logaddexp(a, b),
    lambda xp, a, b: (1.1 + xp.sin(a)) ** xp.tanh(b), lambda xp, a, b: xp.where(a > b, a, b * b),
    lambda xp, a, b: xp.remainder(a + 10, 3 + xp.sin(b)),
)  # fmt: skip


def binary(rng: np.random.Generator, values: list[Values], k: int) -> Drawn:
    return _choice(rng, BINARY), (k, _like(rng, values, values[k]))


def reduced(rng: np.random.Generator, values: list[Values], k: int) -> Drawn:
    x = values[k]
    if not x.ndim or not x.size:  # nothing has no largest
        return None
    axis = None if rng.random() < 0.15 else int(rng.integers(x.ndim))
    if x.ndim > 1 and rng.random() < 0.2:
        axis = (0, x.ndim - 1)  # type: ignore[assignment]
    keep = bool(rng.random() < 0.5)
    where = {"axis": axis, "keepdims": keep}
    kinds: tuple[Run, ...] = (
        lambda xp, x: xp.sum(x, **where), lambda xp, x: xp.mean(x, **where),
        lambda xp, x: xp.max(x, **where), lambda xp, x: xp.min(x, **where),
        lambda xp, x: xp.prod(1 + 0.1 * x, **where), lambda xp, x: xp.var(x, **where),
        lambda xp, x: xp.sqrt(xp.var(x, **where) + 0.5),
    )  # fmt: skip
    return _choice(rng, kinds), (k,)


def running(rng: np.random.Generator, values: list[Values], k: int) -> Drawn:
    x = values[k]
    if not x.ndim:
        return None
    axis = int(rng.integers(x.ndim))
    kinds: tuple[Run, ...] = (
        lambda xp, x: xp.cumulative_sum(x, axis=axis),
        lambda xp, x: xp.cumulative_prod(1 + 0.1 * x, axis=axis),
        lambda xp, x: xp.cumulative_sum(x, axis=axis, include_initial=True),
        lambda xp, x: xp.diff(x, axis=axis) if x.shape[axis] > 1 else x,
        lambda xp, x: xp.sort(x, axis=axis),
    )
    return _choice(rng, kinds), (k,)


def product(rng: np.random.Generator, values: list[Values], k: int) -> Drawn:
    x = values[k]
    if x.ndim < 1:
        return None
    fits = [i for i, y in enumerate(values) if y.ndim == 2 and y.shape[0] == x.shape[-1]]
    if fits and rng.random() < 0.6:
        return (lambda xp, a, b: a @ b), (k, int(_choice(rng, fits)))
    if x.ndim == 2:
        kinds: tuple[Run, ...] = (
            lambda xp, x: x @ x.T, lambda xp, x: xp.einsum("ij,kj->ik", x, xp.sin(x)),
            lambda xp, x: xp.einsum("ij,ij->j", x, xp.cos(x)), lambda xp, x: xp.einsum("ij->ji", x),
            lambda xp, x: xp.tensordot(x, x, axes=((0,), (0,))), lambda xp, x: xp.einsum("ij,kl->jk", x, x),
        )  # fmt: skip
        return _choice(rng, kinds), (k,)
    return (lambda xp, x: xp.vecdot(x, xp.cos(x))), (k,)


def shaped(rng: np.random.Generator, values: list[Values], k: int) -> Drawn:
    x = values[k]
    n = x.ndim
    dim = int(rng.integers(n)) if n else 0
    order = tuple(int(i) for i in rng.permutation(n))
    shift, axis = int(rng.integers(-2, 3)), int(rng.integers(n + 1))
    kinds: list[Run] = [
        lambda xp, x: xp.reshape(x, (-1,)),
        lambda xp, x: xp.permute_dims(x, order),
        lambda xp, x: xp.expand_dims(x, axis=axis),
        lambda xp, x: xp.stack([x, xp.sin(x), x], axis=axis),
        lambda xp, x: xp.broadcast_to(x, (2, *x.shape)),
    ]
    if n:
        kinds += [
            lambda xp, x: xp.flip(x, axis=dim),
            lambda xp, x: xp.roll(x, shift, axis=dim),
            lambda xp, x: xp.concat([x, xp.cos(x)], axis=dim),
            lambda xp, x: xp.repeat(x, 2, axis=dim),
            lambda xp, x: xp.tile(x, (2,) * n),
            lambda xp, x: xp.moveaxis(x, dim, 0),
            lambda xp, x: xp.concat(xp.unstack(x, axis=dim)[:1] * 2, axis=None),
        ]
    if n and 1 in x.shape:
        kinds.append(lambda xp, x: xp.squeeze(x, axis=x.shape.index(1)))
    if n > 1:
        kinds += [
            lambda xp, x: xp.tril(x, k=shift),
            lambda xp, x: xp.triu(x, k=shift),
            lambda xp, x: xp.linalg.diagonal(x, offset=min(shift, 0)),
            lambda xp, x: xp.linalg.trace(x),
        ]
    return _choice(rng, kinds), (k,)


def indexed(rng: np.random.Generator, values: list[Values], k: int) -> Drawn:
    x = values[k]
    if not x.ndim or not x.size:
        return None
    dim = int(rng.integers(x.ndim))
    n = x.shape[dim]
    before = (slice(None),) * dim
    some = rng.integers(-n, n, int(rng.integers(1, 6)))
    step = int(_choice(rng, (1, 1, 2, -1)))
    start = int(rng.integers(n))
    one = int(rng.integers(n))
    shape = tuple(4 if i == dim else m for i, m in enumerate(x.shape))
    along = rng.integers(0, n, shape)
    pair = some[:2] if x.ndim > 1 else some
    other = rng.integers(0, x.shape[-1], len(pair))
    kinds: list[Run] = [
        lambda xp, x: x[(*before, slice(start, None, step))],
        lambda xp, x: x[(*before, one)],
        lambda xp, x: x[(*before, some)],
        lambda xp, x: xp.take(x, beside(xp, x, some), axis=dim),
        lambda xp, x: xp.take_along_axis(x, beside(xp, x, along), axis=dim),
        lambda xp, x: x[..., None],
    ]
    if x.ndim > 1 and dim != x.ndim - 1:
        kinds += [
            lambda xp, x: x[(*before, pair, ..., other)],
            lambda xp, x: x[(*before, beside(xp, x, pair % n), ..., one % x.shape[-1])],
        ]
    return _choice(rng, kinds), (k,)


def linear(rng: np.random.Generator, values: list[Values], k: int) -> Drawn:
    x = values[k]
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        return None
    one = np.eye(x.shape[-1])

    def safe(xp: Any, x: Any) -> Any:
        return 3.0 * beside(xp, x, one) + 0.2 * xp.sin(x)

    def definite(xp: Any, x: Any) -> Any:
        s = xp.sin(x)
        return xp.matmul(s, xp.matrix_transpose(s)) + beside(xp, x, one)

    kinds: tuple[Run, ...] = (
        lambda xp, x: xp.linalg.inv(safe(xp, x)),
        lambda xp, x: 0.1 * xp.linalg.det(safe(xp, x)),
        lambda xp, x: xp.linalg.slogdet(safe(xp, x))[1],
        lambda xp, x: xp.linalg.solve(safe(xp, x), xp.cos(x)),
        lambda xp, x: xp.linalg.cholesky(definite(xp, x)),
        lambda xp, x: xp.linalg.matrix_power(0.5 * x, 3),
        lambda xp, x: xp.linalg.pinv(safe(xp, x)),
        lambda xp, x: xp.linalg.qr(safe(xp, x))[1] ** 2,
    )
    return _choice(rng, kinds), (k,)


def transformed(rng: np.random.Generator, values: list[Values], k: int) -> Drawn:
    x = values[k]
    if not x.ndim or not x.size:
        return None
    dim = int(rng.integers(x.ndim))
    n = _choice(rng, (None, 3, 4, 7))
    norm = _choice(rng, ("backward", "ortho", "forward"))
    given = {"n": n, "axis": dim, "norm": norm}

    def size(xp: Any, z: Any) -> Any:
        return xp.real(z * xp.conj(z)) * 0.1 + xp.imag(z)

    kinds: tuple[Run, ...] = (
        lambda xp, x: size(xp, xp.fft.fft(x + 0j, **given)),
        lambda xp, x: size(xp, xp.fft.ifft(x + 0j, **given)),
        lambda xp, x: size(xp, xp.fft.rfft(x, **given)),
        lambda xp, x: xp.fft.irfft(x + 1j * xp.sin(x), n=n or 4, axis=dim, norm=norm),
        lambda xp, x: xp.fft.hfft(x + 1j * xp.sin(x), n=n or 4, axis=dim, norm=norm) * 0.2,
        lambda xp, x: size(xp, xp.fft.ihfft(x, **given)),
        lambda xp, x: size(xp, xp.fft.fftn(x + 0j, norm=norm)),
        lambda xp, x: size(xp, xp.fft.rfftn(x, norm=norm)),
        lambda xp, x: xp.fft.fftshift(x, axes=(dim,)),
    )
    return _choice(rng, kinds), (k,)


def normed(rng: np.random.Generator, values: list[Values], k: int) -> Drawn:
    x = values[k]
    if not x.ndim or not x.size:
        return None
    dim = int(rng.integers(x.ndim))
    order = _choice(rng, (1, 2, 3, np.inf))
    return (lambda xp, x: xp.linalg.vector_norm(x + 2.0, axis=dim, keepdims=True, ord=order)), (k,)


JOINS: tuple[Run, ...] = (
    lambda xp, a, b: (a - b) ** 2, lambda xp, a, b: xp.where(a > b, a, 0.5 * b),
    lambda xp, a, b: xp.tanh(a * b) + a, lambda xp, a, b: 1.1 + 0.2 * xp.sin(a + b),
)  # fmt: skip


def ein(xp: Any, labels: str, a: Any, b: Any, join: Run, agg: str) -> Any:
    """An extended Einstein sum of ``ik,jk``; of libraries that have none, by all joined elements."""
    if hasattr(xp, "ein"):
        return xp.ein(f"ik,jk->{labels}", a, b, join=lambda a, b: join(xp, a, b), agg=agg)
    whole = join(xp, a[:, None, :], b[None, :, :])
    gone = tuple(i for i, one in enumerate("ijk") if one not in labels)
    return getattr(xp, agg)(whole, axis=gone) if gone else whole


def joined(rng: np.random.Generator, values: list[Values], k: int) -> Drawn:
    x = values[k]
    if x.ndim != 2:
        return None
    fits = [i for i, y in enumerate(values) if y.ndim == 2 and y.shape[1] == x.shape[1]]
    join, agg = _choice(rng, JOINS), _choice(rng, ("sum", "prod", "max", "min"))
    labels = _choice(rng, ("ij", "i", "j", "ijk", "k"))
    if agg == "prod":
        join = JOINS[3]
    return (lambda xp, a, b: ein(xp, labels, a, b, join, agg)), (k, int(_choice(rng, fits)))


KINDS = (
    unary, unary, binary, binary, binary, reduced, reduced, running, product, product, shaped, shaped,
    shaped, indexed, indexed, linear, linear, transformed, normed, joined, joined,
)  # fmt: skip


def slope_along(
    function: Callable[..., Any], arguments: Sequence[Values], ways: Sequence[Values]
) -> tuple[float, float]:
    """How a function changes along a way, and how far that is known.

    Differences on both sides, of a step and of its half, extrapolated. Where these disagree the function
    is not smooth there, as a maximum is not where two elements are equal.
    """

    def difference(h: float) -> float:
        ends = []
        for sign in (1, -1):
            moved = [x + sign * h * way for x, way in zip(arguments, ways, strict=True)]
            ends.append(float(function(*moved)))
        return (ends[0] - ends[1]) / (2 * h)

    wide, near, nearer = (difference(h) for h in (2e-4, 1e-4, 5e-5))
    first, second = (4 * near - wide) / 3, (4 * nearer - near) / 3
    return second, abs(first - second)
