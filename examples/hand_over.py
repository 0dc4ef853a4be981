"""Weights from a training mesh to an inference mesh: ``mpirun -n 8 python examples/hand_over.py``.

The first half of the ranks trains (data by model), the second half serves (all model). All weights go
as one operation: each server fetches exactly what it lacks, in a bounded staging buffer.
"""

from __future__ import annotations

import argparse

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas


def meshes(size: int) -> tuple[redist.Mesh, redist.Mesh]:
    """Who trains, and who serves."""
    half = max(1, size // 2)
    train = redist.Mesh(
        {"data": 2 if half % 2 == 0 else 1, "model": half // (2 if half % 2 == 0 else 1)}
    )
    serve = (
        redist.Mesh({"part": size - half}, ranks=range(half, size))
        if size > 1
        else redist.Mesh(part=1)
    )
    return train, serve


def shapes(width: int, layers: int) -> dict[str, tuple[int, ...]]:
    """The weights of a small network."""
    out: dict[str, tuple[int, ...]] = {}
    for k in range(layers):
        out[f"{k}.up"], out[f"{k}.down"] = (width, 4 * width), (4 * width, width)
        out[f"{k}.bias"] = (4 * width,)
    return out


def cuts(name: str, axis: str) -> str:
    """Up by columns, down by rows, as in tensor parallelism."""
    kind = name.rpartition(".")[2]
    return {"up": f"{{}}, {{{axis}}}", "down": f"{{{axis}}}, {{}}", "bias": f"{{{axis}}}"}[kind]


def make(width: int, layers: int, mesh: redist.Mesh) -> dict[str, pgas.Array]:
    """Weights as training has them: copies along data, cut along model."""
    return {
        name: pgas.from_function(
            lambda *i: sum((d + 2) * x for d, x in enumerate(i)),
            shape,
            dtype=np.float32,
            type=cuts(name, "model"),
            mesh=mesh,
        )
        for name, shape in shapes(width, layers).items()
    }


def types(width: int, layers: int, mesh: redist.Mesh) -> dict[str, redist.ArrayType]:
    """Where inference wants them."""
    out = {}
    for name, shape in shapes(width, layers).items():
        dims = cuts(name, "part").split(", ")
        body = ", ".join(
            f"{n}{cut if cut != '{}' else ''}" for n, cut in zip(shape, dims, strict=True)
        )
        out[name] = redist.ArrayType.parse(f"f32[{body}]", mesh)
    return out


def main() -> None:
    """Hand over, and check every tile of the servers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    train, serve = meshes(comm.size)
    weights = make(args.width, args.layers, train)
    with redist.trace() as t:
        served = pgas.move_together(weights, types(args.width, args.layers, serve))
    for name, w in served.items():
        want = pgas.from_function(
            lambda *i: sum((d + 2) * x for d, x in enumerate(i)),
            w.shape,
            dtype=np.float32,
            type=w.type,
        )
        if w.local is not None and want.local is not None:
            assert np.array_equal(w.local, want.local), name
    if comm.rank == 0:
        n_bytes = sum(4 * w.size for w in weights.values())
        print(
            f"hand over: {len(weights)} arrays, {n_bytes / 2**20:.1f} MiB, {train} -> {serve}, "
            f"{t.planned_bytes / 2**20:.1f} MiB moved"
        )


if __name__ == "__main__":
    main()
