"""Sorting, sets, searching and indexing by arrays on a GPU: NumPy's results, and no copies to memory.

As in ``mpirun -n 3 python -m tests.programs.pgas.order_on_gpus``, where NumPy stands for CuPy; with
``--cuda`` on a real GPU, and ``--times`` says how long calls of 16 million elements take there, and a sort
of 128 million, beside CuPy's own. With ``--small`` elements pass in many rounds, and
short lines count as long.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any
from unittest import mock

import numpy as np

import redist
from redist import pgas
from redist.errors import RedistError
from redist.pgas.ordering import lines
from redist.pgas.tiles import budget, select
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.elements.inspected import OPS
from tests.fakes import numpy_cupy
from tests.programs.pgas.drawing import xp
from tests.programs.pgas.numpy_on_gpus import on_gpu, timed
from tests.programs.together import main, run_named
from tests.tiers import THOROUGH

RNG = np.random.default_rng(7)
N = 6000
"""Elements of a line: many enough that samples of a sort are few beside them."""
SPECIAL = np.array([np.nan, -np.nan, -0.0, 0.0, np.inf, -np.inf], "f8")
ALL_DTYPES = ("f4", "u1", "bool", "c8", "f8", "f2", "i4", "i8", "c16")
DTYPES = ALL_DTYPES if THOROUGH or "--cuda" in sys.argv else ALL_DTYPES[:4]


def line_of(dtype: str) -> Any:
    """Values with what is special about a dtype, and many of some."""
    kind = np.dtype(dtype).kind
    if kind not in "fc":
        return RNG.integers(0, 2 if kind == "b" else 100, N).astype(dtype)
    values = np.round(RNG.normal(size=N), 2).astype(dtype)
    if kind == "c":
        values.imag = np.round(RNG.normal(size=N), 1)
        values.imag[RNG.integers(0, N, 12)] = np.repeat(SPECIAL, 2)
    values.real[RNG.integers(0, N, 24)] = np.tile(SPECIAL, 4)
    return values


LINES = {dtype: line_of(dtype) for dtype in DTYPES}
GRID = RNG.normal(size=(60, 50)).astype("f4")
PLACES = RNG.integers(-N, N, 4000)
MASK = RNG.random(N) < 0.3
ONES = RNG.permutation(N)[: N // 3]


def sorted_as(m: Any, a: Any) -> Any:
    """Sorted, and what is equal as it was."""
    return np.sort(a, kind="stable") if m is np else m.sort(a)


def distinct(a: Any) -> Any:
    """Of equal values the first; every NaN."""
    ordered = sorted_as(np, a)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])]


Call = Callable[[Any, Any], Any]
OF_LINES: dict[str, Call] = {
    "sort": lambda m, a: sorted_as(m, a),
    "sort down": lambda m, a: (
        np.flip(sorted_as(m, np.flip(a))) if m is np else m.sort(a, descending=True)
    ),
    "argsort": lambda m, a: np.argsort(a, kind="stable") if m is np else m.argsort(a),
    "unique_values": lambda m, a: distinct(a) if m is np else m.unique_values(a),
    "unique_counts": lambda m, a: (
        np.unique(a, return_counts=True, equal_nan=False)[1] if m is np else m.unique_counts(a)[1]
    ),
    "first places": lambda m, a: (
        np.unique(a, return_index=True, equal_nan=False)[1] if m is np else m.unique_all(a)[1]
    ),
    "unique_inverse": lambda m, a: (
        np.unique(a, return_inverse=True, equal_nan=False)[1] if m is np else m.unique_inverse(a)[1]
    ),
    "searchsorted": lambda m, a: m.searchsorted(m.sort(a), a[::3]),
    "searchsorted right": lambda m, a: m.searchsorted(m.sort(a), a[::3], side="right"),
    "nonzero": lambda m, a: m.nonzero(a)[0],
}
"""Of lines of every dtype."""
WITHOUT: dict[str, str] = {"first places": "fc", "unique_inverse": "fc"}
"""Kinds of dtypes whose results have no one order."""


def written(a: Any, key: Any, value: Any) -> Any:
    """A copy that was written to."""
    out = a.copy()
    out[key] = value
    return out


def device_array(values: Any) -> Any:
    """An array of CuPy's, alike on all ranks."""
    import cupy

    return cupy.asarray(values)


