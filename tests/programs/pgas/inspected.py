"""Reads at global arrays of indices: what ranks tell each other once, and what passes in every call.

As in ``mpirun -n 3 python -m tests.programs.pgas.inspected``. With ``--messages`` nothing is shared, as
between hosts, and all messages are counted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import ArrayType, Mesh, pgas
from redist.pgas.memory import BUFFERS
from redist.runtime.elements.inspected import OPS
from redist.runtime.onesided.window import windows_of
from redist.runtime.ranks import world as ranks_world
from redist.runtime.ranks.tokens import Tag
from redist.runtime.ranks.world import world_of
from tests.programs.pgas.layouts import layouts, meshes
from tests.programs.together import all_well, main
from tests.tiers import THOROUGH, sample

COMM = MPI.COMM_WORLD
I64 = ArrayType.parse("i64[2]", Mesh(x=1)).dtype
F64 = ArrayType.parse("f64[2]", Mesh(x=1)).dtype
WRITTEN = pgas.program(layouts="as written")


def made(whole: Any, mesh: Mesh | None = None) -> Any:
    """An array of these values, whose first dim is cut."""
    rows = ", ".join(["{x}", *["{}"] * (whole.ndim - 1)])
    return pgas.asarray(whole, mesh=mesh or Mesh(x=COMM.size)).to(rows)


def indices(n: int, shape: Any, seed: int) -> Any:
    return made(np.random.default_rng(seed).integers(-n, n, shape))


def numbers(shape: Any, seed: int = 1) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


KEYS: dict[str, Callable[..., Any]] = {
    "elements": lambda x, i, j: (i, j),
    "rows": lambda x, i, j: i,
    "columns": lambda x, i, j: (slice(None), j),
    "part of rows": lambda x, i, j: (i, slice(1, 6, 2)),
    "a column": lambda x, i, j: (i, 3),
    "new dim": lambda x, i, j: (None, i),
    "functions": lambda x, i, j: ((i + 5) % x.shape[0], j // 2),
    "slices": lambda x, i, j: (i[::2], j[1::2]),
    "two dims": lambda x, i, j: (pgas.reshape(i, (2, -1)), pgas.reshape(j, (2, -1))),
    "whole indices": lambda x, i, j: (i.to("{}"), j.to("{}")),
    "outer": lambda x, i, j: (i[:, None], j[None]),
    "bools made numbers": lambda x, i, j: pgas.astype(i > 3, "i4"),
}


def table() -> str | None:
    """Every kind of key gives NumPy's elements in every layout: eagerly, in programs, in later calls."""
    rng = Random(COMM.size)
    shape = 23, 8
    whole, i, j = numbers(shape), *(indices(n, 12, n) for n in shape)
    wholes = whole, i.gather(), j.gather()
    for name, key in [*KEYS.items()][:: 1 if THOROUGH else 4]:
        given = key(made(whole), i, j)
        parts = given if isinstance(given, tuple) else (given,)
        want = whole[tuple(x.gather() if isinstance(x, pgas.Array) else x for x in parts)]
        every = [t for mesh in meshes(COMM.size) for t in layouts(mesh, F64, shape)]
        for t in rng.sample(every, sample(1, of=min(len(every), 4))):
            x = pgas.asarray(whole, mesh=t.mesh).to(t)
            a, b = (made(one, t.mesh) for one in wholes[1:])

            def read(x: Any, a: Any, b: Any, key: Any = key) -> Any:
                return x.get(key(x, a, b))

            for how in rng.sample(("planned", "as written"), sample(1, of=2)):
                step = pgas.program(layouts=how)(read)
                calls = [step(x, a, b) for _ in range(3)]
                if not all(_same(y.gather(), want) for y in calls):
                    return f"{name} of {t}: differs, {how}"
            eager = read(x, a, b)
            if not _same(eager.gather(), want) or eager.type != calls[0].type:
                return f"{name} of {t}: differs eagerly"
    return None


def _same(one: Any, other: Any) -> bool:
    return one.shape == other.shape and one.tobytes() == np.ascontiguousarray(other).tobytes()


DTYPES = ("f8", "f4", "i2", "c16", "bool", "bf16")


def random_sets() -> str | None:
    """Random indices, dtypes and sizes: the same bits as one-sided reads in an epoch."""
    for seed in range(sample(6, of=200)):
        rng = np.random.default_rng(seed)
        n, k, width = int(rng.integers(1, 400)), int(rng.integers(0, 500)), int(rng.integers(1, 4))
        shape = (n, width) if seed % 2 else (n,)
        dtype = DTYPES[seed % len(DTYPES)]
        x = pgas.astype(made(rng.integers(-50, 50, shape)), dtype)
        i = indices(n, k, seed)
        y = WRITTEN(lambda x, i: x.get(i))(x, i)
        with x.epoch():
            want = x.get(i.local)
        if y.local.tobytes() != want.tobytes():
            return f"{seed}: {dtype} {shape}, {k} indices: other bits than in an epoch"
    return None


