"""What programs depend on, arguments and results and what they reach outside; and what they refuse.

As in ``mpirun -n 3 python -m tests.programs.pgas.depending``.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from redist import CaptureError, pgas
from tests.programs.pgas.captured import COMM, X, normal, same
from tests.programs.together import main, run_named

WEIGHTS: dict[str, Any] = {}


def refused(function: Callable[..., Any], *args: Any) -> str:
    """What a program of a function is refused for."""
    try:
        X.program(function)(*args)
    except CaptureError as error:
        return str(error)
    return "no error"


def generators() -> str | None:
    """A generator goes on in every run, as it does without a program."""
    u = normal((6, 5))
    mine, theirs = X.random.generator(5), X.random.generator(5)

    @X.program
    def noisy(x: Any, rng: Any) -> Any:
        rng.uniform((3,))
        return x + rng.normal(x.shape)

    for _ in range(3):
        theirs.uniform((3,))
        if not same(noisy(u, mine).gather(), (u + theirs.normal(u.shape)).gather()):
            return "other numbers"
    return None if mine.calls == theirs.calls else f"{mine.calls} streams, not {theirs.calls}"


def outside() -> str | None:
    """Arrays that a program reaches by name count as arguments: also when they change, or are others."""
    u = normal((12, 10), type="{x}, {}")
    WEIGHTS["w"] = normal((10, 4), 4)

    @X.program
    def product(x: Any) -> Any:
        return x @ WEIGHTS["w"]

    for change in ("", "updated", "replaced", "moved"):
        if change == "updated":
            WEIGHTS["w"] += 1.0
        elif change == "replaced":
            WEIGHTS["w"] = normal((10, 4), 5)
        elif change == "moved":
            WEIGHTS["w"] = WEIGHTS["w"].to("{}, {}")
        for _ in range(2):
            if not same(product(u).gather(), product.function(u).gather()):
                return f"differs after the array was {change or 'captured'}"
    return None


class Reached:
    """What programs reach by attribute."""

    def __init__(self, it: Any) -> None:
        self.it = it


def values_outside() -> str | None:
    """Sets, values and functions that a program reaches count as arguments: also when they are others."""
    u = normal((12,), type="{x}")
    cases: dict[str, tuple[Any, Any, Callable[[Any, Any], Any]]] = {
        "set": ({1.0}, {2.0}, lambda x, it: x * sum(it)),
        "frozenset of tuples": (
            frozenset({(1, 2)}),
            frozenset({(1, 3)}),
            lambda x, it: x * max(it)[1],
        ),
        "defaultdict": (
            defaultdict(int, a=1),
            defaultdict(int, a=1, b=2),
            lambda x, it: x * len(it),
        ),
        "deque": (deque([1]), deque([1, 2]), lambda x, it: x * len(it)),
        "bytes": (bytearray(b"a"), bytearray(b"b"), lambda x, it: x * it[0]),
        "number of NumPy": (np.int64(2), np.int64(3), lambda x, it: x * it),
        "range": (range(2), range(3), lambda x, it: x * len(it)),
        "slice": (slice(0, 4), slice(4, 8), lambda x, it: x[it]),
        "function": (X.exp, X.tanh, lambda x, it: it(x)),
        "ufunc": (np.exp, np.tanh, lambda x, it: it(x)),
        "lambda": (lambda x: x + 1, lambda x: x + 2, lambda x, it: it(x)),
    }
    for name, (before, after, use) in cases.items():
        at = Reached(before)
        step = X.program(lambda x, use=use, at=at: use(x, at.it))
        for at.it in (before, before, after, after):
            if not same(step(u).gather(), step.function(u).gather()):
                return f"another {name} is not noticed"
    seen, runs = {1.0}, []

    @X.program
    def grow(x: Any) -> Any:
        runs.append(0)
        seen.add(3.0)
        return x * sum(seen)

    grow(u), grow(u)
    if len(runs) != 1:
        return "what a program adds to a set is a change"
    seen.add(2.0)
    return None if same(grow(u).gather(), (u * 6.0).gather()) else "a set that grows is not noticed"


def arrays_twice() -> str | None:
    """An array that a program reaches by two ways, or is also given, may be another in a later call."""
    u, v, w = (normal((12,), seed, type="{x}") for seed in (1, 2, 3))
    one, two = Reached(u), Reached(u)
    step = X.program(lambda x: x + one.it * two.it)
    for two.it in (u, u, v, v):
        if not same(step(w).gather(), step.function(w).gather()):
            return "differs if the second way leads elsewhere"
    both = X.program(lambda x: x + one.it)
    for x in (u, u, v, v, u):
        if not same(both(x).gather(), both.function(x).gather()):
            return "differs if the array is given in some calls only"
    return None


def refusals() -> str | None:
    """What depends on values, or reaches outside, is refused by name with the line."""
    u = normal((8, 6), type="{x}, {}")
    hidden: Any = normal((8, 6))
    for _ in range(9):
        hidden = [hidden]

    def dug_out() -> Any:
        found = hidden
        while isinstance(found, list):
            found = found[0]
        return found

    cases: dict[str, tuple[Callable[[Any], Any], str]] = {
        "float": (lambda x: float(X.sum(x)), "cannot read f64[]"),
        "mask": (lambda x: x[x > 0], "how many depends on the data"),
        "nonzero": (X.nonzero, "how many depends on the data"),
        "unique": (X.unique_values, "what is unique"),
        "local": (lambda x: x.local, "cannot reach into"),
        "get": (lambda x: x.get((0, 0)), "cannot get elements"),
        "epoch": (lambda x: x.epoch(), "cannot open an epoch"),
        "gather": (lambda x: x.gather(), "return it, and gather or write it outside"),
        "list": (lambda x: x.tolist(), "return it, and gather or write it outside"),
        "numpy": (lambda x: np.asarray(x), "return it, and gather or write it outside"),
        "write": (
            lambda x: pgas.write_npy("never.npy", x),
            "return the array, and write it outside",
        ),
        "hidden": (lambda x: x + dug_out(), "not part of the program"),
    }
    for name, (function, words) in cases.items():
        said = refused(function, u)
        if words not in said or "depending.py:" not in said:
            return f"{name}: {said}"
    return None


def races() -> str | None:
    """An update of what is viewed is refused with both lines; of a copy it is not."""
    u = normal((8, 6), type="{x}, {}")

    def base(x: Any) -> Any:
        y = x.T
        x += 1.0
        return y

    def view(x: Any) -> Any:
        y = X.expand_dims(x, axis=0)
        y *= 2.0
        return x

    def copy(x: Any) -> Any:
        y = x.T.copy()
        x += 1.0
        return y

    for function in (base, view):
        said = refused(function, u)
        lines = 2 if function is base else 1
        if "through another" not in said or said.count("depending.py:") != lines:
            return f"{function.__name__}: {said}"
    want = u.gather().T.copy()
    return None if same(X.program(copy)(u).gather(), want) else "a copy has changed"


def disagreement() -> str | None:
    """Ranks with other programs get one error that names the first difference, and can go on."""
    if COMM.size == 1:
        return None
    u = normal((8, 6), type="{x}, {}")

    def differ(x: Any) -> Any:
        y = x - 1.0
        return y + 1.0 if COMM.rank == 0 else y * 2.0

    said = refused(differ, u)
    if "node 1 add" not in said or "node 1 mul" not in said or "rank 0" not in said:
        return said

    def fails(x: Any) -> Any:
        return x + 1.0 if COMM.rank else 1 // 0

    try:
        X.program(fails)(u)
    except (CaptureError, ZeroDivisionError) as error:
        if COMM.rank and "rank 0 could not capture it" not in str(error):
            return str(error)
    else:
        return "no error"
    return None if same(X.program(lambda x: x + 1.0)(u).gather(), (u + 1.0).gather()) else "after"


class Pair(NamedTuple):
    """A result of two arrays."""

    one: Any
    other: Any


@dataclass(frozen=True)
class Held:
    """A result, and an argument, with an array in it."""

    array: Any
    number: float = 1.0


@dataclass(frozen=True)
class Checked:
    """A result, and an argument, that looks at its array."""

    array: Any

    def __post_init__(self) -> None:
        assert self.array.shape == (12, 12)


class Layer:
    """An object with an array, and a program for a method."""

    def __init__(self, seed: int) -> None:
        self.w = normal((12, 12), seed)

    @X.program
    def apply(self, x: Any) -> Any:
        return x @ self.w


RATE = 1.0


def structures() -> str | None:
    """Results and arguments in tuples, dataclasses and objects; values by name; programs in programs."""
    global RATE
    u = normal((12, 12), type="{x}, {}")
    inner = X.program(lambda x: x * 3.0)
    cases: dict[str, Any] = {
        "dataclass": (lambda x: Held(x * 2.0), lambda r: r.array),
        "checked": (lambda x: Checked(Checked(x * 2.0).array + 1.0), lambda r: r.array),
        "named": (lambda x: Pair(x + 1.0, x), lambda r: r.one),
        "program in a program": (lambda x: inner(x) * 2.0, lambda r: r),
        "held": (lambda x: x * Held(x, 2.0).number, lambda r: r),
        "dead write": (dead_write, lambda r: r),
        "partial": (partial(np.add, 1.0), lambda r: r),
    }
    for name, (function, of) in cases.items():
        step = X.program(function)
        for _ in range(3):
            if not same(of(step(u)).gather(), of(function(u)).gather()):
                return f"{name} differs"
    again = X.program(lambda s: Checked(s.array * 2.0))
    if not same(again(again(Checked(u))).array.gather(), (u * 4.0).gather()):
        return "a dataclass that looks at its array differs as an argument"
    first, second = X.program(lambda x: (lambda y: (y, y))(x * 1.0))(u)
    if first is not second:
        return "one array is returned as two"
    for one, other in ((0.0, -0.0), (1, True), (1, 1.0)):
        step = X.program(lambda x, k: X.full((3,), k) * x[0, 0])
        if any(
            not same(np.signbit(step(u, k).gather()), np.signbit(step.function(u, k).gather()))
            or step(u, k).dtype != step.function(u, k).dtype
            for k in (one, other)
        ):
            return f"{one} and {other} are taken for each other"
    given, scaled = np.array([2.0]), X.program(lambda x, w: x * float(w[0]))
    for value in (2.0, 5.0):
        given[0] = value
        if not same(scaled(u, given).gather(), (u * value).gather()):
            return "an array of NumPy is taken for its older self"
    step = X.program(lambda x: x * RATE)
    for RATE in (1.0, 3.0):
        if not same(step(u).gather(), (u * RATE).gather()):
            return "a number by name has gone stale"
    for layer in (Layer(1), Layer(2)):
        if not same(layer.apply(u).gather(), (u @ layer.w).gather()):
            return "a method uses another object"
    return None


def dead_write(x: Any) -> Any:
    moved = x.to("{}, {x}") if COMM.size > 1 else x * 1.0
    out = moved * 2.0
    moved -= 1.0
    return out


def sharing() -> str | None:
    """Arrays in one memory: what is written through one is seen through another, also by kept copies."""
    turned = X.program(lambda x: x.to("{}, {x}") * 1.0)
    u = normal((12, 12), type="{x}, {}")
    for _ in range(3):
        turned(u)
    view = u.T
    view += 100.0
    if not same(turned(u).gather(), turned.function(u).gather()):
        return "a copy was kept of what a view has changed"
    v = normal((12, 12), type="{x}, {}")
    view = X.program(lambda x: x.T)(v)
    for _ in range(3):
        turned(v)
    view += 100.0
    if not same(turned(v).gather(), turned.function(v).gather()):
        return "a copy was kept of what a view of a program has changed"

    def update(x: Any, y: Any) -> Any:
        before = y * 2.0 + 1.0
        x += 1.0
        return before, y * 2.0 + 3.0

    step = X.program(update)
    pairs: list[Any] = []
    for run in (step, step, update):
        a = normal((16,), 8)
        b = X.reshape(X.reshape(a, (4, 4)), (16,)) if run is not step or pairs else a * 1.0
        pairs.append([one.gather() for one in run(a, b)])
    if not same(pairs[1], pairs[2]):
        return "arguments in one memory differ"
    kernel = X.program(lambda x: X.map_tiles(_writes, x, whole=0))
    try:
        kernel(u)
    except ValueError:
        return None
    return "a kernel may write to a tile"


def _writes(tile: Any) -> Any:
    tile *= 2.0
    return tile


CHECKS = {
    check.__name__: check
    for check in (
        generators, outside, values_outside, arrays_twice, refusals, races, disagreement, structures,
        sharing,
    )
}  # fmt: skip


def program() -> int:
    """0 if everything holds."""
    return run_named(CHECKS)


if __name__ == "__main__":
    main(program)
