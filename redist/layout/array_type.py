"""Array types: how a global array is laid out over a mesh."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index

import numpy as np

from redist.errors import LayoutError
from redist.layout.axes import SubAxis, check_chain, format_axes, merge_parts
from redist.layout.cuts import Cut, cut_dim
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.layout.segments import (
    Segments,
    as_plain,
    axes_of,
    canonical_dim,
    check_segments,
    format_segments,
    size_of,
)
from redist.layout.spans import tile_spans
from redist.text.units import count_of

OPS = ("sum", "prod", "max", "min")
MAX_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ArrayType:
    """The layout of a global array: its dtype and shape, and the part that each device of a mesh holds.

    >>> t = ArrayType.parse("f32[1024{x}, 512{y}]", Mesh(x=2, y=4))
    >>> t.tile_shape, t.tile_bytes
    ((512, 128), 262144)
    >>> print(ArrayType.parse("i64[6{y}, 10] sum{x}", Mesh(x=2, y=4)))
    i64[6{y}, 10] sum{x}

    ``dims`` lists the axes that cut each dim, the major one first; the array is replicated along all axes
    that are not listed. A reduction by ``pending_op`` is pending along ``pending_axes``. For each dim that
    is written as a sum of products, ``segments`` has its parts (:mod:`redist.layout.segments`), and ``dims``
    lists all axes that cut any of them; for a dim that is cut into even ranges, ``segments`` has (). Every
    object is valid and canonical: neighbouring sub-axes are joined, and axes of size 1 are dropped. So ``==``
    compares structure; to compare what the devices hold, use :func:`redist.same_layout`.

    >>> print(ArrayType.parse("bf16[(8{x}+4+4)*128, 64]", Mesh(x=2)))
    bf16[1024{x}+1024, 64]
    """

    mesh: Mesh
    dtype: DType
    shape: tuple[int, ...]
    dims: tuple[tuple[SubAxis, ...], ...]
    pending_op: str | None = None
    pending_axes: tuple[SubAxis, ...] = ()
    segments: tuple[Segments, ...] = ()
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)
    _tile_bytes: int | None = field(default=None, init=False, repr=False, compare=False)
    _cuts: tuple[Cut, ...] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.dims) != len(self.shape):
            raise LayoutError(
                f"cannot make a type: {count_of(len(self.shape), 'dim')} but axes for {len(self.dims)}"
            )
        for n in self.shape:
            if not isinstance(n, int) or isinstance(n, bool) or n < 0:
                raise LayoutError(f"cannot make a type: dim of size {n!r}; need an int >= 0")
        if math.prod(max(1, n) for n in self.shape) * self.dtype.itemsize > MAX_BYTES:
            raise LayoutError(
                f"cannot make a type: {self.dtype} of shape {self.shape} exceeds 2**63 bytes"
            )
        pending = tuple(part for part in self.pending_axes if part.size > 1)
        if self.pending_op is not None and self.pending_op not in OPS:
            raise LayoutError(f"unknown reduction {self.pending_op!r}; known: {', '.join(OPS)}")
        if self.pending_op is None and self.pending_axes:
            raise LayoutError("cannot make a type: pending axes without a reduction")
        if self.segments:
            self._settle_segments()
        check_chain(self.mesh, [*(part for dim in self.dims for part in dim), *self.pending_axes])
        object.__setattr__(self, "dims", tuple(merge_parts(dim) for dim in self.dims))
        object.__setattr__(self, "pending_axes", merge_parts(sorted(pending)))
        object.__setattr__(self, "pending_op", self.pending_op if pending else None)

    def _settle_segments(self) -> None:
        """Dims of segments in their canonical form; those that are cut into even ranges are plain dims."""
        dims, found = list(self.dims), list(self.segments)
        for i, segments in enumerate(found):
            if not segments:
                continue
            check_segments(self.mesh, segments)
            if size_of(segments) != self.shape[i]:
                text = format_segments(self.mesh, segments)
                raise LayoutError(
                    f"cannot make a type: {text} has {size_of(segments)} indices, not {self.shape[i]}"
                )
            found[i] = canonical_dim(segments)
            plain = as_plain(found[i])
            if plain is not None:
                found[i], dims[i] = (), plain.axes
            else:
                dims[i] = axes_of(self.mesh, found[i])
        object.__setattr__(self, "dims", tuple(dims))
        object.__setattr__(self, "segments", tuple(found) if any(found) else ())

    def __hash__(self) -> int:
        """The hash, computed once: types are the keys of all caches."""
        if self._hash is None:
            object.__setattr__(self, "_hash", hash(self._parts))
        assert self._hash is not None
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if other.__class__ is not ArrayType:
            return NotImplemented
        assert isinstance(other, ArrayType)
        return (
            (self._hash is None or other._hash is None or self._hash == other._hash)
            and self.shape == other.shape
            and self.dims == other.dims
            and self.segments == other.segments
            and self.pending_axes == other.pending_axes
            and self.pending_op == other.pending_op
            and (self.dtype is other.dtype or self.dtype == other.dtype)
            and (self.mesh is other.mesh or self.mesh == other.mesh)
        )

    def __reduce__(self) -> tuple[type[ArrayType], tuple[object, ...]]:
        return ArrayType, self._parts  # another process has other hashes

    @property
    def _parts(self) -> tuple[object, ...]:
        own = self.mesh, self.dtype, self.shape, self.dims, self.pending_op, self.pending_axes
        return (*own, self.segments) if self.segments else own

    @staticmethod
    def of(
        mesh: Mesh,
        dtype: str | DType,
        shape: Sequence[int],
        dims: Sequence[Iterable[str | SubAxis]] = (),
        pending: Mapping[str, Iterable[str | SubAxis]] | None = None,
    ) -> ArrayType:
        """Make a type from a mesh, a dtype, a shape, and the list of axes that cut each dim.

        >>> print(ArrayType.of(Mesh(x=2, y=4), "f32", (8, 8), [["x"], []], {"sum": ["y"]}))
        f32[8{x}, 8] sum{y}
        """
        if not isinstance(mesh, Mesh):
            raise LayoutError(
                f"cannot make a type: {mesh!r} is not a Mesh; write ArrayType.of(mesh, dtype, shape, cuts)"
            )
        if len(pending or {}) > 1:
            raise LayoutError("cannot make a type: one reduction can be pending, not several")
        for dim in dims:
            if isinstance(dim, str) or not isinstance(dim, Iterable):
                raise LayoutError(
                    f"cannot make a type with {dim!r} for a dim: need a list of axes, as in "
                    "[['x'], []] for a first dim cut by x and a second that is not cut"
                )

        def part(axis: str | SubAxis) -> SubAxis:
            return axis if isinstance(axis, SubAxis) else SubAxis(axis, 1, mesh.size(axis))

        op, axes = next(iter((pending or {}).items()), (None, ()))
        return ArrayType(
            mesh,
            dtype if isinstance(dtype, DType) else DType.parse(dtype),
            tuple(
                n if isinstance(n, int) or not hasattr(n, "__index__") else index(n) for n in shape
            ),
            tuple(tuple(part(axis) for axis in dim) for dim in dims) or ((),) * len(shape),
            op,
            tuple(part(axis) for axis in axes),
        )

    @staticmethod
    def parse(text: str, mesh: Mesh) -> ArrayType:
        """Read a type from text such as ``f32[1024{x}, 512{y}] sum{z}``; see docs/reference/notation.md."""
        # The reader makes types, so it imports this module; this is the only import back.
        from redist.layout.notation import parse_type

        return parse_type(text, mesh)

    @property
    def ndim(self) -> int:
        """Number of dims of the array."""
        return len(self.shape)

    @property
    def is_plain(self) -> bool:
        """Whether every dim is cut into even ranges or not at all, so that every tile is a box."""
        return not self.segments

    def segments_of(self, dim: int) -> Segments:
        """The segments of a dim; () for a plain one."""
        return self.segments[dim] if self.segments else ()

    def cut(self, dim: int) -> Cut:
        """How a plain dim is cut: which tile holds which of its indices.

        >>> ArrayType.parse("f32[10{x}]", Mesh(x=4)).cut(0).range_of(3)
        (9, 10)

        Along a dim with segments, a tile is not a single range; use :func:`redist.spans_of` for such a dim.
        """
        if self.segments and self.segments[dim]:
            raise LayoutError(
                f"cannot take a tile of {self} for a box: dim {dim} is not cut into even ranges; "
                "move the array to a plain type first"
            )
        return self._every_cut[dim]

    @property
    def cuts(self) -> tuple[int, ...]:
        """The number of tiles that each dim is cut into; :meth:`cut` tells where."""
        if self.segments:
            return tuple(math.prod(part.size for part in dim) for dim in self.dims)
        return tuple(cut.n_tiles for cut in self._every_cut)

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """Shape of a full tile; no device holds more."""
        if self.segments:
            return tuple(map(self._largest, range(self.ndim)))
        return tuple(cut.tile_size for cut in self._every_cut)

    def _largest(self, dim: int) -> int:
        """The most indices that a tile of a dim has."""
        every = tile_spans(self.mesh, self.shape[dim], self.dims[dim], self.segments_of(dim))
        return max(int(np.sum(spans[:, 1] - spans[:, 0])) for spans in every)

    def same_tiles(self, other: ArrayType) -> bool:
        """Whether both types cut every dim into the same tiles, no matter which rank holds which."""
        if self.segments or other.segments:
            return (self.segments, self.dims) == (other.segments, other.dims)
        return all(a.same_tiles(b) for a, b in zip(self._every_cut, other._every_cut, strict=True))

    @property
    def _every_cut(self) -> tuple[Cut, ...]:
        if self._cuts is None:
            found = tuple(
                cut_dim(n, math.prod(part.size for part in dim))
                for n, dim in zip(self.shape, self.dims, strict=True)
            )
            object.__setattr__(self, "_cuts", found)
        assert self._cuts is not None
        return self._cuts

    @property
    def tile_bytes(self) -> int:
        """Bytes of a full tile, which is the most that any device holds."""
        if self._tile_bytes is None:
            n_bytes = math.prod(self.tile_shape) * self.dtype.itemsize
            object.__setattr__(self, "_tile_bytes", n_bytes)
        assert self._tile_bytes is not None
        return self._tile_bytes

    @property
    def global_elems(self) -> int:
        """Elements of the whole array."""
        return math.prod(self.shape)

    @property
    def is_even(self) -> bool:
        """Whether every tile is a box and has the full size."""
        return not self.segments and all(cut.is_even for cut in self._every_cut)

    @property
    def used(self) -> tuple[SubAxis, ...]:
        """All axes and sub-axes that cut a dim or along which a reduction is pending."""
        return (*(part for dim in self.dims for part in dim), *self.pending_axes)

    def with_dims(self, dims: Iterable[Iterable[SubAxis]]) -> ArrayType:
        """The same array and pending reduction with other cuts, all into even ranges."""
        cuts = tuple(tuple(dim) for dim in dims)
        pending = self.pending_op, self.pending_axes
        return ArrayType(self.mesh, self.dtype, self.shape, cuts, *pending)

    def with_pending(self, op: str | None, axes: Iterable[SubAxis]) -> ArrayType:
        """The same cuts with another pending reduction (none if ``axes`` is empty)."""
        parts = tuple(axes)
        op = op if parts else None
        return ArrayType(self.mesh, self.dtype, self.shape, self.dims, op, parts, self.segments)

    def with_dtype(self, dtype: str | DType) -> ArrayType:
        """The same layout for an array of another dtype.

        >>> print(ArrayType.parse("f64[8{x}]", Mesh(x=2)).with_dtype("f32"))
        f32[8{x}]
        """
        kind = dtype if isinstance(dtype, DType) else DType.parse(dtype)
        own = self.shape, self.dims, self.pending_op, self.pending_axes, self.segments
        return ArrayType(self.mesh, kind, *own)

    def dim_text(self, dim: int) -> str:
        """The text of a dim as it appears in the text of the type."""
        if self.segments_of(dim):
            return format_segments(self.mesh, self.segments[dim])
        axes = format_axes(self.mesh, self.dims[dim])
        return f"{self.shape[dim]}{{{axes}}}" if axes else f"{self.shape[dim]}"

    def __str__(self) -> str:
        dims = ", ".join(map(self.dim_text, range(self.ndim)))
        pending = format_axes(self.mesh, self.pending_axes)
        return f"{self.dtype}[{dims}]" + (f" {self.pending_op}{{{pending}}}" if pending else "")

    def __repr__(self) -> str:
        return f"ArrayType.parse({str(self)!r}, {self.mesh!r})"
