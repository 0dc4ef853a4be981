"""Types as ScaLAPACK descriptors: matrices in blocks that are dealt to a grid of processes.

A descriptor is nine integers: DTYPE_, CTXT_, M_, N_, MB_, NB_, RSRC_, CSRC_ and LLD_. Local arrays are in
Fortran order; redist accepts arrays with any strides, so it moves them in place, without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redist.errors import ConversionError
from redist.layout.array_type import ArrayType
from redist.layout.axes import coordinates, whole
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.layout.segments import Factor, Segments
from redist.layout.tiles import tile_shapes

DENSE = 1
"""DTYPE_ of a dense matrix."""


def from_scalapack(
    desc: Sequence[int],
    grid: tuple[int, int],
    dtype: str | DType,
    *,
    order: str = "R",
    at: tuple[int, int] = (0, 0),
    shape: tuple[int, int] | None = None,
    axes: tuple[str, str] = ("p", "q"),
) -> ArrayType:
    """The type of the matrix that a descriptor describes on a grid of P x Q processes.

    ``order`` is the order of the process grid, as in BLACS: ranks by rows (``"R"``) or by columns (``"C"``).
    ``at`` and ``shape`` select a sub-matrix; indices count from 0. The local array of a sub-matrix is the
    part of the whole matrix's local array that has its rows and columns.

    >>> print(from_scalapack((1, 0, 1000, 800, 64, 64, 0, 0, 512), (2, 2), "f64"))
    f64[1000{p/64}, 800{q/64}]
    """
    if len(desc) != 9:
        raise ConversionError(f"cannot read descriptor {tuple(desc)!r}: need 9 integers")
    kind, _, m, n, mb, nb, row, column, _ = (int(value) for value in desc)
    if kind != DENSE:
        raise ConversionError(
            f"cannot read descriptor {tuple(desc)!r}: DTYPE_ is {kind}; need {DENSE}, dense"
        )
    if order not in ("R", "C"):
        raise ConversionError(f"cannot read a grid in order {order!r}; need 'R' or 'C'")
    sizes = shape if shape is not None else (m - at[0], n - at[1])
    for size, start, whole_size, block, source, count in zip(
        sizes, at, (m, n), (mb, nb), (row, column), grid, strict=True
    ):
        if start < 0 or size < 0 or start + size > whole_size:
            raise ConversionError(
                f"cannot read descriptor {tuple(desc)!r}: indices {start} to {start + size} of {whole_size}"
            )
        if block < 1 or not 0 <= source < count:
            raise ConversionError(
                f"cannot read descriptor {tuple(desc)!r}: blocks of {block} from process {source} of {count}"
            )
    mesh = _mesh(grid, order, axes)
    segments: tuple[Segments, ...] = tuple(
        ((Factor(size, (whole(mesh, axis),), block, start + source * block),),)
        for size, axis, block, start, source in zip(
            sizes, axes, (mb, nb), at, (row, column), strict=True
        )
    )
    kind_of = dtype if isinstance(dtype, DType) else DType.parse(dtype)
    return ArrayType(mesh, kind_of, tuple(sizes), ((), ()), None, (), segments)


def _mesh(grid: tuple[int, int], order: str, axes: tuple[str, str]) -> Mesh:
    p, q = grid
    ranks = [i * q + j if order == "R" else j * p + i for i in range(p) for j in range(q)]
    return Mesh({axes[0]: p, axes[1]: q}, ranks=ranks)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The ScaLAPACK descriptor of a matrix on one process, and the grid: the ranks, row by row."""

    desc: tuple[int, ...]
    grid: tuple[int, int]
    ranks: tuple[tuple[int, ...], ...]


def to_scalapack(type: ArrayType, rank: int) -> Descriptor:
    """The ScaLAPACK descriptor of a matrix on a rank; CTXT_ is 0, and LLD_ is the rows of the rank's tile.

    >>> from redist.layout.mesh import Mesh
    >>> t = ArrayType.parse("f64[1000{p/64}, 800{q}]", Mesh(p=2, q=2))
    >>> to_scalapack(t, 0).desc
    (1, 0, 1000, 800, 64, 400, 0, 0, 512)
    """

    def refuse(reason: str) -> ConversionError:
        return ConversionError(f"cannot convert {type} to a descriptor: {reason}")

    if type.ndim != 2:
        raise refuse(f"it has {type.ndim} dims; need 2")
    if type.pending_op is not None:
        raise refuse(f"a {type.pending_op} is pending; resolve it first")
    blocks, sources = [], []
    for dim in range(2):
        factor = _dealt(type, dim)
        if factor is None:
            raise refuse(f"dim {dim}, {type.dim_text(dim)}, is not dealt in blocks of one size")
        if factor.first % factor.block:
            raise refuse(f"dim {dim} begins within a block of {factor.block}")
        blocks.append(factor.block)
        sources.append(factor.first // factor.block)
    if type.mesh.n_devices != type.cuts[0] * type.cuts[1]:
        raise refuse("some axis of the mesh cuts no dim, and ScaLAPACK has no replicas")
    p, q = type.cuts
    rows_of, columns_of = (coordinates(type.mesh, axes).tolist() for axes in type.dims)
    place = dict(zip(zip(rows_of, columns_of, strict=True), type.mesh.ranks, strict=True))
    ranks = tuple(tuple(place[i, j] for j in range(q)) for i in range(p))
    rows = tile_shapes(type).get(rank, (0, 0))[0]
    desc = (DENSE, 0, *type.shape, *blocks, *sources, max(1, rows))
    return Descriptor(desc, (p, q), ranks)


def _dealt(t: ArrayType, dim: int) -> Factor | None:
    """A dim as one factor that is dealt in blocks; a range a process is one block each."""
    segments = t.segments_of(dim)
    if not segments:
        return Factor(t.shape[dim], t.dims[dim], max(1, t.cut(dim).tile_size))
    if len(segments) > 1:
        return None
    match segments[0]:
        case (Factor(block=block) as only,) if block:
            return only
        case (Factor(lengths=lengths) as only,) if lengths:
            # Fewer blocks than processes: full ones next to each other, then one that may be short.
            first = next(k for k, n in enumerate(lengths) if n)
            filled = [n for n in lengths[first:] if n]
            ends = lengths[first + len(filled) :]
            if any(ends) or any(n != filled[0] for n in filled[:-1]) or filled[-1] > filled[0]:
                return None
            return Factor(only.size, only.axes, filled[0], first * filled[0])
        case (times, dealt) if times.is_whole and dealt.is_even:
            return Factor(t.shape[dim], dealt.axes, dealt.size // dealt.n_tiles)
        case _:
            return None
