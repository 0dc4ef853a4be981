"""Random checkpoints: saved under one layout, loaded under another, on as many ranks as there are.

As in ``mpirun -n 3 python -m tests.programs.store.round_trips --n 20 --seed 7``. It is compared with
NumPy's own values: by a second reader of the format, which shares no code with ours, and by what is loaded. A
file must not show who wrote it: rank 0 saves the same values by itself, and the bytes must be equal.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import ArrayType, Mesh, pgas
from redist.layout.dtype import DType
from redist.store.header import TO_FILE
from tests.problems.segments import KINDS, MESHES, random_layout
from tests.programs.together import all_well, main

COMM = MPI.COMM_WORLD
CHECKS = ("round trips",)
DTYPES = (
    "bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "c64", "c128",
    "bf16", "f8e4m3fn", "f8e5m2", "f8e3m4", "f8e8m0fnu", "S5", "U3", "V7", "datetime64[s]",
)  # fmt: skip
SIZES = (0, 1, 2, 3, 5, 7, 8, 12, 33, 64)


def values_of(rng: random.Random, dtype: str, shape: tuple[int, ...]) -> Any:
    """Random bits, as elements of a dtype; of text, letters."""
    kind = DType.parse(dtype).to_numpy()
    bits = np.random.default_rng(rng.randrange(2**32))
    n = int(np.prod(shape, dtype=np.int64))
    if dtype == "bool":
        return bits.integers(0, 2, shape).astype(bool)
    if kind.kind == "U":
        return np.array([chr(97 + i % 26) * (i % 3) for i in range(n)], kind).reshape(shape)
    if kind.kind == "f" or kind.kind == "c":
        return bits.normal(size=shape).astype(kind)
    return np.frombuffer(bits.bytes(n * kind.itemsize), kind).reshape(shape)


def random_type(rng: random.Random, shape: tuple[int, ...], dtype: str, n_ranks: int) -> ArrayType:
    """A type on some of the ranks: plain, or with a kind of segments."""
    n = rng.choice([m for m in MESHES if m <= n_ranks])
    axes = rng.choice(MESHES[n])
    mesh = Mesh(axes, ranks=rng.sample(range(n_ranks), n))
    if not shape:
        return ArrayType(mesh, DType.parse(dtype), (), ())
    kind = rng.choice((*KINDS, "plain", "plain", "plain"))
    if 0 in shape:
        kind = "plain"
    layout = random_layout(rng, shape, axes, kind, pending=False)
    return ArrayType.parse(layout.text(dtype), mesh)


def own_tile(values: Any, t: ArrayType, rank: int) -> Any:
    spans = redist.spans_of(t, rank)
    if spans is None:
        return None
    index = [np.concatenate([np.arange(*s) for s in (*dim, (0, 0))]) for dim in spans]
    return np.ascontiguousarray(values[np.ix_(*index)]) if index else values.copy()


def second_reader(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """What a file holds, by the text of its format."""
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + n])
    header.pop("__metadata__", None)
    return {
        name: (row["dtype"], row["shape"], data[8 + n :][slice(*row["data_offsets"])])
        for name, row in header.items()
    }


def one_case(seed: int, folder: Path) -> str | None:
    rng = random.Random(seed)
    arrays: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for i in range(rng.randint(1, 5)):
        dtype = rng.choice(DTYPES)
        shape = tuple(rng.choice(SIZES) for _ in range(rng.randint(0, 3)))
        name = rng.choice(("a", "b.c", "ö", "w")) + str(i)
        t = random_type(rng, shape, dtype, COMM.size)
        values[name] = values_of(rng, dtype, shape)
        arrays[name] = pgas.from_local(own_tile(values[name], t, COMM.rank), t)
    is_folder = rng.random() < 0.3
    path = folder / (f"{seed}" if is_folder else f"{seed}.safetensors")
    meta = {"step": seed, "name": "ü"}
    shard = rng.choice((None, 100)) if is_folder else None
    redist.save(path, arrays, meta=meta, shard_bytes=shard, sync=False)
    wrong = None
    if COMM.rank == 0:
        wrong = _wrong_bytes(path, values, folder, meta, shard)
    found = redist.stored(path)
    if found.meta != meta or {*found} != {*values}:
        wrong = wrong or f"stored says {found}"
    types = {
        name: random_type(rng, one.shape, str(arrays[name].type.dtype), COMM.size)
        for name, one in values.items()
    }
    read = rng.choice(("auto", "slices", "once"))
    loaded = redist.load(path, types, read=read, limit_bytes=rng.choice((None, "1MiB")))
    for name, t in types.items():
        tile = own_tile(values[name], t, COMM.rank)
        from redist.pgas.tiles.tiled import tile_in

        got = tile_in(loaded[name])
        if loaded[name].type != t or (got is None) != (tile is None):
            wrong = wrong or f"{name} is {loaded[name].type}, not {t}"
        elif got is not None and (got.shape != tile.shape or got.tobytes() != tile.tobytes()):
            wrong = wrong or f"{name} as {t} by {read} has other values"
    return wrong


def _wrong_bytes(
    path: Path, values: dict[str, Any], folder: Path, meta: Any, shard: int | None
) -> str | None:
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    found = {name: row for file in files for name, row in second_reader(file).items()}
    for name, one in values.items():
        dtype, shape, data = found.pop(name)
        kind = DType.parse(redist.stored(path)[name].dtype.name)
        size = [] if kind.name in TO_FILE else [kind.itemsize]
        if data != one.tobytes() or shape != [*one.shape, *size]:
            return (
                f"the file has {dtype}{shape} for {name} of {one.dtype}{one.shape}, or other bytes"
            )
    alone = folder / ("alone" if path.is_dir() else "alone.safetensors")
    own = {
        name: (
            one,
            ArrayType(Mesh(x=1), redist.stored(path)[name].dtype, one.shape, ((),) * one.ndim),
        )
        for name, one in values.items()
    }
    redist.save(alone, own, meta=meta, shard_bytes=shard, sync=False, comm=MPI.COMM_SELF)
    others = sorted(alone.glob("*.safetensors")) if alone.is_dir() else [alone]
    if [one.read_bytes() for one in others] != [one.read_bytes() for one in files]:
        return "one rank would have written other bytes"
    return f"{[*found]} are too many" if found else None


def program() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    status = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(COMM.bcast(name))
        for seed in range(asked.seed, asked.seed + asked.n):
            wrong = one_case(seed, folder)
            status |= int(not all_well(COMM, CHECKS[0], wrong, f"seed {seed}"))
    return status


if __name__ == "__main__":
    main(program)
