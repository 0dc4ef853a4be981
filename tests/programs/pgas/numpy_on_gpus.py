"""Methods, NumPy's functions and statistics of arrays on a pretended GPU: the same, and there.

As in ``mpirun -n 2 python -m tests.programs.pgas.numpy_on_gpus``; with ``--cuda`` on real GPUs, and
``--times`` says how long calls of 16 million elements take there, beside CuPy's own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.fakes import numpy_cupy
from tests.programs.pgas.drawing import xp
from tests.programs.together import main, run_named
from tests.tiers import THOROUGH

RNG = np.random.default_rng(0)
REAL = RNG.normal(size=(13, 5))
COMPLEX = REAL + 1j * RNG.normal(size=(13, 5))
COUNTS = RNG.integers(0, 6, 13)


def _best(m: Any, a: Any, axis: int) -> Any:
    """The three largest along a dim."""
    return -np.sort(-a, axis=axis)[:3, :3] if m is np else m.topk(a, 3, axis=axis).values[:3, :3]


CALLS: dict[str, Callable[..., Any]] = {
    "median": lambda m, a, c, n: m.median(a, axis=0),
    "quantile": lambda m, a, c, n: m.quantile(a, [0.2, 0.5], axis=0),
    "quantile of all": lambda m, a, c, n: m.quantile(a, 0.3, method="hazen"),
    "median of truth": lambda m, a, c, n: m.median(a > 0, axis=0),
    "nanquantile": lambda m, a, c, n: m.nanquantile(m.where(a > 0, a, m.nan), 0.3, axis=0),
    "topk": lambda m, a, c, n: _best(m, a, 0),
    "topk of rows": lambda m, a, c, n: _best(m, a, 1),
    "pad": lambda m, a, c, n: m.pad(a, ((1, 2), (0, 1)), "reflect"),
    "pad with numbers": lambda m, a, c, n: m.pad(a, 2, constant_values=3.0),
    "convolve": lambda m, a, c, n: m.convolve(a[:, 0], [1.0, 2.0, 0.5], mode="same"),
    "cov": lambda m, a, c, n: m.cov(a, rowvar=False),
    "corrcoef": lambda m, a, c, n: m.corrcoef(c, rowvar=False),
    "histogram": lambda m, a, c, n: m.histogram(a, 5)[0],
    "density": lambda m, a, c, n: m.histogram(a, 5, density=True)[0],
    "histogram with weights": lambda m, a, c, n: m.histogram(a, [-1.0, 0.0, 0.5], weights=a * a)[0],
    "bincount": lambda m, a, c, n: m.bincount(n),
    "bincount with weights": lambda m, a, c, n: m.bincount(n, a[:, 0], minlength=9),
    "average": lambda m, a, c, n: m.average(a, axis=0, weights=a * a),
    "ptp": lambda m, a, c, n: m.ptp(a, axis=1),
    "nanmean": lambda m, a, c, n: m.nanmean(m.where(a > 0, a, m.nan), axis=0),
    "nanstd": lambda m, a, c, n: m.nanstd(m.where(a > 0, a, m.nan), axis=0, ddof=1),
    "nanmax": lambda m, a, c, n: m.nanmax(m.where(a < 0, a, m.nan), axis=0),
    "nanmedian": lambda m, a, c, n: m.nanmedian(m.where(a > 0, a, m.nan), axis=0),
    "isclose": lambda m, a, c, n: m.isclose(a, a + 1e-9, equal_nan=True),
    "diag": lambda m, a, c, n: m.diag(a[0], 2),
    "isin": lambda m, a, c, n: m.isin(n, [1, 4]),
    "isin global": lambda m, a, c, n: m.isin(a, a[::2]),
    "digitize": lambda m, a, c, n: m.digitize(a, [1.0, 0.0, -0.5]),
    "digitize global": lambda m, a, c, n: m.digitize(a, m.sort(a[:, 0])),
    "nan_to_num": lambda m, a, c, n: m.nan_to_num(m.where(a > 0, a, m.nan), nan=2.0),
    "nan_to_num of complex": lambda m, a, c, n: m.nan_to_num(c),
    "searchsorted": lambda m, a, c, n: m.searchsorted(np.array([-1.0, 0.0]), a),
    "diagonal": lambda m, a, c, n: a.diagonal(1),
    "real": lambda m, a, c, n: c.real,
    "imag": lambda m, a, c, n: a.imag,
    "round": lambda m, a, c, n: a.round(2),
    "clip": lambda m, a, c, n: a.clip(-1, 1),
    "take": lambda m, a, c, n: a.take([1, 3], 0),
    "dot": lambda m, a, c, n: a.T.dot(a),
    "sum": lambda m, a, c, n: a.sum(0),
    "std": lambda m, a, c, n: a.std(0, ddof=1),
    "argsort": lambda m, a, c, n: a.argsort(0),
    "cumsum": lambda m, a, c, n: a.cumsum(),
    "numpy.mean": lambda m, a, c, n: np.mean(a, axis=0),
    "numpy.where": lambda m, a, c, n: np.where(a > 0, a, 0),
    "numpy.unique": lambda m, a, c, n: np.unique(n),
    "numpy.concatenate": lambda m, a, c, n: np.concatenate([a, a]),
    "numpy.fft.fft": lambda m, a, c, n: np.fft.fft(a),
    "numpy.linalg.norm": lambda m, a, c, n: np.linalg.norm(a, axis=0),
}


def on_gpu(values: Any) -> Any:
    return xp.asarray(values, device="cuda")


def agrees(call: Callable[..., Any]) -> str | None:
    """Why a call on GPUs differs from NumPy's."""
    want = np.asarray(call(np, REAL, COMPLEX, COUNTS))
    made = call(xp, on_gpu(REAL), on_gpu(COMPLEX), on_gpu(COUNTS)).settled()
    if not made.memory.on_device:
        return f"{made.type} has left the GPU"
    got = made.memory.host(made.gather())
    fine = got.shape == want.shape and np.allclose(got, want)
    return None if fine else f"{got} and not {want}"


