"""The examples as one writes them with mpi4py and NumPy alone, for comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

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


def least_squares(comm: MPI.Intracomm, a: Floats, b: Floats) -> Floats:
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
