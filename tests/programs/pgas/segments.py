"""Global arrays whose dims have segments: what works on them, and that nothing takes a tile for a box."""

from __future__ import annotations

import tempfile
import warnings
from types import FunctionType
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import ArrayType, CaptureError, Mesh, RedistError, pgas
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
N = COMM.size
MESH = Mesh(x=N)
X: Any = pgas
ROWS = 6 * N + 5
WHOLE = np.random.default_rng(0).integers(1, 9, size=(ROWS, 4)).astype(float)
KINDS = (
    f"{3 * N}{{x}}+{3 * N}{{x}}+5, {{}}",
    "{x/2}, {}",
    "{}, 2{x}*2",
    f"{{x={';'.join(['0'] * (N - 1) + [str(ROWS)])}}}, {{}}",
    f"5+{N}*6{{x}}, {{}}",
)
"""Fused, dealt, factorised, ragged and with a part that all ranks have."""


def plain() -> Any:
    return X.asarray(WHOLE, type=ArrayType.parse(f"f64[{ROWS}{{x}}, 4]", MESH))


def same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))


def borders() -> str | None:
    """Arrays go to such types and back, are made of tiles, gathered, copied and printed."""
    for kind in KINDS:
        y = plain().to(kind)
        spans = redist.spans_of(y.type, COMM.rank)
        assert spans is not None
        own = WHOLE[
            np.ix_(*(np.concatenate([np.arange(*s) for s in (*dim, (0, 0))]) for dim in spans))
        ]
        again = X.from_local(y.local.copy(), y.type)
        there = y.to("{}, {x}")
        if not (same(y.local, own) and same(y.gather(), WHOLE) and same(there.gather(), WHOLE)):
            return f"{y.type} has other values"
        if (
            again.type != y.type
            or not same(again.gather(), WHOLE)
            or not same(y.copy().gather(), WHOLE)
        ):
            return f"{y.type} made of tiles, or copied, has other values"
        if str(y.type) not in repr(y) or y.astype("float32").type != y.type.with_dtype("f32"):
            return f"{y.type} prints {y!r}"
    return None


def files() -> str | None:
    """Files have the values in order, however the array lies."""
    folder = COMM.bcast(tempfile.mkdtemp() if COMM.rank == 0 else None)
    for kind in KINDS:
        y = plain().to(kind)
        X.write_npy(f"{folder}/a.npy", y)
        X.write_csv(f"{folder}/a.csv", y)
        text = np.loadtxt(f"{folder}/a.csv", delimiter=",")
        if not same(X.read_npy(f"{folder}/a.npy").gather(), WHOLE) or not same(text, WHOLE):
            return f"a file of {y.type} has other values"
        COMM.Barrier()
    return None


def element_wise() -> str | None:
    """Functions of arrays of one type are local; of several types they move what they must."""
    for kind in KINDS:
        x, y = plain(), plain().to(kind)
        with redist.trace() as seen:
            z = X.exp(y * 2.0 - y) / (1.0 + y)
        if seen.received_bytes or z.type != y.type:
            return f"{y.type}: {seen.received_bytes} bytes moved, the result is {z.type}"
        if not np.allclose(z.gather(), np.exp(WHOLE) / (1.0 + WHOLE)):
            return f"{y.type}: other values"
        if not same((x + y).gather(), 2 * WHOLE) or not same((y + x).gather(), 2 * WHOLE):
            return f"{y.type} and {x.type}: other values"
        y += x
        if not same(y.gather(), 2 * WHOLE):
            return f"{y.type}: other values after an update"
    return None


def products() -> str | None:
    """A fused weight is multiplied where it lies: segments of the result are those of the weight."""
    rng = np.random.default_rng(1)
    left, weight = rng.normal(size=(5, 4)), rng.normal(size=(4, 4 * N + 3))
    a = X.asarray(left, type=ArrayType.parse("f64[5, 4]", MESH))
    w = X.asarray(weight, type=ArrayType.parse(f"f64[4, {2 * N}{{x}}+{2 * N}{{x}}+3]", MESH))
    back = X.asarray(weight.T, type=ArrayType.parse(f"f64[{4 * N + 3}{{x/2}}, 4]", MESH))
    with redist.trace() as seen:
        y = a @ w
    if seen.received_bytes or y.type.segments_of(1) != w.type.segments_of(1):
        return f"a product moved {seen.received_bytes} bytes, the result is {y.type}"
    if not np.allclose(y.gather(), left @ weight):
        return "a product has other values"
    dealt = (left @ weight).copy()
    z = X.asarray(dealt, type=ArrayType.parse(f"f64[5, {4 * N + 3}{{x/2}}]", MESH)) @ back
    if N > 1 and z.type.pending_op != "sum":
        return f"a contracted dim that is dealt alike gives {z.type}"
    if not np.allclose(z.gather(), dealt @ weight.T) or not np.allclose(
        (y @ back).gather(), dealt @ weight.T
    ):
        return "a contraction has other values"
    return None


