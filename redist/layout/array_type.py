"""Array types: how a global array is laid out over a mesh."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index

from redist.errors import LayoutError
from redist.layout.axes import SubAxis, check_chain, format_axes, merge_parts
from redist.layout.cuts import Cut, cut_dim
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.text.units import count_of

OPS = ("sum", "prod", "max", "min")
MAX_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ArrayType:
    """What every device of a mesh holds of a global array.

    >>> t = ArrayType.parse("f32[1024{x}, 512{y}]", Mesh(x=2, y=4))
    >>> t.tile_shape, t.tile_bytes
    ((512, 128), 262144)
    >>> print(ArrayType.parse("i64[6{y}, 10] sum{x}", Mesh(x=2, y=4)))
    i64[6{y}, 10] sum{x}

    ``dims`` lists for each dim the axes that cut it, major first; axes not named replicate.
    ``pending_axes`` carry a reduction by ``pending_op`` that has not happened yet. An object that
    exists is valid and canonical: neighbouring sub-axes are joined and axes of size 1 dropped, so
    ``==`` is structural. :func:`redist.same_layout` compares what the devices hold.
    """

    mesh: Mesh
    dtype: DType
    shape: tuple[int, ...]
    dims: tuple[tuple[SubAxis, ...], ...]
    pending_op: str | None = None
    pending_axes: tuple[SubAxis, ...] = ()
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
        check_chain(self.mesh, [*(part for dim in self.dims for part in dim), *self.pending_axes])
        object.__setattr__(self, "dims", tuple(merge_parts(dim) for dim in self.dims))
        object.__setattr__(self, "pending_axes", merge_parts(sorted(pending)))
        object.__setattr__(self, "pending_op", self.pending_op if pending else None)

    def __hash__(self) -> int:
        """Computed once: types are the keys of everything that is remembered."""
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
            and self.pending_axes == other.pending_axes
            and self.pending_op == other.pending_op
            and (self.dtype is other.dtype or self.dtype == other.dtype)
            and (self.mesh is other.mesh or self.mesh == other.mesh)
        )

    def __reduce__(self) -> tuple[type[ArrayType], tuple[object, ...]]:
        return ArrayType, self._parts  # another process has other hashes

    @property
    def _parts(self) -> tuple[object, ...]:
        return self.mesh, self.dtype, self.shape, self.dims, self.pending_op, self.pending_axes

    @staticmethod
    def of(
        mesh: Mesh,
        dtype: str | DType,
        shape: Sequence[int],
        dims: Sequence[Iterable[str | SubAxis]] = (),
        pending: Mapping[str, Iterable[str | SubAxis]] | None = None,
    ) -> ArrayType:
        """A type from variables: mesh, dtype, shape, and for each dim the list of axes that cut it.

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
        """A type from text: ``f32[1024{x}, 512{y}] sum{z}``; docs/reference/notation.md has it all."""
        # The reader makes types, so it imports this module; this is the only import back.
        from redist.layout.notation import parse_type

        return parse_type(text, mesh)

    @property
    def ndim(self) -> int:
        """Number of dims of the array."""
        return len(self.shape)

    def cut(self, dim: int) -> Cut:
        """How a dim is cut: which tile holds which of its indices.

        >>> ArrayType.parse("f32[10{x}]", Mesh(x=4)).cut(0).range_of(3)
        (9, 10)
        """
        return self._every_cut[dim]

    @property
    def cuts(self) -> tuple[int, ...]:
        """Into how many tiles each dim is cut; :meth:`cut` says where."""
        return tuple(cut.n_tiles for cut in self._every_cut)

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """Shape of a full tile; no device holds more."""
        return tuple(cut.tile_size for cut in self._every_cut)

    def same_tiles(self, other: ArrayType) -> bool:
        """Whether both types cut every dim into the same tiles, whoever holds them."""
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
        """Bytes of a full tile: what the fullest device holds."""
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
        """Whether every tile is full."""
        return all(cut.is_even for cut in self._every_cut)

    @property
    def used(self) -> tuple[SubAxis, ...]:
        """All parts that cut a dim or are pending."""
        return (*(part for dim in self.dims for part in dim), *self.pending_axes)

    def with_dims(self, dims: Iterable[Iterable[SubAxis]]) -> ArrayType:
        """The same array and pending reduction, other cuts."""
        return ArrayType(
            self.mesh,
            self.dtype,
            self.shape,
            tuple(tuple(dim) for dim in dims),
            self.pending_op,
            self.pending_axes,
        )

    def with_pending(self, op: str | None, axes: Iterable[SubAxis]) -> ArrayType:
        """The same cuts, another pending reduction (none where ``axes`` is empty)."""
        parts = tuple(axes)
        return ArrayType(self.mesh, self.dtype, self.shape, self.dims, op if parts else None, parts)

    def with_dtype(self, dtype: str | DType) -> ArrayType:
        """The same layout of an array of other elements.

        >>> print(ArrayType.parse("f64[8{x}]", Mesh(x=2)).with_dtype("f32"))
        f32[8{x}]
        """
        kind = dtype if isinstance(dtype, DType) else DType.parse(dtype)
        return ArrayType(self.mesh, kind, self.shape, self.dims, self.pending_op, self.pending_axes)

    def __str__(self) -> str:
        dims = ", ".join(
            f"{n}{{{format_axes(self.mesh, axes)}}}" if axes else f"{n}"
            for n, axes in zip(self.shape, self.dims, strict=True)
        )
        pending = format_axes(self.mesh, self.pending_axes)
        return f"{self.dtype}[{dims}]" + (f" {self.pending_op}{{{pending}}}" if pending else "")

    def __repr__(self) -> str:
        return f"ArrayType.parse({str(self)!r}, {self.mesh!r})"
