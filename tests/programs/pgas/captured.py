"""What users of programs rely on: loops, kernels, arrays from outside, errors with lines, one order of moves.

As in ``mpirun -n 3 python -m tests.programs.pgas.captured``.
"""

from __future__ import annotations

import os
import warnings
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

import redist
from redist import CaptureError, Mesh, pgas
from redist.pgas.keeper import FAR_BYTES
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD


class Written:
    """The namespace with programs in the layouts as written, which agree with their functions bit for bit."""

    def __getattr__(self, name: str) -> Any:
        return getattr(pgas, name)

    @staticmethod
    def program(function: Any = None, /, **options: Any) -> Any:
        made = pgas.program(**{"layouts": "as written", **options})
        return made if function is None else made(function)


X: Any = Written()
WEIGHTS: dict[str, Any] = {}


def normal(shape: tuple[int, ...], seed: int = 3, **where: Any) -> Any:
    return X.random.generator(seed).normal(shape, **where)


def same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))


def refused(function: Callable[..., Any], *args: Any) -> str:
    """What a program of a function is refused for."""
    try:
        X.program(function)(*args)
    except CaptureError as error:
        return str(error)
    return "no error"


def kernels() -> str | None:
    """Tiles with halos and whole dims give what NumPy gives of the whole, eagerly and in programs."""
    u = normal((5 * COMM.size + 1, 10), type="{x}, {}")
    whole = u.gather()
    padded = np.pad(whole, ((1, 1), (0, 0)))
    want = (padded[:-2] + padded[1:-1] + padded[2:]) / 3

    def smooth(x: Any) -> Any:
        return X.map_tiles(lambda t: (t[:-2] + t[1:-1] + t[2:]) / 3, x, halo={0: 1})

    def corners(x: Any) -> Any:
        return X.map_tiles(
            lambda t: t[:-2, :-2] + 2 * t[2:, 2:] + 3 * t[:-2, 2:],
            x,
            halo={0: 1, 1: 1},
            edges="wrap",
        )

    def ordered(x: Any) -> Any:
        return X.map_tiles(lambda t: np.sort(t, axis=0), x, whole=0)

    mesh = Mesh(x=2, y=COMM.size // 2) if COMM.size % 2 == 0 else Mesh(x=COMM.size)
    v = normal((13, 11), type="{x}, {y}" if "y" in str(mesh) else "{x}, {}", mesh=mesh)
    values = v.gather()
    wrapped = np.pad(values, 1, mode="wrap")
    turned = wrapped[:-2, :-2] + 2 * wrapped[2:, 2:] + 3 * wrapped[:-2, 2:]
    for name, function, array, expected in (
        ("smooth", smooth, u, want),
        ("corners", corners, v, turned),
        ("ordered", ordered, v, np.sort(values, axis=0)),
    ):
        for run in (function, X.program(function)):
            if not same(run(array).gather(), expected):
                return f"{name} differs"
    try:
        X.map_tiles(lambda t: t, u, halo={0: 100})
    except redist.ArgumentError:
        return None
    return None if COMM.size == 1 else "no error for a halo larger than a tile"


def loops() -> str | None:
    """A step is repeated so often, or until its values say so; elements are repeated as before."""
    u = normal((13, 4), type="{x}, {}")
    whole = u.gather()

    @X.program
    def step(x: Any) -> Any:
        return x * 0.5

    if not same(X.repeat(step, 5, u).gather(), whole * 0.5**5):
        return "five steps differ"
    last, n = X.repeat_until(step, u, lambda x: X.max(X.abs(x)) < 1e-3, most=50)
    if not np.abs(last.gather()).max() < 1e-3 or not np.abs(2 * last.gather()).max() >= 1e-3:
        return f"stopped after {n} steps"
    pair = X.repeat(lambda a, b: (b, a + b), 3, (u, u))
    if not same(pair[0].gather(), whole + whole + whole):
        return "a state of two differs"
    return (
        None if same(X.repeat(u, 2, axis=0).gather(), np.repeat(whole, 2, axis=0)) else "elements"
    )


def layouts() -> str | None:
    """Arguments whose tiles lie otherwise in memory than those of the first call give the same."""
    u = normal((12, 12), type="{}, {}")

    def fresh(kind: str) -> Any:
        return {"plain": u.copy(), "turned": u.T.copy().T, "cut": X.concat([u, u])[::2].copy()}[
            kind
        ]

    for first in ("plain", "turned"):
        program = X.program(lambda x: x @ x + X.reshape(X.reshape(x, (-1,)), (12, 12)))
        for kind in (first, "plain", "turned", "cut"):
            x = fresh(kind)
            if not np.allclose(program(x).gather(), program.function(x).gather(), rtol=1e-14):
                return f"{first} first, then {kind}: differs"
        update = X.program(lambda x: x.__iadd__(X.reshape(x * 1.0, (12, 12))))
        for kind in (first, "plain", "turned"):
            x = fresh(kind)
            y = update(x)
            if y is not x or not same(x.gather(), 2.0 * fresh(kind).gather()):
                return f"an update, {first} first, then {kind}: differs"
    return None


def some_ranks() -> str | None:
    """Large arrays that not all ranks have a tile of, updated in place: all ranks capture the same calls."""
    mesh = Mesh(x=max(1, COMM.size - 1))

    def update(a: Any) -> Any:
        b = a + 1
        b[3, 1:5] = 7.0
        b[a[:, 0] > 0] = 2.0
        b += a
        return b

    a = normal((200 * mesh.n_devices, 64), type="{x}, {}", mesh=mesh)
    return None if same(X.program(update)(a).gather(), update(a).gather()) else "differs"


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
        if words not in said or "captured.py:" not in said:
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
        if "through another" not in said or said.count("captured.py:") != lines:
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


def copies() -> str | None:
    """A moved argument is kept until it is changed; what others may write to is not."""
    u = normal((16, 12), type="{x}, {}")

    @X.program
    def turned(x: Any) -> Any:
        return x.to("{}, {x}") * 2.0

    for _ in range(2):
        turned(u)
    hits, n = FAR_BYTES.hits, int(COMM.size > 1)
    with redist.trace() as t:
        kept = turned(u)
    if t.moves or FAR_BYTES.hits != hits + n:
        return f"{len(t.moves)} moves of a kept argument, {FAR_BYTES.hits - hits} hits"
    if [one.why for one in t.spared] != ["kept from a call before"] * n:
        return f"the trace does not say that a copy was kept: {t}"
    u += 1.0
    with redist.trace() as t:
        changed = turned(u)
    if len(t.moves) != n or same(kept.gather(), changed.gather()):
        return "a changed argument was taken from a copy"
    tile = u.local
    turned(u)
    if tile is not None:
        tile[...] = 7.0
    if not same(turned(u).gather(), np.full((16, 12), 14.0)):
        return "a tile that was handed out changed unseen"
    return None


def early() -> str | None:
    """Moves that are begun early, joined or shared give the same, and the trace says so."""
    u, v = normal((16, 12), type="{x}, {}"), normal((16, 12), 9, type="{x}, {}")

    @X.program(prefetch="always", cache=False)
    def step(x: Any, y: Any) -> Any:
        moved = (x + 1.0).to("{}, {x}")
        for _ in range(3):
            y = X.tanh(y * 1.5)
        return moved * 2.0, y, (x + 1.0).to("{}, {x}") + 1.0

    for _ in range(3):
        for one, other in zip(step(u, v), step.function(u, v), strict=True):
            if not same(one.gather(), other.gather()):
                return "differs"
    with redist.trace() as t:
        step(u, v)
    n = int(COMM.size > 1)
    if len(t.moves) != n:
        return f"{len(t.moves)} moves"
    if n and (t.moves[0].waited_s is None or "captured.py" not in str(t.moves[0].line)):
        return f"the trace does not say that it began early: {t}"
    if n and [one.why[:9] for one in t.spared] != ["made once"]:
        return f"the trace does not say that a move was shared: {t}"
    graph = step.graph(u, v)
    fates = [move.fate for move in graph.moves]
    if n and fates != ["begun early", "made once, for call 1"]:
        return f"{fates}"
    if redist.ProgramGraph.from_json(graph.to_json()) != graph or "<svg" not in graph.html():
        return "a graph is not what was written"
    return None if str(graph).startswith("step: ") else str(graph)


def shared_moves() -> str | None:
    """An array that three products need is moved once, also if it lies in memory of ours."""
    u, w = normal((256, 256), type="{x}, {}"), normal((256, 256), 5, type="{x}, {}")

    @X.program(cache=False)
    def step(x: Any, y: Any) -> Any:
        h = X.tanh(x + 1.0)
        return [h.to("{}, {x}") * float(k) + y.to("{}, {x}") for k in range(3)]

    for one, other in zip(step(u, w), step.function(u, w), strict=True):
        if not same(one.gather(), other.gather()):
            return "differs"
    with redist.trace() as t:
        step(u, w)
    n = 2 * int(COMM.size > 1)
    return None if (len(t.moves), len(t.spared)) == (n, 2 * n) else str(t)


def batches() -> str | None:
    """Sums that nothing stands between are made by one operation, with the same bits."""
    u = normal((24, 6), type="{x}, {}")

    def sums(x: Any) -> Any:
        totals = [X.sum(x * float(k), axis=0) for k in range(1, 6)]
        return [total.to("{}") for total in totals]

    step = X.program(sums)
    for _ in range(3):
        for one, other in zip(step(u), sums(u), strict=True):
            if one.gather().tobytes() != other.gather().tobytes():
                return "other bits"
    figures = step.graph(u).figures
    if COMM.size > 1 and (figures["batches"], figures["in batches"]) != (1, 5):
        return f"{figures}"
    pair = {"a": u, "b": u * 2.0}
    types = {"a": "{}, {x}", "b": "{}, {}"}
    together = X.program(lambda w: X.move_together(w, types))
    for _ in range(2):
        moved, want = together(pair), X.move_together(pair, types)
        if any(not same(moved[name].gather(), want[name].gather()) for name in pair):
            return "moved together, they differ"
    graph = together.graph(pair)
    n_moves = len(graph.moves)
    if COMM.size > 1 and (n_moves, graph.figures["batches"]) != (2, 1):
        return f"{n_moves} moves, {graph.figures}"
    return None


def families() -> str | None:
    """Every function of linear algebra and of Fourier transforms gives the same in a program."""
    a, v = normal((6, 6), type="{x}, {}"), normal((6,), type="{x}")
    s = a @ a.T + 6.0 * X.eye(6)
    tall, right, three = (
        normal((24, 4), type="{x}, {}"),
        normal((6, 3)),
        normal((5, 3), type="{x}, {}"),
    )
    line = normal((12, 6), type="{x}, {}")
    wave = X.astype(line, "c16")
    given: dict[str, tuple[Any, ...]] = {
        "cross": (three, three * 2.0), "matmul": (a, right), "tensordot": (a, right), "solve": (s, right),
        "matrix_power": (a, 3), "outer": (v, v), "pinv": (tall,), "qr": (tall,), "svd": (tall,),
        "svdvals": (tall,), "lstsq": (tall, tall[:, 0]), "vecdot": (a, a),
        "rfft": (line,), "rfftn": (line,), "ihfft": (line,),
    }  # fmt: skip
    options = {"tensordot": {"axes": 1}}
    for module, others in ((X.linalg, (s,)), (X.fft, (wave,))):
        for name in module.__all__:
            if name in ("fftfreq", "rfftfreq"):
                continue
            run, args = (
                partial(getattr(module, name), **options.get(name, {})),
                given.get(name, others),
            )
            step = X.program(run)
            for _ in range(2):
                got, want = step(*args), run(*args)
            got, want = (list(one) if isinstance(one, tuple) else [one] for one in (got, want))
            for one, other in zip(got, want, strict=True):
                if one.tile is not None and one.tile.tobytes() != other.tile.tobytes():
                    return f"{name} has other bits"
    return None


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


def as_numpy() -> str | None:
    """Methods, NumPy's own functions and statistics are the same in programs."""

    def work(u: Any, v: Any) -> Any:
        v.sort(axis=0)
        v.fill(2.0)
        out = [u.reshape(-1, 2).sum(0), np.mean(u, axis=1), u.T.dot(u), u.round(1).clip(-1, 1), v]
        out += [X.median(u, axis=0), X.quantile(u, [0.1, 0.7], axis=0), X.cov(u, rowvar=False)]
        out += [*X.histogram(u, 5, range=(-2, 2)), X.diag(u[0], 1), X.isclose(u, u + 1e-9)]
        out += [
            X.isin(u.round(0), [0.0, 1.0]),
            X.isin(u, u[::3]),
            np.isin(u.round(0), np.arange(2)),
        ]
        out += [
            X.digitize(u, [-1.0, 0.5]),
            X.digitize(u, X.sort(u[:, 0])),
            X.nan_to_num(X.where(u > 0, u, X.inf)),
        ]
        out += [np.searchsorted([-0.5, 0.5], u), np.argsort(u, kind="stable")]
        out += [
            np.where(u > 0, u, 0),
            np.concatenate([u, u]),
            (u * 1j).imag,
            X.average(u, weights=u * u),
        ]
        return tuple(one.settled() for one in out)

    u = normal((12, 4), type="{x}, {}")
    for run in (X.program(work), pgas.program(work)):
        want = [one.gather() for one in work(u, u * 1.0)]
        for _ in range(2):
            got = [one.gather() for one in run(u, u * 1.0)]
            for k, (one, other) in enumerate(zip(got, want, strict=True)):
                if one.dtype != other.dtype or not np.allclose(one, other, rtol=1e-12):
                    return f"result {k} differs: {one} and {other}"
    return None


def switches() -> str | None:
    """A variable switches programs off; wrong options are refused; many captures are warned of."""
    u = normal((6, 4), type="{x}, {}")
    os.environ["REDIST_EAGER"] = "1"
    try:
        if not isinstance(X.program(lambda x: float(X.sum(x)))(u), float):
            return "not eager"
    finally:
        del os.environ["REDIST_EAGER"]
    for options in ({"layouts": "best"}, {"prefetch": "never"}):
        try:
            X.program(**options)
        except redist.ArgumentError:
            continue
        return f"no error for {options}"
    step = X.program(lambda x, k: x * k)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for k in range(9):
            step(u, float(k))
    words = [str(one.message) for one in said]
    return None if len(words) == 1 and "captured 9 times" in words[0] else f"{words}"


CHECKS = {
    check.__name__: check
    for check in (
        kernels, loops, layouts, some_ranks, generators, outside, values_outside, arrays_twice, refusals,
        races, disagreement, copies, early, shared_moves, batches, as_numpy, switches, structures,
        sharing, families,
    )
}  # fmt: skip


def program() -> int:
    """0 if everything holds."""
    return run_named(CHECKS)


if __name__ == "__main__":
    main(program)