def pending() -> str | None:
    """Sums of parts of segments stay pending while functions are linear, and are resolved for others."""
    if N % 2:
        return None
    mesh = Mesh(tp=N // 2, y=2)
    rng = np.random.default_rng(2)
    left, weight = rng.normal(size=(3, 4)), rng.normal(size=(4, 3 * N))
    a = X.asarray(left, type=ArrayType.parse("f64[3, 4{y}]", mesh))
    w = X.asarray(weight, type=ArrayType.parse(f"f64[4{{y}}, {2 * N}{{tp}}+{N}]", mesh))
    p, want = a @ w, left @ weight
    if p.type.pending_op != "sum" or (p + p * 2.0).type != p.type:
        return f"{p.type} and {(p + p * 2.0).type}"
    other = X.asarray(want, type=ArrayType.parse(f"f64[3{{y}}, {3 * N}]", mesh))
    found = (p * 2.0 - p).gather(), X.exp(p).gather(), (p + other).gather()
    right = all(map(np.allclose, found, (want, np.exp(want), 2 * want)))
    one_part = left * [1, 1, 0, 0]  # that of the others is 0
    with np.errstate(divide="ignore"):
        infinite = X.asarray(one_part, type=ArrayType.parse("f64[3, 4{y}]", mesh)) @ w / 0.0
        right = right and np.array_equal(infinite.gather(), one_part @ weight / 0.0)
    return None if right else f"{p.type} gives other values"


def ragged_masks() -> str | None:
    """What a mask keeps stays on its ranks when asked, and is the same as what it keeps otherwise."""
    keep = WHOLE[:, 0] > 3
    x = plain()
    for mask in (keep, X.asarray(keep)):
        with redist.trace() as seen:
            few = X.compress(mask, x, ragged=True)
        if not same(few.gather(), WHOLE[keep]) or not same(
            X.compress(mask, x).gather(), WHOLE[keep]
        ):
            return f"{few.type} has other values"
        if mask is keep and seen.received_bytes > 64 * N * N:
            return f"{seen.received_bytes} bytes moved"
        even = few.to("{x}, {}")
        if even.type.segments or not same(even.gather(), WHOLE[keep]):
            return f"{even.type} has other values"
    return None


SKIPPED = {"empty_like", "program", "repeat", "map_tiles", "trace", "save", "show_trace"}


def every_function() -> str | None:
    """Every function of one array gives what it gives of a plain one, or refuses; none is wrong."""
    x = plain()
    warnings.simplefilter("ignore")
    for kind in (KINDS[0], KINDS[4]):
        y = plain().to(kind)
        for name in sorted(X.__all__):
            function = getattr(X, name)
            if not isinstance(function, FunctionType) or name in SKIPPED:
                continue
            try:
                wanted = function(x)
            except Exception:
                continue
            try:
                found = function(y)
            except RedistError:
                continue
            if not _alike(wanted, found):
                return f"{name} of {y.type} gives {found!r}, not {wanted!r}"
    return None


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, X.Array):
        a, b = a.gather(), b.gather()
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and bool(np.allclose(a, b, equal_nan=True))
    return type(a) is type(b)


def refusals() -> str | None:
    """What cannot be done says so, on every rank; one rank has nothing but plain types."""
    if N == 1:
        return None
    y = plain().to(KINDS[0])

    def update() -> None:
        y[0:2] = 1.0

    calls: dict[str, tuple[Any, type[Exception], str]] = {
        "put": (update, RedistError, "plain type first"),
        "program": (lambda: X.program(lambda a: a + 1)(y), CaptureError, "is not captured"),
        "box": (lambda: y.box, RedistError, "redist.spans_of"),
    }
    for name, (call, kind, words) in calls.items():
        try:
            call()
        except kind as error:
            if words not in str(error):
                return f"{name}: {error}"
        else:
            return f"{name} is not refused"
    return None


CHECKS = {
    "borders": borders,
    "files": files,
    "element_wise": element_wise,
    "products": products,
    "pending": pending,
    "ragged_masks": ragged_masks,
    "every_function": every_function,
    "refusals": refusals,
}


def program() -> int:
    """0 if every check holds."""
    return run_named(CHECKS)


if __name__ == "__main__":
    main(program)
