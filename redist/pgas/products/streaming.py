"""An operand in blocks: the same piece of every tile along one dim, moved, used and freed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

from redist.errors import LayoutError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.pgas.memory import TileMemory
from redist.pgas.products.contract_layout import Product
from redist.pgas.tiles.layouts import resolved_type
from redist.pgas.tiles.move import move
from redist.pgas.tiles.tiled import Tile, Tiled
from redist.pgas.watch.seam import traffic
from redist.text.units import ceil_div

if TYPE_CHECKING:
    from redist.arrange.one_operation import PlacedOperation

# Two operands in blocks of a label that both have: none grows beyond its own tile.


def choose_stream(product: Product, found: PlacedOperation) -> tuple[Hashable, int] | None:
    """Choose the operand that passes in blocks, and its label: the one that grows most, if one does."""
    sizes = product.sizes
    ends = tuple(zip(product.types, found.operands, product.labels, strict=True))
    growing = [
        (end.tile_bytes, which)
        for which, (start, end, _) in enumerate(ends)
        if block_count(resolved_type(start), end) > 1
    ]
    for _, which in sorted(growing, reverse=True):
        start, end, labels = ends[which]
        other = ends[1 - which][2]
        for label in sorted(set(labels) & set(other), key=lambda one: -sizes[one]):
            i, j = labels.index(label), other.index(label)
            source, target = resolved_type(start).dims[i], end.dims[i]
            stretched = ends[1 - which][0].shape[j] != end.shape[i]
            if label not in product.lo and not stretched and target in ((), source):
                return label, which
    return None


def paired_blocks(
    a: Tiled, b: Tiled, product: Product, found: PlacedOperation, label: Hashable, which: int
) -> Iterator[tuple[Tile, Tile]]:
    """**Collective.** Parts of both operands with the same indices of a label, none outside the mesh.

    Each block is moved, used and freed. Where the other operand would grow too, it follows in blocks.
    """
    dims = [labels.index(label) for labels in product.labels]
    ends = found.operands
    operands = [move(x, resolved_type(x.type)) if i == which else x for i, x in enumerate((a, b))]
    first = operands[which]
    n_blocks = block_count(first.type, ends[which])
    n = max(1, ceil_div(first.type.tile_shape[dims[which]], n_blocks))  # of a tile, in a block
    other, end = operands[1 - which], ends[1 - which]
    start = _follower(first.type.dims[dims[which]], resolved_type(other.type), end, dims[1 - which])
    blocks = pieces(first, ends[which], dims[which], n)
    if start is None:
        stays = move(other, end)
        pairs = ((piece, stays.tile, here, there) for piece, here, there in blocks)
    else:
        others = pieces(move(other, start), end, dims[1 - which], n)
        pairs = ((one[0], two[0], one[1], two[1]) for one, two in zip(blocks, others, strict=True))
    for piece, rest, here, there in pairs:
        if piece is None or rest is None:
            continue
        tiles = _part(piece, dims[which], here), _part(rest, dims[1 - which], there)
        yield tiles if which == 0 else tiles[::-1]


def _follower(
    cut: tuple[SubAxis, ...], source: ArrayType, end: ArrayType, dim: int
) -> ArrayType | None:
    """The type from which an operand follows in blocks; None if it moves as a whole."""
    if block_count(source, end) <= 1:
        return None
    start = align_cut(source, dim, cut)
    fits = start is not None and start.tile_bytes <= 2 * source.tile_bytes
    return start if fits and end.dims[dim] in ((), cut) else None


def _part(tile: Tile, dim: int, part: slice) -> Tile:
    return tile[(slice(None),) * dim + (part,)]


BLOCK_BYTES = 2**22
"""A block may always be so large; beyond it, no larger than the tile that it came from."""


def block_count(source: ArrayType, target: ArrayType) -> int:
    """In how many blocks an operand moves so that none is larger than its tile was."""
    if source == target:
        return 1
    return ceil_div(target.tile_bytes, max(BLOCK_BYTES, source.tile_bytes))


def align_cut(t: ArrayType, dim: int, cut: tuple[SubAxis, ...]) -> ArrayType | None:
    """Cut ``dim`` so; the axes that it had go where the new ones came from.

    >>> from redist.layout.mesh import Mesh
    >>> t = ArrayType.parse("f32[8{x}, 8{y}]", Mesh(x=2, y=2))
    >>> print(align_cut(t, 0, t.dims[1]))
    f32[8{y}, 8{x}]
    """
    others = [i for i in range(t.ndim) if i != dim]
    if not others or any(part in cut for part in t.dims[dim]):
        return t if t.dims[dim] == cut else None
    home = next((i for i in others if set(t.dims[i]) & set(cut)), others[0])
    dims = [tuple(part for part in one if part not in cut) for one in t.dims]
    dims[home] += dims[dim]
    dims[dim] = cut
    try:
        return t.with_dims(dims)
    except LayoutError:
        return None


def pieces(
    x: Tiled, target: ArrayType, dim: int, n: int
) -> Iterator[tuple[Tile | None, slice, slice]]:
    """**Collective.** Move ``x`` in blocks with ``n`` of each tile, to the target's cuts.

    Each is a block (None outside the mesh), a part of it along ``dim``, and the indices of that part
    in a tile that is whole along ``dim``, or cut as ``x`` is. The target cuts ``dim`` as ``x`` or not.
    """
    t = x.type
    cut = t.cut(dim)
    whole = target.dims[dim] != t.dims[dim]
    traffic().warn_of_gather(t, ArrayType(t.mesh, t.dtype, t.shape, target.dims), x.comm.rank)
    for start in range(0, max(1, cut.tile_size), n):
        shape = tuple(cut.n_tiles * n if i == dim else m for i, m in enumerate(t.shape))
        source = ArrayType(t.mesh, t.dtype, shape, t.dims)
        own = x.new(
            source,
            None if x.tile is None else _pad(x.tile, dim, start, n, source.tile_bytes, x.memory),
        )
        block = move(own, ArrayType(t.mesh, t.dtype, shape, target.dims), asked=True).tile
        if not whole:
            held = 0 if x.tile is None else max(0, min(n, x.tile.shape[dim] - start))
            yield block, slice(0, held), slice(start, start + held)
            continue
        for i in range(cut.n_tiles):
            first, end = cut.range_of(i)
            first += start
            held = max(0, min(n, end - first))
            yield block, slice(i * n, i * n + held), slice(first, first + held)


def _pad(tile: Tile, dim: int, start: int, n: int, worst_bytes: int, memory: TileMemory) -> Tile:
    """Copy a piece of a tile along a dim, filled up with zeros to ``n``."""
    piece = tile[(slice(None),) * dim + (slice(start, start + n),)]
    held = piece.shape[dim]
    if held == n:
        return piece
    shape = tuple(n if i == dim else m for i, m in enumerate(tile.shape))
    out = memory.empty(shape, tile.dtype, worst_bytes)
    out[(slice(None),) * dim + (slice(0, held),)] = piece
    out[(slice(None),) * dim + (slice(held, n),)] = 0
    return out
