"""Element by element on tiles of a GPU: CuPy's functions, with NumPy's dtypes and errors.

NumPy hands its functions on to CuPy. Integers become the result's dtype first where NumPy computes with
it. What CuPy lacks, and complex functions that differ from NumPy's at their limits, are done in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from redist.pgas.elementwise.rounded import ON_ITS_GRID, Rounded
from redist.pgas.elementwise.standard_limits import floor_divide
from redist.pgas.kinds import F32, is_half, number_kind
from redist.pgas.memory import DEVICE, TileMemory
from redist.pgas.tiles.tiled import Tile
from redist.pgas.watch.seam import CopiedRows, traffic
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import filled_on_device
from redist.runtime.cuda.elements import ITEMS, ElementStep, can_fuse, run_steps
from redist.text.call_site import calling_line

COMPLEX = {
    "absolute", "add", "conj", "conjugate", "cos", "divide", "equal", "exp", "imag", "isfinite",
    "isinf", "isnan", "logical_and", "logical_not", "logical_or", "logical_xor", "multiply",
    "negative", "not_equal", "positive", "real", "sin", "square", "subtract", "where",
}  # fmt: skip
"""Functions of complex numbers that CuPy computes as NumPy does."""
WHOLE = {"ceil", "floor", "round", "trunc"}
"""Functions that leave integers as they are."""
IN_WORDS = {"add", "divide", "multiply", "subtract"}
"""Of f32, our kernel has the same bits and reads wide words, where CuPy's reads an element at a time."""
LEAST_IN_WORDS = 2**20
"""An array of fewer elements is not worth it."""
COMPARISONS = {"equal", "greater", "greater_equal", "less", "less_equal", "not_equal"}


def compute_in(
    memory: TileMemory,
    function: Callable[..., Any],
    tiles: Sequence[Any],
    kinds: Sequence[Any],
    dtype: np.dtype[Any],
) -> Tile:
    """**Local.** As :func:`compute`; of ghosts, a note of it."""
    if memory.is_ghost:
        return memory.compute(function, tiles, kinds, dtype)  # type: ignore[attr-defined]
    return compute(function, tiles, kinds, dtype)


def is_plain(function: Callable[..., Any], tiles: Sequence[Any], dtype: np.dtype[Any]) -> bool:
    """**Local.** Whether CuPy does by itself what :func:`compute` would let it do."""
    return (
        isinstance(function, np.ufunc)
        and number_kind(dtype) in "fc"
        and all(
            one.dtype == dtype if is_device(one) else type(one) in (int, float) for one in tiles
        )
        and function.__name__ not in {"remainder", *WHOLE}
        and not _in_memory(function.__name__, tiles)
    )


def compute(
    function: Callable[..., Any], tiles: Sequence[Any], kinds: Sequence[Any], dtype: np.dtype[Any]
) -> Tile:
    """**Local.** Apply a function to tiles on a GPU and numbers, of the dtypes and types ``kinds``.

    ``dtype`` is what NumPy gives.
    """
    if isinstance(function, Rounded):
        return _compute_rounded(function, tiles, kinds)
    numbers = [one for one in tiles if not is_device(one)]
    if numbers:
        empties = (
            np.empty(0, kind) if is_device(one) else one
            for one, kind in zip(tiles, kinds, strict=True)
        )
        function(*empties)  # NumPy's errors for numbers that do not fit
    name = function.__name__
    if name in IN_WORDS and dtype == F32:
        made: Tile | None = _compute_in_words(name, tiles)
        if made is not None:
            return made
    if _in_memory(name, tiles) or (name == "remainder" and _is_infinite(tiles[1])):
        return _compute_in_memory(function, tiles)
    dtypes = [one.dtype for one in tiles if is_device(one)]
    if name in WHOLE and dtypes[0].kind in "biu":
        return tiles[0].astype(dtype)
    given = [one if is_device(one) else _number(one, dtypes) for one in tiles]
    if name == "where" and not is_device(given[0]):
        given[0] = filled_on_device((), bool(given[0]), np.dtype(bool))
    if number_kind(dtype) in "fc" and name != "where":
        given = [
            one.astype(dtype) if is_device(one) and number_kind(one.dtype) in "iu" else one
            for one in given
        ]
    try:
        out = _floor_divide(*given) if function is floor_divide else function(*given)
    except TypeError:  # NumPy has it for these dtypes, CuPy has not
        return _compute_in_memory(function, tiles)
    out = out if out.dtype == dtype else out.astype(dtype)
    own = out.base is not None or any(out is one for one in tiles)
    return out.copy() if own else out


