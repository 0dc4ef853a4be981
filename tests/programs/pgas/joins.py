"""Extended Einstein sums against NumPy's broadcasting of the whole joined array, on every layout.

As in ``mpirun -n 3 python -m tests.programs.pgas.joins --n 100 --seed 0``.
"""

from __future__ import annotations

import gc
import math
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from redist import ArrayType, MemoryLimitError, Mesh, RedistError, memory_limit, pgas, trace
from redist.pgas.joins import ein_kernel as block_shapes
from redist.pgas.memory import BUFFERS
from redist.pgas.products import contract_layout as placing
from redist.pgas.products import streaming
from redist.pgas.products.einsum import sum_products
from redist.plan.rates import ONE_NODE
from tests.programs.pgas.drawing import Draw, Values, wrong, xp
from tests.programs.pgas.rounds import Check, names_of, run_checks
from tests.programs.together import main

DTYPES = ("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16")
NOTATIONS = (
    "->", "i->", "i->i", "ij->i", "ij->j", "ij->", "ij->ji", "ii->i", "iij->j", "ijk->kj",
    "i,i->", "i,j->ij", "i,j->", "ij,ij->ij", "ik,jk->ij", "ik,kj->ij", "ij,i->ij", "ij,i->i", "ij,->j",
    "bij,bjk->bki", "ij,kl->li", "ij,j->", "i...,...->...i", "...k,k->...", "ij,k->i",
    "i,i,i->i", "ijk,jr,kr->ir", "ij,jk,kl->il", "i,j,k->ki", "ab,b,bc,->ca",
)  # fmt: skip
JOINS: dict[int, dict[str, Any]] = {
    1: {
        "copy": lambda a: a, "negative": lambda a: -a, "square": lambda a: a * a,
        "twice": lambda a: 2 * a, "where": lambda a: WHERE(a != 1, a, 0 * a),
    },
    2: {
        "multiply": lambda a, b: a * b, "add": lambda a, b: a + b, "subtract": lambda a, b: a - b,
        "square": lambda a, b: (a - b) ** 2, "first": lambda a, b: a, "maximum": lambda a, b: (a + b) * b + a,
        "equal": lambda a, b: a == b, "less": lambda a, b: abs(a) < abs(2 * b),
    },
    3: {
        "multiply": lambda a, b, c: a * b * c, "add": lambda a, b, c: a + b + c,
        "fma": lambda a, b, c: a * b - c, "last": lambda a, b, c: c * c,
    },
    4: {"multiply": lambda a, b, c, d: a * b * c * d, "mix": lambda a, b, c, d: a * d + b * c},
}  # fmt: skip
"""By the number of operands: functions that mean the same of NumPy's arrays and of elements."""
AGGREGATIONS = ("sum", "prod", "max", "min")
ROUNDED = 8
"""So often is a product of operands rounded, in any order, beside the aggregation."""


def WHERE(condition: Any, x: Any, y: Any) -> Any:
    """``where`` of NumPy or of elements."""
    return (np if isinstance(condition, (np.ndarray, np.generic)) else xp).where(condition, x, y)


