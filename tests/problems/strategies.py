"""Random meshes, types and pairs of types, small enough for the oracle."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, TypeVar

from hypothesis import strategies as st

from redist.layout.array_type import OPS, ArrayType
from redist.layout.axes import SubAxis
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

MAX_DEVICES = 36
MAX_ELEMS = 400
NAMES = ("x", "y", "z", "w", "_a1", "Model", "data_axis", "x2")
DTYPES = (
    *("bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"),
    *("f16", "f32", "f64", "c64", "c128", "bf16", "f8e4m3fn", "f8e5m2", "f8e8m0fnu"),
    *("S5", "U3", "V7", "datetime64[s]", "timedelta64[ms]"),
)
ANY_OP: tuple[str | None, ...] = (None, *OPS)
NO_OP: tuple[str | None, ...] = (None,)
SIZES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 24, 36)


@st.composite
def rank_lists(draw: DrawFn, n_devices: int) -> list[int] | range | None:
    """No list, a shifted range, a permutation, or any ranks in any order."""
    kind = draw(st.sampled_from(["none", "none", "shifted", "permuted", "any"]))
    if kind == "none":
        return None
    if kind == "shifted":
        first = draw(st.integers(0, 9))
        return range(first, first + n_devices)
    pool = range(n_devices if kind == "permuted" else n_devices + 6)
    return draw(st.permutations(pool))[:n_devices]


@st.composite
def meshes(draw: DrawFn, max_devices: int = MAX_DEVICES, ranks: bool = True) -> Mesh:
    """Up to four axes of sizes 1 to 6."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    axes: dict[str, int] = {}
    left = max_devices
    for name in names:
        axes[name] = draw(st.integers(1, min(6, left)))
        left //= axes[name]
    given = draw(rank_lists(math.prod(axes.values()))) if ranks else None
    return Mesh(axes, ranks=given)


@st.composite
def chains(draw: DrawFn, name: str, size: int) -> list[SubAxis]:
    """An axis cut into parts, major to minor; size-1 parts may stand between."""
    parts = []
    pre = 1
    while pre < size:
        left = size // pre
        step = draw(st.sampled_from([k for k in range(2, left + 1) if left % k == 0]))
        parts.append(SubAxis(name, pre, step))
        pre *= step
    if size == 1 or draw(st.integers(0, 9)) == 0:
        parts.append(SubAxis(name, draw(st.sampled_from([1, size])), 1))
    return parts


@st.composite
def shapes(draw: DrawFn, max_elems: int = MAX_ELEMS) -> tuple[int, ...]:
    """Rank 0 to 4; empty dims, dims of one element and awkward sizes included."""
    shape: list[int] = []
    left = max_elems
    for _ in range(draw(st.integers(0, 4))):
        shape.append(draw(st.sampled_from([n for n in SIZES if n <= left])))
        left //= max(1, shape[-1])
    return tuple(shape)


dtypes = st.sampled_from(DTYPES).map(DType.parse)


@st.composite
def types_on(
    draw: DrawFn,
    mesh: Mesh,
    shape: tuple[int, ...],
    dtype: DType,
    ops: Sequence[str | None] = ANY_OP,
    whole: bool = False,
) -> ArrayType:
    """A type of a given array: every part of every axis cuts a dim, is pending or replicates."""
    parts = [
        part
        for name, size in mesh.axes
        for part in ([SubAxis(name, 1, size)] if whole else draw(chains(name, size)))
    ]
    if len(parts) > 1:
        parts = draw(st.permutations(parts))
    dims: list[list[SubAxis]] = [[] for _ in shape]
    waiting: list[SubAxis] = []
    op = draw(st.sampled_from(ops))
    for part in parts:
        place = draw(st.integers(-1, len(shape) if op else len(shape) - 1))
        if place == len(shape):
            waiting.append(part)
        elif place >= 0:
            dims[place].append(part)
    return ArrayType(
        mesh, dtype, shape, tuple(map(tuple, dims)), op if waiting else None, tuple(waiting)
    )


@st.composite
def types(
    draw: DrawFn,
    ops: Sequence[str | None] = ANY_OP,
    whole: bool = False,
    max_devices: int = MAX_DEVICES,
    max_elems: int = MAX_ELEMS,
) -> ArrayType:
    """Any type."""
    mesh = draw(meshes(max_devices=max_devices))
    return draw(types_on(mesh, draw(shapes(max_elems)), draw(dtypes), ops, whole))


