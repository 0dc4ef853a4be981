"""Decompositions, equations and transforms on a pretended GPU: NumPy's, without a byte copied to memory.

As in ``mpirun -n 2 python -m tests.programs.pgas.matrices_on_gpus``; with ``--cuda`` on real GPUs, and
``--times`` says how long functions of large matrices take there, beside CuPy's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from mpi4py import MPI

import redist
from redist.errors import MatrixError, RequestError
from redist.pgas.fft import functions
from redist.pgas.kinds import dtype_asked
from redist.pgas.linalg import decompositions, equations, matrices
from tests.fakes import numpy_cupy
from tests.programs.pgas.drawing import xp
from tests.programs.pgas.numpy_on_gpus import timed
from tests.programs.together import main, run_named
from tests.tiers import THOROUGH

THERE = "--cuda" in sys.argv
"""Whether this is a real GPU: there everything is looked at."""
KINDS = ("f4", "f8", "c8", "c16") if THERE or THOROUGH else ("f4", "c16")
NEAR = {"f4": 1e-3, "c8": 1e-3, "f8": 1e-10, "c16": 1e-10}
"""cuSOLVER finds values of stacks in f4 by Jacobi rotations."""
N, TALL, STACK = 5, 40, 7
CUTS = {2: "{x}, {}", 3: "{x}, {}, {}", 1: "{x}"}

COPIED = numpy_cupy.COPIED
"""Bytes that were copied to memory: of a pretended GPU as it counts them, else by ``cupy.asnumpy``."""


def operand(letter: str, stack: tuple[int, ...], kind: str) -> Any:
    """Matrices, the same on all ranks: (h)ermitian, (s)quare, (t)all, (w)ide, (b) sides, or a (v)ector."""
    stack, letter = () if letter.isupper() else stack, letter.lower()
    rng = np.random.default_rng(ord(letter))

    def drawn(*shape: int) -> Any:
        values = rng.normal(size=(*stack, *shape))
        return values + 1j * rng.normal(size=values.shape) if kind[0] == "c" else values

    match letter:
        case "h":
            a = drawn(N, N)
            made = a @ np.conj(np.swapaxes(a, -1, -2)) + np.eye(N)
        case "s":
            made = drawn(N, N) + 4 * np.eye(N)
        case "t":
            made = drawn(TALL, N)
        case "w":
            made = drawn(N, N + 3)
        case "b":
            made = drawn(N, 3)
        case _:
            made = drawn(TALL)
    return made.astype(kind)


def on_gpu(values: Any) -> Any:
    return xp.asarray(values, type=CUTS[values.ndim], device="cuda")


def _product(m: Any, *factors: Any) -> Any:
    out = factors[0]
    for one in factors[1:]:
        out = m.matmul(out, one)
    return out


def _turned(m: Any, a: Any) -> Any:
    return m.conj(m.matrix_transpose(a))


def _svd(m: Any, a: Any, full: bool) -> Any:
    u, s, vh = m.linalg.svd(a, full_matrices=full)
    k = s.shape[-1]
    whole = _product(m, u[..., :k] * s[..., None, :], vh[..., :k, :])
    return s, whole, _product(m, _turned(m, u), u), _product(m, vh, _turned(m, vh))


def _qr(m: Any, a: Any, mode: str) -> Any:
    q, r = m.linalg.qr(a, mode=mode)
    return _product(m, q, r), _product(m, _turned(m, q), q), m.tril(r, k=-1)


def _eigh(m: Any, a: Any) -> Any:
    w, v = m.linalg.eigh(a)
    return w, _product(m, v * w[..., None, :], _turned(m, v))


def _eig(m: Any, a: Any) -> Any:
    w, v = m.linalg.eig(a)
    return (
        m.sum(w, axis=-1),
        m.sum(w * w, axis=-1),
        m.matmul(a.astype(v.dtype), v) - v * w[..., None, :],
    )


def _lstsq(m: Any, a: Any, b: Any) -> Any:
    return m.linalg.lstsq(a, b)[0] if m is np else m.linalg.lstsq(a, b)


Call = Callable[..., Any]
ONE, MANY, BOTH = ((),), ((STACK,),), ((), (STACK,))
CALLS: dict[str, tuple[str, tuple[tuple[int, ...], ...], Call]] = {
    "cholesky": ("h", BOTH, lambda m, a: m.linalg.cholesky(a)),
    "cholesky upper": ("h", BOTH, lambda m, a: m.linalg.cholesky(a, upper=True)),
    "qr": ("s", BOTH, lambda m, a: _qr(m, a, "reduced")),
    "qr of tall": ("t", BOTH, lambda m, a: _qr(m, a, "reduced")),
    "qr of wide": ("w", BOTH, lambda m, a: _qr(m, a, "reduced")),
    "qr complete": ("t", BOTH, lambda m, a: _qr(m, a, "complete")),
    "svd": ("t", BOTH, lambda m, a: _svd(m, a, False)),
    "svd of wide": ("w", BOTH, lambda m, a: _svd(m, a, False)),
    "svd full": ("w", BOTH, lambda m, a: _svd(m, a, True)),
    "svdvals": ("t", BOTH, lambda m, a: m.linalg.svdvals(a)),
    "eigh": ("h", BOTH, _eigh),
    "eigvalsh": ("h", BOTH, lambda m, a: m.linalg.eigvalsh(a)),
    "eig": ("s", BOTH, _eig),
    "eigvals": ("s", BOTH, lambda m, a: m.sum(m.square(m.linalg.eigvals(a)), axis=-1)),
    "solve": ("sb", BOTH, lambda m, a, b: m.linalg.solve(a, b)),
    "solve of a vector": ("sb", ONE, lambda m, a, b: m.linalg.solve(a, b[..., 0])),
    "solve of one with many": ("Sb", MANY, lambda m, a, b: m.linalg.solve(a, b)),
    "inv": ("s", BOTH, lambda m, a: m.linalg.inv(a)),
    "det": ("s", BOTH, lambda m, a: m.linalg.det(a)),
    "slogdet": ("s", BOTH, lambda m, a: tuple(m.linalg.slogdet(a))),
    "pinv": ("t", BOTH, lambda m, a: m.linalg.pinv(a)),
    "pinv of few": ("t", BOTH, lambda m, a: m.linalg.pinv(a, rtol=0.9)),
    "matrix_rank": ("t", BOTH, lambda m, a: m.linalg.matrix_rank(a)),
    "matrix_power": ("s", BOTH, lambda m, a: m.linalg.matrix_power(a, -2)),
    "matrix_norm": ("s", BOTH, lambda m, a: m.linalg.matrix_norm(a, ord=2)),
    "lstsq": ("tv", ONE, _lstsq),
}
"""By name: operands, the stacks that they are, and what is compared. A capital letter is one matrix."""


def cases(name: str) -> Iterator[tuple[str, tuple[Any, ...], Call]]:
    """What a function is called with, and how."""
    letters, stacks, call = CALLS[name]
    for kind in KINDS:
        for stack in stacks:
            yield f"{kind} {stack}", tuple(operand(one, stack, kind) for one in letters), call


def parts(made: Any) -> tuple[Any, ...]:
    return made if isinstance(made, tuple) else (made,)


def differs(got: Any, want: Any, near: float) -> str | None:
    """What differs between a global array on GPUs and the array that it should be."""
    if not got.memory.on_device:
        return f"{got.type} has left the GPU"
    have, want = got.memory.host(got.settled().gather()), np.asarray(want)
    scale = max(1.0, float(np.abs(want).max(initial=0.0)))
    same = have.shape == want.shape and np.allclose(have, want, 0, near * scale, equal_nan=True)
    return None if same else f"{have} and not {want}"


def agrees(name: str) -> str | None:
    """Why a function on GPUs differs from NumPy's, or copies to memory."""
    for what, operands, call in cases(name):
        arrays = [on_gpu(one) for one in operands]
        COPIED[0] = 0
        with redist.trace() as t:
            made = parts(call(xp, *arrays))
        if COPIED[0] or t.copied:
            return f"{what}: {COPIED[0]} bytes were copied to memory {t.copied}"
        for got, want in zip(made, parts(call(np, *operands)), strict=True):
            if wrong := differs(got, want, NEAR[what.split()[0]]):
                return f"{what}: {wrong}"
            if got.dtype != want.dtype and name not in ("eig", "eigvals", "matrix_rank"):
                return f"{what}: {got.dtype}, not {want.dtype}"
    return None


