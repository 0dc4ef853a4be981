"""Halos of random arrays in random layouts, every byte compared with NumPy's padded array.

As in ``mpirun -n 8 python -m tests.programs.mpi.halos --n 30``; ``--node-size 2`` pretends that nodes have
two ranks. On pretended GPUs: ``--gpus 2``, which ranks share, or ``--carrier pinned`` with one to each rank;
``--real`` is a real one that all share.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.layout.tiles import box_of, tile_shapes
from redist.runtime import halo as halos
from redist.runtime.ranks import world as ranks
from redist.runtime.schedule.halos import Halo
from redist.runtime.shm.segments import shared_empty
from tests.programs.gpu import carrying
from tests.programs.gpu.sharing import pretended_gpus
from tests.programs.pgas.layouts import layouts
from tests.programs.together import all_well, main

COMM = MPI.COMM_WORLD
TILES, ARRAYS, REFUSED = "tiles", "global arrays", "refused"
DTYPES = ("f32", "u8", "f64", "i16", "c128")
FILLER = 0xA5
CALLS = 3


def checks_on(size: int, args: Sequence[str]) -> tuple[str, ...]:
    """What is checked: global arrays need more of a GPU than is pretended."""
    return (
        (TILES, REFUSED)
        if {"--gpus", "--carrier", "--real"} & set(args)
        else (TILES, ARRAYS, REFUSED)
    )


def meshes(size: int) -> list[Mesh]:
    """Meshes of up to three axes; one leaves a rank out."""
    found = [Mesh(x=size)]
    for k in (2, 3):
        if size % k == 0 and size > k:
            found.append(Mesh(x=k, y=size // k))
    if size == 8:
        found.append(Mesh(x=2, y=2, z=2))
    if size > 2:
        found.append(Mesh({"x": size - 1}, ranks=range(1, size)))
    return found


def random_halo(rng: Random) -> Halo | None:
    """How far tiles of a random type reach; None if some tile is empty."""
    mesh = rng.choice(meshes(COMM.size)[-3:])
    n_dims = max(rng.choice((1, 2, 3, 3)), len(mesh.axes))
    shape = tuple(rng.choice((3, 7, 8, 12, 17)) for _ in range(n_dims))
    t = rng.choice(list(layouts(mesh, DType.parse(rng.choice(DTYPES)), shape)))
    least = [int(np.diff(t.cut(dim).edges()).min()) for dim in range(t.ndim)]
    reach = tuple(rng.randint(0, min(3, n)) for n in least)
    return Halo(t, reach, rng.random() < 0.5) if min(least) and any(reach) else None


def wanted(values: Any, halo: Halo) -> Any:
    """What this rank's tile must be, as bytes; what is not written stays as it was."""
    mode: Any = {"mode": "wrap"} if halo.wraps else {"constant_values": 0}
    whole = np.pad(values, [(n, n) for n in halo.reach], **mode)
    box = box_of(halo.type, COMM.rank)
    if box is None:
        return None
    part = tuple(slice(lo, hi + 2 * n) for (lo, hi), n in zip(box, halo.reach, strict=True))
    out = np.ascontiguousarray(whole[part])
    if not halo.wraps:
        inside = np.pad(np.ones(values.shape, np.bool_), [(n, n) for n in halo.reach])[part]
        raw = out.view(np.uint8).reshape(*out.shape, out.itemsize)
        raw[~inside] = FILLER
    return out


def laid_out(shape: tuple[int, ...], dtype: Any, rng: Random, on_gpu: bool) -> Any:
    """New memory in some order of dims, on the host private or shared."""
    order = rng.choice("CF")
    if on_gpu:
        import cupy

        return cupy.empty(shape, dtype, order)
    way = rng.choice((np.empty, shared_empty))
    if order == "C":
        return way(shape, dtype)  # type: ignore[operator]
    return way(shape[::-1], dtype).T  # type: ignore[operator]


def exchanged(halo: Halo, seed: int, on_gpu: bool) -> str | None:
    """What is wrong with a halo on this rank, called again and again."""
    rng = Random(1000 * seed + COMM.rank)
    dtype = halo.type.dtype.to_numpy()
    count = int(np.prod(halo.type.shape)) * dtype.itemsize
    random = np.random.default_rng(seed)
    shape = tile_shapes(halo.type).get(COMM.rank)
    staging, found = Random(seed).choice((70_000, 2**23)), None
    for _ in range(CALLS):
        values = random.integers(0, 256, count, np.uint8).view(dtype).reshape(halo.type.shape)
        want, tile, out = wanted(values, halo), None, None
        if shape is not None:
            box = box_of(halo.type, COMM.rank)
            tile = laid_out(shape, dtype, rng, on_gpu)
            tile[...] = _there(values[tuple(slice(*ends) for ends in box or ())], on_gpu)
            out = laid_out(want.shape, dtype, rng, on_gpu)
            filler = np.full(want.nbytes, FILLER, np.uint8).view(dtype).reshape(want.shape)
            out[...] = _there(filler, on_gpu)
        received = halos.exchange_halo(COMM, halo, tile, out, on_gpu, staging, timeout_s=60.0)
        if received != halo.received_bytes(COMM.rank):
            found = "the bytes received are not those planned"
        if want is not None and _here(out, on_gpu).tobytes() != want.tobytes():
            found = f"{halo.text}: tiles differ"
    return found