def moved_here(m: Any, values: Any) -> Any:
    return values if m is np else on_gpu(values)


OF_ARRAYS: dict[str, Callable[..., Any]] = {
    "isin": lambda m, a, g: m.isin(a, a[::5]),
    "places of CuPy": lambda m, a, g: a[PLACES if m is np else device_array(PLACES)],
    "mask of CuPy": lambda m, a, g: g[GRID[:, 0] > 0 if m is np else device_array(GRID[:, 0] > 0)],
    "values of CuPy": lambda m, a, g: m.searchsorted(
        m.sort(a), GRID if m is np else device_array(GRID)
    ),
    "mask": lambda m, a, g: a[moved_here(m, MASK)],
    "mask of NumPy": lambda m, a, g: a[MASK],
    "mask of rows": lambda m, a, g: g[moved_here(m, GRID[:, 0] > 0)],
    "mask of columns": lambda m, a, g: g[:, moved_here(m, GRID[0] > 0)],
    "mask of elements": lambda m, a, g: g[g > 0],
    "mask and a place": lambda m, a, g: g[moved_here(m, GRID[:, 0] > 0), 3],
    "number by mask": lambda m, a, g: written(g, g > 0, 7.0),
    "rows by mask": lambda m, a, g: written(g, moved_here(m, GRID[:, 0] > 0), -1.0),
    "values by mask": lambda m, a, g: written(a, moved_here(m, MASK), a[: MASK.sum()]),
    "places": lambda m, a, g: a[moved_here(m, PLACES)],
    "places of NumPy": lambda m, a, g: a[PLACES],
    "places in a grid": lambda m, a, g: a[moved_here(m, PLACES.reshape(80, 50))],
    "rows": lambda m, a, g: g[moved_here(m, PLACES % 60)],
    "few rows": lambda m, a, g: g[moved_here(m, PLACES[:9] % 60)],
    "columns": lambda m, a, g: g[:, moved_here(m, PLACES % 50)],
    "rows of NumPy": lambda m, a, g: g[PLACES % 60],
    "pairs": lambda m, a, g: g[moved_here(m, PLACES % 60), moved_here(m, PLACES % 50 - 50)],
    "a place and places": lambda m, a, g: g[5, moved_here(m, PLACES % 50)],
    "take": lambda m, a, g: m.take(g, moved_here(m, PLACES % 50), axis=1),
    "take_along_axis": lambda m, a, g: m.take_along_axis(g, m.argsort(g, axis=0), axis=0),
    "take along rows": lambda m, a, g: m.take_along_axis(g, m.argsort(g, axis=1), axis=1),
    "written by places": lambda m, a, g: written(a, moved_here(m, ONES), a[: len(ONES)]),
    "written often": lambda m, a, g: written(a, moved_here(m, PLACES), 3.0),
    "pairs written": lambda m, a, g: written(
        g, (moved_here(m, PLACES[:70] % 60), moved_here(m, PLACES[:70] % 50)), -2.0
    ),
    "rows written": lambda m, a, g: written(g, moved_here(m, np.arange(0, 60, 7)), g[:9]),
    "sort of rows": lambda m, a, g: m.sort(g, axis=1),
    "sort of columns": lambda m, a, g: m.sort(g, axis=0),
    "argsort of columns": lambda m, a, g: m.argsort(g, axis=0),
    "nonzero of two": lambda m, a, g: m.nonzero(g > 1)[1],
    "repeat": lambda m, a, g: m.repeat(g, moved_here(m, PLACES[:60] % 4), axis=0),
    "flip": lambda m, a, g: m.flip(a),
    "every third": lambda m, a, g: a[1:-2:3],
    "reshape": lambda m, a, g: m.reshape(g, (50, 60)),
    "roll": lambda m, a, g: m.roll(a, 1234),
    "nanmedian": lambda m, a, g: m.nanmedian(m.where(g > 0, g, m.nan), axis=0),
    "nanquantile": lambda m, a, g: m.nanquantile(m.where(g > 0, g, m.nan), 0.25),
}
"""Of a line of f4 and a grid."""
SIZES_DEPEND = ("mask", "unique", "nonzero", "first", "values by mask")
"""How calls begin whose results a program cannot have."""


