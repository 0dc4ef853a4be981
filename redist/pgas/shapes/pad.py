"""Add elements around an array: a constant, its end values, or its elements repeated.

A dim is extended by runs of its own indices: forwards, backwards, or one index repeated, as NumPy pads a row
of indices. Each run is a slice, and all slices are joined::

    reflect, 2 on both sides of 0 1 2 3 4      2 1 | 0 1 2 3 4 | 3 2      slices [2:0:-1], [0:5], [3:1:-1]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError
from redist.pgas.creation import full
from redist.pgas.indexing import dispatch
from redist.pgas.shapes.join import concat
from redist.pgas.shapes.repeat import broadcast_to
from redist.pgas.shapes.take import take
from redist.pgas.tiles.arguments import takes_array
from redist.pgas.tiles.devices import kind_of
from redist.pgas.tiles.layouts import make_type
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.tiled import T, Tiled

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")
MOST_RUNS = 16
"""Where more runs of indices are added, as around very short dims, elements are taken one by one."""


@takes_array
def pad(x: T, /, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> T:
    """**Collective** if such a dim is cut. Add elements before and after those along each dim.

    ``pgas.pad(a, ((1, 1), (0, 2)), "reflect")``. ``pad_width`` is one number, a pair for all dims, or a pair
    for each, as in NumPy; so are ``constant_values``. ``mode`` is ``"constant"``, ``"edge"``,
    ``"reflect"``, ``"symmetric"`` or ``"wrap"``. The result is cut like the array, so elements move a little
    along a cut dim.
    """
    widths = _pairs("pad_width", pad_width, x.ndim)
    if mode not in MODES:
        raise ArgumentError(f"cannot pad by mode {mode!r}: known are {', '.join(MODES)}")
    if any(isinstance(n, float) or n != int(n) or n < 0 for pair in widths for n in pair):
        raise ArgumentError(f"cannot pad by {pad_width!r}: need ints >= 0")
    values = _pairs("constant_values", constant_values, x.ndim)
    if mode != "constant" and values != [(0, 0)] * x.ndim:
        raise ArgumentError(f"cannot use constant_values with mode={mode!r}: leave them out")
    x = resolve_pending(x)
    for dim, (before, behind) in enumerate(widths):
        if not before and not behind:
            continue
        if mode == "constant":
            x = _with_constants(x, dim, int(before), int(behind), values[dim])
        elif x.shape[dim] == 0:
            raise ArgumentError(
                f"cannot pad dim {dim} of size 0 by mode {mode!r}: it has no elements"
            )
        else:
            x = _with_own(x, dim, (int(before), int(behind)), mode)
    return x if any(map(any, widths)) else dispatch.get(x, ())


def _pairs(name: str, given: Any, ndim: int) -> list[tuple[Any, Any]]:
    """A pair of numbers for each dim.

    >>> _pairs("pad_width", 2, 2), _pairs("pad_width", (1, 0), 2), _pairs("pad_width", {-1: (3, 4)}, 2)
    ([(2, 2), (2, 2)], [(1, 0), (1, 0)], [(0, 0), (3, 4)])
    """
    if isinstance(given, Tiled):
        raise ArgumentTypeError(
            f"cannot use a global array as {name}: give numbers, as in n.tolist()"
        )
    if isinstance(given, dict):
        many = [(0, 0)] * ndim
        for dim, one in given.items():
            many[range(ndim)[dim]] = one if isinstance(one, tuple) else (one, one)
        given = many or 0
    try:
        rows = np.broadcast_to(np.asarray(given), (ndim, 2)).tolist()
    except ValueError:
        raise ArgumentError(
            f"cannot use {name}={given!r} for {ndim} dims: need one number, a pair, or a pair for each dim"
        ) from None
    return [(before, behind) for before, behind in rows]


def _with_constants(x: T, dim: int, before: int, behind: int, values: Sequence[Any]) -> T:
    """**Collective** if the dim is cut. The array with numbers around one dim."""

    def block(n: int, value: Any) -> list[Any]:
        sizes = tuple(n if i == dim else m for i, m in enumerate(x.shape))
        t = make_type(x.mesh, x.type.dtype, sizes, x.type.dims)
        number = x.dtype.type(value)
        made = full(sizes, number, dtype=x.dtype, type=t, comm=x.comm, device=kind_of(x))
        return [made] if n else []

    return concat([*block(before, values[0]), x, *block(behind, values[1])], axis=dim)


def _with_own(x: T, dim: int, widths: tuple[int, int], mode: Any) -> T:
    """**Collective** if the dim is cut. The array with elements of its own around one dim."""
    n, head = x.shape[dim], (slice(None),) * dim
    indices = np.pad(np.arange(n), widths, mode=mode)
    runs = _runs(indices[: widths[0]]), _runs(indices[widths[0] + n :])
    if sum(map(len, runs)) > MOST_RUNS:
        return take(x, indices, axis=dim)
    parts: list[Any] = []
    for run in runs[0] + [range(n)] + runs[1]:
        if isinstance(run, range):
            stop = run.stop if run.stop >= 0 else None
            whole = len(run) == n and run.step == 1
            parts.append(x if whole else dispatch.get(x, (*head, slice(run.start, stop, run.step))))
        else:
            end, times = run
            one = dispatch.get(x, (*head, slice(end, end + 1)))
            sizes = tuple(times if i == dim else m for i, m in enumerate(x.shape))
            parts.append(broadcast_to(one, sizes))
    return concat(parts, axis=dim)


def _runs(indices: Any) -> list[Any]:
    """Runs of neighbours, up or down, as ranges; of one index again and again, it and how often.

    >>> _runs(np.array([3, 2, 1, 2, 3])), _runs(np.array([0, 0, 0])), _runs(np.array([4]))
    ([range(3, 0, -1), range(2, 4)], [(0, 3)], [range(4, 5)])
    """
    found: list[Any] = []
    at = 0
    while at < len(indices):
        steps = np.diff(indices[at:])
        step = int(steps[0]) if len(steps) and abs(steps[0]) <= 1 else 1
        others = np.flatnonzero(steps != step)
        n = (int(others[0]) if len(others) else len(steps)) + 1
        first = int(indices[at])
        found.append(range(first, first + n * step, step) if step else (first, n))
        at += n
    return found