def large() -> str | None:
    """Equations with matrices that stay cut by rows."""
    rng = np.random.default_rng(1)
    with mock.patch.object(equations, "WHOLE_BYTES", 0):
        for kind in KINDS[::3] if THERE or THOROUGH else ("f4",):
            values, sides = (rng.normal(size=(130, n)).astype(kind) for n in (130, 2))
            a, b = on_gpu(values), on_gpu(sides)
            COPIED[0] = 0
            found = {"solve": xp.linalg.solve(a, b), "inv": xp.linalg.inv(a)}
            if COPIED[0]:
                return f"{kind}: {COPIED[0]} bytes were copied to memory"
            known = {"solve": np.linalg.solve(values, sides), "inv": np.linalg.inv(values)}
            for name, got in found.items():
                if wrong := differs(got, known[name], NEAR[kind] if kind == "f4" else 1e-8):
                    return f"{name} {kind}: {wrong}"
            values[:, 3] = 0
            if (said := refused(partial(xp.linalg.solve, on_gpu(values), b))) is not None:
                return f"{kind}: {said}"
    return None


def whole() -> str | None:
    """One rank has the matrix whole and takes it so, of any size; several say that it is too large."""
    values, sides = operand("h", (), "f8"), operand("b", (), "f8")
    a, b = on_gpu(values), on_gpu(sides)
    by_panels = mock.patch.object(equations, "solve_by_panels", side_effect=AssertionError)
    with (
        mock.patch.object(matrices, "LARGEST_BYTES", 0),
        mock.patch.object(equations, "WHOLE_BYTES", 0),
    ):
        if MPI.COMM_WORLD.size == 1:
            with by_panels:
                found = differs(xp.linalg.solve(a, b), np.linalg.solve(values, sides), 1e-10)
            return found or differs(xp.linalg.cholesky(a), np.linalg.cholesky(values), 1e-10)
        try:
            xp.linalg.cholesky(a)
        except RequestError:
            return None
    return "no error for a matrix that is too large"