class HostBytes:
    """Counts what CuPy is asked to bring to memory."""

    def __init__(self) -> None:
        self.n = 0

    def __enter__(self) -> HostBytes:
        import cupy

        bring = cupy.asnumpy

        def counted(array: Any, *args: Any, **options: Any) -> Any:
            self.n += array.nbytes
            return bring(array, *args, **options)

        self._patch = mock.patch.object(cupy, "asnumpy", counted)
        self._patch.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._patch.__exit__(None, None, None)


def differs(made: Any, want: Any) -> str | None:
    """What differs from NumPy's result: all bits but those of NaN, or a rounding where values are mixed."""
    made = made.settled()
    if not made.memory.on_device or (made.tile is not None and not is_device(made.tile)):
        return f"{made.type} has left the GPU"
    got, want = made.memory.host(made.gather()), np.asarray(want)
    if got.shape != want.shape or got.dtype.kind != want.dtype.kind:
        return f"{got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    if not np.array_equal(got, want, equal_nan=want.dtype.kind in "fc"):
        odd = np.flatnonzero(~np.isclose(got, want, rtol=0, atol=0, equal_nan=True))[:5]
        return f"at {odd}: {got.reshape(-1)[odd]}, not {want.reshape(-1)[odd]}"
    if want.dtype.kind == "f" and not np.array_equal(
        np.signbit(got[got == 0]), np.signbit(want[want == 0])
    ):
        return "other signs of zeros"
    return None


def compared(call: Callable[..., Any], arrays: tuple[Any, ...]) -> str | None:
    """Why a call on GPUs differs from NumPy's, or what it copies to memory."""
    want = call(np, *arrays)
    given = [on_gpu(one) for one in arrays]
    if "--cuda" in sys.argv:
        call(xp, *given)  # compiles, and joins the GPUs
    with HostBytes() as counted, redist.trace() as trace:
        made = call(xp, *given)
    copied = sum(one.copied_bytes for one in trace.copied.values())
    samples = sum(one.nbytes for one in arrays) // 4 if made.comm.size > 1 else 0
    if copied or counted.n > samples:
        return f"{copied} bytes copied to memory, and {counted.n} brought there"
    return differs(made, want)


def of_lines(name: str, call: Call) -> str | None:
    """A call on lines of all dtypes."""
    for dtype, line in LINES.items():
        if np.dtype(dtype).kind not in WITHOUT.get(name, ""):
            said = compared(call, (line,))
            if said:
                return f"{dtype}: {said}"
    return None


def in_programs() -> str | None:
    """Calls in programs, as written, but those whose sizes depend on values."""
    a, g = LINES["f4"], GRID
    given = [on_gpu(one) for one in (a, g)]
    both = {name: lambda m, a, g, f=f: f(m, a) for name, f in OF_LINES.items()} | OF_ARRAYS
    for name, call in [*both.items()][:: 1 if THOROUGH else 4]:
        if name.startswith(SIZES_DEPEND) or {"moved_here", "device_array"} & {
            *call.__code__.co_names
        }:
            continue
        made = xp.program(partial(call, xp), layouts="as written")(*given)
        said = differs(made, call(np, a, g))
        if said:
            return f"{name}: {said}"
    return None


TAKEN: dict[str, Callable[[Any, Any], Any]] = {
    "rows": lambda x, w: x[moved_to(x, PLACES[:40] % 60)] * w[:40],
    "pairs": lambda x, w: x[moved_to(x, PLACES % 60), moved_to(x, PLACES % 50)] * w[0, 0],
    "pairs of small integers": lambda x, w: (
        x[moved_to(x, (PLACES % 60).astype("u1")), moved_to(x, (PLACES % 50).astype("i4"))]
        * w[0, 0]
    ),
    "mask": lambda x, w: x[moved_to(x, GRID[:, 0] > 0)] * 2.0,
    "rows by lists": lambda x, w: x.get(moved_to(x, PLACES[:40] % 60)) * w[:40],
    "sorted": lambda x, w: xp.sort(x, axis=0) * w,
    "largest": lambda x, w: xp.topk(x, 3, axis=0).values * w[:3],
}


def moved_to(x: Any, values: Any) -> Any:
    """Indices where an array is."""
    return on_gpu(values) if x.memory.on_device else xp.asarray(values)