def _told(step: Any, *args: Any) -> tuple[Any, int, int]:
    """What a call gives, how often ranks told each other lists, and how often values passed."""
    with redist.trace() as t:
        y = step(*args)
    found = t.by_lists.values()
    return y, sum(one.inspected for one in found), sum(one.exchanges for one in found)


def once() -> str | None:
    """Lists are told once, again when the indices change in any way, and not when only values do."""
    x, i = made(numbers(50)), indices(50, 70, 2)
    for name, key in (("argument", lambda i: i), ("function", lambda i: (i + 1) % 50)):
        step = pgas.program(lambda x, i, key=key: x.get(key(i)) * 2.0)

        def call(x: Any, i: Any, step: Any = step, key: Any = key) -> Any:
            y, inspected, exchanged = _told(step, x, i)
            same = _same(y.gather(), x.gather()[key(i.gather())] * 2.0)
            return inspected if same and exchanged == 1 else f"wrong: {exchanged} exchanges"

        other, changing = made(numbers(50, 5)), i.copy()
        asked = [call(x, i), call(x, i), call(other, i), call(x, changing)]
        changing //= 2
        changing[3] = 7
        asked += [call(x, changing), call(x, changing), call(x, i)]
        if asked[:3] != [1, 0, 0] or asked[4:6] != [1, 0]:
            return f"{name}: inspected {asked}"
        shared = i.copy()
        tile = shared.local
        asked = [call(x, shared), call(x, shared)]
        if tile is not None and tile.size:
            tile[0] = (tile[0] + 1) % 50
        asked += [call(x, shared), call(x, shared)]
        if asked[1:] != [0, 1, 0]:
            return f"{name}, written through .local: inspected {asked}"
    graph = step.graph(x, i)
    said = [move.fate for node in graph.nodes for move in node.moves if move.steps == "inspect"]
    if said != ["inspected once, while argument 1 stays"]:
        return f"the graph says {said}"
    with redist.trace() as t:
        step(x, i)
    return None if "before" in str(t) else "the trace does not say that lists were there before"


def together() -> str | None:
    """Reads of one array between two writes are one exchange, with equal lists told once."""
    x, y = (made(numbers(40, seed)) for seed in (1, 2))
    i, j = indices(40, 30, 3), indices(40, 20, 4)

    def several(x: Any, y: Any, i: Any, j: Any) -> Any:
        return x.get(i) + x.get((i + 1) % 40), x.get(j), y.get(j)

    def between(x: Any, y: Any, i: Any, j: Any) -> Any:
        x = x * 1.0
        first = x.get(i)
        x += 1.0
        return first, x.get(i)

    for function, lists, exchanges in ((several, 3, 2), (between, 1, 2)):
        step, own = WRITTEN(function), (i.copy(), j.copy())
        for call in range(3):
            given = (x, y, *own)
            got, inspected, exchanged = _told(step, *given)
            want = function(*given)
            if not all(_same(a.gather(), b.gather()) for a, b in zip(got, want, strict=True)):
                return f"{function.__name__}: call {call} differs"
            if (inspected, exchanged) != (0 if call else lists, exchanges):
                return f"{function.__name__}: {inspected} lists, {exchanged} exchanges"
    return None


def refused() -> str | None:
    """Indices that depend on values, or that were changed, are refused with their line; so are others."""
    x, p, i = made(numbers(40)), indices(40, 40, 1), indices(40, 30, 3)
    here = os.path.basename(__file__)
    cases: list[tuple[Callable[..., Any], str]] = [
        (lambda x, p, i: x.get(p.get(i)), "depends on what get"),
        (lambda x, p, i: x.get(p[i]), "depends on what getitem"),
        (lambda x, p, i: x.get(pgas.astype(x * 3, "i8") % 40), "values of float64"),
        (lambda x, p, i: x.get(pgas.argmax(x[:, None] * x[None], axis=0)), "values of float64"),
        (lambda x, p, i: x.get(i.__iadd__(1)), "has changed"),
        (lambda x, p, i: x.get(3), "in a program"),
    ]
    for function, said in cases:
        try:
            WRITTEN(function)(x, p, i.copy())
        except redist.CaptureError as error:
            if said not in str(error) or here not in str(error):
                return f"{said}: {error}"
        else:
            return f"{said}: no error"
    step = WRITTEN(lambda x, p, i: x.get(i))
    for bad in (40, -41):
        wrong = i.copy()
        wrong[4] = bad
        try:
            step(x, p, wrong)
        except IndexError as error:
            if "out of bounds" not in str(error):
                return str(error)
        else:
            return f"no error for an index {bad}"
    return None if _same(step(x, p, i).gather(), x.gather()[i.gather()]) else "wrong after errors"