def in_programs() -> str | None:
    """Calls in programs, as written and planned, but those whose sizes depend on values."""
    arrays = [on_gpu(one) for one in (REAL, COMPLEX, COUNTS)]
    for name, call in list(CALLS.items())[:: 1 if THOROUGH else 8]:
        if name.startswith("bincount") or name == "numpy.unique":
            continue
        want = np.asarray(call(np, REAL, COMPLEX, COUNTS))
        for options in ({"layouts": "as written"}, {}):
            made = xp.program(partial(call, xp), **options)(*arrays).settled()
            if not made.memory.on_device:
                return f"{name} {options}: {made.type} has left the GPU"
            if not np.allclose(made.memory.host(made.gather()), want):
                return f"{name} {options}: {made.gather()} and not {want}"
    return None


def in_place() -> str | None:
    """What changes an array, and what reads it."""
    x = on_gpu(REAL.copy())
    x.sort(axis=0)
    if not np.allclose(x.tolist(), np.sort(REAL, axis=0)):
        return "sorted otherwise"
    x.fill(3.0)
    return None if x.item(2, 1) == 3.0 else "filled otherwise"


def say_times() -> None:
    """Milliseconds of calls on a GPU, the least of five, beside CuPy's of all values on one."""
    import cupy

    values = cupy.random.default_rng(0).standard_normal(2**24, dtype="f4")
    x = xp.asarray(values, device="cuda")
    known = {
        "median": (lambda: xp.median(x), lambda: cupy.median(values)),
        "quantile": (lambda: xp.quantile(x, [0.1, 0.9]), lambda: cupy.quantile(values, [0.1, 0.9])),
        "topk": (lambda: xp.topk(x, 100), lambda: cupy.argpartition(-values, 100)[:100]),
        "histogram": (
            lambda: xp.histogram(x, 100, range=(-3, 3)),
            lambda: cupy.histogram(values, 100, range=(-3, 3)),
        ),
        "convolve": (
            lambda: xp.convolve(x, [0.25, 0.5, 0.25]),
            lambda: cupy.convolve(values, cupy.asarray([0.25, 0.5, 0.25], "f4")),
        ),
        "pad": (lambda: xp.pad(x, 3, "reflect"), lambda: cupy.pad(values, 3, "reflect")),
    }
    for name, (ours, theirs) in known.items():
        both = [min(timed(call) for _ in range(5)) * 1e3 for call in (ours, theirs)]
        if x.comm.rank == 0:
            print(f"{name}: {both[0]:.2f} ms, CuPy {both[1]:.2f} ms", flush=True)


def timed(call: Callable[[], Any]) -> float:
    """Seconds of a call on a GPU."""
    import cupy

    cupy.cuda.Device().synchronize()
    before = time.perf_counter()
    call()
    cupy.cuda.Device().synchronize()
    return time.perf_counter() - before


CHECKS = (*CALLS, "in_programs", "in_place")


def program() -> int:
    """0 if all agree."""
    if "--cuda" not in sys.argv:
        numpy_cupy.install()
    elif "--times" in sys.argv:
        say_times()
    calls = {name: partial(agrees, one) for name, one in CALLS.items()}
    return run_named({**calls, "in_programs": in_programs, "in_place": in_place})


if __name__ == "__main__":
    main(program)