def _there(values: Any, on_gpu: bool) -> Any:
    if not on_gpu:
        return values
    import cupy

    return cupy.asarray(np.ascontiguousarray(values))


def _here(array: Any, on_gpu: bool) -> Any:
    if not on_gpu:
        return array
    import cupy

    return cupy.asnumpy(array)


def of_arrays(seed: int) -> str | None:
    """A function of tiles with halos around global arrays, by itself and in a program."""
    rng, random = Random(seed), np.random.default_rng(seed)
    mesh = meshes(COMM.size)[min(2, len(meshes(COMM.size)) - 1)]
    names = [name for name, _ in mesh.axes][:3]
    types = [f"{{{name}}}" for name in names] + ["{}"] * (3 - len(names))
    values = random.normal(size=(9, 10, 17)).astype("f4")
    u = pgas.asarray(values, type=", ".join(types), mesh=mesh)
    edges: Any = rng.choice(("wrap", 0.0, -1.5))
    filled: Any = {"mode": "wrap"} if edges == "wrap" else {"constant_values": edges}
    whole = np.pad(values, 1, **filled)
    corners = [(a, b, c) for a in (0, 2) for b in (0, 2) for c in (0, 2)]

    def around(t: Any) -> Any:
        """All corners, an edge and a face, each with a weight of its own."""
        inner = [n - 2 for n in t.shape]
        at = [*corners, (0, 1, 2), (1, 1, 0)]
        parts = (t[tuple(slice(i, i + n) for i, n in zip(one, inner, strict=True))] for one in at)
        total = np.zeros(inner, t.dtype)
        for weight, part in enumerate(parts, 1):
            total = total + np.float32(weight) * part
        return total

    def reaching(x: Any) -> Any:
        return pgas.map_tiles(around, x, halo={0: 1, 1: 1, 2: 1}, edges=edges)

    want = around(whole)
    hows: list[Any] = [{}, {"layouts": "as written"}, {"limit": 2**22}]
    runs: list[Any] = [reaching, *(pgas.program(**one)(reaching) for one in hows)]
    for run in runs:
        for _ in range(2):
            if not np.array_equal(run(u).gather(), want):
                return f"corners differ, edges={edges!r}"
    return None


def refused() -> str | None:
    """Ranks that ask for different halos raise the same error, and go on."""
    if COMM.size == 1:
        return None
    mesh = Mesh(x=COMM.size)
    t = ArrayType.parse(f"f32[{4 * COMM.size}{{x}}]", mesh)
    reach = 2 if COMM.rank else 1
    tile, out = np.ones(4, "f4"), np.zeros(4 + 2 * reach, "f4")
    try:
        halos.exchange_halo(COMM, Halo(t, (reach,), True), tile, out, False, timeout_s=60.0)
        said = "no error"
    except redist.RequestError as error:
        said = str(error)
    everyone = set(COMM.allgather(said))
    if len(everyone) > 1 or "ranks disagree" not in said:
        return f"ranks say {everyone}"
    return None


def program() -> int:
    """0 if every tile is what it must be."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--node-size", type=int)
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--carrier")
    parser.add_argument("--real", action="store_true")
    args = parser.parse_args()
    on_gpu = args.real or args.gpus is not None or args.carrier is not None
    transport = "auto"
    if args.carrier is not None:
        transport = "mpi"
        carrying.install(args.carrier, pretends=True)
    place: Any = contextlib.nullcontext()
    if args.gpus is not None:
        place = pretended_gpus(args.gpus)

    def world_of(comm: Any, timeout_s: float | None = None) -> Any:
        return ranks.world_of(comm, transport, args.node_size, timeout_s)

    bad, rng = 0, Random(args.seed)
    with place, patch.object(halos, "world_of", world_of):
        found = [halo for halo in (random_halo(rng) for _ in range(20 * args.n)) if halo][: args.n]
        for number, halo in enumerate(found):
            bad += not all_well(COMM, TILES, exchanged(halo, number, on_gpu), halo.text)
        if not on_gpu:
            for number in range(1 if COMM.size > 4 else 3):
                bad += not all_well(COMM, ARRAYS, of_arrays(args.seed + number))
        bad += not all_well(COMM, REFUSED, refused())
    if COMM.rank == 0:
        print(f"{len(found)} halos, {bad} wrong ({COMM.size} ranks)", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    main(program)
