"""Random keys, read and written, against NumPy.

As in ``mpirun -n 3 python -m tests.programs.pgas.indexing --n 300 --seed 0``.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI

from redist import pgas
from tests.programs.pgas.operands import Operands, difference, settings
from tests.programs.together import all_well, main


def a_slice(rng: Random, n: int) -> slice:
    """Any slice: outside too, and backwards."""
    lo, hi = (rng.choice([None, rng.randint(-n - 2, n + 2)]) for _ in range(2))
    return slice(lo, hi, rng.choice([None, 1, 2, 3, -1, -2, n + 1]))


def basic_key(rng: Random, shape: tuple[int, ...]) -> list[Any]:
    """Ints, slices, an ellipsis and new dims."""
    key: list[Any] = [
        rng.randint(-n, n - 1) if n and rng.random() < 0.3 else a_slice(rng, n) for n in shape
    ]
    if rng.random() < 0.4:
        lo = rng.randint(0, len(key))
        key[lo : rng.randint(lo, len(key))] = [Ellipsis]
    elif rng.random() < 0.3:
        key = key[: rng.randint(0, len(key))]
    if rng.random() < 0.3:
        key.insert(rng.randint(0, len(key)), None)
    return key


def array_key(rng: Random, operands: Operands, shape: tuple[int, ...]) -> list[Any]:
    """Some dims by integer arrays of shapes that broadcast."""
    wide = tuple(rng.choice([1, 2, 3, 5]) for _ in range(rng.randint(1, 2)))
    key: list[Any] = []
    for n in shape:
        way = rng.random()
        if n and (way < 0.5 or not key):
            own = wide[rng.randint(0, len(wide) - 1) :] if rng.random() < 0.5 else wide
            own = tuple(1 if rng.random() < 0.2 else k for k in own)
            key.append(operands.values.integers(-n, n, own))
        elif n and way < 0.6:
            key.append(rng.randint(-n, n - 1))
        else:
            key.append(a_slice(rng, n))
    if rng.random() < 0.3:
        key.insert(rng.randint(0, len(key)), Ellipsis)  # covers no dim, and still parts the arrays
    return key


def mask_key(rng: Random, operands: Operands, shape: tuple[int, ...]) -> list[Any]:
    """A mask over some dims, the others whole or in part."""
    lo = rng.randint(0, len(shape) - 1) if shape else 0
    hi = rng.randint(lo + 1, len(shape)) if shape else 0
    mask = np.asarray(operands.values.random(shape[lo:hi]) < rng.choice([0.1, 0.5, 0.9]))
    rest = [slice(None) if rng.random() < 0.7 else a_slice(rng, n) for n in shape[hi:]]
    return [slice(None)] * lo + [mask] + (rest if rng.random() < 0.5 else [])


def a_key(rng: Random, operands: Operands, shape: tuple[int, ...]) -> list[Any]:
    """Any key."""
    way = rng.random()
    if way < 0.5 or not shape or (0 in shape and way < 0.75):
        return basic_key(rng, shape)
    if way < 0.75:
        return array_key(rng, operands, shape)
    return mask_key(rng, operands, shape)


def distinct(key: list[Any], shape: tuple[int, ...]) -> bool:
    """Whether a key names no element twice."""
    at = np.arange(int(np.prod(shape))).reshape(shape)[tuple(key)]
    return np.unique(at).size == at.size


def case(operands: Operands) -> tuple[str, str | None]:
    """One key read and written: what, and what went wrong."""
    rng = operands.rng
    operands.change_mesh()
    whole = operands.numpy(operands.shape())
    a = operands.place(whole)
    key = a_key(rng, operands, whole.shape)
    given = tuple(
        operands.place(one) if isinstance(one, np.ndarray) and rng.random() < 0.4 else one
        for one in key
    )
    names = [
        str(g.type) if isinstance(g, pgas.Array) else repr(k)
        for g, k in zip(given, key, strict=True)
    ]
    what = f"{a.type}[{', '.join(names)}] {key}"
    want = whole[tuple(key)]
    wrong = difference(a[given if len(given) != 1 else given[0]], want)
    if wrong or not distinct(key, whole.shape):
        return what, wrong
    shape = want.shape[rng.randint(0, want.ndim) :]
    shape = tuple(1 if rng.random() < 0.15 else n for n in shape)
    value = operands.numpy(shape, whole.dtype.name)
    way = rng.random()
    a[given] = operands.place(value) if way < 0.6 else value
    after = whole.copy()
    after[tuple(key)] = value
    return f"{what} = {shape}", difference(a, after)


def errors(operands: Operands) -> str | None:
    """What is wrong with the errors: the same kind on all ranks, and all go on after them."""
    operands.mesh = operands.meshes[0]
    a = operands.place(np.zeros((4, 5)), pending=False)
    far = operands.place(np.array([0, 4]), pending=False)
    bad: list[tuple[Any, type[Exception]]] = [
        (4, IndexError),
        ((0, 0, 0), IndexError),
        ([1, 9], IndexError),
        ((far, far), IndexError),
        (1.5, IndexError),
        (np.zeros((4, 4), bool), IndexError),
        (([1, 2], [1, 2, 3]), IndexError),
    ]
    for key, kind in bad:
        try:
            a[key]
        except kind:
            continue
        return f"no error for {key}"
    try:
        a[1:3] = np.zeros((3, 5))
    except ValueError:
        return difference(a, np.zeros((4, 5)))
    return "values that do not fit were written"


CHECKS = ("keys", "errors")


def program() -> int:
    """0 if all keys do what NumPy does."""
    args = settings()
    comm = MPI.COMM_WORLD
    operands = Operands(comm, args.seed, args.tiles)
    wrong = 0
    for number in range(args.n):
        what, problem = case(operands)
        wrong += not all_well(comm, "keys", problem, f"{number}: {what}")
    wrong += not all_well(comm, "errors", errors(operands))
    if comm.rank == 0:
        print(f"{args.n - wrong} of {args.n} keys agree ({comm.size} ranks)", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
