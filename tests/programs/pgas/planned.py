"""Programs in planned layouts: results as eager ones give, moves as planned, what is pinned stays.

As in ``mpirun -n 4 python -m tests.programs.pgas.planned``.
"""

from __future__ import annotations

import gc
import tempfile
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas
from redist.pgas.keeper import FAR_BYTES
from redist.pgas.memory import BUFFERS
from tests.programs.together import main, run_named
from tests.tiers import THOROUGH, sample

COMM = MPI.COMM_WORLD
X: Any = pgas


def normal(shape: tuple[int, ...], seed: int = 3, **where: Any) -> Any:
    return X.random.generator(seed).normal(shape, **where)


def near(one: Any, other: Any) -> bool:
    return bool(np.allclose(one, other, rtol=1e-12, atol=1e-12))


def moves_of(call: Callable[[], Any]) -> tuple[int, int]:
    """How much a call moves: how often, and the bytes that this rank gets."""
    with redist.trace() as seen:
        call()
    return len(seen.moves), sum(move.received_bytes for move in seen.moves)


def attention(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
    q, k, v = (X.einsum("bsd,dhe->bhse", x, w) for w in (wq, wk, wv))
    s = X.einsum("bhse,bhte->bhst", q, k)
    s = X.exp(s - X.max(s, axis=-1, keepdims=True))
    s = s / X.sum(s, axis=-1, keepdims=True)
    return x + X.einsum("bhse,hed->bsd", X.einsum("bhst,bhte->bhse", s, v), wo)


def weights(d: int, h: int) -> list[Any]:
    return [*(normal((d, h, d // h), seed) * 0.2 for seed in (1, 2, 4)), normal((h, d // h, d), 5)]


def agrees() -> str | None:
    """Attention in planned layouts: as eager, moves no more than as written, nothing once all stay."""
    x, own = normal((4, 16, 32), 0), weights(32, 4)
    want = attention(x, *own).gather()
    written, planned = X.program(layouts="as written")(attention), X.program(attention)
    counts = {}
    for step in (written, planned):
        for _ in range(2):
            if not near(step(x, *own).gather(), want):
                return f"{step.options.layouts} differs"
        with redist.trace() as seen:
            step(normal((4, 16, 32), 0), *own)
        counts[step] = len(seen.moves)
        for _ in range(3):
            if not near(step(x, *own).gather(), want):
                return f"{step.options.layouts} differs later"
    if counts[planned] > counts[written]:
        return f"{counts[planned]} moves, as written {counts[written]}"
    return None


def arranged() -> str | None:
    """Arguments where the program wants them: then it moves less; they have the values they had."""
    x, own = normal((4, 16, 32), 0), weights(32, 4)
    step = X.program(attention)
    there = step.arrange(x, *own)
    if not all(near(a.gather(), b.gather()) for a, b in zip(there, (x, *own), strict=True)):
        return "arguments have changed"
    before, after = X.program(cache=False)(attention), X.program(cache=False)(attention)
    before(x, *own), after(*there)
    most, least = moves_of(lambda: before(x, *own))[0], moves_of(lambda: after(*there))[0]
    if least > most or (COMM.size in (2, 4) and least):
        return f"{least} moves after arranging, {most} before"
    return None if near(after(*there).gather(), attention(x, *own).gather()) else "differs"


def pinned() -> str | None:
    """What ``.to`` says holds inside, and for results."""
    x, w = normal((12, 24)), normal((24, 12), 5)
    mesh = x.mesh
    columns = redist.ArrayType.parse("f64[12, 12{x}]", mesh)
    rows = redist.ArrayType.parse("f64[12{x}, 12]", mesh)

    def step(x: Any, w: Any) -> Any:
        return (x @ w).to(columns), (X.tanh(x @ w) + 1.0).to(rows)

    for _ in range(3):
        one, two = X.program(step)(x, w)
    if one.type != columns or two.type != rows:
        return f"{one.type}, {two.type}"
    want = (x @ w).gather()
    return (
        None if near(one.gather(), want) and near(two.gather(), np.tanh(want) + 1.0) else "differs"
    )


def updates() -> str | None:
    """Arrays that are changed in place, also through views, are changed, and nothing else is."""

    def step(x: Any, w: Any, total: Any) -> Any:
        y = x @ w
        y += 1.0
        total += X.sum(y, axis=0)
        flipped = total.T if total.ndim == 2 else total
        flipped *= 2.0
        y[0] = 0.0
        return y @ w, y

    def arguments() -> list[Any]:
        return [normal((12, 8)), normal((8, 8), 5), normal((8,), 6)]

    ours, theirs = arguments(), arguments()
    program = X.program(step)
    for _ in range(3):
        got, want = program(*ours), step(*theirs)
        if not all(near(a.gather(), b.gather()) for a, b in zip(got, want, strict=True)):
            return "results differ"
        if not all(near(a.gather(), b.gather()) for a, b in zip(ours, theirs, strict=True)):
            return "arguments differ"
        if [a.type for a in ours] != [a.type for a in theirs]:
            return "arguments lie elsewhere"
    return None


def kernels() -> str | None:
    """Kernels on tiles see the tiles that they would see without a plan."""

    def step(x: Any, w: Any) -> Any:
        y = x @ w
        return X.map_tiles(lambda tile: tile - tile.mean(), y, whole=(0, 1)) @ w

    x, w = normal((12, 8)), normal((8, 8), 5)
    program = X.program(step)
    return (
        None
        if all(near(program(x, w).gather(), step(x, w).gather()) for _ in range(3))
        else "differs"
    )


def loops() -> str | None:
    """A step that is repeated: the state lies as the plan of the loop says, round after round."""
    w = normal((24, 24), 5) * 0.2

    def round_of(x: Any, y: Any) -> Any:
        return X.tanh(x @ w) + y, X.tanh((y.T @ w).T) - x * 0.5

    x, y = normal((24, 24)), normal((24, 24), 8)
    want = x, y
    for _ in range(4):
        want = round_of(*want)
    step = X.program(round_of)
    got = X.repeat(step, 4, (x, y))
    if not all(near(a.gather(), b.gather()) for a, b in zip(got, want, strict=True)):
        return "differs"
    single = X.program(lambda x: X.tanh(x @ w))
    if not near(X.repeat(single, 3, x).gather(), X.tanh(X.tanh(X.tanh(x @ w) @ w) @ w).gather()):
        return "one array differs"
    inside = X.program(lambda x: X.repeat(lambda y: X.tanh(y @ w), 3, x))
    return None if near(inside(x).gather(), X.repeat(single, 3, x).gather()) else "inside differs"


def counted() -> str | None:
    """The transport receives what the plan says, all ranks together."""
    own = weights(32, 4)
    x = normal((4, 16, 32), 0)
    u, v = normal((12, 24)), normal((24, 12), 5)
    cases: dict[str, tuple[Any, ...]] = {
        "attention": (attention, x, *own),
        "product": (lambda a, b: X.sum(X.tanh(a @ b), axis=0), u, v),
        "transposed": (lambda a, b: (a.T + b) @ a, u, v),
        "sorted": (lambda a: X.sort(a @ a.T, axis=0) * 2.0, u),
    }
    for name, (function, *args) in cases.items():
        step = X.program(cache=False)(function)
        step(*args)
        with redist.trace() as seen:
            step(*args)
        here = sum(move.received_bytes for move in seen.moves)
        total, plan = COMM.allreduce(here), step.plan(*args)
        if total != plan.received_bytes:
            return f"{name}: {total} bytes, planned {plan.received_bytes}"
        one_by_one = step.graph(*args).figures["batches"] == 0
        if one_by_one and plan.layouts == "planned" and not plan.bound_ps <= plan.written_ps:
            return f"{name}: a bound beyond the layouts as written"
    return None


def unused() -> str | None:
    """Work that nothing uses is no reason to refuse a plan."""
    for reduce in (X.max, X.sum, X.min):

        def step(a: Any, reduce: Any = reduce) -> Any:
            reduce(a)
            return a @ a

        a = X.ones((2, 2), type="{x}, {}")
        if not near(X.program(step)(a).gather(), np.full((2, 2), 2.0)):
            return f"{reduce.__name__} differs"
    return None


def mttkrp(x: Any, b: Any, c: Any) -> Any:
    return X.einsum("ijk,ja,ka->ia", x, b, c)


def cubes(k: float, n: int = 64) -> list[Any]:
    return [X.asarray(np.full(s, k, "f4")) for s in ((n, n, n), (n, n // 2), (n, n // 2))]


def received(calls: list[list[Any]], function: Any, **options: Any) -> list[int]:
    """Bytes that all ranks receive in one call of a program after the other."""
    step, row = X.program(**options)(function), []
    for args in calls:
        row.append(COMM.allreduce(moves_of(lambda args=args: step(*args))[1]))  # type: ignore[misc]
    return row


def settles() -> str | None:
    """Layouts for arguments that stay cost one call at most if they change after all."""
    same = cubes(1.0)
    calls = [same, same, same, *(cubes(float(k)) for k in range(6))]
    written = received(calls, mttkrp, layouts="as written")
    planned = received(calls, mttkrp)
    if sum(a > b for a, b in zip(planned, written, strict=True)) > 1:
        return f"{planned}, as written {written}"

    def layer(x: Any, up: Any, down: Any) -> Any:
        return X.tanh(x @ up) @ down

    def given(k: int) -> list[Any]:
        sizes = ((64, 256), "{}, {x}"), ((256, 256), "{x}, {}"), ((256, 256), "{x}, {}")
        return [normal(s, k + n, type=t) * 0.1 for n, (s, t) in enumerate(sizes)]

    same = given(0)
    row = received([*[same] * 4, *map(given, range(1, sample(10, of=30)))], layer)
    if COMM.size > 1 and (not row[0] or any(row[2:4])):
        return f"nothing is kept: {row}"
    dear = [n for n in row if n > row[0]]
    if len(dear) > 1 or any(n != row[0] for n in row[4:]):
        return f"calls of new arguments receive {row[4:]}, the first {row[0]}"
    return None


def too_large() -> str | None:
    """Arguments whose copies have no room are not moved as if they were kept."""
    most = FAR_BYTES.most_bytes
    FAR_BYTES.most_bytes = 4 * 128**3 // COMM.size - 1
    try:
        calls = [cubes(1.0, 128)] * 4
        written = received(calls, mttkrp, layouts="as written")
        planned = received(calls, mttkrp)
    finally:
        FAR_BYTES.most_bytes = most
    if any(a > b for a, b in zip(planned, written, strict=True)):
        return f"{planned}, as written {written}"
    return None


def runs_once() -> str | None:
    """The function runs once for a kind of arguments, whatever is asked of the program afterwards."""
    ran: list[str] = []

    def step(x: Any, w: Any) -> Any:
        ran.append("step")
        here = X.zeros((24, 24), type="{}, {x}")
        here[0] = 1.0
        y = X.tanh(x @ w) + here
        y += X.all(x < 9.0) * 1.0
        return (y.T @ w).T - x * 0.5

    def round_of(x: Any, y: Any) -> Any:
        ran.append("round")
        near_zero = X.map_tiles(lambda tile: tile * 0.5, y)
        return X.tanh(x @ y) + near_zero, X.tanh((y.T @ x).T) - x * 0.5

    def product(x: Any, w: Any) -> Any:
        ran.append("product")
        return X.tanh(x @ w)

    x, w = normal((24, 24), type="{x}, {}"), normal((24, 24), 5, type="{x}, {}") * 0.2
    want, twice = step(x, w).gather(), round_of(*round_of(x, w))
    held = COMM.allreduce(BUFFERS.live_bytes, MPI.MAX)  # by checks before this one
    with tempfile.TemporaryDirectory() as folder:
        cases: dict[str, dict[str, Any]] = {
            "planned": {},
            "as written": {"layouts": "as written"},
            "within a limit": {"limit": held + 100 * 2**10},
            "spilled": {"limit": held + 25 * 2**10, "spill": folder},
        }
        for name, options in [*cases.items()][:: 1 if THOROUGH else 3]:
            ran.clear()
            program = X.program(**options)(step)
            if not all(near(program(x, w).gather(), want) for _ in range(5)):
                return f"{name} differs"
            program.plan(x, w), program.graph(x, w)
            if "limit" in options:
                program.timeline(x, w)
            elif name == "planned":
                program.arrange(x, w)
            if len(ran) != 1:
                return f"{name}: ran {len(ran)} times"
            program(x, X.astype(w, np.float32))
            if len(ran) != 2:
                return f"{name}: ran {len(ran)} times for two kinds of arguments"
    ran.clear()
    try:
        X.program(limit="1KiB")(product)(x, w)
        return "it runs within too little"
    except redist.NoPlanError:
        if ran != ["product"]:
            return f"within too little it ran {len(ran)} times"
    ran.clear()
    program = X.program(round_of)
    for _ in range(2):
        got = X.repeat(program, 2, (x, w))
        if not all(near(a.gather(), b.gather()) for a, b in zip(got, twice, strict=True)):
            return "rounds differ"
    return None if ran == ["round"] else f"a loop ran {len(ran)} times"


def depends_on_numbers() -> str | None:
    """What the function has changed itself is seen in the next call: a number it counts up, not a log."""
    counts, log = {"n": 0}, [""]

    def step(x: Any) -> Any:
        counts["n"] += 1
        log.append("called")
        return (x @ x.T) * counts["n"]

    x = normal((8, 8), type="{x}, {}")
    want = (x @ x.T).gather()
    program = X.program(step)
    got = [program(x).gather() for _ in range(3)]
    if not all(near(one, want * (n + 1)) for n, one in enumerate(got)):
        return "differs"
    return None if counts["n"] == 3 else f"ran {counts['n']} times in 3 calls"


def lets_go() -> str | None:
    """A program keeps no array of its calls alive, planned or not, with copies or without."""

    def step(x: Any, w: Any) -> Any:
        y = X.where(x > 0, x, X.zeros((16, 16))) + X.concat([w, w])[:16] - X.sum(w, axis=0)
        y += X.einsum("ij,jk->ik", x, w) * 2.0
        y[0] = X.max(x, axis=0)
        return X.tanh(x @ w) @ w + X.flip(x, axis=0) + X.map_tiles(np.negative, y) + X.sort(y.T)

    for layouts in ("planned", "as written"):
        program = X.program(layouts=layouts)(step)
        x, w = normal((16, 16), type="{x}, {}"), normal((16, 16), 5, type="{}, {x}")
        refs = [weakref.ref(one) for one in (x, w)]
        for _ in range(3):
            made = program(x, w)
        if not near(made.gather(), step(x, w).gather()):
            return f"{layouts} differs"
        print_of = str(program.plan(x, w))
        if layouts not in print_of:
            return f"{layouts}: its plan says {print_of}"
        there = program.arrange(x, w)
        refs += [weakref.ref(one) for one in there]
        del x, w, made, there
        gc.collect()
        if any(ref() is not None for ref in refs):
            return f"{layouts}: an argument is alive"
    return None


CHECKS = {
    check.__name__: check
    for check in (
        agrees,
        arranged,
        pinned,
        updates,
        kernels,
        loops,
        counted,
        unused,
        settles,
        too_large,
        runs_once,
        depends_on_numbers,
        lets_go,
    )
}


def program() -> int:
    """0 if everything holds."""
    return run_named(CHECKS)


if __name__ == "__main__":
    main(program)