def some_ranks() -> str | None:
    """Arrays that not all ranks have a tile of, reads of them joined; sizes that leave tiles empty."""
    mesh = Mesh(x=max(1, COMM.size - 1))
    for n, k in ((17, 9), (1, 3), (2, 1)):
        x = pgas.asarray(numbers(n), mesh=mesh).to("{x}")
        i = pgas.asarray(np.random.default_rng(k).integers(0, n, k), mesh=mesh).to("{x}")
        for make in (WRITTEN, pgas.program):
            step = make(lambda x, i, n=n: x.get(i) - x.get((i + 1) % n))
            for _ in range(3):
                whole, at = x.gather(), i.gather()
                if not _same(step(x, i).gather(), whole[at] - whole[(at + 1) % n]):
                    return f"{n} elements, {k} indices: differs"
    return None


def loops() -> str | None:
    """A step of a loop reads by lists that are told once, in planned layouts."""
    n = 60
    x, i = made(numbers(n)), indices(n, n, 6)
    whole, at = x.gather(), i.gather()

    @pgas.program
    def step(x: Any, i: Any) -> Any:
        return x.get(i) * 0.5 + x, i

    with redist.trace() as t:
        y, _ = pgas.repeat(step, 6, (x, i))
    for _ in range(6):
        whole = whole[at] * 0.5 + whole
    told = sum(one.inspected for one in t.by_lists.values())
    if not _same(y.gather(), whole):
        return "differs"
    return None if told <= 2 else f"inspected {told} times"


def limited() -> str | None:
    """Within a limit a program gives the same, and says what it does."""
    x, i = made(numbers(4000)), indices(4000, 3000, 7)
    want = x.gather()[i.gather()] * 2
    limit = BUFFERS.live_bytes + 2**23
    step = pgas.program(limit=limit)(lambda x, i: x.get(i) * 2)
    if not all(_same(step(x, i).gather(), want) for _ in range(2)):
        return "differs"
    said = str(step.graph(x, i))
    if "runs as it is under the limit: how long lists" not in said:
        return f"the graph says {said}"
    with redist.memory_limit(limit):
        return None if _same((x.get(i) * 2).gather(), want) else "differs eagerly"


def accumulates() -> str | None:
    """Values are combined at indices, in every layout: with copies too, once for equal values."""
    rng = Random(COMM.size)
    for seed in range(sample(5, of=60)):
        op = ("sum", "max", "min", "prod", "replace")[seed % 5]
        draw = np.random.default_rng(seed)
        n, k = int(draw.integers(1, 40)), int(draw.integers(0, 60))
        at = draw.permutation(n)[:k] if op == "replace" else draw.integers(-n, n, k)
        start, values = draw.integers(-9, 9, (n, 3)), draw.integers(-3, 4, (len(at), 3))
        want, ufunc = start.copy(), OPS[op]
        if ufunc is None:
            want[at] = values
        else:
            ufunc.at(want, at, values)
        mesh = rng.choice(meshes(COMM.size))
        lies, other = (rng.choice(list(layouts(mesh, I64, one.shape))) for one in (start, values))
        a, given = (pgas.asarray(one, mesh=mesh) for one in (start, values))
        a, given, i = a.to(lies), given.to(other), made(at, mesh)

        def change(a: Any, i: Any, given: Any, op: str = op) -> Any:
            a.accumulate(i, given, op)
            return a * 1

        for step in (WRITTEN(change), pgas.program(change), change):
            for _ in range(2):
                b = a.copy()
                if not (_same(step(b, i, given).gather(), want) and _same(b.gather(), want)):
                    return f"{seed}: {op} into {lies} of {other} differs"
    return None


def like_epochs() -> str | None:
    """Where a rank names an element once, floats have the bits of an epoch."""
    n = 30
    rng = np.random.default_rng(5)
    at = np.concatenate([rng.permutation(n)[:20] for _ in range(COMM.size)])
    a, b = (made(numbers(n)) for _ in range(2))
    i, v = made(at), made(numbers(len(at), 3))
    WRITTEN(lambda a, i, v: a.accumulate(i, v))(a, i, v)
    with b.epoch():
        b.accumulate(i.local, v.local)
    return None if _same(a.gather(), b.gather()) else "other bits than in an epoch"