def gradients() -> str | None:
    """Gradients of indexing have the bits of those in memory, and come back without it."""
    for dtype in ("f4", "f8", pgas.bfloat16, "f2"):
        x, w = (xp.astype(xp.asarray(one), dtype) for one in (GRID, GRID[::-1].copy()))
        there = x.to_device("cuda"), w.to_device("cuda")
        for name, call in TAKEN.items():
            found = xp.grad(lambda x, w, f=call: xp.sum(f(x, w)))
            want = found(x, w).settled().gather()
            with redist.trace() as trace:
                made = found(*there).settled()
            got = made.memory.host(made.gather())
            if trace.copied or not made.memory.on_device:
                return f"{name} of {dtype}: copied to memory"
            if got.astype("f8").tolist() != want.astype("f8").tolist():
                return f"{name} of {dtype}: other values"
    return None


def by_lists() -> str | None:
    """Reads at indices in a program: inspected once; when lists are joined, all stays on the GPU."""
    a, rows = LINES["f4"], PLACES % len(GRID)
    x, g, i, r = (on_gpu(one) for one in (a, GRID, PLACES, rows))

    def several(x: Any, g: Any, i: Any, r: Any) -> Any:
        return x.get(i) + x.get((i + 1) % N), g.get(r), g.get((r, r % 50))

    wants = a[PLACES] + a[(PLACES + 1) % N], GRID[rows], GRID[rows, rows % 50]
    step = xp.program(several, layouts="as written")
    for call in range(3):
        with HostBytes() as counted, redist.trace() as trace:
            made = step(x, g, i, r)
        found = trace.by_lists.values()
        told, passed = sum(one.inspected for one in found), sum(one.exchanges for one in found)
        if (told, passed) != (0 if call else 4, 3) or (call == 2 and counted.n):
            return f"call {call}: {told} inspected, {passed} exchanges, {counted.n} bytes to memory"
        said = next(filter(None, map(differs, made, wants)), None)
        if said:
            return f"call {call}: {said}"
    slope = xp.program(lambda x, i: xp.sum(x.get(i) * 3.0), layouts="as written").grad()
    said = differs(slope(x, i), 3 * np.bincount(PLACES % N, minlength=N).astype("f4"))
    return said or next(filter(None, map(differs, several(x, g, i, r), wants)), None)


def written_by_lists() -> str | None:
    """What is written at indices has the bits of arrays in memory, and values pass from GPU to GPU."""
    mesh = redist.Mesh(x=xp.asarray(GRID).comm.size)
    cases = [*product(OPS, ("f4", "f8", "i4", "f2", "c8"))]
    for number, (op, dtype) in enumerate(cases[:: 1 if THOROUGH or "--cuda" in sys.argv else 4]):
        rows = RNG.permutation(60)[:40] if op == "replace" else PLACES[:300] % 60 - 30
        if (op, dtype) == ("prod", "c8"):
            continue  # NumPy's own products of complex numbers round once or twice
        factor = 10 if dtype == "i4" else 1
        start, given = ((factor * one).astype(dtype) for one in (GRID, GRID[np.abs(rows) % 60]))
        lies = ("{x}, {}", "{}, {x}", "{}, {}")[number % 3]
        before, values, at = (xp.asarray(one, mesh=mesh) for one in (start, given, rows))
        before = before.to(lies)

        def change(a: Any, i: Any, v: Any, op: str = op) -> Any:
            b = a.copy()
            b.accumulate(i, v, op)
            b.accumulate((i[:9], i[:9] % 50), v[:9, 0], op)
            return b

        step, want = xp.program(change, layouts="as written"), change(before, at, values)
        there = [one.to_device("cuda") for one in (before, at, values)]
        for call in range(3):
            with HostBytes() as counted:
                made = (change if call == 2 else step)(*there)
            if call == 1 and counted.n:
                return f"{op} of {dtype}: {counted.n} bytes to memory"
            got = made.memory.host(made.gather())
            if not made.memory.on_device or got.tobytes() != want.gather().tobytes():
                return f"{op} of {dtype} into {lies}, call {call}: other bits than in memory"
    return None


