"""Two operands in blocks of a label that both have: none grows beyond its own tile."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from redist.arrange.one_operation import PlacedOperation
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.pgas.products.contract_layout import Product
from redist.pgas.products.streaming import align_cut, block_count, block_length, pieces
from redist.pgas.tiles.layouts import resolved_type
from redist.pgas.tiles.move import move
from redist.pgas.tiles.tiled import Tile, Tiled


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
    n = block_length(first.type, ends[which], dims[which])
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