def brute_force(text: str, values: list[Values], join: Callable[..., Any], agg: str) -> Any:
    """NumPy's result from the whole joined array, and how far from it each element may lie.

    Joined elements, and the largest and smallest of them, have the same bits, but for products of complex
    numbers, which NumPy rounds otherwise one by one. A sum or product of n floats may differ by n + 8
    roundings of the sum or product of their magnitudes, in whatever order it was made: roundings of the
    narrowest floats among the operands, of which NumPy rounds a product before it meets wider ones.
    """
    inputs, output = pgas_labels(text, values)
    labels = tuple(dict.fromkeys(label for one in inputs for label in one))
    spread = []
    for x, own in zip(values, inputs, strict=True):
        while len(set(own)) < len(own):
            label = next(one for one in own if own.count(one) > 1)
            i, j = own.index(label), own.index(label, own.index(label) + 1)
            x = np.diagonal(x, axis1=i, axis2=j)
            own = (*(one for k, one in enumerate(own) if k not in (i, j)), label)
        x = x.transpose([own.index(label) for label in labels if label in own])
        spread.append(x[tuple(slice(None) if label in own else None for label in labels)])
    joined = np.asarray(join(*spread))
    joined = np.broadcast_to(joined, np.broadcast_shapes(*(x.shape for x in spread)))
    gone = tuple(dim for dim, label in enumerate(labels) if label not in output)
    kept = [label for label in labels if label in output]
    if agg in ("max", "min") and 0 in (
        joined.shape[d] for d in range(len(labels)) if d not in gone
    ):
        out = np.empty([n for d, n in enumerate(joined.shape) if d not in gone], joined.dtype)
    else:
        out = getattr(np, agg)(joined, axis=gone) if gone else joined
    bound = np.zeros(np.shape(out))
    if joined.dtype.kind == "c":
        most = math.prod(max(1.0, float(np.abs(x).max(initial=1.0))) for x in values)
        bound += ROUNDED * most**2 * max(1, joined.size) * float(np.finfo(joined.dtype).eps)
    if gone and agg in ("sum", "prod") and joined.dtype.kind in "fc":
        size = np.abs(joined).astype(np.float64)
        n_terms = int(np.prod([joined.shape[dim] for dim in gone]))
        floats = [x.dtype for x in (joined, *values) if x.dtype.kind in "fc"]
        eps = max(float(np.finfo(dtype).eps) for dtype in floats)
        bound = (ROUNDED + n_terms) * eps * getattr(np, agg)(size, axis=gone)
    order = [kept.index(label) for label in output]
    return np.asarray(out).transpose(order), np.asarray(bound).transpose(order)


def pgas_labels(text: str, values: list[Values]) -> Any:
    """The labels of operands and result; those of dots are negative numbers."""
    terms, _, kept = text.partition("->")
    spreads = [
        x.ndim - len(term.replace("...", "")) if "..." in term else 0
        for x, term in zip(values, terms.split(","), strict=True)
    ]

    def labels(term: str, n: int) -> tuple[Any, ...]:
        head, dots, tail = term.partition("...")
        return (*head, *(range(-n, 0) if dots else ()), *tail)

    inputs = [labels(term, n) for term, n in zip(terms.split(","), spreads, strict=True)]
    return inputs, labels(kept, max(spreads))


def drawn(draw: Draw, text: str, dtype: str, least: int = 0) -> list[Values]:
    """Operands of a notation, some of whose dims have size 1 and stretch."""
    size = {letter: max(least, draw.size()) for letter in "abcijklr"}
    free = tuple(max(least, draw.size()) for _ in range(draw.rng.integers(0, 3)))
    values = []
    for term in text.split("->")[0].split(","):
        head, dots, tail = term.partition("...")
        stretched = draw.rng.random() < 0.15 and len(set(term)) == len(term)
        shape = (
            *(size[one] for one in head),
            *(free if dots else ()),
            *(size[one] for one in tail),
        )
        shape = tuple(1 if stretched and draw.rng.random() < 0.5 else n for n in shape)
        kind = str(draw.rng.choice(DTYPES)) if draw.rng.random() < 0.1 else dtype
        own = draw.values(shape, kind)
        values.append(np.asarray(own % 5, own.dtype) if own.dtype.kind in "iu" else own)
    return values


def differs(out: Any, want: Values, bound: Values, what: str) -> str | None:
    """What differs on this rank by more than the bound; integers and truth values have none."""
    if (out.shape, out.dtype) != (want.shape, want.dtype):
        return f"{what}: {out.dtype}{out.shape}, not {want.dtype}{want.shape}"
    out = out.settled()
    if out.local is None:
        return None
    box = tuple(slice(lo, hi) for lo, hi in out.box)
    got, want, bound = out.local, want[box], bound[box]
    if got.shape != want.shape:
        return f"{what}: a tile of {got.shape}, not {want.shape}"
    fine = (got == want) | ((got != got) & (want != want)) | ~np.isfinite(bound)
    if got.dtype.kind in "fc":
        fine |= np.abs(got - want) <= bound
    return None if bool(np.all(fine)) else f"{what}: {got.tolist()}, not {want.tolist()}"[:1500]


