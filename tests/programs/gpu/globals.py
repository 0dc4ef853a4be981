"""Global arrays with tiles on GPUs: every function against NumPy, on operands of every layout.

As in ``mpirun -n 4 python -m tests.programs.gpu.globals --n 1``; ``--without-gpu`` lets NumPy stand for CuPy.
"""

from __future__ import annotations

import argparse
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from redist import RedistError, pgas
from tests.fakes import numpy_cupy as standin
from tests.programs.gpu.global_checks import OWN, REAL, OnGpu, hosted
from tests.programs.pgas.calls import CASES, Operands
from tests.programs.pgas.drawing import Values, xp
from tests.programs.pgas.everything import ROUGH, _size, differs
from tests.programs.together import all_well, main

KINDS = {"bool", "u1", "i4", "i8", "f4", "f8", "c8", "c16"}
"""Dtypes that are tried where not all are: CuPy compiles a kernel for each."""
ALL_KINDS: list[bool] = []
QUOTIENTS = {"divide", "__truediv__", "__rtruediv__", "__itruediv__", "reciprocal"}


class Finite(Operands):
    """Operands of fewer dtypes, without infinities: CuPy's limits of complex functions differ."""

    def one_of(self, things: Any) -> Any:
        """One of several things; of dtypes, one that is tried on GPUs."""
        kept = [one for one in things if not isinstance(one, str) or one in KINDS or ALL_KINDS]
        return super().one_of(kept or things)

    def values(self, shape: tuple[int, ...], dtype: str, finite: bool = False) -> Values:
        """Numbers of a dtype."""
        return super().values(shape, dtype, finite=finite or np.dtype(dtype).kind == "c")


def compared(draw: OnGpu, name: str) -> str | None:
    """One call of one function, compared with NumPy's."""
    values, call = CASES[name](Finite(draw))
    mesh = draw.mesh()
    arrays = [draw.array(one, mesh) if isinstance(one, np.ndarray) else one for one in values]
    what = ", ".join(str(x.type) if isinstance(x, pgas.Array) else repr(x) for x in arrays)
    # CuPy's quotient of complex numbers is near by its size, not in each of its two parts.
    quotient = name in QUOTIENTS and any(np.iscomplexobj(one) for one in values)
    rough = 4 * _size(values) if name in ROUGH or quotient else 0.0
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            copies = [one.copy() if isinstance(one, np.ndarray) else one for one in values]
            want = call(np, *copies)
        except (TypeError, ValueError, OverflowError) as problem:
            return refused(lambda: call(xp, *arrays), f"{what}: NumPy says {problem}")
        try:
            got = hosted(call(xp, *arrays))
        except Exception as problem:
            return f"{what} on {mesh}: {type(problem).__name__}: {problem}"
    found = differs(got, want, rough)
    return f"{what} on {mesh}: {found}" if found else None


def refused(call: Callable[[], Any], what: str) -> str | None:
    """None where there is an error, as there should be."""
    try:
        call()
    except (TypeError, ValueError, OverflowError, RedistError):
        return None
    return f"{what}; no error here"


def own(draw: OnGpu, name: str) -> str | None:
    """What one of the checks says; an unexpected error is a complaint."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return OWN[name](draw)
    except Exception as problem:
        place = traceback.extract_tb(problem.__traceback__)
        return f"{type(problem).__name__}: {problem} ({place[0].line} ... {place[-1]})"


def checks_on(ranks: int, args: Sequence[str]) -> tuple[str, ...]:
    """Names of everything that can be checked with a GPU, or without."""
    left_out = REAL if "--without-gpu" in args else set()
    return tuple(name for name in (*OWN, *CASES) if name not in left_out)


def program() -> int:
    """0 if everything agrees with NumPy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=1, help="calls of each function")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--all-kinds", action="store_true", help="of every dtype")
    parser.add_argument("--without-gpu", action="store_true")
    args = parser.parse_args()
    ALL_KINDS.extend([True] * args.all_kinds)
    if args.without_gpu:
        standin.install()
    comm, started = MPI.COMM_WORLD, time.monotonic()
    draw = OnGpu(comm, args.seed)
    done = bad = 0
    names = args.only or [*OWN, *CASES]
    for number in range(args.n):
        for name in names:
            if comm.bcast(time.monotonic() - started > args.seconds):
                break
            if name in REAL and args.without_gpu:
                continue
            check = own if name in OWN else compared
            bad += not all_well(comm, name, check(draw, name), str(number))
            done += 1
    if comm.rank == 0:
        seconds = time.monotonic() - started
        print(
            f"{done - bad} of {done} agree on GPUs ({comm.size} ranks, {seconds:.0f} s)", flush=True
        )
    return 1 if bad else 0


if __name__ == "__main__":
    main(program)
