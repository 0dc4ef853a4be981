"""Array types as JAX-style partition specs and PyTorch-style placements; needs neither library.

>>> from redist.layout.array_type import ArrayType
>>> t = ArrayType.parse("f32[8{x}, 6] sum{y}", Mesh(x=2, y=3))
>>> to_placements(t)
(Shard(dim=0), Partial(reduce_op='sum'))

A conversion that would lose information is refused, and the error gives the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from redist.errors import ConversionError
from redist.layout.array_type import ArrayType
from redist.layout.axes import whole
from redist.layout.cuts import Ints
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.layout.segments import Factor
from redist.text.units import count_of

SpecEntry: TypeAlias = str | tuple[str, ...] | None

_OP_OF = {"sum": "sum", "product": "prod", "max": "max", "min": "min"}
_REDUCE_OP_OF = {op: name for name, op in _OP_OF.items()}


@dataclass(frozen=True, slots=True)
class Shard:
    """The mesh axis cuts ``dim``; a negative dim counts from the end.

    >>> Shard(-1)
    Shard(dim=-1)
    """

    dim: int


@dataclass(frozen=True, slots=True)
class StridedShard:
    """The mesh axis cuts ``dim`` after axes to its right have cut it into ``split_factor`` parts.

    >>> StridedShard(0, 4)
    StridedShard(dim=0, split_factor=4)
    """

    dim: int
    split_factor: int


@dataclass(frozen=True, slots=True)
class RaggedShard:
    """The mesh axis cuts ``dims``, taken as one dim, in proportion to ``local_units``, as in veScale.

    >>> RaggedShard((0,), (3, 3, 4))
    RaggedShard(dims=(0,), local_units=(3, 3, 4))
    """

    dims: tuple[int, ...]
    local_units: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Replicate:
    """The array is replicated along the mesh axis.

    >>> Replicate()
    Replicate()
    """


@dataclass(frozen=True, slots=True)
class Partial:
    """A reduction over the mesh axis is pending; ``reduce_op`` is PyTorch's name for it.

    >>> Partial("product")
    Partial(reduce_op='product')
    """

    reduce_op: str = "sum"


Placement: TypeAlias = Shard | StridedShard | RaggedShard | Replicate | Partial


def to_partition_spec(t: ArrayType) -> tuple[SpecEntry, ...]:
    """The partition spec of a type: for each dim None, an axis, or a tuple of axes, the major one first.

    >>> to_partition_spec(ArrayType.parse("f32[8{x,z}, 6, 5{y}]", Mesh(x=2, y=3, z=2)))
    (('x', 'z'), None, 'y')

    Uneven cuts mean the same in JAX as here: the size is divided once, by the product of the axes, and
    rounded up.
    """
    _check_plain(t, "a partition spec")
    if t.pending_op is not None:
        raise ConversionError(
            f"cannot convert {t} to a partition spec: it cannot say that a {t.pending_op} is "
            "pending; resolve it first"
        )
    _check_whole(t, "a partition spec")
    names = [tuple(part.name for part in dim) for dim in t.dims]
    return tuple(dim if len(dim) > 1 else dim[0] if dim else None for dim in names)


def from_partition_spec(
    spec: Iterable[object], mesh: Mesh, dtype: str | DType, shape: Sequence[int]
) -> ArrayType:
    """The type that a partition spec describes on a mesh; dims without an entry at the end are not cut.

    >>> print(from_partition_spec((("x", "z"), None, "y"), Mesh(x=2, y=3, z=2), "f32", (8, 6, 5)))
    f32[8{x,z}, 6, 5{y}]
    >>> from_partition_spec(("w",), Mesh(x=2), "f32", (8,))
    Traceback (most recent call last):
    ...
    redist.errors.ConversionError: cannot read partition spec ('w',): unknown axis 'w'; \