def random_one(draw: Draw, in_program: bool = False) -> str | None:
    """One notation, join, aggregation, dtype and layout of each operand."""
    mesh, text = draw.mesh(), str(draw.rng.choice(NOTATIONS))
    n = text.count(",") + 1
    name = str(draw.rng.choice(list(JOINS[n])))
    agg, dtype = str(draw.rng.choice(AGGREGATIONS)), str(draw.rng.choice(DTYPES))
    values = drawn(draw, text, dtype)
    join = JOINS[n][name]
    arrays = [draw.array(x, mesh) for x in values]
    what = f"ein {text} {name} {agg} of {', '.join(str(x.type) for x in arrays)} on {mesh}"
    own = (
        name
        if name in ("copy", "multiply", "add", "subtract") and draw.rng.random() < 0.5
        else join
    )

    def call(*given: Any) -> Any:
        return xp.ein(text, *given, join=own, agg=agg)

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            want, bound = brute_force(text, values, join, agg)
            refused = agg in ("max", "min") and is_complex(join, values) and has_gone(text, values)
        except (TypeError, ValueError):
            refused = True
        try:
            planned = draw.rng.random() < 0.5
            step = pgas.program(layouts="planned" if planned else "as written")(call)
            out = step(*arrays) if in_program else call(*arrays)
        except (TypeError, ValueError, RedistError) as problem:
            return None if refused else f"{what}: {problem}"
        if refused:
            return f"{what}: no error"
        said = differs(out, want, bound, what)
        again = call(*arrays) if in_program and not planned else out
        if again.type != out.type or _bytes(again) != _bytes(out):
            return f"{what}: a program gives other bits"
        return said


def _bytes(x: Any) -> bytes | None:
    return None if x.tile is None else bytes(x.tile.tobytes())


def is_complex(join: Callable[..., Any], values: list[Values]) -> bool:
    return bool(np.asarray(join(*(np.ones(1, x.dtype) for x in values))).dtype.kind == "c")


def has_gone(text: str, values: list[Values]) -> bool:
    inputs, output = pgas_labels(text, values)
    return any(label not in output for one in inputs for label in one)


def ein(draw: Draw) -> str | None:
    """Operands of one block."""
    return random_one(draw)


@contextmanager
def small_blocks() -> Iterator[None]:
    """Let blocks have a few elements."""
    with mock.patch.multiple(block_shapes, BLOCK_BYTES=256, INNER_ELEMS=3, PACKED_BYTES=64):
        yield


def in_small_blocks(draw: Draw) -> str | None:
    """Operands of many blocks."""
    with small_blocks():
        return random_one(draw)


def in_programs(draw: Draw) -> str | None:
    """Captured, and repeated with the same bits."""
    with small_blocks():
        return random_one(draw, in_program=True)


def operands_in_blocks(draw: Draw) -> str | None:
    """Operands that would grow pass in blocks, one or both of them."""
    forget()
    mesh = draw.mesh()
    m, k, n = (int(v) for v in draw.rng.integers(20, 50, 3))
    x, y = draw.values((m, k), "f8"), draw.values((n, k), "f8")
    agg = str(draw.rng.choice(["sum", "max", "min"]))
    with (
        mock.patch.object(streaming, "BLOCK_BYTES", 256),
        mock.patch.object(placing, "ONE_NODE", replace(ONE_NODE, step_ps=0)),
    ):
        a, b = draw.array(x, mesh), draw.array(y, mesh)
        out = xp.ein("ik,jk->ji", a, b, join="subtract", agg=agg)
    forget()
    want, bound = brute_force("ik,jk->ji", [x, y], np.subtract, agg)
    return differs(out, want, bound, f"{agg} of {a.type} - {b.type} on {mesh}")


