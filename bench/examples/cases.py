"""The examples at a size, beside what one writes with mpi4py and NumPy alone: calls that give the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import redist
from bench.problems.installed import version, why_absent
from examples import fft3d, hand_over, heat, kmeans, least_squares, power_iteration
from redist import pgas

Floats = NDArray[Any]
SHARE = 0.2


class HeatByHand:
    """Rows with a ghost row above and below, exchanged with the neighbours before every step."""

    def __init__(self, comm: MPI.Intracomm, tile: Floats) -> None:
        self.comm, (rows, columns) = comm, tile.shape
        self.u, self.v = np.zeros((rows + 2, columns)), np.zeros((rows + 2, columns))
        self.u[1:-1] = self.v[1:-1] = tile
        self.up = comm.rank - 1 if comm.rank > 0 else MPI.PROC_NULL
        self.down = comm.rank + 1 if comm.rank + 1 < comm.size else MPI.PROC_NULL

    def run(self, steps: int) -> Floats:
        """**Collective.** The tile after so many steps."""
        for _ in range(steps):
            u, v = self.u, self.v
            self.comm.Sendrecv(u[1], self.up, recvbuf=u[-1], source=self.down)
            self.comm.Sendrecv(u[-2], self.down, recvbuf=u[0], source=self.up)
            lo = 2 if self.up == MPI.PROC_NULL else 1
            hi = len(u) - (2 if self.down == MPI.PROC_NULL else 1)
            inner = v[lo:hi, 1:-1]
            np.add(u[lo - 1 : hi - 1, 1:-1], u[lo + 1 : hi + 1, 1:-1], out=inner)
            inner += u[lo:hi, :-2]
            inner += u[lo:hi, 2:]
            inner *= SHARE
            inner += (1 - 4 * SHARE) * u[lo:hi, 1:-1]
            self.u, self.v = v, u
        return self.u[1:-1]


def least_squares_by_hand(comm: MPI.Intracomm, a: Floats, b: Floats) -> Floats:
    """**Collective.** QR of the rows, QR of all R, then one small system."""
    q, r = np.linalg.qr(a)
    every = np.empty((comm.size, *r.shape))
    comm.Allgather(np.ascontiguousarray(r), every)
    q2, r2 = np.linalg.qr(every.reshape(-1, r.shape[1]))
    n = r.shape[0]
    right = q2[comm.rank * n : (comm.rank + 1) * n].T @ (q.T @ b)
    comm.Allreduce(MPI.IN_PLACE, right)
    return np.linalg.solve(r2, right)


def kmeans_step(comm: MPI.Intracomm, points: Floats, centres: Floats) -> Floats:
    """**Collective.** The next centres."""
    k = len(centres)
    far = (centres * centres).sum(axis=1) - 2.0 * (points @ centres.T)
    nearest = far.argmin(axis=1)
    belongs = (nearest[:, None] == np.arange(k)).astype(points.dtype)
    sums, counts = belongs.T @ points, belongs.sum(axis=0)
    comm.Allreduce(MPI.IN_PLACE, sums)
    comm.Allreduce(MPI.IN_PLACE, counts)
    return sums / np.maximum(counts, 1.0)[:, None]


def power_step(comm: MPI.Intracomm, a: Floats, v: Floats) -> tuple[float, Floats]:
    """**Collective.** An estimate of the eigenvalue, and the next vector."""
    w = np.empty(len(v))
    comm.Allgather(a @ v, w)
    value = float(np.sqrt(w @ w))
    return value, w / value


class HandOverByHand:
    """Weights cut along ``model`` with copies along ``data``, to ranks that cut them finer."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        tiles: dict[str, Floats | None],
        shapes: dict[str, tuple[int, ...]],
        data: int,
        model: int,
    ) -> None:
        self.comm, self.tiles = comm, tiles
        self.data, self.model = data, model
        self.parts = comm.size - data * model
        assert self.parts % model == 0, "each server needs one tile of the trainers"
        self.out: dict[str, Floats] = {}
        if comm.rank >= data * model:
            for name, shape in shapes.items():
                size = list(shape)
                size[_dim(name)] //= self.parts
                self.out[name] = np.empty(size, np.float32)

    def run(self) -> dict[str, Floats]:
        """**Collective.** The tiles of a server."""
        half, each = self.data * self.model, self.parts // self.model
        requests, packed = [], []
        if self.comm.rank >= half:
            part = self.comm.rank - half
            source = part % self.data * self.model + part // each
            requests = [self.comm.Irecv(tile, source) for tile in self.out.values()]
        else:
            replica, m = divmod(self.comm.rank, self.model)
            for part in range(m * each, (m + 1) * each):
                if part % self.data != replica:
                    continue
                for name, tile in self.tiles.items():
                    assert tile is not None
                    piece = np.split(tile, each, axis=_dim(name))[part - m * each]
                    packed.append(np.ascontiguousarray(piece))
                    requests.append(self.comm.Isend(packed[-1], half + part))
        MPI.Request.Waitall(requests)
        return self.out


def _dim(name: str) -> int:
    return 1 if name.endswith(".up") else 0


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

    def ours() -> Any:
        return pgas.fft.fftn(a)

    if why_absent("mpi4py_fft") is not None:
        return ExamplePair("fft3d", what, "mpi4py-fft: not installed", ours, None)
    from mpi4py_fft import PFFT, newDistArray

    grid = (1, *(n for _, n in mesh.axes))
    plan = PFFT(comm, shape, axes=(2, 1, 0), dtype=complex, grid=grid)
    u, out = newDistArray(plan, False), newDistArray(plan, True)
    u[...] = a.gather()[u.local_slice()]

    def theirs() -> Any:
        return plan.forward(u, out, normalize=False)

    return ExamplePair("fft3d", what, f"mpi4py-fft {version('mpi4py-fft')}", ours, theirs)


def heat_pair(comm: MPI.Intracomm, n_bytes: int) -> ExamplePair:
    """Halos by one-sided reads against Sendrecv."""
    n = int((n_bytes // 8) ** 0.5) // comm.size * comm.size
    plates = [heat.plate(n), heat.plate(n)]
    hand = HeatByHand(comm, tile_of(plates[0]))

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
        lambda: least_squares_by_hand(comm, tile_of(a), tile_of(b)),
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
        lambda: kmeans_step(comm, tile_of(points), start),
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
            _, v = power_step(comm, tile_of(a), v)
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
    hand = HandOverByHand(comm, tiles, hand_over.shapes(width, layers), data, model)

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
