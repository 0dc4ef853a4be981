"""Random arrays by a seed: the same under every layout as on one rank, and well spread.

As in ``mpirun -n 3 python -m tests.programs.pgas.seeds --n 50``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from redist import Mesh, RedistError
from redist.pgas.tiles.layouts import dtype_of
from tests.programs.pgas.drawing import Draw, xp
from tests.programs.pgas.layouts import layouts
from tests.programs.pgas.rounds import Check, names_of, run_checks
from tests.programs.together import main

KNOWN = (0.46881748695593284, 0.42614583623918467)
"""The first numbers of seed 7: a program gives the same numbers in years to come."""


def same_everywhere(draw: Draw) -> str | None:
    """Any layout gives the values of a rank that has all of them, bit for bit."""
    mesh = draw.meshes[draw.rng.integers(len(draw.meshes))]
    n = int(draw.rng.integers(0, 4))
    shape = tuple(int(draw.rng.choice([0, 1, 3, 7, 40, 700])) for _ in range(n))
    if int(np.prod(shape, dtype=np.int64)) > 300_000:
        shape = shape[:2]
    kind = str(draw.rng.choice(["f8", "f4"]))
    types = list(layouts(mesh, dtype_of(np.dtype(kind)), shape))
    t = types[draw.rng.integers(len(types))]
    seed = int(draw.rng.integers(2**40))
    alone = {"mesh": Mesh(one=1), "comm": MPI.COMM_SELF}
    name = str(draw.rng.choice(["uniform", "normal"]))
    args: tuple[Any, ...] = () if draw.rng.random() < 0.5 else (-1.0, 2.5)
    a = getattr(xp.random.generator(seed), name)(shape, *args, dtype=kind, type=t, comm=draw.comm)
    b = getattr(xp.random.generator(seed), name)(shape, *args, dtype=kind, **alone)
    return _differs(a, b.gather(), f"{name} {t} on {mesh}")


def integers(draw: Draw) -> str | None:
    """Integers of any range, the same everywhere."""
    shape = (int(draw.rng.integers(0, 50)), 7)
    low, high = sorted(int(v) for v in draw.rng.integers(-(2**63), 2**63 - 1, 2))
    if draw.rng.random() < 0.5:
        low, high = 0, 10
    types = list(layouts(draw.meshes[0], dtype_of(np.dtype("i8")), shape))
    t = types[draw.rng.integers(len(types))]
    a = xp.random.generator(5).integers(shape, low, high + 1, type=t, comm=draw.comm)
    b = (
        xp.random.generator(5)
        .integers(shape, low, high + 1, mesh=Mesh(one=1), comm=MPI.COMM_SELF)
        .gather()
    )
    if b.size and not (low <= b.min() and b.max() <= high):
        return f"integers outside [{low}, {high}]"
    return _differs(a, b, f"integers {t}")


def _differs(a: Any, whole: Any, what: str) -> str | None:

    if a.local is None:
        return None
    part = whole[tuple(slice(lo, hi) for lo, hi in a.box)]
    return None if np.array_equal(a.local, part) else f"{what} differs"


def spread(draw: Draw) -> str | None:
    """Means and deviations are as they should be; calls and seeds give other values."""
    g = xp.random.generator(7)
    u, v, z = (
        g.uniform(100_000, comm=draw.comm),
        g.uniform(100_000, comm=draw.comm),
        g.normal(100_000, comm=draw.comm),
    )
    facts = {
        "mean": float(xp.mean(u)) - 0.5,
        "deviation": float(xp.std(u)) - 12**-0.5,
        "normal mean": float(xp.mean(z)),
        "normal deviation": float(xp.std(z)) - 1,
        "correlation": float(xp.mean((u - 0.5) * (v - 0.5))),
    }
    for name, value in facts.items():
        if abs(value) > 0.02:
            return f"{name} is off by {value}"
    first = tuple(u.gather()[:2].tolist())
    return None if np.allclose(first, KNOWN, rtol=0, atol=1e-9) else f"seed 7 starts with {first}"


def refused(draw: Draw) -> str | None:
    """Seeds and ranges that make no sense."""
    g = xp.random.generator(1)
    for call in (
        lambda: xp.random.generator(-1),
        lambda: g.integers(3, 5, 5),
        lambda: g.integers(3, 0, 300, dtype="u1"),
        lambda: g.uniform(3, dtype="i8"),
    ):
        try:
            call()
        except (RedistError, TypeError):
            continue
        return "no error"
    return None


OFTEN: tuple[Check, ...] = (same_everywhere, integers)
ONCE: tuple[Check, ...] = (spread, refused)
CHECKS = names_of([*OFTEN, *ONCE])


def program() -> int:
    """0 if all is the same everywhere."""
    return run_checks(OFTEN, ONCE)


if __name__ == "__main__":
    main(program)
