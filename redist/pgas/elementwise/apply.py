"""Element-wise functions: bring operands to one layout, then let NumPy work on the tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from redist.errors import ArgumentTypeError, RequestError, ShapeError
from redist.layout.array_type import ArrayType
from redist.pgas.elementwise import on_device
from redist.pgas.elementwise.rounded import tile_function
from redist.pgas.elementwise.standard_limits import takes_out
from redist.pgas.kinds import (
    NUMBERS,
    array_dtype,
    can_cast,
    dtype_asked,
    is_half,
    is_stored,
    number_kind,
)
from redist.pgas.memory import SHARED_FROM, TileMemory, as_tile
from redist.pgas.tiles.arguments import check_one_mesh, kind_of_value, takes_any_array
from redist.pgas.tiles.arranging import (
    ArrangedCall,
    ChosenTypes,
    EinForm,
    asked,
    current_arranger,
    filled,
    label_dims,
    left_alone,
    numbers_in,
    with_places,
)
from redist.pgas.tiles.devices import check_alike, is_gpu, to_device
from redist.pgas.tiles.layouts import dtype_of, meet, operand_type, resolved_type, with_dtype
from redist.pgas.tiles.move import as_plain, cast_tile, move, resolve_pending
from redist.pgas.tiles.tiled import T, Tile, Tiled, tile_in

SCALARS = (bool, int, float, complex)
Number = bool | int | float | complex | np.generic
"""What an element may be combined with, beside global arrays: also a NumPy array without dims."""
OPERANDS = (Tiled, *SCALARS, np.generic, np.ndarray, list, tuple)
"""What operators answer themselves: arrays of NumPy with dims, lists and tuples by an error."""


def apply(function: Callable[..., Any], *operands: Any) -> Any:
    """**Collective** if operands must move. Apply a NumPy function element by element."""
    arrays = [x for x in operands if isinstance(x, Tiled)]
    if not arrays:
        raise RequestError(
            f"cannot use {function.__name__} of pgas: no operand is a global array; "
            "make one with pgas.asarray"
        )
    first = arrays[0]
    t = first.type
    memory = first.memory
    for x in arrays:
        if x.memory is not memory:
            check_alike(function.__name__, *arrays)
    if (arranger := current_arranger()) is not None and arranger.wants(memory):
        return arranger.call(_arranged(function, operands, arrays), arrays)
    if len(arrays) > 1 and any(x.type is not t and x.type != t for x in arrays[1:]):
        _check_together(function, arrays)
        arrays = [as_plain(x) for x in arrays]  # no layout suits dims with segments and others
        *ends, t = meet(tuple(x.type for x in arrays))
        operands = _with_arrays(operands, [move(x, e) for x, e in zip(arrays, ends, strict=True)])
    elif t.pending_op is not None and not (
        t.pending_op == "sum" and _is_linear(function, operands, array_dtype(t.dtype))
    ):
        arrays = [resolve_pending(x) for x in arrays]
        operands, t = _with_arrays(operands, arrays), arrays[0].type
    return _apply_in(function, operands, t)


def _with_arrays(operands: Sequence[Any], arrays: Sequence[Tiled]) -> tuple[Any, ...]:
    """The operands with other arrays in the places of theirs."""
    left = iter(arrays)
    return tuple(next(left) if isinstance(x, Tiled) else x for x in operands)


def _arranged(
    function: Callable[..., Any], operands: tuple[Any, ...], arrays: Sequence[Tiled]
) -> ArrangedCall:
    """The call as a plan sees it."""
    _check_together(function, arrays)
    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    dims = [range(len(shape) - x.ndim, len(shape)) for x in arrays]
    notation, sizes = label_dims([x.shape for x in arrays], dims, range(len(shape)))
    join = f"each {function.__name__}"
    is_linear = _is_linear(function, operands, arrays[0].dtype)
    if is_linear:
        join = "add" if len(arrays) == 2 else "negate"
    places = with_places(operands, [])

    def choose(types: tuple[ArrayType, ...]) -> ChosenTypes:
        first = types[0]
        if any(one != first for one in types):
            *ends, t = meet(types)
            return ChosenTypes(tuple(ends), t)
        if first.pending_op is None or (first.pending_op == "sum" and is_linear):
            return ChosenTypes(types, first)
        plain = resolved_type(first)
        return ChosenTypes((plain,) * len(types), plain)

    def run(given: Sequence[Tiled], made: ArrayType | None) -> Any:
        own = filled(places, given)
        return apply(function, *own) if made is None else _apply_in(function, own, made)

    form = EinForm(notation, sizes, join)
    numbers = numbers_in(operands)
    return ArrangedCall(
        function.__name__, run, form, choose, numbers=numbers, function=function, given=(places, {})
    )


def _apply_in(function: Callable[..., Any], operands: Sequence[Any], t: ArrayType) -> Any:
    """**Local.** Apply a function to operands that lie so that the result is of type ``t``."""
    first = next(x for x in operands if isinstance(x, Tiled))
    memory = first.memory
    tiles: list[Any] = []
    kinds: list[Any] = []
    for x in operands:
        if isinstance(x, Tiled):
            tiles.append(tile_in(x) if t.segments else x.tile)
            kinds.append(x.dtype)
        else:
            tiles.append(_scalar(function, x))
            kinds.append(type(x) if isinstance(x, SCALARS) else tiles[-1].dtype)
    dtype, function = tile_function(function, *kinds)
    result = with_dtype(t, dtype_of(dtype))
    if (tile_in(first) if t.segments else first.tile) is None:
        nothing = [
            np.empty(0, kind) if tile is None else tile
            for tile, kind in zip(tiles, kinds, strict=True)
        ]
        function(*nothing)  # an error there is one here too
        return first.new(result, None)
    if memory.is_plain:
        return first.new(result, _compute(function, tiles, result, memory))
    if memory.on_device:
        memory.check_room(result.tile_bytes)
        return first.new(result, on_device.compute_in(memory, function, tiles, kinds, dtype))
    return first.new(result, _note(function, tiles, result, memory))


def _is_linear(
    function: Callable[..., Any], operands: tuple[Any, ...], dtype: np.dtype[Any]
) -> bool:
    """Whether a function of sums gives a sum: they are added, subtracted, negated, or scaled by a number.

    The number is finite, none divides by 0 (a part that is 0 would become NaN), and all arrays and the result
    are of one dtype.
    """
    numbers = [x for x in operands if not isinstance(x, Tiled)]
    match function, len(operands) - len(numbers), operands:
        case (np.add | np.subtract, 2, _) | (np.negative | np.positive, 1, _) | (np.multiply, 1, _):
            pass
        case np.divide, 1, (Tiled(), number) if np.all(number):
            pass
        case _:
            return False
    if any(x.dtype != dtype for x in operands if isinstance(x, Tiled)):
        return False
    return (
        number_kind(dtype) in NUMBERS[1:]
        and not is_half(dtype)  # each result is rounded once: partial values would be rounded too
        and all(np.ndim(x) == 0 and bool(np.isfinite(x)) for x in numbers)
        and tile_function(function, *map(_kind_of, operands))[0] == dtype
    )


def _kind_of(x: Any) -> Any:
    """The dtype of an operand, or the type of a number of Python."""
    return type(x) if isinstance(x, SCALARS) else x.dtype


@left_alone
def update(function: Callable[..., Any], a: T, other: Any) -> T:
    """**Collective** if the other operand must move. Write ``function(a, other)`` into a's own tile."""
    here = resolve_pending(a)
    value: Any = other
    if isinstance(other, Tiled):
        check_alike(function.__name__, here, other)
        _check_together(function, [here, other])
        if np.broadcast_shapes(here.shape, other.shape) != here.shape:
            raise ShapeError(f"cannot update {here.shape} with {other.shape}: it would grow")
        if here.type.segments and other.shape == here.shape:
            value = move(other, here.type.with_dtype(other.type.dtype))
        else:
            value = move(as_plain(other), operand_type(as_plain(other).type, here.type))
    else:
        value = _scalar(function, other)
    kind = _kind_of(value)
    dtype, function = tile_function(function, here.dtype, kind)
    if not can_cast(dtype, here.dtype, "same_kind"):
        raise ArgumentTypeError(f"cannot update an array of {here.dtype} with values of {dtype}")
    own = tile_in(here)
    if own is not None:
        tile = tile_in(value) if isinstance(value, Tiled) else value
        if not here.memory.on_device:
            here.memory.call(function, own, tile, out=own, casting="same_kind")
        else:
            tiles = (own, tile)
            kinds = here.dtype, kind
            own[...] = on_device.compute_in(here.memory, function, tiles, kinds, dtype)
    a._take_over(here)
    return a


