"""Random problems that so many ranks can play, with values that any slip would change."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.layout.array_type import OPS, ArrayType
from redist.layout.axes import coordinates
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.layout.tiles import indices_of
from tests.problems.problems import Problem
from tests.problems.segments import KINDS, MESHES
from tests.problems.segments import random_pair as random_layouts
from tests.problems.strategies import DTYPES, random_mesh, random_pair, random_type

Array = NDArray[Any]

SUMMABLE = ("bool", "i8", "u16", "i32", "u64", "f16", "f32", "f64", "bf16", "f8e5m2")
COMPLEX = ("c64", "c128")
LARGE = ("u8", "bf16", "f32", "i64", "f64", "S5")
MOST_LARGE_BYTES = 8 * 2**20
MOST_TILES_BYTES = 24 * 2**20
"""All tiles of one end together, replicas counted."""
LARGE_EVERY, EDGE_EVERY = 5, 7


def problems_for(size: int, seed: int) -> Iterator[Problem]:
    """Problems without end: small, now and then large, now and then with nothing in them."""
    rng = Random(seed)
    number = 0
    while True:
        if number % LARGE_EVERY == LARGE_EVERY - 1:
            found = _large(rng, size)
        elif number % EDGE_EVERY == EDGE_EVERY - 1:
            found = _edge(rng, size)
        else:
            found = _small(rng, size)
        if found is not None:
            number += 1
            yield found


def segment_problems(size: int, seed: int) -> Iterator[Problem]:
    """Problems without end whose dims have segments: all kinds in turn, now and then large."""
    rng = Random(seed)
    for number in itertools.count(seed * 1000):
        kind = (*KINDS, "pending")[number % 6]
        factor = rng.choice((1, 1, 1, 40))
        pair = random_layouts(number, rng.choice([n for n in MESHES if n <= size]), kind, factor)
        dtype = rng.choice(SUMMABLE if kind == "pending" else DTYPES)
        yield Problem(kind, *(ArrayType.parse(t.text(dtype), Mesh(t.mesh)) for t in pair))


def _small(rng: Random, size: int) -> Problem | None:
    source, target = random_pair(rng, max_devices=size)
    return _problem(rng, size, source, target)


def _edge(rng: Random, size: int) -> Problem | None:
    """A number alone, an array without elements, or fewer elements than ranks."""
    mesh, other = random_mesh(rng, size), random_mesh(rng, size)
    shape = rng.choice([(), (0,), (1,), (2,), (0, 5), (3, 0, 2), (1, 1, 1), (4, 1, 0, 1)])
    op = rng.choice([None, "sum"])
    ends = random_type(rng, mesh, shape, op), random_type(rng, other, shape, None)
    return _problem(rng, size, *ends)


def _large(rng: Random, size: int) -> Problem | None:
    """Tiles of about 1 to 4 MiB, so that pools take several rounds."""
    mesh = random_mesh(rng, size, ranks=False)
    if size > 1 and mesh.n_devices == 1:
        return None
    other = mesh if rng.random() < 0.7 else random_mesh(rng, size)
    dtype = DType.parse(rng.choice(LARGE))
    elems = min(MOST_LARGE_BYTES, 2**21 * mesh.n_devices) // dtype.itemsize
    rank = rng.choice((1, 2, 2, 3))
    shape = [rng.choice((3, 24, 48, 100, 333)) for _ in range(rank - 1)]
    shape.append(max(1, elems // math.prod(shape)))
    rng.shuffle(shape)
    op = rng.choice((None, None, "sum")) if dtype.name != "S5" else None
    ends = [
        random_type(rng, mesh, tuple(shape), op, dtype.name),
        random_type(rng, other, tuple(shape), None, dtype.name),
    ]
    if max(t.tile_bytes * t.mesh.n_devices for t in ends) > MOST_TILES_BYTES:
        return None
    return _fitting(size, *ends)


def _problem(rng: Random, size: int, source: ArrayType, target: ArrayType) -> Problem | None:
    """The same ends with another dtype and reduction."""
    op = rng.choice(OPS)
    pending = source.pending_op is not None or target.pending_op is not None
    names = (*SUMMABLE, *(COMPLEX if op in ("sum", "prod") else ())) if pending else DTYPES
    dtype = DType.parse(rng.choice(names))
    ends = [
        replace(t, dtype=dtype, pending_op=op if t.pending_op is not None else None)
        for t in (source, target)
    ]
    return _fitting(size, *ends)


def _fitting(size: int, source: ArrayType, target: ArrayType) -> Problem | None:
    if max(*source.mesh.ranks, *target.mesh.ranks, 0) >= size:
        return None
    return Problem("any", source, target)


def whole_problem(size: int, shape: tuple[int, ...], dtype: str) -> Problem:
    """Rows to columns over all ranks."""
    mesh = Mesh(x=size)
    ends = [ArrayType.of(mesh, dtype, shape, dims) for dims in ([["x"], []], [[], ["x"]])]
    return Problem("even", ends[0], ends[1])


def random_values(t: ArrayType, seed: int) -> dict[int, Array]:
    """The tile of every rank: any bytes where they only move, real numbers where they are reduced."""
    rng = np.random.default_rng(seed)
    classes = coordinates(t.mesh, t.pending_axes)
    parts = [_values(rng, t) for _ in range(int(classes.max()) + 1)]
    return {
        rank: np.array(parts[classes[row]][np.ix_(*indices_of(t, rank)) or (...,)], order="C")
        for row, rank in enumerate(t.mesh.ranks)
    }


def _values(rng: np.random.Generator, t: ArrayType) -> Array:
    real = t.dtype.to_numpy()
    if real.kind == "b":
        return rng.integers(0, 2, t.shape).astype(bool)
    if t.dtype.extended_name is not None:
        import ml_dtypes

        real = np.dtype(getattr(ml_dtypes, t.dtype.extended_name))
    if real.kind in "fcV" and not t.dtype.name.startswith(("S", "V")):
        # Sums of these depend on their order; products stay in range.
        values = rng.uniform(0.5, 1.5, t.shape) * rng.choice((-1, 1), t.shape)
        if real.kind == "c":
            values = values + 1j * rng.uniform(-1, 1, t.shape)
        return np.asarray(values).astype(real).view(t.dtype.to_numpy())
    raw = rng.integers(0, 256, size=(*t.shape, real.itemsize), dtype=np.uint8)
    return np.ascontiguousarray(raw).view(real).reshape(t.shape)