def halos() -> str | None:
    """What tiles reach of their neighbours, along one dim and along two."""
    values = np.random.default_rng(5).normal(size=(12, 9))
    around = np.pad(values, 1, "wrap")
    COPIED[0] = 0
    for halo, want in (
        ({0: 1}, around[2:, 1:-1] - around[:-2, 1:-1]),
        ({0: 1, 1: 1}, around[2:, 2:] - around[:-2, :-2]),
    ):
        two = len(halo) == 2

        def apart(t: Any, two: bool = two) -> Any:
            return t[2:, 2:] - t[:-2, :-2] if two else t[2:] - t[:-2]

        got = xp.map_tiles(apart, on_gpu(values), halo=halo, edges="wrap")
        if COPIED[0]:
            return f"{halo}: {COPIED[0]} bytes were copied to memory"
        if wrong := differs(got, want, 1e-12):
            return f"{halo}: {wrong}"
        COPIED[0] = 0
    return None


def refused(call: Callable[[], Any]) -> str | None:
    """None where this rank is told that a matrix is refused."""
    try:
        made = call()
    except MatrixError:
        return None
    return f"no error, but {[one.gather() for one in parts(made)]}"


REFUSED: dict[str, tuple[str, Any, Call]] = {
    "singular": ("s", 0.0, xp.linalg.inv),
    "singular, to be solved": ("s", 0.0, lambda a: xp.linalg.solve(a, a)),
    "not positive definite": ("h", -1.0, xp.linalg.cholesky),
    "no number for svd": ("t", np.nan, xp.linalg.svd),
    "no number for svdvals": ("s", np.nan, xp.linalg.svdvals),
    "infinity for pinv": ("s", np.inf, xp.linalg.pinv),
    "no number for eigh": ("h", np.nan, xp.linalg.eigh),
    "no number for eigvalsh": ("h", np.nan, xp.linalg.eigvalsh),
    "no number for eig": ("s", np.nan, xp.linalg.eig),
    "infinity for eigvals": ("s", np.inf, xp.linalg.eigvals),
}
"""Operands, of which one matrix is filled with a value, and who refuses it."""