the mesh has x
    """
    entries = _list_entries("partition spec", spec, "write one entry per dim")

    def refuse(reason: str) -> ConversionError:
        return ConversionError(f"cannot read partition spec {entries!r}: {reason}")

    if getattr(spec, "unreduced", None):
        raise refuse("it has unreduced axes; reduce them first, or write the type as text")
    if len(entries) > len(shape):
        dims_text = count_of(len(shape), "dim")
        raise refuse(f"{len(entries)} entries for {dims_text}; give at most one per dim")
    known = dict(mesh.axes)
    seen: set[str] = set()
    dims: list[list[str]] = [[] for _ in shape]
    for i, entry in enumerate(entries):
        if entry is not None and not isinstance(entry, (str, tuple, list)):
            raise refuse(f"entry {i} is {entry!r}; write None, an axis or a tuple of axes")
        for name in (entry,) if isinstance(entry, str) else entry or ():
            if not isinstance(name, str):
                raise refuse(f"entry {i} has {name!r}; name an axis")
            if name not in known:
                raise refuse(f"unknown axis {name!r}; the mesh has {', '.join(known) or 'none'}")
            if name in seen:
                raise refuse(f"axis {name!r} is used twice; an axis can cut one dim, once")
            seen.add(name)
            dims[i].append(name)
    return ArrayType.of(mesh, dtype, shape, dims)


def to_placements(t: ArrayType) -> tuple[Placement, ...]:
    """The placements of a type: one per mesh axis, in the order of the mesh.

    >>> to_placements(ArrayType.parse("f32[8{y}, 6] prod{x}", Mesh(x=2, y=4, z=2)))
    (Partial(reduce_op='product'), Shard(dim=0), Replicate())

    PyTorch cuts a dim by one mesh axis after another; each axis cuts the parts that the previous one made.
    If that gives other tiles than redist's single division, the conversion is refused:

    >>> to_placements(ArrayType.parse("f32[10{x,y}]", Mesh(x=2, y=2)))
    Traceback (most recent call last):
    ...
    redist.errors.ConversionError: cannot convert f32[10{x,y}] to placements: tile 1 of dim 0 is \
3:5 when cut by x, then y, but 3:6 when cut into 4 at once; use a multiple of 4, cut another dim \
by y, or replicate over y and leave that step to PyTorch's own redistribute
    """
    _check_whole(t, "placements")
    order = {name: number for number, (name, _) in enumerate(t.mesh.axes)}
    out: list[Placement] = [Replicate() for _ in order]
    for i, dim in enumerate(t.dims):
        lengths = _ragged_lengths(t, i)
        if lengths is not None:
            unit = math.gcd(*lengths) or 1
            out[order[dim[0].name]] = RaggedShard((i,), tuple(n // unit for n in lengths))
            continue
        reason = _other_tiles(t, i)
        if reason is not None:
            raise ConversionError(f"cannot convert {t} to placements: {reason}")
        names = [part.name for part in dim]
        for name in names:
            before = [n for n in names[: names.index(name)] if order[n] > order[name]]
            factor = math.prod(t.mesh.size(n) for n in before)
            out[order[name]] = StridedShard(i, factor) if factor > 1 else Shard(i)
    for part in t.pending_axes:
        out[order[part.name]] = Partial(_REDUCE_OP_OF[str(t.pending_op)])
    return tuple(out)


def from_placements(
    placements: Iterable[object], mesh: Mesh, dtype: Any, shape: Sequence[int]
) -> ArrayType:
    """The type that placements describe on a mesh; PyTorch's own objects and dtypes work as well.

    >>> m = Mesh(x=2, y=4, z=2)
    >>> print(from_placements((Partial("sum"), Shard(-1), Replicate()), m, "f32", (6, 8)))
    f32[6, 8{y}] sum{x}
    >>> from_placements((Shard(0), Replicate()), m, "f32", (6, 8))
    Traceback (most recent call last):
    ...
    redist.errors.ConversionError: cannot read placements (Shard(dim=0), Replicate()): \