@st.composite
def pairs(
    draw: DrawFn,
    ops: Sequence[str | None] = ANY_OP,
    one_mesh: bool = False,
    max_devices: int = MAX_DEVICES,
    max_elems: int = MAX_ELEMS,
) -> tuple[ArrayType, ArrayType]:
    """Two types of one array, on one mesh or on two."""
    mesh = draw(meshes(max_devices=max_devices))
    other = mesh
    if not one_mesh and draw(st.booleans()):
        other = draw(meshes(max_devices=max_devices))
    shape, dtype = draw(shapes(max_elems)), draw(dtypes)
    return (
        draw(types_on(mesh, shape, dtype, ops)),
        draw(types_on(other, shape, dtype, ops)),
    )


# Built from one seed: quick and evenly spread over the interesting cases; failures do not shrink.

T = TypeVar("T")


def seeded(build: Callable[[Random], T]) -> st.SearchStrategy[T]:
    """What ``build`` makes of a random generator."""
    return st.integers(0, 2**62).map(lambda seed: build(Random(seed)))


def divisors(n: int) -> list[int]:
    """Every divisor of n, ascending."""
    return [k for k in range(1, n + 1) if n % k == 0]


def random_mesh(rng: Random, max_devices: int = 24, ranks: bool = True) -> Mesh:
    """One to four axes; half of the time with ranks of its own."""
    axes: dict[str, int] = {}
    left = max_devices
    for name in rng.sample(NAMES, rng.randint(1, 4)):
        axes[name] = rng.choice([k for k in (1, 2, 2, 3, 3, 4, 5, 6) if k <= left])
        left //= axes[name]
    n_devices = math.prod(axes.values())
    if not ranks or rng.random() < 0.5:
        return Mesh(axes)
    return Mesh(axes, ranks=rng.sample(range(n_devices + rng.choice([0, 0, 5])), n_devices))


def random_shape(rng: Random, max_elems: int = 200) -> tuple[int, ...]:
    """Mostly two or three dims; sizes that axes do not divide are common."""
    shape: list[int] = []
    left = max_elems
    for _ in range(rng.choice([0, 1, 1, 2, 2, 2, 3, 3, 4])):
        sizes = SIZES if rng.random() < 0.1 else SIZES[1:]
        shape.append(rng.choice([n for n in sizes if n <= left]))
        left //= max(1, shape[-1])
    return tuple(shape)


def random_type(
    rng: Random, mesh: Mesh, shape: tuple[int, ...], op: str | None = None, dtype: str = "i32"
) -> ArrayType:
    """Parts of the axes in random places; with ``op`` about every third is pending.

    Of the others more or fewer replicate, from type to type.
    """
    parts: list[SubAxis] = []
    for name, size in mesh.axes:
        pre = 1
        while pre < size:
            step = rng.choice(divisors(size // pre)[1:])
            parts.append(SubAxis(name, pre, step))
            pre *= step
    rng.shuffle(parts)
    dims: list[list[SubAxis]] = [[] for _ in shape]
    waiting: list[SubAxis] = []
    busy = rng.choice([0.5, 0.8, 0.8])
    for part in parts:
        draw = rng.random()
        if op is not None and draw < 0.35:
            waiting.append(part)
        elif shape and draw < busy:
            rng.choice(dims).append(part)
    cuts = tuple(map(tuple, dims))
    return ArrayType(mesh, DType.parse(dtype), shape, cuts, op if waiting else None, tuple(waiting))


def random_op(rng: Random) -> str | None:
    """Nothing pending, half of the time."""
    return rng.choice([None, None, "sum", "max"])


def random_pair(
    rng: Random,
    one_mesh: bool = False,
    pending: bool = True,
    max_devices: int = 24,
    max_elems: int = 200,
) -> tuple[ArrayType, ArrayType]:
    """Two types of one array, most on one mesh."""
    mesh = random_mesh(rng, max_devices)
    other = mesh if one_mesh or rng.random() < 0.6 else random_mesh(rng, max_devices)
    shape = random_shape(rng, max_elems)
    first, second = (random_op(rng) if pending else None for _ in range(2))
    return random_type(rng, mesh, shape, first), random_type(rng, other, shape, second)