def _compute_rounded(function: Rounded, tiles: Sequence[Any], kinds: Sequence[Any]) -> Tile:
    """**Local.** A function of 16-bit floats, rounded once: in one kernel, else of f32 copies."""
    name = function.__name__
    fits = can_fuse(name, [one.dtype for one in tiles if is_device(one)])
    if fits and function.dtype.name in ITEMS:
        step = ElementStep(name, tuple(range(len(tiles))), function.dtype.name)
        out: Tile | None = run_steps(tiles, [step])
        if out is not None:
            return out
    given = [
        one if new is None or not hasattr(one, "astype") else one.astype(new)
        for one, new in zip(tiles, function.given, strict=True)
    ]
    wide = [kind if new is None else new for kind, new in zip(kinds, function.given, strict=True)]
    if function.function in ON_ITS_GRID:
        return _compute_in_memory(function.function, given)
    dtype = F32 if is_half(function.dtype) else function.dtype
    made = compute(function.function, given, wide, dtype)
    return made if made.dtype == function.dtype else made.astype(function.dtype)


def _compute_in_words(name: str, tiles: Sequence[Any]) -> Tile | None:
    """**Local.** The function of large arrays of f32 and numbers, by our kernel; None of others."""
    arrays = [one for one in tiles if is_device(one)]
    numbers = [one for one in tiles if not is_device(one)]
    if (
        not all(one.dtype == F32 for one in arrays)
        or max(one.size for one in arrays) < LEAST_IN_WORDS
        or not all(isinstance(one, (int, float, np.float32)) for one in numbers)
    ):
        return None
    return run_steps(tiles, [ElementStep(name, tuple(range(len(tiles))), F32.name)])


def _number(x: Any, dtypes: Sequence[np.dtype[Any]]) -> Any:
    """Convert a number for CuPy: to Python's own if its dtype changes nothing, else to a 0-d array."""
    if not isinstance(x, (np.ndarray, np.generic)):
        return x
    if x.dtype in dtypes:
        return x.item()
    return filled_on_device((), x.item(), x.dtype)


def _in_memory(name: str, tiles: Sequence[Any]) -> bool:
    if any(
        np.iscomplexobj(one) if not is_device(one) else number_kind(one.dtype) == "c"
        for one in tiles
    ):
        return name not in COMPLEX
    long = {
        number_kind(one.dtype) for one in tiles if hasattr(one, "dtype") and one.dtype.itemsize == 8
    }
    return name in COMPARISONS and long >= {"i", "u"}


def _compute_in_memory(function: Callable[..., Any], tiles: Sequence[Any]) -> Tile:
    n_bytes = sum(one.nbytes for one in tiles if is_device(one))
    traffic().note(calling_line(), CopiedRows(1, n_bytes))
    return DEVICE.asarray(function(*(DEVICE.host(one) if is_device(one) else one for one in tiles)))


def _floor_divide(x1: Any, x2: Any) -> Any:
    """Divide and round down; one infinity and one finite number give the standard's quotient."""
    down = np.floor_divide(x1, x2)
    if number_kind(down.dtype) != "f":
        return down
    return np.where(np.not_equal(_infinite(x1), _infinite(x2)), np.true_divide(x1, x2), down)


def _is_infinite(x: Any) -> bool:
    """Whether an infinity is among the values: CuPy's remainders by it are no numbers."""
    if not is_device(x):
        return not isinstance(x, int) and bool(np.isinf(x))
    return number_kind(x.dtype) == "f" and bool(np.isinf(x).any())


def _infinite(x: Any) -> Any:
    return np.isinf(x) if is_device(x) else bool(np.isinf(x))
