"""Programs against the functions that they were made of, on operands of every layout.

As written they agree bit for bit, types included; in planned layouts integers, truth values and what is only
moved or chosen do, and floats within an error that follows from how many are added.

As in ``mpirun -n 3 python -m tests.programs.pgas.programs --n 100 --seed 0``.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from mpi4py import MPI

from redist import CaptureError, RedistError, pgas
from redist.pgas.global_array import Array
from redist.runtime.cuda.arrays import to_host
from tests.programs.pgas.calls import CASES as STANDARD
from tests.programs.pgas.calls import Operands
from tests.programs.pgas.drawing import Draw, xp
from tests.programs.pgas.numpy_calls import STATISTICS
from tests.programs.together import all_well, main
from tests.tiers import THOROUGH

CASES = {**STANDARD, **STATISTICS}
REFUSED = {
    "unique_all", "unique_inverse", "nonzero", "compress", "__bool__", "__int__", "__float__", "__complex__",
    "__index__", "__contains__", "__array__", "bincount",
}  # fmt: skip
"""Functions whose result depends on values: no program has them."""


def copied(array: Any) -> Any:
    """The same values in tiles of its own, also if a reduction is pending."""
    return array.copy() if isinstance(array, Array) else array


def arrays_in(thing: Any) -> list[Any]:
    """The arrays of a result, in order."""
    if isinstance(thing, (tuple, list)):
        return [one for part in thing for one in arrays_in(part)]
    return [thing]


Differ = Callable[[Any, Any], str | None]


def first_unlike(got: Any, want: Any, differ: Differ) -> str | None:
    """In what two results differ first; ``differ`` says it of two arrays."""
    mine, theirs = arrays_in(got), arrays_in(want)
    if len(mine) != len(theirs):
        return f"{len(mine)} results, not {len(theirs)}"
    for one, other in zip(mine, theirs, strict=True):
        if isinstance(other, Array):
            found = differ(one, other)
        else:
            found = None if repr(one) == repr(other) else f"{one!r}, not {other!r}"
        if found:
            return found
    return None


def other_bits(one: Any, other: Any) -> str | None:
    """In what two arrays differ on this rank: types, or any bit."""
    if one.type != other.type or one.__class__ is not other.__class__:
        return f"{one.type}, not {other.type}"
    if one.tile is None or other.tile is None:
        return None if one.tile is other.tile else "a tile where there is none"
    if one.tile.dtype != other.tile.dtype or one.tile.shape != other.tile.shape:
        return f"a tile of {one.tile.dtype}{one.tile.shape}, not {other.tile.shape}"
    if to_host(one.tile).tobytes() != to_host(other.tile).tobytes():
        return f"{one.type}: {one.tile.tolist()}, not {other.tile.tolist()}"[:600]
    return None


ROUNDINGS = 2**12
"""Floats of planned programs may differ by so many times their precision, of the largest value around."""


def other_values(one: Any, other: Any) -> str | None:
    """**Collective.** In what the values of two arrays differ, wherever they lie."""
    if (one.shape, one.dtype, one.__class__) != (other.shape, other.dtype, other.__class__):
        return f"{one.type}, not {other.type}"
    a, b = (to_host(x.gather()) for x in (one, other))
    if a.dtype.kind not in "fc":
        same = a == b
    else:
        most = np.abs(b, where=np.isfinite(b), out=np.zeros(b.shape)).max(initial=1.0)
        near = ROUNDINGS * float(np.finfo(a.dtype).eps)
        same = np.isclose(a, b, rtol=near, atol=near * float(most), equal_nan=True)
    return None if same.all() else f"{one.type}: {a.tolist()}, not {b.tolist()}"[:600]


def compare(
    function: Callable[..., Any], arrays: list[Any], layouts: str = "as written", **options: Any
) -> tuple[str | None, bool]:
    """What differs between a function and a program of it, called four times; whether it was refused."""
    differ = other_bits if layouts == "as written" else other_values
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        given = [copied(one) for one in arrays]
        error: Exception | None = None
        want: Any = None
        try:
            want = function(*given)
        except (TypeError, ValueError, OverflowError, RedistError) as problem:
            error = problem
        step: Any = pgas.program(layouts=layouts, **options)(function)
        again = [copied(one) for one in arrays]
        for call in range(4):
            # Of the same arrays, moved copies are kept; they must not be changed by the call before.
            mine = (
                again
                if call > 1 and first_unlike(again, arrays, other_bits) is None
                else [copied(one) for one in arrays]
            )
            try:
                got = step(*mine)
            except CaptureError as problem:
                return str(problem), True
            except (TypeError, ValueError, OverflowError, RedistError) as problem:
                if error is None:
                    return f"call {call}: {type(problem).__name__}: {problem}", False
                return None, False
            if error is not None:
                return f"call {call}: no error, but eager says {error}", False
            found = first_unlike(got, want, differ)
            if found:
                return f"call {call}: {found}", False
            found = first_unlike(mine, given, differ)
            if found:
                return f"call {call}, arguments: {found}", False
        found = unlike_after_updates((mine, got), (given, want), differ)
        if found:
            return f"after updates of arguments and results: {found}", False
    return None, False


def unlike_after_updates(
    ours: tuple[Any, Any], theirs: tuple[Any, Any], differ: Differ
) -> str | None:
    """**Collective.** In what arguments and results differ once each was changed: what is a view of what.

    Both are pairs of arguments and results, of the program and of its function.
    """
    for given, made in (ours, theirs):
        every = {id(x): x for x in arrays_in([*given, made]) if isinstance(x, Array)}
        for number, x in enumerate(every.values(), 1):
            if x.dtype.kind == "b":
                x ^= True
            else:
                x += number
    return first_unlike([ours[0], ours[1]], [theirs[0], theirs[1]], differ)


def functions(
    draw: Draw, name: str, device: str = "cpu", layouts: str = "as written"
) -> str | None:
    """One public function as a program."""
    values, call = CASES[name](Operands(draw))
    mesh = draw.mesh()
    arrays = [draw.array(one, mesh) if isinstance(one, np.ndarray) else one for one in values]
    arrays = [one.to_device(device) if isinstance(one, Array) else one for one in arrays]
    what = ", ".join(str(x.type) if isinstance(x, Array) else repr(x) for x in arrays)
    found, refused = compare(lambda *given: call(xp, *given), arrays, layouts)
    if refused and name in REFUSED:
        return None
    return f"{what} on {mesh}: {found}" if found else None


# Random programs

Op = Callable[[Any, np.random.Generator, list[Any]], Any]


def pick(rng: np.random.Generator, values: list[Any]) -> Any:
    return values[rng.integers(len(values))]


def like(rng: np.random.Generator, values: list[Any], x: Any) -> Any:
    """A value that broadcasts with another."""
    fits = []
    for one in values:
        try:
            np.broadcast_shapes(one.shape, x.shape)
        except ValueError:
            continue
        fits.append(one)
    return pick(rng, fits)


def binary(x: Any, rng: np.random.Generator, values: list[Any]) -> Any:
    name = rng.choice(["add", "subtract", "multiply", "maximum", "hypot", "less"])
    out = getattr(xp, name)(x, like(rng, values, x))
    return xp.astype(out, np.float64) if name == "less" else out


def unary(x: Any, rng: np.random.Generator, values: list[Any]) -> Any:
    return getattr(xp, rng.choice(["negative", "abs", "tanh", "square", "exp", "sqrt"]))(x)


def number(x: Any, rng: np.random.Generator, values: list[Any]) -> Any:
    return (lambda: x * 0.5, lambda: 1.0 - x, lambda: x / 3.0, lambda: x // 0.5)[rng.integers(4)]()


def reduced(x: Any, rng: np.random.Generator, values: list[Any]) -> Any:
    if 0 in x.shape:
        return x + 1.0
    axis = int(rng.integers(x.ndim)) if x.ndim else None
    name = rng.choice(["sum", "max", "mean", "argmin", "cumulative_sum", "std"])
    if name == "argmin":
        return xp.astype(xp.argmin(x, axis=axis), np.float64)
    if name == "cumulative_sum":
        return xp.cumulative_sum(x, axis=axis) if x.ndim else x * 2.0
    return getattr(xp, name)(x, axis=axis, keepdims=bool(rng.integers(2)))


def product(x: Any, rng: np.random.Generator, values: list[Any]) -> Any:
    fits = [y for y in values if x.ndim == 2 and y.ndim == 2 and y.shape[0] == x.shape[1]]
    if fits:
        return x @ pick(rng, fits)
    return x @ x.T if x.ndim == 2 else xp.sum(x * x)


def joined(x: Any, rng: np.random.Generator, values: list[Any]) -> Any:
    """An extended Einstein sum of a value, and of another one if it has as many columns."""
    joins = (lambda a, b: (a - b) ** 2, lambda a, b: xp.where(a > b, a, 2.0 * b), "maximum")
    join, agg = joins[rng.integers(3)], str(rng.choice(["sum", "max", "min"]))
    fits = [y for y in values if x.ndim == 2 and y.ndim == 2 and y.shape[1] == x.shape[1]]
    if fits and x.size:
        return xp.ein("ik,jk->ij", x, pick(rng, fits), join=join, agg=agg)
    return xp.ein("...,...->...", x, x, join=join)


def sliced(x: Any, rng: np.random.Generator, values: list[Any]) -> Any:
    key = []
    for n in x.shape:
        lo, hi = sorted(rng.integers(0, n + 1, 2).tolist())
        key.append(slice(lo, hi, int(rng.choice([1, 1, 2]))) if rng.random() < 0.7 else slice(None))
    return x[tuple(key)]


def moved(x: Any, rng: np.random.Generator, values: list[Any]) -> Any:
    names = [name for name, _ in x.mesh.axes]
    cuts = [[] for _ in x.shape]  # type: ignore[var-annotated]
    for name in names:
        if cuts and rng.random() < 0.7:
            cuts[rng.integers(len(cuts))].append(name)
    return x.to(", ".join("{" + ",".join(cut) + "}" for cut in cuts)) if x.ndim else x + 0.0


def shaped(x: Any, rng: np.random.Generator, values: list[Any]) -> Any:
    match rng.integers(7):
        case 0 if x.ndim == 2:
            return x.T
        case 1:
            return xp.reshape(x, (-1,)) if x.size else x * 1.0
        case 2 if x.ndim:
            return xp.roll(x, 1, axis=0)
        case 3 if x.ndim:
            return xp.concat([x, x * 2.0], axis=0)
        case 4:
            return xp.expand_dims(x, axis=0) if x.ndim < 3 else x - 1.0
        case 5 if x.ndim and x.size:
            return xp.sort(x, axis=int(rng.integers(x.ndim)))
        case _:
            return xp.where(x > 0, x, -x)


def viewed(x: Any, rng: np.random.Generator, values: list[Any]) -> Any:
    """What may be a view of a value, or the value itself."""
    match rng.integers(16):
        case 0:
            return xp.real(x)
        case 1:
            return xp.conj(x)
        case 2:
            return xp.positive(x)
        case 3:
            return xp.astype(x, x.dtype, copy=False)
        case 4:
            return xp.asarray(x)
        case 5:
            return x.to(x.type)
        case 6:
            return xp.reshape(x, x.shape)
        case 7:
            return xp.squeeze(xp.expand_dims(x, axis=0), axis=0)
        case 8:
            return xp.broadcast_to(x, x.shape)
        case 9 if x.ndim:
            return xp.flip(x, axis=0)
        case 10 if x.ndim:
            return xp.moveaxis(x, 0, -1)
        case 11 if x.ndim and x.shape[0]:
            return xp.unstack(x)[0]
        case 12:
            return x[...]
        case 13 if x.ndim == 2:
            return xp.linalg.diagonal(x)
        case 14 if x.ndim:
            return xp.roll(x, 0, axis=0)
        case _:
            return x.settled()


def written_through(x: Any, rng: np.random.Generator, values: list[Any]) -> Any:
    """An update through what may be a view: only the one or the other is used later."""
    y = x * 1.0
    view = viewed(y, rng, values) if rng.random() < 0.5 else shaped(y, rng, values)
    if view.dtype != y.dtype or rng.random() < 0.5:
        y += 2.0
        return y
    if view.ndim and view.shape[0]:
        view[0] = 3.0
    view *= 2.0
    return view


def updated(x: Any, rng: np.random.Generator, values: list[Any]) -> Any:
    """An update in place, of a value that nothing views."""
    y = x * 1.0
    match rng.integers(4):
        case 0:
            y += 1.5
        case 1:
            y *= x
        case 2 if y.ndim and y.shape[0]:
            y[0] = 2.0
        case _ if y.ndim:
            y[: y.shape[0] // 2] = x[: y.shape[0] // 2]
        case _:
            y -= 1.0
    return y


def new(x: Any, rng: np.random.Generator, values: list[Any]) -> Any:
    made = (xp.zeros_like, xp.ones_like)[rng.integers(2)](x)
    if not x.ndim:
        return made
    row = xp.arange(x.shape[-1], dtype="f8", mesh=x.mesh, comm=x.comm, device=x.device)
    return made + row


def fourier(x: Any, rng: np.random.Generator, values: list[Any]) -> Any:
    if not x.ndim or 0 in x.shape:
        return x * 0.25
    return xp.real(xp.fft.fft(x, axis=int(rng.integers(x.ndim))))


def exact(x: Any, rng: np.random.Generator, values: list[Any]) -> Any:
    """Arithmetic whose result is the same in any order: whole numbers, kept small."""
    match rng.integers(9):
        case 0:
            return xp.maximum(x, like(rng, values, x))
        case 1:
            return x - like(rng, values, x)
        case 2:
            return xp.remainder(x * like(rng, values, x), 101.0)
        case 3:
            return xp.abs(x) + 1.0
        case 4:
            return xp.remainder(product(x, rng, values), 103.0)
        case 5:
            return xp.astype(xp.argmin(x, axis=-1), np.float64) if x.size and x.ndim else -x
        case 6:
            return xp.remainder(xp.cumulative_sum(x, axis=-1), 107.0) if x.ndim else x * 2.0
        case _:
            if not x.ndim or 0 in x.shape:
                return x + 3.0
            name = ("sum", "max", "min", "sum")[rng.integers(4)]
            axis, keep = int(rng.integers(x.ndim)), bool(rng.integers(2))
            return getattr(xp, name)(x, axis=axis, keepdims=keep)


EXACT_OPS: tuple[Op, ...] = (
    exact, exact, exact, exact, exact, exact, sliced, moved, shaped, shaped, updated, new,
    viewed, written_through,
)  # fmt: skip
OPS: tuple[Op, ...] = (
    binary, binary, binary, unary, unary, number, number, reduced, reduced, product, joined, sliced, moved,
    moved, shaped, shaped, updated, updated, new, fourier, viewed, written_through,
)  # fmt: skip
MOST_ELEMS = 4000


def random_function(seed: int, n_nodes: int, ops: tuple[Op, ...] = OPS) -> Callable[..., Any]:
    """A function that makes the same choices in every call."""

    def run(*arrays: Any) -> Any:
        rng = np.random.default_rng(seed)
        values = list(arrays)
        for _ in range(n_nodes):
            x = pick(rng, values[-6:])
            made = ops[rng.integers(len(ops))](x, rng, values)
            if made.size <= MOST_ELEMS:
                values.append(made)
        first = arrays[0]
        if rng.random() < 0.4:
            first += 1.0
        if rng.random() < 0.3 and first.ndim and first.shape[0]:
            first[0] = values[-1][(0,) * values[-1].ndim] if values[-1].size else 1.0
        return pick(rng, values), pick(rng, values), values[-1]

    return run


def random_program(
    draw: Draw, seed: int, device: str = "cpu", layouts: str = "as written"
) -> str | None:
    """A random program of 5 to 40 nodes; in planned layouts one of whole numbers."""
    mesh = draw.mesh()
    shapes = [(draw.size(), draw.size()), (draw.size(),), (7, 4), (4, 7)]
    data = [draw.values(shape, "f8") for shape in shapes]
    ops = OPS
    if layouts == "planned":
        data, ops = [np.round(one * 5.0) + 0.0 for one in data], EXACT_OPS
    arrays = [draw.array(one, mesh).to_device(device) for one in data]
    n = int(draw.rng.integers(5, 41))
    prefetch = ("always", True, False)[draw.rng.integers(3)]
    cache = bool(draw.rng.random() < 0.7)
    function = random_function(seed, n, ops)
    found, refused = compare(function, arrays, layouts, prefetch=prefetch, cache=cache)
    if refused and found and "through another" in found:
        return None
    return f"seed {seed}, {n} nodes on {mesh}, {layouts}: {found}" if found else None


LARGE = {
    "SHARED_FROM": 64,
    "LEAST_BYTES": 256,
    "BLOCK_BYTES": 128,
    "BATCH_BYTES": 256,
    "EARLY_BYTES": 0,
    "GPU_EARLY_BYTES": 0,
}
"""Bytes from which on arrays of ``pgas`` count as large: results in memory of ours, joins in blocks."""


@contextmanager
def counting_as_large() -> Iterator[None]:
    """Let small arrays take the paths of large ones, in all modules that know such a limit."""
    modules = [module for name, module in sys.modules.items() if name.startswith("redist.pgas.")]
    before = [
        (module, name, vars(module)[name])
        for module in modules
        for name in LARGE.keys() & vars(module).keys()
    ]
    for module, name, _ in before:
        setattr(module, name, LARGE[name])
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def functions_on(ranks: int) -> tuple[str, ...]:
    """The public functions that are looked at: on several ranks ``make test`` takes every second."""
    return tuple(CASES)[:: 1 if THOROUGH or ranks == 1 else 4]


def checks_on(ranks: int, args: Sequence[str]) -> tuple[str, ...]:
    """Names of all checks."""
    return ("random", *functions_on(ranks))


def program() -> int:
    """0 if every program does what its function does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=50, help="random programs")
    parser.add_argument("--calls", type=int, default=1, help="calls of every public function")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--layouts", choices=["as written", "planned"], default=None)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    draw = Draw(comm, args.seed)
    bad, done = 0, 0
    for number in range(args.calls):
        for name in args.only or functions_on(comm.size):
            layouts = args.layouts or ("as written", "planned")[done % 2]
            found = functions(draw, name, args.device, layouts)
            bad += not all_well(comm, name, found, str(number))
            done += 1
    for number in range(args.n):
        seed = 100_000 * args.seed + number
        with counting_as_large() if number % 2 else nullcontext():
            layouts = args.layouts or ("as written", "planned")[number // 2 % 2]
            found = random_program(draw, seed, args.device, layouts)
        bad += not all_well(comm, "random", found, str(seed))
        done += 1
    if comm.rank == 0:
        print(f"{done - bad} agree, {bad} do not ({comm.size} ranks)", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    main(program)
