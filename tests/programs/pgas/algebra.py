"""Linear algebra on random matrices of every layout, compared with NumPy.

As in ``mpirun -n 3 python -m tests.programs.pgas.algebra --n 100 --seed 0``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from redist.pgas.linalg import equations
from tests.programs.pgas.drawing import Draw, Values, wrong, xp
from tests.programs.pgas.rounds import Check, names_of, run_checks
from tests.programs.together import main

DTYPES = ("f8", "f4", "c16", "c8")
linalg: Any = xp.linalg


def stack_of(draw: Draw) -> tuple[int, ...]:
    """The dims before matrices: mostly none."""
    return tuple(draw.size() for _ in range(draw.rng.integers(0, 3) % 2))


def norms(draw: Draw) -> str | None:
    """Norms of vectors and of matrices."""
    mesh = draw.mesh()
    values = draw.values(
        (*stack_of(draw), max(1, draw.size()), max(1, draw.size())), str(draw.rng.choice(DTYPES))
    )
    x = draw.array(values, mesh)
    order: Any = [2, 1, 0, 3.5, math.inf, -math.inf][draw.rng.integers(6 if values.size else 4)]
    axis: Any = [None, 0, -1, (0, 1)][draw.rng.integers(4)]
    keep = bool(draw.rng.integers(2))
    what = f"of {x.type} on {mesh}, {axis}, {keep}"
    found = wrong(
        linalg.vector_norm(x, axis=axis, keepdims=keep, ord=order),
        np.linalg.vector_norm(values, axis=axis, keepdims=keep, ord=order),
        f"vector_norm {order} {what}",
    )
    if found:
        return found
    order = ["fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf][draw.rng.integers(8)]
    return wrong(
        linalg.matrix_norm(x, keepdims=keep, ord=order),
        np.linalg.matrix_norm(values, keepdims=keep, ord=order),
        f"matrix_norm {order} {what}",
        scale=10,
    )


def factors(draw: Draw) -> str | None:
    """QR and SVD of any shape, also without full rank: products, orthogonality, triangles."""
    mesh = draw.mesh()
    m, n = draw.size(), draw.size()
    if draw.rng.random() < 0.5:
        m = 5 * m
    values = draw.values((*stack_of(draw), m, n), str(draw.rng.choice(DTYPES)))
    if draw.rng.random() < 0.3:
        values[..., : n // 2] = 0
    x = draw.array(values, mesh)
    mode = "reduced" if draw.rng.random() < 0.8 else "complete"
    q, r = linalg.qr(x, mode=mode)
    what = f"{mode} qr {x.type} on {mesh}"
    k = min(m, n) if mode == "reduced" else m
    found = (
        wrong(q @ r, values, what)
        or wrong(xp.matrix_transpose(xp.conj(q)) @ q, _eye(values, k), f"Q of {what}")
        or (None if r.shape[-2:] == (k, n) else f"{what}: R is {r.shape}")
    )
    below = None if r.local is None else np.abs(np.tril(r.local, -1)).max(initial=0)
    if found or (below is not None and below > 0 and r.type.cuts == (1,) * r.ndim):
        return found or f"{what}: R is no triangle"
    full = bool(draw.rng.integers(2))
    u, s, vh = linalg.svd(x, full_matrices=full)
    sizes = np.linalg.svdvals(values)
    return wrong(s, sizes, f"svd of {x.type}", scale=4) or (
        None
        if full
        else wrong((u * xp.expand_dims(s, axis=-2)) @ vh, values, f"svd {x.type}", scale=4)
    )


def _eye(values: Values, k: int) -> Values:
    return np.broadcast_to(np.eye(k, dtype=values.dtype), (*values.shape[:-2], k, k))


def general(x: Any, values: Values) -> str | None:
    """Eigenvalues and eigenvectors of matrices without symmetry: complex, even if all are real."""
    kind, what = np.result_type(values.dtype, np.complex64), f"eig of {x.type}"
    w, v = linalg.eig(x)
    good = np.linalg.eig(values)
    return (
        wrong(w, good.eigenvalues.astype(kind), what, scale=100)
        or wrong(v, good.eigenvectors.astype(kind), what, scale=100)
        or wrong(linalg.eigvals(x), good.eigenvalues.astype(kind), what, scale=100)
    )


def squares(draw: Draw) -> str | None:
    """Functions of square matrices, one by one."""
    mesh = draw.mesh()
    n = max(1, draw.size())
    dtype = str(draw.rng.choice(["f8", "c16"]))
    values = draw.values((*stack_of(draw), n, n), dtype)
    good = values @ np.conj(np.swapaxes(values, -1, -2)) + n * np.eye(n, dtype=dtype)
    x = draw.array(good, mesh)
    name = str(
        draw.rng.choice(["cholesky", "det", "inv", "eigvalsh", "pinv", "matrix_rank", "svdvals"])
    )
    what = f"{name} of {x.type} on {mesh}"
    found = wrong(getattr(linalg, name)(x), getattr(np.linalg, name)(good), what, scale=100)
    w, v = linalg.eigh(x)
    found = found or general(draw.array(values, mesh), values)
    found = (
        found or wrong(x @ v, good @ v.gather(), what, scale=10)
        if mesh.n_devices == draw.comm.size
        else found
    )
    sides = draw.values((*good.shape[:-1], 3), dtype)
    y = draw.array(sides, mesh)
    _, log = linalg.slogdet(x)
    power = int(draw.rng.integers(-2, 4))
    offset = int(draw.rng.integers(-3, 4))
    return (
        found
        or wrong(w, np.linalg.eigvalsh(good), f"eigh {what}", scale=100)
        or wrong(linalg.solve(x, y), np.linalg.solve(good, sides), f"solve {what}", scale=100)
        or wrong(log, np.linalg.slogdet(good)[1], f"slogdet {what}", scale=100)
        or wrong(
            linalg.matrix_power(x, power),
            np.linalg.matrix_power(good, power),
            f"power {power} {what}",
            scale=100,
        )
        or wrong(
            linalg.trace(x, offset=offset), np.linalg.trace(good, offset=offset), f"trace {what}"
        )
        or wrong(
            linalg.diagonal(x, offset=offset),
            np.linalg.diagonal(good, offset=offset),
            f"diagonal {what}",
        )
    )


def vectors(draw: Draw) -> str | None:
    """Cross and outer products, least squares, a vector as the right side."""
    mesh = draw.mesh()
    dtype = str(draw.rng.choice(["f8", "c16"]))
    a, b = draw.values((draw.size(), 3), dtype), draw.values((3,), dtype)
    x, y = draw.array(a, mesh), draw.array(b, mesh)
    found = wrong(linalg.cross(x, y), np.cross(a, b), f"cross {x.type} {y.type} on {mesh}")
    u, v = draw.values((draw.size(),), dtype), draw.values((draw.size(),), dtype)
    found = found or wrong(
        linalg.outer(draw.array(u, mesh), draw.array(v, mesh)), np.multiply.outer(u, v), "outer"
    )
    n = int(draw.rng.integers(1, 5))
    tall = draw.values((n + 20, n), dtype)
    shape = (n + 20,) if draw.rng.random() < 0.5 else (n + 20, 2)
    sides = draw.values(shape, dtype)
    p, q = draw.array(tall, mesh), draw.array(sides, mesh)
    found = found or wrong(
        linalg.lstsq(p, q), np.linalg.lstsq(tall, sides)[0], f"lstsq {p.type} {q.type}", scale=20
    )
    square, side = tall[:n], draw.values((n,), dtype)
    return found or wrong(
        linalg.solve(draw.array(np.ascontiguousarray(square), mesh), draw.array(side, mesh)),
        np.linalg.solve(square, side),
        "solve a vector",
        scale=1e4,
    )


def large(draw: Draw) -> str | None:
    """A system that stays cut by rows, and one that is singular."""
    before, panel = equations.WHOLE_BYTES, equations.PANEL
    equations.WHOLE_BYTES, equations.PANEL = 0, 5
    try:
        mesh, n = draw.mesh(), int(draw.rng.integers(1, 40))
        dtype = str(draw.rng.choice(DTYPES))
        matrix = draw.values((n, n), dtype)
        matrix += (2 * n * np.eye(n)).astype(dtype)
        sides = draw.values((n,) if draw.rng.random() < 0.5 else (n, 3), dtype)
        x, y = draw.array(matrix, mesh), draw.array(sides, mesh)
        out = linalg.solve(x, y)
        what = f"large solve {x.type} {y.type} on {mesh}"
        found = wrong(out, np.linalg.solve(matrix, sides), what) or wrong(
            linalg.inv(x), np.linalg.inv(matrix), f"inv {what}"
        )
        matrix[:, -1] = 0
        try:
            linalg.solve(draw.array(matrix, mesh), y)
        except np.linalg.LinAlgError:
            return found
        return f"{what}: no error for a singular matrix"
    finally:
        equations.WHOLE_BYTES, equations.PANEL = before, panel


def refused(draw: Draw) -> str | None:
    """A singular matrix in a stack that is cut: the error comes on every rank."""
    values = np.stack([np.eye(2)] * 7)
    values[3] = 0
    x = xp.asarray(values, type="{x}, {}, {}", comm=draw.comm)
    try:
        linalg.inv(x)
    except np.linalg.LinAlgError:
        try:
            linalg.cond(x)
        except AttributeError as error:
            return None if "pgas.linalg.svdvals(a)" in str(error) else str(error)
    return "no error"


OFTEN: tuple[Check, ...] = (norms, factors, squares, vectors, large)
ONCE: tuple[Check, ...] = (refused,)
CHECKS = names_of([*OFTEN, *ONCE])


def program() -> int:
    """0 if every case agrees with NumPy."""
    return run_checks(OFTEN, ONCE)


if __name__ == "__main__":
    main(program)