def errors() -> str | None:
    """A matrix that is refused is one error on all ranks, alone and as the last of a stack that is cut."""
    for name, (letter, value, call) in REFUSED.items():
        for kind in KINDS:
            for stack in BOTH:
                values = operand(letter, stack, kind)
                values[-1 if stack else ...] = value
                if (said := refused(partial(call, on_gpu(values)))) is not None:
                    return f"{name} {kind} {stack}: {said}"
    return None


UNKNOWN: dict[str, tuple[str, Call]] = {
    "cholesky": ("h", lambda m, a: m.linalg.cholesky(a)),
    "inv": ("s", lambda m, a: m.linalg.inv(a)),
    "solve": ("s", lambda m, a: m.linalg.solve(a, a)),
    "det": ("s", lambda m, a: m.linalg.det(a)),
    "slogdet": ("s", lambda m, a: m.linalg.slogdet(a)[1]),
    "qr": ("t", lambda m, a: m.abs(m.linalg.qr(a)[1])),  # rows of R have any sign
}


def unknown() -> str | None:
    """What NumPy does with NaN without an error is none here: other matrices of a stack are not touched.

    Nor is the triangle that nobody reads.
    """
    for name, (letter, call) in UNKNOWN.items():
        for kind in KINDS:
            values = operand(letter, (STACK,), kind)
            values[2, 1, 1] = np.nan
            got = call(xp, on_gpu(values))
            with np.errstate(invalid="ignore"):
                have, want = got.memory.host(got.gather()), call(np, values)
            if not np.isnan(have[2]).any() or not np.isnan(want[2]).any():
                return f"{name} {kind}: {have[2]} and {want[2]}"
            rest = [k for k in range(STACK) if k != 2]
            if not np.allclose(have[rest], want[rest], 1e-3, 1e-3):
                return f"{name} {kind}: {have[rest]} and not {want[rest]}"
    for name in ("cholesky", "eigvalsh"):
        values = operand("h", (), "f8")
        values[0, 1] = np.nan
        got = getattr(xp.linalg, name)(on_gpu(values))
        if wrong := differs(got, getattr(np.linalg, name)(values), 1e-10):
            return f"{name} with NaN above the diagonal: {wrong}"
    return None


def empty() -> str | None:
    """Matrices and stacks of no elements."""
    for shape in ((0, 4, 4), (3, 0, 0)):
        a = np.empty(shape)
        for name in ("cholesky", "inv", "det", "eigvalsh", "svdvals", "eigvals"):
            got, want = getattr(xp.linalg, name)(on_gpu(a)), getattr(np.linalg, name)(a)
            if wrong := differs(got, want, 0.0):
                return f"{name} of {shape}: {wrong}"
        if wrong := differs(xp.linalg.solve(on_gpu(a), on_gpu(a)), a, 0.0):
            return f"solve of {shape}: {wrong}"
    for sides in ((3, 0), (0, 3)):
        a = np.empty(sides)
        for k in range(2):
            got, want = (
                xp.linalg.qr(on_gpu(a), mode="complete")[k],
                np.linalg.qr(a, mode="complete")[k],
            )
            if wrong := differs(got, want, 0.0):
                return f"qr of {sides}: {wrong}"
        if wrong := differs(xp.linalg.pinv(on_gpu(a)), np.linalg.pinv(a), 0.0):
            return f"pinv of {sides}: {wrong}"
    return None