def gradients() -> str | None:
    """The gradient of a read adds at the indices, by the same lists; that of it reads."""
    n = 40
    x, i, w = made(numbers(n)), indices(n, 70, 3), made(numbers(70, 2))

    def loss(x: Any, i: Any, w: Any) -> Any:
        return pgas.sum(x.get(i) ** 2 * w)

    want = np.zeros(n)
    at = i.gather() % n
    np.add.at(want, at, 2 * x.gather()[at] * w.gather())
    step = pgas.program(loss).grad()
    told = []
    for slope in (pgas.grad(loss), WRITTEN(loss).grad(), step, step):
        g, inspected, _ = _told(slope, x, i, w)
        told.append(inspected)
        if not np.allclose(g.gather(), want):
            return "other gradients"
    if told[1] != 1 or told[3]:
        return f"inspected {told}"

    def slopes(x: Any, i: Any, w: Any) -> Any:
        return pgas.sum(pgas.grad(loss)(x, i, w) ** 2)

    h = pgas.grad(slopes)(x, i, w).gather()
    weights = np.bincount(at, w.gather(), minlength=n) * 2
    return None if np.allclose(h, 2 * weights**2 * x.gather()) else "other second gradients"


ROWS, LONG = 64, 6


def sparse_product() -> str | None:
    """A sparse product by rows: a fifth of the messages of epochs, one for two ranks and call, equal bits."""
    n = ROWS * COMM.size
    rng = np.random.default_rng(3)
    whole = rng.integers(0, n, (n, LONG))
    x, cols = made(rng.normal(size=n)), made(whole)
    vals = made(rng.normal(size=(n, LONG)))

    def product(x: Any, cols: Any, vals: Any) -> Any:
        return pgas.sum(x.get(cols) * vals, axis=1)

    step = WRITTEN(product)
    step(x, cols, vals)
    world = world_of(COMM)
    counted = world.comm = Counting(world.comm)  # type: ignore[assignment]
    got = [step(x, cols, vals) for _ in range(2)]
    by_lists = counted.messages / 2
    counted.messages = 0
    own = [np.asarray(one.local) for one in (cols, vals)]
    with x.epoch():
        service = windows_of(world).service
        if service is not None:
            service._comm = Counting(service._comm)  # type: ignore[assignment]
        want = np.sum(np.stack([x.get(row) for row in own[0]]) * own[1], axis=1)
    by_epochs = counted.messages + (0 if service is None else service._comm.messages)  # type: ignore[attr-defined]
    if any(y.local.tobytes() != want.tobytes() for y in got):
        return "other bits than in an epoch"
    if by_lists > COMM.size - 1:
        return f"{by_lists} messages a call to {COMM.size - 1} others"
    if not world.one_node and by_epochs < 5 * by_lists:
        return f"{by_lists} messages a call, {by_epochs} by an epoch"
    return None


class Counting:
    """A communicator that counts the messages of values and requests that are sent to others."""

    def __init__(self, comm: Any) -> None:
        self._comm, self.messages = comm, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def Isend(self, buffer: Any, dest: int, tag: int = 0) -> Any:
        """A message."""
        self.messages += dest != self._comm.rank and tag != Tag.ABORT
        return self._comm.Isend(buffer, dest, tag)

    def Ialltoallv(self, there: Any, here: Any) -> Any:
        """A message to everyone who gets something."""
        self.messages += sum(n > 0 for r, n in enumerate(there[1][0]) if r != self._comm.rank)
        return self._comm.Ialltoallv(there, here)


CHECKS = {
    check.__name__: check
    for check in (
        table, random_sets, once, together, refused, some_ranks, loops, limited, accumulates,
        like_epochs, gradients, sparse_product,
    )
}  # fmt: skip


BETWEEN_HOSTS = ("random_sets", "together", "some_ranks", "accumulates", "sparse_product")


def checks_on(ranks: int, args: Sequence[str]) -> tuple[str, ...]:
    """What is checked on so many ranks; messages are counted where nothing is shared."""
    return BETWEEN_HOSTS if "--messages" in args else tuple(CHECKS)


def program() -> int:
    """0 if everything holds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", action="store_true")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    if args.messages:
        ranks_world.can_share = lambda: False  # type: ignore[attr-defined]
        assert COMM.size == 1 or not world_of(COMM).one_node
    names = checks_on(COMM.size, sys.argv)
    said = [all_well(COMM, name, CHECKS[name]()) for name in names if args.only in name]
    return int(not all(said))


if __name__ == "__main__":
    main(program)
