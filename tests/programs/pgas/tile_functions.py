"""Functions of tiles: of arrays of other sizes, with gradients, with room of their own; and mistakes.

As in ``mpirun -n 2 python -m tests.programs.pgas.tile_functions``.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
X: Any = pgas
MIB = 2**20


def values(*shape: int, seed: int = 3) -> Any:
    """Random ones, the same on every rank."""
    return np.random.default_rng(seed).standard_normal(shape)


def scaled(x: Any, y: Any, z: Any) -> Any:
    """Pairs of rows of the first share a row of the second, and all a row of the third."""
    each = x.shape[1] // y.shape[1]
    return x * y.repeat(each, axis=1) + z


def slopes_of_scaled(g: Any, x: Any, y: Any, z: Any) -> Any:
    """By hand; the last array is taken for constant."""
    each = x.shape[1] // y.shape[1]
    dy = (g * x).reshape(x.shape[0], y.shape[1], each, -1).sum(axis=2)
    return g * y.repeat(each, axis=1), dy, None


def cases() -> Any:
    """Types of the first array, and arrays whose second dim has other sizes."""
    n = COMM.size
    x, y = values(2 * n + 1, 4 * n, 5), values(2 * n + 1, 2 * n, 5, seed=4)
    z = values(2 * n + 1, 1, 5, seed=5)
    for t, whole in (("{x}, {}, {}", ()), ("{}, {}, {x}", 1), ("{}, {x}, {}", 1)):
        yield t, whole, (x, y, z), [X.asarray(x, type=t), X.asarray(y), X.asarray(z)]
    even = values(3, 2 * n, 5, seed=6)
    yield "{}, {x}, {}", (), (even, even[:, ::2], even[:, :n]), [
        X.asarray(even, type="{}, {x}, {}"), X.asarray(even[:, ::2]), X.asarray(even[:, :n]),
    ]  # fmt: skip


def sizes() -> str | None:
    """Arrays of other sizes are cut as the first is."""

    def spread(x: Any, y: Any, z: Any) -> Any:
        return scaled(x, y, z.repeat(2, axis=1))

    for t, whole, (x, y, z), arrays in cases():
        function = scaled if z.shape[1] == 1 else spread
        step = X.program(lambda *ones, f=function, w=whole: X.map_tiles(f, *ones, whole=w))
        for run in (step.function, step):
            got = run(*arrays)
            if not np.allclose(got.gather(), function(x, y, z), atol=1e-12):
                return f"{t}, whole={whole}: {got.gather()}"
    return None


def slopes() -> str | None:
    """Those that are given, where arrays move, in programs and in what is computed again."""
    for t, whole, (x, y, z), arrays in cases():
        if z.shape[1] != 1:
            continue
        given = {"whole": whole, "gradient": slopes_of_scaled}

        def function(*ones: Any, given: Any = given) -> Any:
            return X.sum(X.map_tiles(scaled, *ones, **given) ** 2)

        g = 2 * scaled(x, y, z)
        want = slopes_of_scaled(g, x, y, z)
        again = X.grad(lambda *ones: X.checkpoint(function)(*ones), (0, 1, 2))
        for name, way in {
            "eager": X.grad(function, (0, 1, 2)),
            "again": again,
            "program": X.program(X.grad(function, (0, 1, 2))),
        }.items():
            for n, (mine, one) in enumerate(zip(way(*arrays), want, strict=True)):
                one = np.zeros_like(z) if one is None else one
                if mine.shape != one.shape or not np.allclose(mine.gather(), one, atol=1e-10):
                    return f"{name}, {t}, whole={whole}: argument {n}: {mine.gather()} not {one}"
    return None


def integers() -> str | None:
    """Those among the arrays have no slope, and the function of slopes is given them."""
    x, n = values(2 * COMM.size, 3), np.arange(6 * COMM.size).reshape(-1, 3)
    ours, numbers = X.asarray(x, type="{x}, {}"), X.asarray(n)

    def loss(y: Any) -> Any:
        made = X.map_tiles(
            lambda t, k: t**2 * k, y, numbers, gradient=lambda g, t, k: (2 * g * t * k, None)
        )
        return X.sum(made)

    got = X.grad(loss)(ours).gather()
    return None if np.allclose(got, 2 * x * n) else f"{got}"


def room() -> str | None:
    """A limit counts what functions take: refused if it is more, found by plans, and kept."""
    x = X.asarray(values(8 * COMM.size, 4), type="{x}, {}")
    try:
        with redist.memory_limit("16MiB"):
            X.map_tiles(np.sin, x, room="1GiB")
        return "room beyond the limit is not refused"
    except redist.MemoryLimitError as problem:
        if "cannot allocate 1 GiB" not in str(problem):
            return f"another error: {problem}"
    with redist.memory_limit("16MiB"):
        X.map_tiles(np.sin, x, room="1MiB")
    spill = tempfile.gettempdir()
    peaks = []
    for n_bytes in (0, 3 * MIB, "5MiB"):
        step = X.program(
            lambda y, n=n_bytes: X.map_tiles(np.sin, y, room=n), limit="1GiB", spill=spill
        )
        peaks.append(step.plan(x).peak_bytes)
        if not np.array_equal(step(x).gather(), np.sin(x.gather())):
            return "other values within a limit"
    rise = [one - peaks[0] for one in peaks]
    return None if rise == [0, 3 * MIB, 5 * MIB] else f"peaks rise by {rise}"


def mistakes() -> str | None:
    """One clear error on every rank."""
    x = X.asarray(values(2 * COMM.size, 4), type="{x}, {}")
    wide = X.asarray(values(2 * COMM.size + 1, 4))

    def grad_of(gradient: Any) -> Any:
        return X.grad(lambda y: X.sum(X.map_tiles(np.sin, y, gradient=gradient)))(x)

    wrong: list[tuple[Any, type[Exception], str]] = [
        (lambda: X.map_tiles(np.sin, x, room=-1), redist.ArgumentError, "room=-1: need bytes"),
        (lambda: X.map_tiles(np.sin, x, room=True), redist.ArgumentError, "need bytes"),
        (lambda: X.map_tiles(np.sin, x, gradient=5), redist.ArgumentTypeError, "by 5: need a function"),
        (lambda: X.map_tiles(np.sin, x, halo={0: 1}, gradient=np.cos), redist.ArgumentTypeError, "a halo"),
        (lambda: grad_of(None), redist.GradientError, "it has no gradient"),
        (lambda: grad_of(lambda g, t: g), redist.GradientError, "let it give a tuple of 1"),
        (lambda: grad_of(lambda g, t: (g, t)), redist.GradientError, "let it give a tuple of 1"),
        (lambda: grad_of(lambda g, t: (g[:, 1:],)), redist.ShapeError, "made of a tile"),
    ]  # fmt: skip
    if COMM.size > 1:
        wrong.append(
            (lambda: X.map_tiles(np.add, x, wide), redist.ShapeError, "name the dim in whole=")
        )
    for call, kind, said in wrong:
        try:
            call()
        except kind as problem:
            if said not in str(problem):
                return f"{problem}: not {said!r}"
        else:
            return f"no {kind.__name__}: {said}"
    return None


CHECKS = ("sizes", "slopes", "integers", "room", "mistakes")


def program() -> int:
    """0 if every check holds."""
    return run_named({name: globals()[name] for name in CHECKS})


if __name__ == "__main__":
    main(program)
