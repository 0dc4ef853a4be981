"""What users of programs rely on: loops, kernels, one order of moves, all families of functions.

As in ``mpirun -n 3 python -m tests.programs.pgas.captured``.
"""

from __future__ import annotations

import os
import warnings
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import Mesh, pgas
from redist.pgas.keeper import FAR_BYTES
from tests.programs.together import main, run_named
from tests.tiers import THOROUGH, sample

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


def normal(shape: tuple[int, ...], seed: int = 3, **where: Any) -> Any:
    return X.random.generator(seed).normal(shape, **where)


def same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))


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
    if [one.why for one in t.spared] != ["kept from an earlier call"] * n:
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
        for name in module.__all__[:: 1 if THOROUGH else 4]:
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
    for run in (pgas.program(work), X.program(work))[: sample(1, of=2)]:
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
        kernels, loops, layouts, some_ranks, copies, early, shared_moves, batches, as_numpy, switches,
        families,
    )
}  # fmt: skip


def program() -> int:
    """0 if everything holds."""
    return run_named(CHECKS)


if __name__ == "__main__":
    main(program)
