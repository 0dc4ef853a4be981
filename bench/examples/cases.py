"""The examples at a size, beside what one writes by hand: both ways as calls that give the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import redist
from bench.examples import by_hand
from bench.problems.installed import version, why_absent
from examples import fft3d, hand_over, heat, kmeans, least_squares, power_iteration
from redist import pgas

Work = Callable[[], Any]
STEPS = 10


@dataclass(frozen=True, slots=True)
class ExamplePair:
    """An example: what it moves, the rival's name, both ways, and how far results may differ."""

    name: str
    what: str
    rival: str
    ours: Work
    theirs: Work | None
    tolerance: float = 1e-8


def tile_of(a: pgas.Array) -> NDArray[Any]:
    """The tile of an array that every rank has a part of."""
    assert a.local is not None
    return a.local


def fft_pair(comm: MPI.Intracomm, n_bytes: int) -> ExamplePair:
    """Against mpi4py-fft, where it is installed."""
    shape = _cube(n_bytes // 16)
    mesh = fft3d.square_mesh(comm.size)
    a = pgas.random.generator(0).uniform(shape, type="{}, {x}, {y}", mesh=mesh)
    a = pgas.astype(a, np.complex128)
    what = " x ".join(map(str, shape)) + " c128"
    if why_absent("mpi4py_fft") is not None:
        return ExamplePair(
            "fft3d", what, "mpi4py-fft: not installed", lambda: pgas.fft.fftn(a).local, None
        )
    from mpi4py_fft import PFFT, newDistArray

    grid = (1, *(n for _, n in mesh.axes))
    plan = PFFT(comm, shape, axes=(2, 1, 0), dtype=complex, grid=grid)
    u, out = newDistArray(plan, False), newDistArray(plan, True)
    whole = a.gather()
    u[...] = whole[u.local_slice()]

    def theirs() -> Any:
        return plan.forward(u, out, normalize=False)

    def ours() -> Any:
        return pgas.fft.fftn(a)

    del whole
    return ExamplePair("fft3d", what, f"mpi4py-fft {version('mpi4py-fft')}", ours, theirs)


def heat_pair(comm: MPI.Intracomm, n_bytes: int) -> ExamplePair:
    """Halos by one-sided reads against Sendrecv."""
    n = int((n_bytes // 8) ** 0.5) // comm.size * comm.size
    plates = [heat.plate(n), heat.plate(n)]
    hand = by_hand.HeatByHand(comm, tile_of(plates[0]))

    def ours() -> Any:
        for _ in range(STEPS):
            heat.step(*plates)
            plates.reverse()
        return plates[0].local

    return ExamplePair(
        "heat", f"{n} x {n}, {STEPS} steps", "Sendrecv", ours, lambda: hand.run(STEPS)
    )


def least_squares_pair(comm: MPI.Intracomm, n_bytes: int) -> ExamplePair:
    """Tall QR."""
    columns = 32
    rows = n_bytes // 8 // columns // comm.size * comm.size
    a, _, b = least_squares.make(rows, columns)
    b = b.to("{x}")
    return ExamplePair(
        "least_squares",
        f"{rows} x {columns}",
        "QR, Allgather, Allreduce",
        lambda: least_squares.fit(a, b).local,
        lambda: by_hand.least_squares(comm, tile_of(a), tile_of(b)),
    )


def kmeans_pair(comm: MPI.Intracomm, n_bytes: int) -> ExamplePair:
    """One round."""
    dims = k = 8
    n = n_bytes // 8 // dims // comm.size * comm.size
    points = kmeans.make(n, dims, k)
    centres = points[:k, :].to("{}, {}")
    start = centres.gather()
    return ExamplePair(
        "kmeans",
        f"{n} points of {dims}, {k} centres, one round",
        "Allreduce",
        lambda: kmeans.step(points, centres)[1].local,
        lambda: by_hand.kmeans_step(comm, tile_of(points), start),
    )


def power_pair(comm: MPI.Intracomm, n_bytes: int) -> ExamplePair:
    """Under a limit of half the matrix."""
    n = int((n_bytes // 8) ** 0.5) // comm.size * comm.size
    a = power_iteration.make(n)
    first = np.where(np.arange(n) % 2, 1.0, 2.0)

    def ours() -> Any:
        with redist.memory_limit(redist.pgas.memory.BUFFERS.live_bytes + 2**22):
            v = pgas.asarray(first, type="{}")
            for _ in range(STEPS):
                _, v = power_iteration.step(a, v)
        return v.local

    def theirs() -> Any:
        v = first
        for _ in range(STEPS):
            _, v = by_hand.power_step(comm, tile_of(a), v)
        return v

    return ExamplePair("power_iteration", f"{n} x {n}, {STEPS} steps", "Allgather", ours, theirs)


def hand_over_pair(comm: MPI.Intracomm, n_bytes: int) -> ExamplePair:
    """A dict of weights."""
    width = 512 if n_bytes >= 2**25 else 64
    layers = max(1, n_bytes // (32 * width * width))
    train, serve = hand_over.meshes(comm.size)
    weights = hand_over.make(width, layers, train)
    types = hand_over.types(width, layers, serve)
    data, model = (n for _, n in train.axes)
    tiles = {name: w.local for name, w in weights.items()}
    hand = by_hand.HandOverByHand(comm, tiles, hand_over.shapes(width, layers), data, model)

    def ours() -> Any:
        out = pgas.move_together(weights, types)
        return [w.local for w in out.values() if w.local is not None]

    return ExamplePair(
        "hand_over",
        f"{len(weights)} arrays, width {width}",
        "Isend, Irecv",
        ours,
        lambda: list(hand.run().values()),
        0.0,
    )


PAIRS: dict[str, Callable[[MPI.Intracomm, int], ExamplePair]] = {
    "fft3d": fft_pair,
    "heat": heat_pair,
    "least_squares": least_squares_pair,
    "kmeans": kmeans_pair,
    "power_iteration": power_pair,
    "hand_over": hand_over_pair,
}


def _cube(elems: int) -> tuple[int, int, int]:
    """Powers of two with so many elements, as equal as can be.

    >>> _cube(2**23)
    (256, 256, 128)
    """
    power = max(3, elems.bit_length() - 1)
    third = power // 3
    extra = power - 3 * third
    return (2 ** (third + (extra > 0)), 2 ** (third + (extra > 1)), 2**third)
