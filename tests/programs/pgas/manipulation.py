"""Functions that give arrays other shapes and orders, on random operands, against NumPy.

As in ``mpirun -n 3 python -m tests.programs.pgas.manipulation --n 300 --seed 0``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas
from redist.layout.tiles import box_of
from tests.programs.pgas.operands import Operands, difference, settings
from tests.programs.pgas.rounds import names_of
from tests.programs.together import all_well, main

Check = Callable[[Operands], tuple[str, str | None]]


def _one(operands: Operands, least: int) -> Any:
    whole = operands.numpy(operands.shape(least))
    return whole, operands.place(whole)


def _axis(operands: Operands, ndim: int) -> int:
    return operands.rng.randint(-ndim, ndim - 1)


def reshape(operands: Operands) -> tuple[str, str | None]:
    """Any shape of the same size: dims split, joined, with ones between."""
    rng = operands.rng
    whole = operands.numpy(operands.shape(0, 4))
    factors = [f for n in whole.shape for f in _primes(n)]
    if rng.random() < 0.3:
        rng.shuffle(factors)
    shape: list[int] = []
    for f in factors:
        if shape and rng.random() < 0.5:
            shape[-1] *= f
        else:
            shape.append(f)
        if rng.random() < 0.15:
            shape.insert(rng.randint(0, len(shape)), 1)
    if shape and 0 not in shape and rng.random() < 0.3:
        shape[rng.randint(0, len(shape) - 1)] = -1
    a = operands.place(whole)
    return f"reshape {a.type} to {shape}", difference(pgas.reshape(a, shape), whole.reshape(shape))


def _primes(n: int) -> list[int]:
    out, p = [], 2
    while n > 1:
        while n % p == 0:
            out.append(p)
            n //= p
        p += 1
    return out or [n]


def flip(operands: Operands) -> tuple[str, str | None]:
    """Along one dim or all."""
    whole, a = _one(operands, 1)
    axis = operands.rng.choice([None, _axis(operands, whole.ndim)])
    return f"flip {a.type} {axis}", difference(pgas.flip(a, axis=axis), np.flip(whole, axis))


def roll(operands: Operands) -> tuple[str, str | None]:
    """Along no dim, one or several."""
    rng = operands.rng
    whole, a = _one(operands, 1)
    if rng.random() < 0.3:
        shift: Any = rng.randint(-20, 20)
        axis: Any = rng.choice([None, _axis(operands, whole.ndim)])
    else:
        axis = tuple(_axis(operands, whole.ndim) for _ in range(rng.randint(1, 3)))
        shift = tuple(rng.randint(-9, 9) for _ in axis)
    want = np.roll(whole, shift, axis)
    return f"roll {a.type} {shift} {axis}", difference(pgas.roll(a, shift, axis=axis), want)


def concat(operands: Operands) -> tuple[str, str | None]:
    """Two or three arrays, of several dtypes, in several layouts."""
    rng = operands.rng
    shape = operands.shape(1)
    axis = _axis(operands, len(shape))
    parts = []
    for _ in range(rng.randint(1, 3)):
        own = list(shape)
        own[axis] = rng.choice([0, 1, 2, 5])
        parts.append(operands.numpy(tuple(own), rng.choice(["int32", "float64"])))
    arrays = [operands.place(p) for p in parts]
    flat = rng.random() < 0.2
    want = np.concatenate(parts, axis=None if flat else axis)
    got = pgas.concat(arrays, axis=None if flat else axis)
    return f"concat {[str(a.type) for a in arrays]} {axis}", difference(got, want)


def stack(operands: Operands) -> tuple[str, str | None]:
    """Arrays in several layouts, and apart again."""
    shape = operands.shape(0, 2)
    parts = [operands.numpy(shape, "float64") for _ in range(operands.rng.randint(1, 3))]
    arrays = [operands.place(p) for p in parts]
    axis = operands.rng.randint(-len(shape) - 1, len(shape))
    what = f"stack {[str(a.type) for a in arrays]} {axis}"
    return what, difference(pgas.stack(arrays, axis=axis), np.stack(parts, axis))


def unstack(operands: Operands) -> tuple[str, str | None]:
    """Every part."""
    whole, a = _one(operands, 1)
    axis = _axis(operands, whole.ndim)
    got = pgas.unstack(a, axis=axis)
    want = [np.take(whole, i, axis) for i in range(whole.shape[axis])]
    if len(got) != len(want):
        return "unstack", f"{len(got)} parts"
    wrong = [difference(g, w) for g, w in zip(got, want, strict=True)]
    return f"unstack {a.type} {axis}", next((w for w in wrong if w), None)


def repeat(operands: Operands) -> tuple[str, str | None]:
    """As often for all, or for each."""
    rng = operands.rng
    whole, a = _one(operands, 1)
    axis = rng.choice([None, _axis(operands, whole.ndim)])
    n = whole.size if axis is None else whole.shape[axis]
    times: Any = rng.randint(0, 3)
    given = times
    if rng.random() < 0.5 and n != 1:
        times = operands.values.integers(0, 3, n)
        given = rng.choice([times, operands.place(times)])
    want = np.repeat(whole, times, axis)
    return f"repeat {a.type} {times} {axis}", difference(pgas.repeat(a, given, axis=axis), want)


def tile(operands: Operands) -> tuple[str, str | None]:
    """Fewer and more repetitions than dims."""
    whole, a = _one(operands, 0)
    times = tuple(operands.rng.choice([0, 1, 1, 2, 3]) for _ in range(operands.rng.randint(0, 4)))
    return f"tile {a.type} {times}", difference(pgas.tile(a, times), np.tile(whole, times))


def broadcast(operands: Operands) -> tuple[str, str | None]:
    """To a shape, and several to a common one."""
    rng = operands.rng
    shape = operands.shape(1)
    own = tuple(1 if rng.random() < 0.4 else n for n in shape[rng.randint(0, len(shape)) :])
    small, large = operands.numpy(own), operands.numpy(shape)
    a, b = operands.place(small), operands.place(large)
    if pgas.broadcast_shapes(own, shape) != shape:
        return f"shapes {own} {shape}", "another shape"
    wrong = difference(pgas.broadcast_to(a, shape), np.broadcast_to(small, shape))
    for got, want in zip(
        pgas.broadcast_arrays(a, b), np.broadcast_arrays(small, large), strict=True
    ):
        wrong = wrong or difference(got, want)
    return f"broadcast {a.type} {b.type}", wrong


def dims(operands: Operands) -> tuple[str, str | None]:
    """Dims that come, go and change places."""
    rng = operands.rng
    whole, a = _one(operands, 1)
    i, j = _axis(operands, whole.ndim), _axis(operands, whole.ndim)
    new = rng.randint(-whole.ndim - 1, whole.ndim)
    wrong = difference(pgas.moveaxis(a, i, j), np.moveaxis(whole, i, j))
    wide, more = pgas.expand_dims(a, axis=new), np.expand_dims(whole, new)
    wrong = wrong or difference(wide, more)
    wrong = wrong or difference(pgas.squeeze(wide, new), whole)
    ones = tuple(d for d, n in enumerate(whole.shape) if n == 1)
    wrong = wrong or difference(pgas.squeeze(a, ones), np.squeeze(whole, ones))
    return f"dims {a.type} {i} {j} {new}", wrong


def take(operands: Operands) -> tuple[str, str | None]:
    """Along a dim, the same for all rows or for each its own."""
    whole = operands.numpy(tuple(max(1, n) for n in operands.shape(1)))
    a = operands.place(whole)
    axis = _axis(operands, whole.ndim)
    n = whole.shape[axis]
    which = operands.values.integers(-n, n, operands.rng.choice([0, 1, 4, 9]))
    given = operands.rng.choice([which, operands.place(which)])
    wrong = difference(pgas.take(a, given, axis=axis), np.take(whole, which, axis))
    shape = list(whole.shape)
    shape[axis] = operands.rng.choice([1, 3, 6])
    each = operands.values.integers(-n, n, shape)
    got = pgas.take_along_axis(a, operands.place(each), axis=axis)
    return f"take {a.type} {axis}", wrong or difference(got, np.take_along_axis(whole, each, axis))


def halves(operands: Operands) -> tuple[str, str | None]:
    """Both sides of any diagonal."""
    whole, a = _one(operands, 2)
    k = operands.rng.randint(-5, 5)
    wrong = difference(pgas.tril(a, k=k), np.tril(whole, k))
    return f"halves {a.type} {k}", wrong or difference(pgas.triu(a, k=k), np.triu(whole, k))


def diff(operands: Operands) -> tuple[str, str | None]:
    """Several times, with something at the ends."""
    whole, a = _one(operands, 1)
    axis, n = _axis(operands, whole.ndim), operands.rng.randint(0, 3)
    ends: dict[str, Any] = {}
    for name in ("prepend", "append"):
        if operands.rng.random() < 0.3:
            shape = list(whole.shape)
            shape[axis] = operands.rng.choice([1, 2])
            ends[name] = operands.numpy(tuple(shape), whole.dtype.name)
    want = np.diff(whole, n, axis, **ends) if n or not ends else None
    if want is None:
        return "diff", None
    got = pgas.diff(a, axis=axis, n=n, **{k: operands.place(v) for k, v in ends.items()})
    return f"diff {a.type} {axis} {n} {list(ends)}", difference(got, want)


def nonzero(operands: Operands) -> tuple[str, str | None]:
    """Every dim."""
    whole, a = _one(operands, 1)
    got, want = pgas.nonzero(a), np.nonzero(whole)
    wrong = [difference(g, w) for g, w in zip(got, want, strict=True)]
    return f"nonzero {a.type}", next((w for w in wrong if w), None)


def meshgrid(operands: Operands) -> tuple[str, str | None]:
    """Of one to three dims."""
    n = operands.rng.randint(1, 3)
    parts = [operands.numpy(operands.shape(1, 1), "int32") for _ in range(n)]
    how: Any = operands.rng.choice(["xy", "ij"])
    arrays = [operands.place(p) for p in parts]
    got, want = pgas.meshgrid(*arrays, indexing=how), np.meshgrid(*parts, indexing=how)
    wrong = [difference(g, w) for g, w in zip(got, want, strict=True)]
    return f"meshgrid {[str(a.type) for a in arrays]}", next((w for w in wrong if w), None)


FUNCTIONS: list[Check] = [
    reshape, flip, roll, concat, reshape, stack, unstack, repeat, tile, reshape, broadcast, dims, take,
    halves, diff, nonzero, meshgrid,
]  # fmt: skip


def bytes_moved(comm: MPI.Comm) -> str | None:
    """What is wrong with the bytes received: each rank must get what it lacks and no more."""
    shape, after = (30, 7, 4), (14, 60)
    whole = np.arange(840.0).reshape(shape)
    number = np.arange(840)
    for text in ("{x}, {}, {}", "{}, {x}, {}", "{}, {}, {x}", "{}, {}, {}"):
        a = pgas.asarray(whole, type=text)
        for name, operation in {
            "reshape": (lambda v: pgas.reshape(v, after), lambda n: n.reshape(after)),
            "slice": (lambda v: v[3:, ::2, ::-1], lambda n: n[3:, ::2, ::-1]),
            "roll": (lambda v: pgas.roll(v, 1, axis=0), lambda n: np.roll(n, 1, 0)),
            "take": (lambda v: v[[1, 1, 1, 29, 0]], lambda n: n[[1, 1, 1, 29, 0]]),
        }.items():
            with redist.trace() as t:
                out = operation[0](a)
            held = _part(number.reshape(shape), a.type, comm.rank)
            needed = _part(operation[1](number.reshape(shape)), out.type, comm.rank)
            lacking = len(np.setdiff1d(needed, held)) * 8
            if t.received_bytes != lacking:
                return f"{name} of {a.type}: {t.received_bytes} bytes, lacking {lacking}"
    return None


def _part(whole: Any, t: Any, rank: int) -> Any:
    box = box_of(t, rank)
    assert box is not None
    return whole[tuple(slice(*ends) for ends in box)]


CHECKS = (*names_of(FUNCTIONS), "bytes_moved")


def program() -> int:
    """0 if all functions do what NumPy's do."""
    args = settings()
    comm = MPI.COMM_WORLD
    operands = Operands(comm, args.seed, args.tiles)
    wrong = 0
    for number in range(args.n):
        operands.change_mesh()
        function = FUNCTIONS[number % len(FUNCTIONS)]
        what, problem = function(operands)
        wrong += not all_well(comm, function.__name__, problem, f"{number}: {what}")
    wrong += not all_well(comm, "bytes_moved", bytes_moved(comm))
    if comm.rank == 0:
        print(f"{args.n - wrong} of {args.n} cases agree ({comm.size} ranks)", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