2 placements for 3 mesh dims (x, y, z); give one per dim

    With PyTorch's ``_StridedShard``, FSDP cuts what tensor parallelism has already cut. It stands for an axis
    that cuts after the axes to its right: (``_StridedShard(0, split_factor=4)``, ``Shard(0)``) on
    ``dp=2, tp=4`` is ``{tp,dp}``. veScale's ``RaggedShard(dims, local_units)`` becomes a ragged dim if every
    tile ends at the end of a row of the first of ``dims``:

    >>> print(from_placements((RaggedShard((0, 1), (3, 1)),), Mesh(x=2), "f32", (8, 6)))
    f32[8{x=6;2}, 6]
    """
    items = _list_entries("placements", placements, "give one per mesh axis")

    def refuse(reason: str) -> ConversionError:
        return ConversionError(f"cannot read placements {items!r}: {reason}")

    if len(items) != len(mesh.axes):
        axes = ", ".join(name for name, _ in mesh.axes) or "none"
        raise refuse(
            f"{count_of(len(items), 'placement')} for {count_of(len(mesh.axes), 'mesh dim')} ({axes}); "
            "give one per dim"
        )
    dims: list[list[str]] = [[] for _ in shape]
    ragged: dict[int, tuple[str, tuple[int, ...]]] = {}
    pending: dict[str, list[str]] = {}
    for (name, size), item in reversed(list(zip(mesh.axes, items, strict=True))):
        kind = type(item).__name__
        if kind in ("Shard", "StridedShard", "_StridedShard", "RaggedShard"):
            try:
                _cut(dims, ragged, name, item, mesh, shape)
            except ConversionError as problem:
                raise refuse(f"axis {name}: {problem}") from None
        elif kind == "Partial":
            reduce_op: object = getattr(item, "reduce_op", None)
            if not isinstance(reduce_op, str) or reduce_op not in _OP_OF:
                known = ", ".join(_OP_OF)
                why = "take the sum, then divide" if reduce_op == "avg" else f"known: {known}"
                raise refuse(f"axis {name}: {reduce_op!r} cannot be pending; {why}")
            if size > 1:
                pending.setdefault(_OP_OF[reduce_op], []).append(name)
        elif kind != "Replicate":
            raise refuse(f"axis {name}: {kind} is not known; use Shard, Replicate or Partial")
    if len(pending) > 1:
        raise refuse(
            f"{' and '.join(reversed(pending))} are both pending; resolve all but one first"
        )
    t = ArrayType.of(mesh, dtype, shape, dims, pending)
    for i in range(t.ndim):
        reason = _other_tiles(t, i)
        if reason is not None:
            raise refuse(reason)
    return _with_lengths(t, ragged) if ragged else t


Ragged = dict[int, tuple[str, tuple[int, ...]]]
"""By dim: the axis that cuts it raggedly, and the lengths of its tiles."""


def _cut(
    dims: list[list[str]], ragged: Ragged, name: str, item: object, mesh: Mesh, shape: Sequence[int]
) -> None:
    """Put an axis where a placement says that it cuts."""
    if type(item).__name__ == "RaggedShard":
        dim = _ragged_dim(item, shape)
        ragged[dim] = name, _ragged_units(item, mesh.size(name), shape)
    else:
        dim = _insert_axis(dims, name, item, mesh)
    if dim in ragged and dims[dim]:
        raise ConversionError(f"dim {dim} is ragged, and cut by {', '.join(dims[dim])} as well")


def _with_lengths(t: ArrayType, ragged: Ragged) -> ArrayType:
    """The same type with ragged dims."""
    segments = tuple(
        ((Factor(n, (whole(t.mesh, ragged[i][0]),), lengths=ragged[i][1]),),) if i in ragged else ()
        for i, n in enumerate(t.shape)
    )
    return ArrayType(t.mesh, t.dtype, t.shape, t.dims, t.pending_op, t.pending_axes, segments)


def _ragged_dim(item: object, shape: Sequence[int]) -> int:
    """The first of the dims that a RaggedShard reads as one."""
    dims = tuple(getattr(item, "dims", ()))
    if not dims or dims != tuple(range(dims[0], dims[0] + len(dims))):
        raise ConversionError(f"dims {dims!r} do not follow each other")
    if dims[0] < 0 or dims[-1] >= len(shape):
        raise ConversionError(
            f"there are no dims {dims!r}; the array has {count_of(len(shape), 'dim')}"
        )
    if math.prod(shape[: dims[0]]) != 1:
        raise ConversionError(
            f"dims before dim {dims[0]} have more than one index; cut the first dims"
        )
    return dims[0]


def _ragged_units(item: object, size: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The lengths of the tiles of a RaggedShard along its first dim."""
    dims, units = tuple(getattr(item, "dims", ())), tuple(getattr(item, "local_units", ()))
    n_elems = math.prod(shape[d] for d in dims)
    row = math.prod(shape[d] for d in dims[1:])
    if len(units) != size or sum(units) == 0:
        raise ConversionError(f"{len(units)} units {units!r} for {size} devices")
    if n_elems % sum(units):
        raise ConversionError(f"{n_elems} elements are not a multiple of {sum(units)} units")
    lengths = tuple(unit * (n_elems // sum(units)) for unit in units)
    if any(n % max(row, 1) for n in lengths):
        raise ConversionError(
            f"tiles of {lengths} elements end within a row of {row}; a type cuts whole rows of dim {dims[0]}"
        )
    return tuple(n // max(row, 1) for n in lengths)


def _ragged_lengths(t: ArrayType, dim: int) -> tuple[int, ...] | None:
    """The lengths of the tiles of a dim that one axis cuts raggedly; None for a plain dim."""
    segments = t.segments_of(dim)
    if not segments:
        return None
    only = segments[0][0] if len(segments) == 1 and len(segments[0]) == 1 else None
    if only is None or not only.lengths or len(only.axes) != 1:
        _check_plain(t, "placements")
    assert only is not None
    return only.lengths


def _insert_axis(dims: list[list[str]], name: str, item: object, mesh: Mesh) -> int:
    """Put an axis among those that cut its dim: before those right of it, or after some; the dim."""
    dim: object = getattr(item, "dim", None)
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise ConversionError(f"dim {dim!r} is not an int")
    if not -len(dims) <= dim < len(dims):
        raise ConversionError(f"there is no dim {dim}; the array has {count_of(len(dims), 'dim')}")
    factor = int(getattr(item, "split_factor", 1))
    place = _place_after(dims[dim], factor, mesh)
    if place is None:
        raise ConversionError(f"the axes after it that cut dim {dim} do not cut it into {factor}")
    dims[dim].insert(place, name)
    return dim % len(dims)


def _place_after(names: Sequence[str], factor: int, mesh: Mesh) -> int | None:
    """After how many of the axes of a dim it is cut into this many; None if it never is.

    >>> _place_after(["y", "z"], 3, Mesh(x=2, y=3, z=2)), _place_after(["z"], 5, Mesh(z=2))
    (1, None)
    """
    cuts = 1
    for place, name in enumerate(names):
        if cuts == factor:
            return place
        cuts *= mesh.size(name)
    return len(names) if cuts == factor else None


def nested_bounds(n: int, sizes: Iterable[int]) -> tuple[Ints, Ints]:
    """Start and end of each tile of a dim that is cut by one axis after another, as PyTorch does it.

    >>> nested_bounds(10, [2, 2])
    (array([0, 3, 5, 8]), array([ 3,  5,  8, 10]))
    """
    lo, hi = np.zeros(1, dtype=np.int64), np.full(1, n, dtype=np.int64)
    for k in sizes:
        tile = -((lo - hi) // k)[:, None]
        start = lo[:, None] + tile * np.arange(k, dtype=np.int64)
        end = hi[:, None]
        lo, hi = np.minimum(start, end).ravel(), np.minimum(start + tile, end).ravel()
    return lo, hi


def _list_entries(what: str, given: object, advice: str) -> tuple[object, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConversionError(f"cannot read {what} {given!r}: it is not a sequence; {advice}")
    return tuple(given)


def _check_plain(t: ArrayType, what: str) -> None:
    for dim in range(t.ndim):
        if t.segments_of(dim):
            raise ConversionError(
                f"cannot convert {t} to {what}: dim {dim}, {t.dim_text(dim)}, is not cut into even "
                f"ranges, and {what} cannot say how; move the array to a plain type first"
            )


def _check_whole(t: ArrayType, what: str) -> None:
    for part in t.used:
        if part.size != t.mesh.size(part.name):
            raise ConversionError(
                f"cannot convert {t} to {what}: {part.text(t.mesh)} is a part of axis {part.name}; "
                f"split {part.name} into axes of its own in the mesh"
            )


def _other_tiles(t: ArrayType, dim: int) -> str | None:
    """Why the tiles of a dim differ when it is cut axis after axis, None where they do not."""
    sizes = [part.size for part in t.dims[dim]]
    cuts = t.cut(dim).n_tiles
    lo, hi = t.cut(dim).ranges_of(np.arange(cuts, dtype=np.int64))
    nested_lo, nested_hi = nested_bounds(t.shape[dim], sizes)
    empty = (lo == hi) & (nested_lo == nested_hi)
    differs = np.flatnonzero(~empty & ((lo != nested_lo) | (hi != nested_hi)))
    if len(differs) == 0:
        return None
    at, last = int(differs[0]), t.dims[dim][-1].name
    return (
        f"tile {at} of dim {dim} is {nested_lo[at]}:{nested_hi[at]} when cut by "
        f"{', then '.join(part.name for part in t.dims[dim])}, but {lo[at]}:{hi[at]} when cut into "
        f"{cuts} at once; use a multiple of {cuts}, cut another dim by {last}, or replicate over {last} "
        "and leave that step to PyTorch's own redistribute"
    )
