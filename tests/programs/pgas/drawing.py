"""Random global arrays of every layout, and whether a result is what NumPy says, tile by tile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from mpi4py import MPI

from redist import ArrayType, Mesh, pgas
from redist.layout.axes import whole
from redist.layout.tiles import tile_index
from redist.pgas.global_array import Array
from redist.pgas.tiles.layouts import dtype_of
from tests.programs.pgas.layouts import layouts, meshes

xp: Any = pgas
Values = np.ndarray[Any, Any]
ULPS = 64.0


class Draw:
    """Random choices, the same on all ranks."""

    def __init__(self, comm: MPI.Comm, seed: int, beside: str = "") -> None:
        self.comm, self.rng = comm, np.random.default_rng(seed)
        self.beside: Mapping[str, Values] = np.load(beside) if beside else {}
        """What another library says, by name."""
        self.meshes = meshes(comm.size)
        if comm.size > 2:
            self.meshes.append(Mesh({"x": comm.size - 1}, ranks=range(1, comm.size)))

    def mesh(self) -> Mesh:
        """One of the meshes; one of them leaves rank 0 out."""
        return self.meshes[self.rng.integers(len(self.meshes))]

    def size(self) -> int:
        """The size of a dim: also 0, 1, and what no number of ranks divides."""
        return int(
            self.rng.choice([0, 1, 2, 3, 4, 6, 7, 11], p=[0.05, 0.1, 0.1, 0.2, 0.2, 0.15, 0.1, 0.1])
        )

    def values(self, shape: tuple[int, ...], dtype: str) -> Values:
        """Small numbers."""
        kind = np.dtype(dtype)
        if kind.kind == "b":
            return np.asarray(self.rng.random(shape) < 0.5)
        if kind.kind in "iu":
            return np.asarray(self.rng.integers(0, 100, shape), kind)
        out = np.asarray(self.rng.standard_normal(shape), kind)
        if kind.kind == "c":
            out = np.asarray(out + 1j * self.rng.standard_normal(shape), kind)
        return out

    def array(self, values: Values, mesh: Mesh) -> Any:
        """The values under any layout, sometimes with a reduction pending."""
        types = list(layouts(mesh, dtype_of(values.dtype), values.shape))
        t = types[self.rng.integers(len(types))]
        a = xp.asarray(values, type=t, comm=self.comm)
        used = {part.name for part in t.used}
        idle = [name for name, size in mesh.axes if size > 1 and name not in used]
        if idle and self.rng.random() < 0.3 and values.dtype.kind != "b":
            return self._pending(a, idle[0])
        return a

    def _pending(self, a: Array, name: str) -> Any:
        """The same array as a sum of which one device of an axis has all."""
        t = a.type.with_pending("sum", [whole(a.mesh, name)])
        if a.local is None:
            return Array(t, a.comm, None)
        only = ArrayType(a.mesh, a.type.dtype, (a.mesh.size(name),), ((whole(a.mesh, name),),))
        first = tile_index(only, a.comm.rank) == (0,)
        zero = -np.zeros_like(a.local) if a.dtype.kind in "fc" else np.zeros_like(a.local)
        return Array(t, a.comm, a.local if first else np.asarray(zero))


def wrong(out: Any, expected: Any, what: str, *, scale: float = 1.0) -> str | None:
    """What differs in this rank's tile: integers exactly, others within ulps of the largest value."""
    expected = np.asarray(expected)
    if out.shape != expected.shape or out.dtype != expected.dtype:
        return f"{what}: {out.dtype}{out.shape}, not {expected.dtype}{expected.shape}"
    out = out.settled()
    if out.local is None:
        return None
    part = expected[tuple(slice(lo, hi) for lo, hi in out.box)]
    if out.local.shape != part.shape:
        return f"{what}: a tile of {out.local.shape}, not {part.shape}, of {out.type}"
    if expected.dtype.kind in "biu":
        fine = np.array_equal(out.local, part)
    else:
        most = max([1.0, *np.abs(expected[np.isfinite(expected)]).ravel().tolist()])
        least = np.finfo(expected.dtype).eps * ULPS * scale * most
        fine = np.allclose(out.local, part, rtol=0, atol=float(least), equal_nan=True)
    return (
        None if fine else f"{what} of {out.type}: {out.local.tolist()}, not {part.tolist()}"[:1500]
    )