def forget() -> None:
    """Places are found again."""
    placing.place.cache_clear()


# Promises


def nothing_joined_in_memory(draw: Draw) -> str | None:
    """At its peak, a rank has not nearly the joined array, nor its tile of it."""
    n, k, d = 1000 * draw.comm.size, 64, 32
    points = xp.ones((n, d), type="{x}, {}", comm=draw.comm)
    centres = xp.zeros((k, d), type="{}, {}", comm=draw.comm)
    joined = n * k * d * 8 // draw.comm.size

    def far() -> Any:
        return xp.ein("ik,jk->ij", points, centres, join=lambda a, b: (a - b) ** 2)

    far()
    gc.collect()
    tracemalloc.start()
    out = far()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    least = out.type.tile_bytes + 2 * block_shapes.BLOCK_BYTES
    if not peak < least < joined / 2:
        return f"{peak} bytes at the peak, {least} allowed, {joined} joined"
    return None if out.local is None or bool((out.local == d).all()) else "wrong values"


def pending(draw: Draw) -> str | None:
    """An aggregated label that is cut stays pending, by every aggregation, and nothing moves."""
    n, p = 1000 * draw.comm.size, draw.comm.size
    x = draw.values((4, n), "f8")
    a = xp.asarray(x, type="{}, {x}", comm=draw.comm)
    b = xp.asarray(x, type="{}, {x}", comm=draw.comm)
    for agg in AGGREGATIONS:
        with trace() as moves:
            out = xp.ein("ik,jk->ij", a, b, join=lambda a, b: a + b, agg=agg)
        want = ArrayType.parse(f"f64[4, 4]{f' {agg}{{x}}' if p > 1 else ''}", out.mesh)
        if out.type != want or len(moves.moves):
            return f"{agg}: {out.type}, {len(moves.moves)} moves"
        said = wrong(out, getattr(np, agg)(x[:, None] + x[None], axis=2), agg, scale=1e3)
        if said is not None and agg != "prod":
            return said
    return None


def product_is_contracted(draw: Draw) -> str | None:
    """Products that are summed take the way of einsum, however they are written."""
    joins: list[Any] = [
        "multiply",
        np.multiply,
        xp.multiply,
        lambda a, b: a * b,
        lambda a, b: b * a,
    ]
    a, b = xp.ones((3, 4), comm=draw.comm), xp.ones((4, 5), comm=draw.comm)
    with mock.patch("redist.pgas.joins.ein.sum_products", wraps=sum_products) as contracts:
        for join in joins:
            xp.ein("ij,jk->ik", a, b, join=join)
        xp.ein("ij,jk->ik", a, b, agg="max")
        xp.ein("ij,jk->ijk", a, b)
        xp.ein("ij,jk->ik", xp.astype(a, np.int8), xp.astype(b, np.int8))
    n_calls = contracts.call_count
    return None if n_calls == len(joins) else f"{n_calls} of {len(joins)}"