def _compute(
    function: Callable[..., Any], tiles: list[Any], result: ArrayType, memory: TileMemory
) -> Tile:
    n_bytes = result.tile_bytes
    if n_bytes < SHARED_FROM or not takes_out(function):
        memory.check_room(n_bytes)
        return np.asarray(function(*tiles))
    shape = np.broadcast_shapes(*(np.shape(tile) for tile in tiles))
    out = memory.empty(shape, array_dtype(result.dtype), n_bytes)
    return np.asarray(function(*tiles, out=out))


def _note(
    function: Callable[..., Any], tiles: list[Any], result: ArrayType, memory: TileMemory
) -> Tile:
    """**Local.** As :func:`_compute`, of tiles without bytes."""
    if result.tile_bytes < SHARED_FROM or not takes_out(function):
        return as_tile(memory.call(function, *tiles))
    shape = np.broadcast_shapes(*(np.shape(tile) for tile in tiles))
    out = memory.empty(shape, array_dtype(result.dtype), result.tile_bytes)
    return as_tile(memory.call(function, *tiles, out=out))


def _scalar(function: Callable[..., Any], x: Any) -> Any:
    if isinstance(x, SCALARS):
        return x
    if isinstance(x, (np.ndarray, np.generic)) and x.ndim == 0:
        return np.asarray(x)
    raise RequestError(
        f"cannot use {kind_of_value(x)} in {function.__name__} with a global array; "
        "make it global with pgas.asarray"
    )


def _check_together(function: Callable[..., Any], arrays: Sequence[Tiled]) -> None:
    check_one_mesh(function.__name__, *arrays)
    try:
        np.broadcast_shapes(*(x.shape for x in arrays))
    except ValueError:
        shapes = " and ".join(str(x.shape) for x in arrays)
        raise ShapeError(
            f"cannot use shapes {shapes} in {function.__name__}: they do not broadcast"
        ) from None


@asked
@takes_any_array
def astype(x: T, dtype: Any, /, *, copy: bool = True, device: Any = None) -> T:
    """**Collective** if a reduction is pending. Convert the values to another dtype."""
    if device is not None and is_gpu(device) != x.memory.on_device:
        x = to_device(x, device)
    kind = dtype_asked(dtype)
    if kind == x.dtype and not copy:
        return x
    x = resolve_pending(x)
    if x.memory.on_device and (is_stored(kind) or is_stored(x.dtype)) and kind != x.dtype:
        return to_device(astype(to_device(x, "cpu"), kind), "cuda")  # CuPy has no 8-bit floats
    t = with_dtype(x.type, dtype_of(kind))
    own = tile_in(x)
    if own is None:
        return x.new(t, None)
    return x.new(t, cast_tile(x.memory, own, kind, t.tile_bytes))