def halves() -> str | None:
    """16-bit floats: the dtypes that they have in memory, and values as near as f32 finds them."""
    for kind in map(dtype_asked, ("bf16", "float16")):
        for name in ("cholesky", "qr", "svd", "eigh", "det", "inv", "solve", "pinv", "lstsq"):
            letter, _, call = CALLS[name]
            values = [operand(one, (), "f4").astype(kind) for one in letter]
            both = [
                parts(call(xp, *(xp.asarray(one, type=CUTS[one.ndim], device=d) for one in values)))
                for d in ("cuda", "cpu")
            ]
            for got, want in zip(*both, strict=True):
                if got.dtype != want.dtype:
                    return f"{name} {kind}: {got.dtype}, not {want.dtype}"
                near = 1e-3 if got.dtype == np.float32 else 2e-2
                if wrong := differs(got.astype("f4"), want.astype("f4").gather(), near):
                    return f"{name} {kind}: {wrong}"
    return None


def in_programs() -> str | None:
    """Programs, as written and planned, which copy nothing either."""
    for name in list(CALLS)[:: 1 if THERE or THOROUGH else 14]:
        what, operands, call = next(cases(name))
        arrays = [on_gpu(one) for one in operands]
        for options in ({"layouts": "as written"}, {}):
            program = xp.program(partial(call, xp), **options)
            for _ in range(2):
                COPIED[0] = 0
                made = parts(program(*arrays))
                if COPIED[0]:
                    return f"{name} {options}: {COPIED[0]} bytes were copied to memory"
                for got, want in zip(made, parts(call(np, *operands)), strict=True):
                    if wrong := differs(got, want, NEAR[what.split()[0]]):
                        return f"{name} {options}: {wrong}"
    return None


def mixed() -> str | None:
    """One operand in memory and one on the GPU are refused."""
    a, b = on_gpu(operand("s", (), "f8")), xp.asarray(operand("b", (), "f8"))
    rtol = xp.asarray(np.full((), 0.1))
    for name, call in (
        ("solve", lambda: xp.linalg.solve(a, b)),
        ("lstsq", lambda: xp.linalg.lstsq(a, b)),
        ("pinv", lambda: xp.linalg.pinv(a, rtol=rtol)),
    ):
        try:
            call()
        except RequestError:
            continue
        return f"{name} takes both"
    rtols = np.linspace(0.1, 0.9, STACK)
    values = operand("t", (STACK,), "f8")
    got = xp.linalg.pinv(on_gpu(values), rtol=on_gpu(rtols))
    return differs(got, np.linalg.pinv(values, rtol=rtols), 1e-10)


def told() -> str | None:
    """The trace has what is copied: where CuPy has no ``eig``, or another function of complex numbers."""
    values = operand("s", (STACK,), "c16")
    x = on_gpu(values)
    for name, call in (
        ("eigvals", lambda m, a: m.sum(m.linalg.eigvals(a), axis=-1)),
        ("arctan", lambda m, a: m.atan(a)),
    ):
        with mock.patch.object(decompositions, "has_eig", return_value=False), redist.trace() as t:
            got = call(xp, x)
        copied = sum(one.copied_bytes for one in t.copied.values())
        total = MPI.COMM_WORLD.allreduce(copied)
        if wrong := differs(got, call(np, values), 1e-10):
            return f"{name}: {wrong}"
        if total != values.nbytes:
            return f"{name}: {total} bytes were copied, not {values.nbytes}"
    return None


