"""Products of random arrays of every layout, compared with NumPy.

As in ``mpirun -n 3 python -m tests.programs.pgas.products --n 100 --seed 0``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from redist import RedistError, memory_limit
from redist.pgas.memory import BUFFERS
from redist.pgas.products import contract as contracting
from redist.pgas.products import contract_layout as placing
from redist.pgas.products import streaming as blocks
from redist.plan.rates import ONE_NODE
from tests.programs.pgas.drawing import Draw, wrong, xp
from tests.programs.pgas.rounds import Check, names_of, run_checks
from tests.programs.together import main

numpy: Any = np
DTYPES = ("f8", "f4", "c16", "c8", "i8", "i4", "u1", "bool")
EINSUMS = (
    "ij,jk->ik", "ij,ij->ij", "ij,ij->", "ij,kj->ki", "bij,bjk->bik", "i,j->ij", "ij,jk,kl->il",
    "ii->i", "ii", "ij->ji", "ijk->k", "ij,jk", "iij,j->i", "ij,kl->", "i,i,i->i", "ab,bc,cd,de->ae",
    "...j,jk->...k", "...i,...i->...", "ij,j->", "ji,jk->k",
)  # fmt: skip


def matmul(draw: Draw) -> str | None:
    """Matrix products, vectors and stacks that broadcast."""
    rng, mesh = draw.rng, draw.mesh()
    m, k, n = draw.size(), draw.size(), draw.size()
    stack = tuple(draw.size() for _ in range(rng.integers(0, 3)))
    other = tuple(1 if rng.random() < 0.4 else s for s in stack)[
        int(rng.integers(0, len(stack) + 1)) :
    ]
    a_shape = (k,) if rng.random() < 0.2 else (*stack, m, k)
    b_shape = (k,) if rng.random() < 0.2 else (*other, k, n)
    if rng.random() < 0.5:
        a_shape, b_shape = (*a_shape[:-2], *a_shape[-2:]), b_shape
    kinds = rng.choice(DTYPES, 2) if rng.random() < 0.2 else [rng.choice(DTYPES)] * 2
    a, b = draw.values(a_shape, str(kinds[0])), draw.values(b_shape, str(kinds[1]))
    x, y = draw.array(a, mesh), draw.array(b, mesh)
    return wrong(x @ y, a @ b, f"{x.type} @ {y.type} on {mesh}")


def tensordot(draw: Draw) -> str | None:
    """Sums over pairs of dims."""
    rng, mesh = draw.rng, draw.mesh()
    n, p, q = (int(v) for v in rng.integers(0, 3, 3))
    inner = [draw.size() for _ in range(n)]
    dtype = str(rng.choice(DTYPES[:-1]))
    a = draw.values((*(draw.size() for _ in range(p)), *inner), dtype)
    b = draw.values((*inner, *(draw.size() for _ in range(q))), dtype)
    i, j = [int(v) for v in rng.permutation(a.ndim)], [int(v) for v in rng.permutation(b.ndim)]
    axes = ([i.index(p + k) for k in range(n)], [j.index(k) for k in range(n)])
    a, b = a.transpose(i), b.transpose(j)
    x, y = draw.array(a.copy(), mesh), draw.array(b.copy(), mesh)
    what = f"tensordot {x.type}, {y.type}, {axes} on {mesh}"
    return wrong(xp.tensordot(x, y, axes=axes), np.tensordot(a, b, axes), what)


def vecdot(draw: Draw) -> str | None:
    """Inner products along a dim."""
    mesh, dtype = draw.mesh(), str(draw.rng.choice(DTYPES[:-1]))
    shape = tuple(draw.size() for _ in range(draw.rng.integers(1, 4)))
    axis = -int(draw.rng.integers(1, len(shape) + 1))
    other = tuple(
        1 if draw.rng.random() < 0.3 and i != len(shape) + axis else n for i, n in enumerate(shape)
    )
    a, b = draw.values(shape, dtype), draw.values(other, dtype)
    x, y = draw.array(a, mesh), draw.array(b, mesh)
    what = f"vecdot {x.type}, {y.type}, {axis} on {mesh}"
    return wrong(xp.vecdot(x, y, axis=axis), numpy.vecdot(a, b, axis=axis), what)


def einsum(draw: Draw) -> str | None:
    """Einstein sums of one to four operands."""
    mesh, dtype = draw.mesh(), str(draw.rng.choice(DTYPES[:-1]))
    text = str(draw.rng.choice(EINSUMS))
    size = {letter: draw.size() for letter in "abcdeijkl"}
    free = tuple(draw.size() for _ in range(draw.rng.integers(0, 3)))
    values = []
    for term in text.split("->")[0].split(","):
        head, dots, tail = term.partition("...")
        shape = (
            *(size[one] for one in head),
            *(free if dots else ()),
            *(size[one] for one in tail),
        )
        values.append(draw.values(shape, dtype))
    arrays = [draw.array(one, mesh) for one in values]
    what = f"einsum {text} {', '.join(str(x.type) for x in arrays)} on {mesh}"
    return wrong(xp.einsum(text, *arrays), np.einsum(text, *values), what, scale=50.0)


def forget() -> None:
    """Places are found again."""
    placing.place.cache_clear()
    contracting._prepare.cache_clear()


def in_blocks(draw: Draw) -> str | None:
    """Operands that pass in blocks, one or both of them."""
    forget()
    free_steps = replace(ONE_NODE, step_ps=0)
    with (
        mock.patch.object(blocks, "BLOCK_BYTES", 256),
        mock.patch.object(placing, "ONE_NODE", free_steps),
    ):
        mesh = draw.mesh()
        m, k, n = (int(v) for v in draw.rng.integers(20, 50, 3))
        a, b = draw.values((m, k), "f8"), draw.values((k, n), "f8")
        x, y = draw.array(a, mesh), draw.array(b, mesh)
        said = wrong(x @ y, a @ b, f"in blocks: {x.type} @ {y.type} on {mesh}")
    forget()
    return said


def errors(draw: Draw) -> str | None:
    """What makes no sense is refused, on every rank."""
    a, b = xp.zeros((3, 4), comm=draw.comm), xp.zeros((3, 4), comm=draw.comm)
    for call in (
        lambda: a @ b,
        lambda: a @ xp.zeros((), comm=draw.comm),
        lambda: xp.einsum("ij,jk->ik", a, b),
        lambda: xp.einsum("ij->iz", a),
        lambda: xp.tensordot(a, b, axes=3),
        lambda: xp.vecdot(a, b, axis=5),
        lambda: a @ np.zeros((4, 3)),
    ):
        try:
            call()
        except (ValueError, RedistError):
            continue
        return "no error"
    return None


def memory(draw: Draw) -> str | None:
    """A product of matrices that are larger than a rank's limit."""
    p, n = draw.comm.size, 1536
    tile = n * n * 8 // p
    a = xp.ones((n, n), type="{x}, {}", comm=draw.comm)
    b = xp.ones((n, n), type="{x}, {}", comm=draw.comm)
    with memory_limit(BUFFERS.live_bytes + 4 * tile + 2**24):
        c = a @ b
    if c.type.tile_bytes > tile + n * 8:
        return f"the result is {c.type}"
    fine = c.local is None or bool((c.local == n).all())
    return None if fine else "wrong values"