def errors(draw: Draw) -> str | None:
    """What makes no sense is refused, with one text on all ranks."""
    comm = draw.comm
    a, b = xp.zeros((3, 4), comm=comm), xp.zeros((3, 4), comm=comm)
    none = xp.zeros((3, 0), comm=comm)
    z = xp.ones((3,), dtype="c16", comm=comm)
    whole = xp.ones((2,), dtype="i4", comm=comm)
    calls: dict[str, Callable[[], Any]] = {
        "sizes 4 and 3 of 'j' differ": lambda: xp.ein("ij,jk->ik", a, b),
        "the labels come first": lambda: xp.ein(a, "ij->"),
        "does not say what is kept": lambda: xp.ein("ij", a),
        "2 terms but 1 operands": lambda: xp.ein("ij,jk->ik", a),
        "for an array of 2 dims": lambda: xp.ein("i->", a),
        "the result's labels": lambda: xp.ein("ij->ik", a),
        "of nothing": lambda: xp.ein("->"),
        "is not a global array": lambda: xp.ein("ij->", np.ones((2, 2))),
        "no aggregation is called 'mean'": lambda: xp.ein("ij->i", a, agg="mean"),
        "no join is called 'plus'": lambda: xp.ein("ij,ij->i", a, b, join="plus"),
        "subtract": lambda: xp.ein(
            "ij->i", xp.zeros((3, 4), dtype=bool, comm=comm), join=lambda a: a - a
        ),
        "divide joins 2 operands": lambda: xp.ein("ij->i", a, join="divide"),
        "numpy.hypot does not join 1": lambda: xp.ein("ij->i", a, join=np.hypot),
        "not a function": lambda: xp.ein("ij->i", a, join=3),
        "no element": lambda: xp.ein("ij->i", a, join=lambda a: 1.0),
        "not element-wise": lambda: xp.ein("ij->i", a, join=lambda a: xp.sum(a)),
        "looks at values": lambda: xp.ein("ij->i", a, join=lambda a: a if a > 0 else -a),
        "arrays that are not its operands": lambda: xp.ein("ij->i", a, join=lambda a: a + b[0, 0]),
        "there is no max of nothing": lambda: xp.ein("ij->i", none, agg="max"),
        "values of complex128 have no min": lambda: xp.ein("i->", z, agg="min"),
        "bring them to one mesh": lambda: xp.ein(
            "i,j->", whole, xp.ones((2,), comm=comm, mesh=other_mesh(draw))
        ),
    }
    for text, call in calls.items():
        try:
            call()
        except RedistError as problem:
            said = str(problem)
        else:
            return f"no error: {text}"
        if text not in said or not said.startswith("cannot ") or len({*comm.allgather(said)}) > 1:
            return f"{said!r}, not {text!r}"
    empty = xp.ein("ij->j", xp.zeros((0, 0), comm=comm), agg="max")
    return None if empty.shape == (0,) else "an empty result of nothing is no error"


def other_mesh(draw: Draw) -> Mesh:
    return Mesh({"y": 1}, ranks=[draw.comm.size - 1])


def limit(draw: Draw) -> str | None:
    """A memory limit is kept, or refused on all ranks alike before anything is made."""
    n, k = 2000, 400
    x = xp.ones((n, 16), type="{x}, {}", comm=draw.comm)
    c = xp.zeros((k, 16), type="{x}, {}", comm=draw.comm)

    def far() -> Any:
        return xp.ein("ik,jk->ij", x, c, join="subtract")

    own = far().type.tile_bytes
    enough = BUFFERS.live_bytes + own + 2 * block_shapes.BLOCK_BYTES + 2**20
    with memory_limit(enough):
        out = far()
    if out.local is not None and not bool((out.local == 16).all()):
        return "wrong values"
    del out
    live = BUFFERS.live_bytes
    said = ""
    with memory_limit(live + own // 2):
        try:
            far()
        except MemoryLimitError as problem:
            said = str(problem)
    if not said.startswith("cannot ein 'ik,jk->ij'") or BUFFERS.live_bytes != live:
        return f"{said!r}, {BUFFERS.live_bytes - live} bytes more are alive"
    return None


OFTEN: tuple[Check, ...] = (ein, in_small_blocks, in_programs, operands_in_blocks)
ONCE: tuple[Check, ...] = (
    nothing_joined_in_memory, pending,
    product_is_contracted, errors, limit,
)  # fmt: skip
CHECKS = names_of([*OFTEN, *ONCE])


def program() -> int:
    """0 if every case agrees with NumPy."""
    return run_checks(OFTEN, ONCE)


if __name__ == "__main__":
    main(program)