def transforms() -> str | None:
    """Of lines that stay cut, of any length."""
    size = MPI.COMM_WORLD.size
    with mock.patch.object(functions, "WHOLE_BYTES", 0):
        for n in (4 * size * size, 96, 97):
            for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
                values = np.random.default_rng(n).normal(size=n)
                x = on_gpu(values)
                COPIED[0] = 0
                got = getattr(xp.fft, name)(x)
                if COPIED[0]:
                    return f"{name} of {n}: {COPIED[0]} bytes were copied to memory"
                if wrong := differs(got, getattr(np.fft, name)(values), 1e-10):
                    return f"{name} of {n}: {wrong}"
    return None


def say_times() -> None:
    """Milliseconds of functions on a GPU, the least of five, beside CuPy's on one."""
    import cupy

    draw = cupy.random.default_rng(0).standard_normal
    for name, shape, kind in (
        ("cholesky", (4096, 4096), "f8"), ("cholesky", (1000, 32, 32), "f4"),
        ("inv", (4096, 4096), "f8"), ("inv", (1000, 32, 32), "f4"), ("det", (4096, 4096), "f8"),
        ("slogdet", (1000, 32, 32), "f4"), ("solve", (4096, 4096), "f8"), ("solve", (1000, 32, 32), "f4"),
        ("eigh", (2048, 2048), "f8"), ("eigh", (1000, 32, 32), "f4"), ("eigvalsh", (2048, 2048), "f8"),
        ("eig", (512, 512), "f8"), ("eigvals", (512, 512), "f8"), ("svd", (1024, 1024), "f8"),
        ("svd", (1000, 32, 32), "f4"), ("svdvals", (1024, 1024), "f8"), ("pinv", (1024, 1024), "f8"),
        ("matrix_rank", (1024, 1024), "f8"), ("qr", (1024, 1024), "f8"), ("qr", (2**20, 64), "f4"),
        ("qr complete", (8192, 64), "f4"), ("lstsq", (2**20, 64), "f4"),
    ):  # fmt: skip
        values = draw(shape, dtype=kind)
        if name in ("cholesky", "eigh", "eigvalsh"):
            values = values @ values.swapaxes(-1, -2) + cupy.eye(shape[-1], dtype=kind) * shape[-1]
        x = xp.asarray(values, device="cuda")
        here, there = (partial(_called, one, name, a) for one, a in ((xp, x), (cupy, values)))
        both = [min(timed(call) for _ in range(5)) * 1e3 for call in (here, there)]
        if x.comm.rank == 0:
            print(f"{name} of {kind}{shape}: {both[0]:.2f} ms, CuPy {both[1]:.2f} ms", flush=True)


def _called(m: Any, name: str, a: Any) -> Any:
    name, *mode = name.split()
    if name == "svdvals" and m is not xp:
        return m.linalg.svd(a, compute_uv=False)
    function = getattr(m.linalg, name)
    if name in ("solve", "lstsq"):
        return function(a, a[..., 0] if name == "lstsq" else a)
    return function(a, mode="complete") if mode else function(a)


def count_copies() -> None:
    """Count what CuPy copies to memory."""
    import cupy

    asnumpy = cupy.asnumpy

    def counted(array: Any, *args: Any, **options: Any) -> Any:
        COPIED[0] += array.nbytes
        return asnumpy(array, *args, **options)

    cupy.asnumpy = counted


OTHERS = (
    large,
    whole,
    halos,
    errors,
    unknown,
    empty,
    halves,
    in_programs,
    mixed,
    told,
    transforms,
)
CHECKS = (*CALLS, *(one.__name__ for one in OTHERS))


def program() -> int:
    """0 if all agree."""
    if not THERE:
        numpy_cupy.install()
    else:
        count_copies()
        if "--times" in sys.argv:
            say_times()
    calls = {name: partial(agrees, name) for name in CALLS}
    return run_named({**calls, **{one.__name__: one for one in OTHERS}})


if __name__ == "__main__":
    main(program)