LINEAR: dict[str, Any] = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "-a": lambda a, b: -a,
    "3 * a": lambda a, b: 3 * a,
    "a * -2": lambda a, b: a * -2,
    "a / 4": lambda a, b: a / 4,
    "a * 0.5 - b": lambda a, b: a * 0.5 - b,
}
NOT_LINEAR: dict[str, Any] = {
    "a * b": lambda a, b: a * b,
    "2 / a": lambda a, b: 2 / a,
    "a + 1": lambda a, b: a + 1,
    "a * inf": lambda a, b: a * float("inf"),
    "abs(a)": lambda a, b: abs(a),
    "a < b": lambda a, b: a < b,
}


def linear(draw: Draw) -> str | None:
    """Sums that are pending stay so under linear functions, and under no others."""
    mesh = draw.mesh()
    k = 2 * mesh.n_devices
    names = ",".join(name for name, _ in mesh.axes)
    dtype = str(draw.rng.choice(["f8", "f4", "c16", "i8"]))
    values = [draw.rng.integers(1, 9, (3, k)).astype(dtype) for _ in range(4)]
    arrays = [
        xp.asarray(one, type="{}, {" + names + "}", comm=draw.comm, mesh=mesh) for one in values
    ]
    a, b = (xp.einsum("ik,jk->ij", *arrays[i : i + 2]) for i in (0, 2))
    x, y = (np.einsum("ik,jk->ij", *values[i : i + 2]) for i in (0, 2))
    if mesh.n_devices > 1 and "sum" not in (a.type.pending_op, b.type.pending_op):
        return f"nothing is pending: {a.type}, {b.type} on {mesh}"
    for text, function in {**LINEAR, **NOT_LINEAR}.items():
        if dtype == "c16" and text == "a < b":
            continue
        with np.errstate(all="ignore"):
            out, want = function(a, b), function(x, y)
        stays = text in LINEAR and want.dtype == x.dtype and a.type == b.type
        if a.type.pending_op and (out.type.pending_op is not None) != stays:
            return f"{text} of {a.type} gives {out.type}"
        said = wrong(out, want, f"{text} of {a.type} on {mesh}")
        if said is not None:
            return said
    return None


OFTEN: tuple[Check, ...] = (matmul, tensordot, vecdot, einsum, in_blocks, linear)
ONCE: tuple[Check, ...] = (errors, memory)
CHECKS = names_of([*OFTEN, *ONCE])


def program() -> int:
    """0 if every case agrees with NumPy."""
    return run_checks(OFTEN, ONCE)


if __name__ == "__main__":
    main(program)