def outside() -> str | None:
    """Indices outside an array are refused on all ranks, and nothing is written."""
    a = on_gpu(LINES["f4"])
    bad = on_gpu(np.array([0, N, 3]))
    calls: list[Callable[[], Any]] = [lambda: a[bad], lambda: a.__setitem__(bad, 1.0)]
    calls += [lambda: xp.take_along_axis(a, bad, axis=0)]
    for number, call in enumerate(calls):
        try:
            call()
        except (IndexError, RedistError):
            continue
        return f"call {number}: no error"
    return differs(a, LINES["f4"])


def say_times() -> None:
    """Milliseconds of calls on a GPU, the least of five, beside CuPy's of all values on one."""
    import cupy

    random = cupy.random.default_rng(0)
    many, values = (random.standard_normal(2**k, dtype="f4") for k in (27, 24))
    at = random.integers(0, 2**24, 2**22)
    mask, few, grid = values > 0, values[: 2**22], values.reshape(2**12, 2**12)
    ordered, columns = cupy.sort(values), cupy.argsort(grid, axis=1)
    x, big, y, i, b, s, g, c = (
        xp.asarray(one, device="cuda")
        for one in (values, many, few, at, mask, ordered, grid, columns)
    )

    def put(a: Any, key: Any, value: Any) -> None:
        a[key] = value

    known: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "sort of 2^27": (lambda: xp.sort(big), lambda: cupy.sort(many)),
        "sort": (lambda: xp.sort(x), lambda: cupy.sort(values)),
        "sort of rows": (lambda: xp.sort(g, axis=1), lambda: cupy.sort(grid, axis=1)),
        "argsort": (lambda: xp.argsort(x), lambda: cupy.argsort(values)),
        "unique_values": (lambda: xp.unique_values(x), lambda: cupy.unique(values)),
        "unique_counts": (
            lambda: xp.unique_counts(x),
            lambda: cupy.unique(values, return_counts=True),
        ),
        "unique_inverse": (
            lambda: xp.unique_inverse(x),
            lambda: cupy.unique(values, return_inverse=True),
        ),
        "unique_all": (
            lambda: xp.unique_all(x),
            lambda: cupy.unique(values, True, True, True),
        ),
        "searchsorted": (lambda: xp.searchsorted(s, y), lambda: cupy.searchsorted(ordered, few)),
        "isin": (lambda: xp.isin(x, y), lambda: cupy.isin(values, few)),
        "nonzero": (lambda: xp.nonzero(b), lambda: cupy.nonzero(mask)),
        "mask": (lambda: x[b], lambda: values[mask]),
        "number by mask": (lambda: put(x, b, 1.0), lambda: put(values, mask, 1.0)),
        "places": (lambda: x[i], lambda: values[at]),
        "take": (lambda: xp.take(x, i), lambda: cupy.take(values, at)),
        "rows": (lambda: g[i[:4096] % 4096], lambda: grid[at[:4096] % 4096]),
        "written by places": (lambda: put(x, i, y), lambda: put(values, at, few)),
        "take_along_axis": (
            lambda: xp.take_along_axis(g, c, axis=1),
            lambda: cupy.take_along_axis(grid, columns, axis=1),
        ),
    }
    for name, (ours, theirs) in known.items():
        both = [min(timed(call) for _ in range(5)) * 1e3 for call in (ours, theirs)]
        if x.comm.rank == 0:
            ratio = both[0] / both[1]
            print(f"{name}: {both[0]:.2f} ms, CuPy {both[1]:.2f} ms, {ratio:.2f}", flush=True)


LAST = (in_programs, gradients, by_lists, written_by_lists, outside)
CHECKS = (*OF_LINES, *OF_ARRAYS, *(one.__name__ for one in LAST))


def program() -> int:
    """0 if all agree."""
    if "--small" in sys.argv:
        budget.ON_GPU_ELEMS, select.ON_GPUS_BYTES, lines.LONG_LINE = 700, 4096, 50
    if "--cuda" not in sys.argv:
        numpy_cupy.install()
    elif "--times" in sys.argv:
        say_times()
    calls: dict[str, Callable[[], str | None]] = {
        name: partial(of_lines, name, one) for name, one in OF_LINES.items()
    }
    arrays = LINES["f4"], GRID
    calls.update({name: partial(compared, one, arrays) for name, one in OF_ARRAYS.items()})
    return run_named({**calls, **{one.__name__: one for one in LAST}})


if __name__ == "__main__":
    main(program)
