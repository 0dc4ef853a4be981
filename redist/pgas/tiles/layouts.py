"""Types of global arrays: where new ones lie, and where operands of one operation meet."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import NoneType
from typing import Any

import numpy as np

from redist.errors import ArgumentTypeError, LayoutError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, refined_parts, whole
from redist.layout.dtype import DType
from redist.layout.lower_bound import lower_bound_bytes
from redist.layout.mesh import Mesh
from redist.layout.notation import read_type
from redist.plan.rates import CPU, NEAR_BYTE_FS

# Free a dim of its cuts: the axes go to another dim, so that the tiles stay as small as they were.


MOST_CANDIDATES = 600


@lru_cache(maxsize=4096)
def free_dims(t: ArrayType, dims: frozenset[int], later: frozenset[int] = frozenset()) -> ArrayType:
    """Find the cheapest type in which ``dims`` are whole; dims wanted whole ``later`` cost more if cut.

    >>> from redist.layout.mesh import Mesh
    >>> print(free_dims(ArrayType.parse("c128[8, 8{x}, 8{y}]", Mesh(x=2, y=2)), frozenset({1})))
    c128[8{x}, 8, 8{y}]

    Where no other dim is long enough to take the axes, some ranks hold nothing or all the same.
    """
    plain = resolved_type(t)
    if t.pending_op is None and not any(t.dims[i] for i in dims):
        return t
    n = t.mesh.n_devices

    def cost(end: ArrayType) -> int:
        again = sum(t.tile_bytes * n for i in later - dims if end.dims[i] and not plain.dims[i])
        return lower_bound_bytes(t, end) + end.tile_bytes * n + again

    return min(_candidates(plain, dims), key=cost)


def _candidates(t: ArrayType, dims: frozenset[int]) -> Iterator[ArrayType]:
    """Give all the axes to one dim, before or after its own, or each to a dim, or to none."""
    parts = [part for i in sorted(dims) for part in t.dims[i]]
    others = [i for i in range(t.ndim) if i not in dims]
    yield t.with_dims([() if i in dims else dim for i, dim in enumerate(t.dims)])
    places = list(itertools.product(others, repeat=len(parts)))
    if len(places) > MOST_CANDIDATES:
        places = [(i,) * len(parts) for i in others]
    for place, first in itertools.product(places, (False, True)):
        new: list[tuple[SubAxis, ...]] = [() if i in dims else dim for i, dim in enumerate(t.dims)]
        for part, i in zip(parts, place, strict=True):
            new[i] = (part, *new[i]) if first else (*new[i], part)
        try:
            yield t.with_dims(new)
        except LayoutError:
            continue


Dims = tuple[tuple[SubAxis, ...], ...]
Shape = tuple[int, ...]
MeshLike = Mesh | Mapping[str, int] | str
"""What users give as a mesh: one, its axes as a dict, or its text."""


@lru_cache(maxsize=256)
def dtype_of(dtype: np.dtype[np.generic]) -> DType:
    """Our name of a NumPy dtype."""
    return DType.parse(dtype.name)


@lru_cache(maxsize=64)
def line_mesh(n: int) -> Mesh:
    """The mesh of all ranks along one axis, x, for calls that name none."""
    return Mesh(x=n)


def mesh_of(given: Any, n_ranks: int) -> Mesh:
    """The mesh that a user gives; all ranks along x for None.

    >>> mesh_of({"x": 2, "y": 4}, 8) == mesh_of("x=2,y=4", 8) == Mesh(x=2, y=4)
    True
    """
    found = line_mesh(n_ranks) if given is None else Mesh.of(given)
    if isinstance(found, Mesh):
        return found
    raise ArgumentTypeError(
        f"cannot use {given!r} as a mesh: need a Mesh, a dict or text, as in "
        f"mesh=redist.Mesh(x={n_ranks}), {{'x': {n_ranks}}} or 'x={n_ranks}'"
    )


@lru_cache(maxsize=4096)
def default_dims(mesh: Mesh, shape: Shape) -> Dims:
    """The largest dim cut by all axes, the others not.

    >>> default_dims(Mesh(x=2), (3, 8))
    ((), (SubAxis(name='x', pre=1, size=2),))
    """
    dims: list[tuple[SubAxis, ...]] = [()] * len(shape)
    if shape and max(shape) > 1:
        dims[shape.index(max(shape))] = tuple(whole(mesh, name) for name, _ in mesh.axes)
    return tuple(dims)


@lru_cache(maxsize=4096)
def make_type(mesh: Mesh, dtype: DType, shape: Shape, dims: Dims) -> ArrayType:
    """A type without pending reductions."""
    return ArrayType(mesh, dtype, shape, dims)


def must_be_type(given: Any) -> None:
    """**Local.** Raise unless this says how an array lies: nothing, text, or a type."""
    if not isinstance(given, (str, ArrayType, NoneType)):
        raise ArgumentTypeError(
            f"cannot use {given!r} as a type: need text such as '{{x}}, {{}}' or an ArrayType"
        )


@lru_cache(maxsize=4096)
def parse_target(t: ArrayType, text: str | ArrayType) -> ArrayType:
    """Read the type that a user wants for an array."""
    return parse_dims(text, t.mesh, t.dtype, t.shape)


@lru_cache(maxsize=4096)
def parse_dims(text: str | ArrayType | None, mesh: Mesh, dtype: DType, shape: Shape) -> ArrayType:
    """Read a type for an array from what a user gives: nothing, the cuts alone, or a whole type.

    >>> print(parse_dims("{x}, {}", Mesh(x=2), DType.parse("f32"), (4, 6)))
    f32[4{x}, 6]
    >>> print(parse_dims("{x/3}, 4{y}+2", Mesh(x=2, y=2), DType.parse("f32"), (10, 6)))
    f32[10{x/3}, 4{y}+2]
    """
    if text is None:
        return make_type(mesh, dtype, shape, default_dims(mesh, shape))
    if isinstance(text, str):
        text = read_type(text, mesh, dtype, shape)
    if (text.shape, text.dtype) != (shape, dtype):
        raise LayoutError(f"cannot use the type {text}: the array is {dtype} of shape {shape}")
    return text


@lru_cache(maxsize=4096)
def with_dtype(t: ArrayType, dtype: DType) -> ArrayType:
    """The same layout of other elements, made once."""
    return t.with_dtype(dtype)


@lru_cache(maxsize=4096)
def select_dims(t: ArrayType, dims: tuple[int, ...]) -> ArrayType:
    """Keep the layout of some dims, in this order; the others, if any, must be of size 1.

    >>> print(select_dims(ArrayType.parse("f32[8{x}, 9] sum{y}", Mesh(x=2, y=2)), (1, 0)))
    f32[9, 8{x}] sum{y}
    """
    shape, cuts = tuple(t.shape[i] for i in dims), tuple(t.dims[i] for i in dims)
    return ArrayType(t.mesh, t.dtype, shape, cuts, t.pending_op, t.pending_axes)


def place_axes(t: ArrayType, shape: Shape, dims: Dims, free: Iterable[SubAxis]) -> ArrayType:
    """Put the axes ``free`` on the dim with the largest tiles if it has room; a type like ``t``.

    >>> t = ArrayType.parse("f32[8{x}, 9]", Mesh(x=2))
    >>> print(place_axes(t, (9,), ((),), t.dims[0]))
    f32[9{x}]
    """
    out = make_type(t.mesh, t.dtype, shape, dims)
    parts = tuple(free)
    tiles = out.tile_shape
    if not parts or not tiles or max(tiles) < math.prod(part.size for part in parts):
        return out
    at = tiles.index(max(tiles))
    return make_type(
        t.mesh, t.dtype, shape, tuple((*d, *parts) if i == at else d for i, d in enumerate(dims))
    )


def idle_parts(t: ArrayType, dims: Dims) -> tuple[SubAxis, ...]:
    """Axes of the mesh that no dim uses."""
    used = [part for dim in dims for part in dim]
    parts = refined_parts(t.mesh, used)
    return tuple(p for p in parts if p.size > 1 and not any(p.inside(q) for q in used))


@lru_cache(maxsize=4096)
def resolved_type(t: ArrayType) -> ArrayType:
    """The type of a pending array once its value is needed: cut by the pending axes if it can be.

    >>> print(resolved_type(ArrayType.parse("f32[8{x}, 9] sum{y}", Mesh(x=2, y=2))))
    f32[8{x}, 9{y}]
    """
    return t if t.pending_op is None else place_axes(t, t.shape, t.dims, t.pending_axes)


@lru_cache(maxsize=4096)
def meet(types: tuple[ArrayType, ...]) -> tuple[ArrayType, ...]:
    """Choose types in which an element-wise operation is local: one for each operand, then the result's.

    Every operand's layout is a candidate, and the default one; the cheapest wins, by the bytes that devices
    receive and those that they write. It is a rule of its own, beside :mod:`redist.arrange`: with no sums
    there is nothing to weigh against moves but the writing itself, and the result lies as some operand does,
    so that a line of operations keeps the layout that it was given.

    >>> m = Mesh(x=2)
    >>> a, b = ArrayType.parse("f32[4{x}, 6]", m), ArrayType.parse("f32[6{x}]", m)
    >>> [str(t) for t in meet((a, b))]
    ['f32[4{x}, 6]', 'f32[6]', 'f32[4{x}, 6]']
    """
    mesh = types[0].mesh
    shape = np.broadcast_shapes(*(t.shape for t in types))
    layouts = [_spread(resolved_type(t), shape) for t in types]
    layouts.append(default_dims(mesh, shape))
    best: tuple[int, tuple[ArrayType, ...]] | None = None
    for dims in dict.fromkeys(layouts):
        result = make_type(mesh, types[0].dtype, shape, dims)
        ends = [operand_type(t, result) for t in types]
        moved = sum(lower_bound_bytes(t, end) for t, end in zip(types, ends, strict=True))
        written = result.tile_bytes * mesh.n_devices
        cost = moved * NEAR_BYTE_FS + written * CPU.byte_fs
        if best is None or cost < best[0]:
            best = cost, (*ends, result)
    assert best is not None
    return best[1]


def _spread(t: ArrayType, shape: Shape) -> Dims:
    """Write the cuts of an operand as cuts of the result."""
    missing = len(shape) - t.ndim
    own = (
        dim if n == size else ()
        for n, size, dim in zip(t.shape, shape[missing:], t.dims, strict=True)
    )
    return ((),) * missing + tuple(own)


def operand_type(t: ArrayType, result: ArrayType) -> ArrayType:
    """The type that an operand needs for a result: cut like it, but whole along dims that are stretched."""
    missing = result.ndim - t.ndim
    dims = (
        dim if n == size else ()
        for n, size, dim in zip(t.shape, result.shape[missing:], result.dims[missing:], strict=True)
    )
    return make_type(t.mesh, t.dtype, t.shape, tuple(dims))
