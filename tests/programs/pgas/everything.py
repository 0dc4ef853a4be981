"""Every public name of the namespace against NumPy, on operands of every layout and dtype.

As in ``mpirun -n 3 python -m tests.programs.pgas.everything --n 20 --seed 0``.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from redist import RedistError, pgas
from redist.pgas.global_array import Array
from redist.pgas.methods import Methods
from redist.pgas.namespace_info import DTYPES
from redist.pgas.operators import Operators
from tests.programs.pgas.calls import CASES as STANDARD
from tests.programs.pgas.calls import Operands
from tests.programs.pgas.drawing import Draw, xp
from tests.programs.pgas.numpy_calls import NUMPY_CASES
from tests.programs.pgas.numpy_calls import ROUGH as NUMPY_ROUGH
from tests.programs.together import all_well, main

CASES = {**STANDARD, **NUMPY_CASES}

ELSEWHERE = {
    "algebra": pgas.linalg.__all__,
    "spectra": pgas.fft.__all__,
    "seeds": ["random", "generator"],
    "reaching": ["get", "put", "accumulate", "epoch", "fence"],
    "sorting": ["unique_values", "unique_counts"],
    "tracing": ["gather", "to"],
    "joins": ["ein"],
    "manipulation": ["broadcast_shapes"],
    "gradients": ["checkpoint", "custom_gradient", "grad", "stop_gradient", "value_and_grad"],
    "reading": ["column_names", "read_csv", "read_npy"],
    "reading_parquet": ["read_parquet"],
    "chunk_files": ["read_zarr", "read_hdf5", "write_zarr"],
    "writing": ["write_csv", "write_npy"],
    "writing_parquet": ["write_parquet"],
    "../foreign/dask_arrays": ["to_dask"],
    "../foreign/ray_ranks": ["to_ray"],
    "captured": ["program", "map_tiles", "repeat_until"],
    "creating": [
        "arange", "array", "asarray", "empty", "empty_like", "eye", "from_dlpack", "from_function",
        "from_local", "full", "linspace", "move_together", "ones", "zeros", "finfo", "iinfo",
        "isdtype", "result_type", "can_cast", "to_device", "device", "nbytes", "settled",
    ],
}  # fmt: skip
"""Names that another program checks, of this folder or beside it."""
PLAIN = {
    "API_VERSIONS", "Array", "__array_api_version__", "__array_namespace_info__", "e", "fft", "float16",
    "inf", "linalg", "nan", "newaxis", "pi", "box", "comm", "dtype", "local", "mesh", "memory", "ndim", "new",
    "shape", "size", "tile", "type", "version", "sharing", "is_shared", "share", "shared_with",
    *DTYPES,
}  # fmt: skip
"""Values and modules."""
ROUGH = {
    "sum", "prod", "mean", "var", "std", "cumulative_sum", "cumulative_prod", "__matmul__", "matmul",
    "tensordot", "vecdot", "einsum", *NUMPY_ROUGH,
}  # fmt: skip
"""Functions whose floats depend on the order of sums."""


def missing() -> str | None:
    """Public names that nobody checks."""
    public = {*pgas.__all__, *(n for n in dir(Array) if not n.startswith("_"))}
    operators = {name for name in vars(Operators) if callable(vars(Operators)[name])}
    public |= {name for name in operators if f"__{name[3:]}" not in operators}  # not __radd__
    names = {name for some in ELSEWHERE.values() for name in some}
    methods = {f".{n}" for n in vars(Methods) if not n.startswith("_")} - {".nbytes"}
    if left := methods - set(CASES):
        return f"methods not checked: {sorted(left)}"
    left = public - set(CASES) - {name[1:] for name in CASES} - names - PLAIN
    if left:
        return f"not checked: {sorted(left)}"
    for program, some in ELSEWHERE.items():
        text = (Path(__file__).parent / f"{program}.py").read_text(encoding="utf-8")
        left = {name for name in some if name not in text}
        if left and program != "algebra":
            return f"{program}.py does not check {sorted(left)}"
    return None


def differs(got: Any, want: Any, rough: float) -> str | None:
    """What is wrong with this rank's part of a result."""
    if isinstance(want, (tuple, list)):
        if len(got) != len(want):
            return f"{len(got)} results, not {len(want)}"
        found = (differs(one, other, rough) for one, other in zip(got, want, strict=True))
        return next((text for text in found if text), None)
    want = np.asarray(want)
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"{got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    got = got.settled()
    if got.local is None:
        return None
    part = want[tuple(slice(lo, hi) for lo, hi in got.box)]
    if got.local.shape != part.shape:
        return f"{got.type}: a tile of {got.local.shape}, not {part.shape}"
    exact = want.dtype.kind in "biu"
    fine = np.array_equal(got.local, part) if exact else _near(got.local, part, rough)
    return None if fine else f"{got.type}: {got.local.tolist()}, not {part.tolist()}"[:900]


def _near(got: Any, want: Any, rough: float) -> bool:
    """Equal up to some ulps, or to so many times the largest operand's; NaN and infinity exactly."""
    if want.dtype.kind == "c":
        return _near(got.real, want.real, rough) and _near(got.imag, want.imag, rough)
    eps = float(np.finfo(want.dtype).eps)
    return bool(np.allclose(got, want, rtol=16 * eps, atol=64 * eps * rough, equal_nan=True))


def check(draw: Draw, name: str) -> str | None:
    """One call of one function, compared."""
    values, call = CASES[name](Operands(draw))
    mesh = draw.mesh()
    arrays = [draw.array(one, mesh) if isinstance(one, np.ndarray) else one for one in values]
    what = ", ".join(str(x.type) if isinstance(x, Array) else repr(x) for x in arrays)
    rough = _size(values) if name in ROUGH else 0.0
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            copies = [one.copy() if isinstance(one, np.ndarray) else one for one in values]
            want = call(np, *copies)
        except (TypeError, ValueError, OverflowError) as problem:
            return _refused(call, arrays, f"{what}: NumPy says {problem}")
        try:
            got = call(xp, *arrays)
        except Exception as problem:
            return f"{what} on {mesh}: {type(problem).__name__}: {problem}"
    found = differs(got, want, rough)
    return f"{what} on {mesh}: {found}" if found else None


def _size(values: list[Any]) -> float:
    """How large sums of products of the operands may be on the way."""
    out = 1.0
    for one in values:
        if isinstance(one, np.ndarray) and one.dtype.kind in "fc":
            finite = np.abs(one[np.isfinite(one)])
            out *= max(1.0, float(finite.max(initial=1.0))) * max(1, one.size)
        elif isinstance(one, np.ndarray) and one.size:
            out *= max(1.0, float(np.abs(one.astype(float)).max())) * one.size
    return out


def _refused(call: Any, arrays: list[Any], what: str) -> str | None:
    try:
        call(xp, *arrays)
    except (TypeError, ValueError, OverflowError, RedistError):
        return None
    return f"{what}; no error here"


CHECKS = ("names", *CASES)


def program() -> int:
    """0 if everything agrees with NumPy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=2, help="calls of each function")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[])
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    draw = Draw(comm, args.seed)
    bad = int(not all_well(comm, "names", missing()))
    names = args.only or list(CASES)
    for number in range(args.n):
        for name in names:
            bad += not all_well(comm, name, check(draw, name), str(number))
    if comm.rank == 0:
        print(f"{args.n * len(names) - bad} agree, {bad} do not ({comm.size} ranks)", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    main(program)
