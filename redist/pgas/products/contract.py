"""Products of two arrays by labelled dims: place, move, and let NumPy multiply the tiles.

An operand that would grow beyond its own tile passes in blocks of a contracted dim instead.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.errors import ArgumentError
from redist.layout.array_type import ArrayType
from redist.pgas.kinds import (
    array_dtype,
    computing,
    is_half,
    number_kind,
    promote,
    refuse_if_stored,
)
from redist.pgas.memory import SHARED_FROM, TileMemory, as_tile
from redist.pgas.products.contract_layout import Labels, Product, place, place_within
from redist.pgas.products.in_f32 import product_in_f32
from redist.pgas.products.streaming import choose_stream, paired_blocks
from redist.pgas.reductions.reduce import rounded_once
from redist.pgas.tiles.arguments import check_one_mesh
from redist.pgas.tiles.arranging import (
    ArrangedCall,
    ChosenTypes,
    EinForm,
    current_arranger,
    with_places,
)
from redist.pgas.tiles.devices import check_alike
from redist.pgas.tiles.layouts import Shape, dtype_of, with_dtype
from redist.pgas.tiles.move import cast_tile, move, paid
from redist.pgas.tiles.tiled import T, Tile
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.products import multiply_on_gpu, product_bytes

if TYPE_CHECKING:
    from redist.arrange.one_operation import PlacedOperation


def contract(
    a: T, b: T, la: Labels, lb: Labels, lo: Labels, name: str = "multiply", rounds: bool = True
) -> T:
    """**Collective** if operands must move. Multiply, and sum over the labels that ``lo`` lacks.

    A result of 16-bit floats is rounded once, or stays f32 if it is not to be rounded here.
    """
    if a.comm is not b.comm or a.mesh is not b.mesh:
        check_one_mesh(name, a, b)
    memory = a.memory
    if b.memory is not memory:
        check_alike(name, a, b)
    dtype = promote(a.dtype, b.dtype)
    refuse_if_stored(f"use {name}", a.dtype, b.dtype)
    a, b = paid(a), paid(b)
    if is_half(dtype) and rounds:
        return rounded_once(_contract(a, b, la, lb, lo, name, dtype), dtype)
    return _contract(a, b, la, lb, lo, name, computing(dtype))


def _contract(a: T, b: T, la: Labels, lb: Labels, lo: Labels, name: str, dtype: np.dtype[Any]) -> T:
    """**Collective** if operands must move. Multiply; of 16-bit floats, what is pending stays f32."""
    memory = a.memory
    if (arranger := current_arranger()) is not None and arranger.wants(memory):
        return arranger.call(_arranged(a, b, la, lb, lo, name), [a, b])
    product, found, streamed = _prepare(a.type, b.type, la, lb, lo, name, memory.on_device)
    fitting = place_within(a, product, found)
    if fitting is not found:
        found, streamed = fitting, choose_stream(product, fitting)
    if (
        is_half(dtype)
        and streamed is None
        and not memory.is_ghost
        and found.result.pending_op is None
    ):
        found = replace(found, result=with_dtype(found.result, dtype_of(dtype)))
    return _contract_in(a, b, product, found, streamed)


def _arranged(a: T, b: T, la: Labels, lb: Labels, lo: Labels, name: str) -> ArrangedCall:
    """The call as a plan sees it."""
    on_device = a.memory.on_device
    product = _prepare(a.type, b.type, la, lb, lo, name, on_device)[0]
    node = product.node
    form = EinForm(node.notation, node.sizes, node.join, node.agg)

    def choose(types: tuple[ArrayType, ...]) -> ChosenTypes:
        found = _prepare(*types, la, lb, lo, name, on_device)[1]
        return ChosenTypes(found.operands, found.result)

    def run(given: Sequence[Any], made: ArrayType | None) -> Any:
        x, y = given
        if made is None:
            return _contract(x, y, la, lb, lo, name, x.dtype)
        from redist.arrange.one_operation import PlacedOperation

        types = x.type, y.type
        return _contract_in(x, y, replace(product, types=types), PlacedOperation(types, made), None)

    given: Any = (*with_places((a, b), []), la, lb, lo, name), {}
    return ArrangedCall(name, run, form, choose, function=contract, given=given)


def _contract_in(
    a: T, b: T, product: Product, found: PlacedOperation, streamed: tuple[Hashable, int] | None
) -> T:
    """**Collective** if operands must move. Multiply in a layout, one of them in blocks if so streamed."""
    if streamed is not None:
        return _by_blocks(a, b, product, found, *streamed)
    (la, lb), lo = product.labels, product.lo
    x, y = (move(one, end) for one, end in zip((a, b), found.operands, strict=True))
    if x.tile is None or y.tile is None:
        return a.new(found.result, None)
    return a.new(found.result, multiply(x.tile, y.tile, la, lb, lo, found.result, a.memory))


@lru_cache(maxsize=4096)
def _prepare(
    a: ArrayType, b: ArrayType, la: Labels, lb: Labels, lo: Labels, name: str, on_device: bool
) -> tuple[Product, PlacedOperation, tuple[Hashable, int] | None]:
    """Find the layout of a product, and which operand passes in blocks of which label."""
    _check(a.shape, b.shape, la, lb, name)
    product = Product.of(a, b, la, lb, lo, on_device)
    found = place(product)
    return product, found, choose_stream(product, found)


def _check(a: Shape, b: Shape, la: Labels, lb: Labels, name: str) -> None:
    size: dict[Hashable, int] = {}
    for label, n in [*zip(la, a, strict=True), *zip(lb, b, strict=True)]:
        if 1 not in (n, size.get(label, 1)) and size[label] != n:
            raise ArgumentError(
                f"cannot use shapes {a} and {b} in {name}: sizes {size[label]} and {n} differ"
            )
        size[label] = n if size.get(label, 1) == 1 else size[label]


def _by_blocks(
    a: T, b: T, product: Product, found: PlacedOperation, label: Hashable, which: int
) -> T:
    """**Collective.** Multiply with one operand, or both, in blocks, and add up what they make."""
    (la, lb), lo = product.labels, product.lo
    add = np.logical_or if product.op == "max" else np.add
    out: Tile | None = None
    for x, y in paired_blocks(a, b, product, found, label, which):
        one = multiply(x, y, la, lb, lo, found.result, a.memory)
        if out is None:
            out = one
        else:
            add(out, one, out=out)
    return a.new(found.result, out)


def multiply(
    x: Tile, y: Tile, la: Labels, lb: Labels, lo: Labels, result: ArrayType, memory: TileMemory
) -> Tile:
    """**Local.** Multiply two tiles, by matrix products if there is something to contract."""
    dtype = array_dtype(result.dtype)
    if x.shape[:-2] == y.shape[:-2] and _are_matrices(la, lb, lo):
        shape = x.shape[:-1] if y.ndim == 1 else (*x.shape[:-1], y.shape[-1])
        return _matmul(x, y, shape, dtype, result.tile_bytes, memory)
    x, la = _drop_stretched(x, la, y, lb)
    y, lb = _drop_stretched(y, lb, x, la)
    both = [label for label in la if label in lb]
    batch = [label for label in both if label in lo]
    inner = [label for label in both if label not in lo]
    left = [label for label in la if label not in lb]
    right = [label for label in lb if label not in la]
    if not inner or not (left or right) or {*left, *right} - {*lo}:
        number = {label: i for i, label in enumerate(dict.fromkeys((*la, *lb)))}
        named = [[number[label] for label in labels] for labels in (la, lb, lo)]
        truth = number_kind(dtype) == "b" and is_device(x)  # CuPy has no sum of truth values
        kind = np.dtype(np.int32) if truth else computing(dtype)
        x, y = x.astype(kind, copy=False), y.astype(kind, copy=False)
        out = as_tile(np.einsum(x, named[0], y, named[1], named[2]))
        if truth:
            return np.not_equal(out, 0)
        if is_half(dtype):
            return cast_tile(memory, out, dtype, result.tile_bytes)
        return out if getattr(out.flags, "writeable", True) else out.copy()
    p = _matrices(x, la, batch, left, inner)
    q = _matrices(y, lb, batch, inner, right)
    size = {**dict(zip(la, x.shape, strict=True)), **dict(zip(lb, y.shape, strict=True))}
    made = [*batch, *left, *right]
    shape = (*p.shape[:-1], q.shape[-1])
    flat = _matmul(p, q, shape, dtype, result.tile_bytes, memory)
    tile = flat.reshape([size[label] for label in made])
    return tile.transpose([made.index(label) for label in lo])


def _matmul(
    x: Tile, y: Tile, shape: Shape, dtype: np.dtype[Any], worst_bytes: int, memory: TileMemory
) -> Tile:
    """**Local.** The matrix products of two tiles, in tiles of the right memory."""
    if is_device(x):
        memory.check_room(worst_bytes)
        if number_kind(dtype) == "b":  # CuPy has no product of truth values
            return np.not_equal(np.matmul(x.astype(np.int32), y.astype(np.int32)), 0)
        if memory.is_ghost and is_half(x.dtype) and x.dtype == y.dtype:
            product = ProductOnGpu(product_bytes(x, y))
            return memory.multiply(product, x, y, dtype)  # type: ignore[attr-defined]
        return product_on_gpu(x, y, dtype)
    if is_half(x.dtype) or is_half(y.dtype):
        out = memory.empty(shape, dtype, worst_bytes)
        return as_tile(memory.call(product_in_f32, x, y, out=out))
    if math.prod(shape) * dtype.itemsize < SHARED_FROM:
        return as_tile(np.matmul(x, y, dtype=dtype))
    return np.matmul(x, y, out=memory.empty(shape, dtype, worst_bytes), dtype=dtype)


@dataclass(frozen=True, slots=True)
class ProductOnGpu:
    """A product of 16-bit floats as a task of a program, with what it takes beside its result."""

    work_bytes: int

    def __call__(self, x: Tile, y: Tile, dtype: np.dtype[Any]) -> Tile:
        """**Local.** The products of matrices."""
        return product_on_gpu(x, y, dtype)


def product_on_gpu(x: Tile, y: Tile, dtype: np.dtype[Any]) -> Tile:
    """**Local.** The products of matrices on a GPU: 16-bit floats as they lie, others by CuPy."""
    made: Tile | None = multiply_on_gpu(x, y, dtype)
    if made is not None:
        return made
    wide = computing(dtype)
    out = np.matmul(x.astype(wide, copy=False), y.astype(wide, copy=False))
    return out if wide == dtype else out.astype(dtype)


@lru_cache(maxsize=1024)
def _are_matrices(la: Labels, lb: Labels, lo: Labels) -> bool:
    """Whether the labels are those of a product of (stacks of) matrices, or a matrix and a vector."""
    if len(la) == 2 and lb == la[1:]:
        return lo == la[:1]
    if min(len(la), len(lb)) < 2 or la[:-2] != lb[:-2]:
        return False
    return la[-1] == lb[-2] and lo == (*la[:-1], lb[-1]) and la[-1] not in lo


def _drop_stretched(x: Tile, la: Labels, y: Tile, lb: Labels) -> tuple[Tile, Labels]:
    """Drop the dims of size 1 of a tile that the other operand's stretch."""
    flat = [
        i for i, label in enumerate(la)
        if x.shape[i] == 1 and label in lb and y.shape[lb.index(label)] != 1
    ]  # fmt: skip
    if not flat:
        return x, la
    index = tuple(0 if i in flat else slice(None) for i in range(x.ndim))
    return as_tile(x[index]), tuple(label for i, label in enumerate(la) if i not in flat)


def _matrices(
    x: Tile, labels: Labels, batch: Sequence[Hashable], rows: Sequence[Hashable],
    columns: Sequence[Hashable],
) -> Tile:  # fmt: skip
    """View a tile as a stack of matrices."""
    order = [labels.index(label) for label in (*batch, *rows, *columns)]
    x = x.transpose(order)
    n, r = len(batch), len(batch) + len(rows)
    shape = (*x.shape[:n], math.prod(x.shape[n:r]), math.prod(x.shape[r:]))
    return x.reshape(shape)
