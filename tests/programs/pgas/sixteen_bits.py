"""Every function of the namespace in bf16 and f16: the f64 result, rounded, to one unit in the last place.

As in ``mpirun -n 3 python -m tests.programs.pgas.sixteen_bits``, or with names of checks behind it.
``--cuda`` walks the namespaces on GPUs.
"""

from __future__ import annotations

import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable
from itertools import product
from types import FunctionType
from typing import Any

import numpy as np
from mpi4py import MPI

from redist import ArgumentTypeError, RedistError, memory_limit, pgas
from redist.pgas.elementwise import binary, unary
from redist.pgas.kinds import dtype_asked, is_half
from redist.pgas.memory import BUFFERS
from redist.pgas.structures import found_in
from tests.programs.together import all_well, main
from tests.tiers import THOROUGH

Made = Callable[..., Any]
HALVES = tuple(map(dtype_asked, ("bf16", "float16")))
SHAPE = (12, 10)
DEVICE = "cuda" if "--cuda" in sys.argv else "cpu"
WALKS = ("namespace", "transforms", "matrices")
"""What is looked at on GPUs."""
LAYOUTS = ("{x}, {}", "{}, {x}")
REFUSED = {name for name in (*unary.__all__, *binary.__all__) if name.startswith("bitwise")}
"""What has no meaning for floats, of 64 bits either."""
ON_ITS_GRID = {"nextafter"}
LOW = {"acos", "asin", "atanh"}
HIGH = {"acosh"}
WITHOUT_ARRAYS = {
    "arange", "broadcast_shapes", "can_cast", "column_names", "empty", "eye", "finfo", "from_dlpack",
    "from_function",
    "from_local", "full", "iinfo", "isdtype", "linspace", "ones", "read_csv", "read_hdf5", "read_npy",
    "read_parquet", "read_zarr", "result_type", "zeros", "checkpoint", "custom_gradient", "grad",
    "stop_gradient", "value_and_grad", "fftfreq", "rfftfreq", "__array_namespace_info__",
}  # fmt: skip
"""Functions that make arrays of nothing, or ask about dtypes."""
OTHERS_TELL = {
    "empty_like", "map_tiles", "program", "repeat", "repeat_until", "to_dask", "to_ray", "write_csv",
    "write_hdf5", "write_npy", "write_parquet", "write_zarr",
}  # fmt: skip
"""Functions whose values are those of others, programs and files; they are looked at elsewhere."""

CALLS: dict[str, Made] = {
    "all": lambda p, a, b: p.all(a),
    "allclose": lambda p, a, b: p.allclose(a, a),
    "any": lambda p, a, b: p.any(a, axis=0),
    "argmax": lambda p, a, b: p.argmax(a, axis=0),
    "argmin": lambda p, a, b: p.argmin(a),
    "argsort": lambda p, a, b: p.argsort(a, axis=0),
    "array": lambda p, a, b: p.array(a),
    "asarray": lambda p, a, b: p.asarray(a),
    "astype": lambda p, a, b: p.astype(a, np.int32),
    "average": lambda p, a, b: p.average(a, axis=0, weights=b),
    "bincount": lambda p, a, b: p.bincount(p.astype(a[:, 0], int), weights=b[:, 0]),
    "broadcast_arrays": lambda p, a, b: p.broadcast_arrays(a, b[0]),
    "broadcast_to": lambda p, a, b: p.broadcast_to(a[0], a.shape),
    "clip": lambda p, a, b: p.clip(a, 0.6, 1.1),
    "compress": lambda p, a, b: p.compress(a[:, 0] > 1, a),
    "concat": lambda p, a, b: p.concat([a, b]),
    "convolve": lambda p, a, b: p.convolve(a[:, 0], b[:5, 0]),
    "corrcoef": lambda p, a, b: p.corrcoef(a[:3]),
    "count_nonzero": lambda p, a, b: p.count_nonzero(a),
    "cov": lambda p, a, b: p.cov(a[:3]),
    "cumulative_prod": lambda p, a, b: p.cumulative_prod(a, axis=0),
    "cumulative_sum": lambda p, a, b: p.cumulative_sum(a, axis=0),
    "diag": lambda p, a, b: p.diag(a[0]),
    "diff": lambda p, a, b: p.diff(a, axis=0),
    "digitize": lambda p, a, b: p.digitize(a, [0.5, 1.0, 1.5]),
    "ein": lambda p, a, b: p.ein("ij,kj->ik", a, b, join=lambda u, v: u - v, agg="max"),
    "einsum": lambda p, a, b: p.einsum("ij,kj,k->i", a, b, b[:, 0]),
    "expand_dims": lambda p, a, b: p.expand_dims(a, axis=0),
    "flip": lambda p, a, b: p.flip(a),
    "full_like": lambda p, a, b: p.full_like(a, 0.1),
    "histogram": lambda p, a, b: p.histogram(a, 4, range=(0.0, 2.0)),
    "isclose": lambda p, a, b: p.isclose(a, b),
    "isin": lambda p, a, b: p.isin(a, b[0]),
    "matmul": lambda p, a, b: p.matmul(a, b.T),
    "matrix_transpose": lambda p, a, b: p.matrix_transpose(a),
    "max": lambda p, a, b: p.max(a, axis=0),
    "mean": lambda p, a, b: p.mean(a, axis=0),
    "median": lambda p, a, b: p.median(a, axis=0),
    "meshgrid": lambda p, a, b: p.meshgrid(a[0], b[0]),
    "min": lambda p, a, b: p.min(a),
    "move_together": lambda p, a, b: p.move_together({"a": a}, {"a": "{}, {}"})["a"],
    "moveaxis": lambda p, a, b: p.moveaxis(a, 0, 1),
    "nan_to_num": lambda p, a, b: p.nan_to_num(a),
    "nanmax": lambda p, a, b: p.nanmax(a, axis=0),
    "nanmean": lambda p, a, b: p.nanmean(a, axis=0),
    "nanmedian": lambda p, a, b: p.nanmedian(a, axis=0),
    "nanmin": lambda p, a, b: p.nanmin(a, axis=0),
    "nanpercentile": lambda p, a, b: p.nanpercentile(a, 30, axis=0),
    "nanprod": lambda p, a, b: p.nanprod(a, axis=0),
    "nanquantile": lambda p, a, b: p.nanquantile(a, [0.25, 0.5], axis=0),
    "nanstd": lambda p, a, b: p.nanstd(a, axis=0),
    "nansum": lambda p, a, b: p.nansum(a, axis=0),
    "nanvar": lambda p, a, b: p.nanvar(a, axis=0),
    "nonzero": lambda p, a, b: p.nonzero(a > 1),
    "ones_like": lambda p, a, b: p.ones_like(a),
    "pad": lambda p, a, b: p.pad(a, 2, "reflect"),
    "percentile": lambda p, a, b: p.percentile(a, 30, axis=0),
    "permute_dims": lambda p, a, b: p.permute_dims(a, (1, 0)),
    "prod": lambda p, a, b: p.prod(a, axis=1),
    "ptp": lambda p, a, b: p.ptp(a, axis=0),
    "quantile": lambda p, a, b: p.quantile(a, [0.25, 0.5], axis=0),
    "reshape": lambda p, a, b: p.reshape(a, (10, 12)),
    "roll": lambda p, a, b: p.roll(a, 3),
    "searchsorted": lambda p, a, b: p.searchsorted(p.sort(a[:, 0]), b[:, 0]),
    "sort": lambda p, a, b: p.sort(a, axis=0, descending=True),
    "squeeze": lambda p, a, b: p.squeeze(a[:1], axis=0),
    "stack": lambda p, a, b: p.stack([a, b]),
    "std": lambda p, a, b: p.std(a, axis=0),
    "sum": lambda p, a, b: p.sum(a, axis=0),
    "take": lambda p, a, b: p.take(a, p.asarray([3, 1], device=DEVICE), axis=0),
    "take_along_axis": lambda p, a, b: p.take_along_axis(a, p.argsort(a, axis=0), axis=0),
    "tensordot": lambda p, a, b: p.tensordot(a, b, axes=2),
    "tile": lambda p, a, b: p.tile(a, (2, 1)),
    "topk": lambda p, a, b: p.topk(a, 3, axis=0),
    "tril": lambda p, a, b: p.tril(a),
    "triu": lambda p, a, b: p.triu(a, k=1),
    "unique_all": lambda p, a, b: p.unique_all(a[0]),
    "unique_counts": lambda p, a, b: p.unique_counts(a[0]),
    "unique_inverse": lambda p, a, b: p.unique_inverse(a[0]),
    "unique_values": lambda p, a, b: p.unique_values(a),
    "unstack": lambda p, a, b: p.unstack(a, axis=0),
    "var": lambda p, a, b: p.var(a, axis=0),
    "vecdot": lambda p, a, b: p.vecdot(a, b),
    "where": lambda p, a, b: p.where(a > b, a, b),
    "zeros_like": lambda p, a, b: p.zeros_like(a),
}
TRANSFORMS: dict[str, Made] = {
    "fft": lambda p, a, b: p.fft(a, axis=0),
    "ifft": lambda p, a, b: p.ifft(a),
    "rfft": lambda p, a, b: p.rfft(a, axis=0),
    "irfft": lambda p, a, b: p.irfft(a),
    "hfft": lambda p, a, b: p.hfft(a),
    "ihfft": lambda p, a, b: p.ihfft(a),
    "fftn": lambda p, a, b: p.fftn(a),
    "ifftn": lambda p, a, b: p.ifftn(a),
    "rfftn": lambda p, a, b: p.rfftn(a),
    "irfftn": lambda p, a, b: p.irfftn(a),
    "fftshift": lambda p, a, b: p.fftshift(a),
    "ifftshift": lambda p, a, b: p.ifftshift(a),
}


def _definite(a: Any) -> Any:
    """Four times the unit matrix and a little more, exact in 8 bits."""
    part = pgas.round(a[:4, :4] * 4) / 4
    return pgas.eye(4, dtype=a.dtype, device=DEVICE) * 4 + (part + part.T) * 0.125


MATRICES: dict[str, Made] = {
    "cholesky": lambda p, a, b: p.cholesky(_definite(a)),
    "cross": lambda p, a, b: p.cross(a[:, :3], b[:, :3]),
    "det": lambda p, a, b: p.det(_definite(a)),
    "eig": lambda p, a, b: pgas.sort(pgas.real(p.eig(_definite(a)).eigenvalues)),
    "eigvals": lambda p, a, b: pgas.sort(pgas.real(p.eigvals(_definite(a)))),
    "diagonal": lambda p, a, b: p.diagonal(a),
    "eigh": lambda p, a, b: p.eigh(_definite(a)).eigenvalues,
    "eigvalsh": lambda p, a, b: p.eigvalsh(_definite(a)),
    "inv": lambda p, a, b: p.inv(_definite(a)),
    "lstsq": lambda p, a, b: p.lstsq(a[:, :2], b[:, 0]),
    "matmul": lambda p, a, b: p.matmul(a, b.T),
    "matrix_norm": lambda p, a, b: p.matrix_norm(a),
    "matrix_power": lambda p, a, b: p.matrix_power(_definite(a), 3),
    "matrix_rank": lambda p, a, b: p.matrix_rank(a),
    "matrix_transpose": lambda p, a, b: p.matrix_transpose(a),
    "outer": lambda p, a, b: p.outer(a[0], b[0]),
    "pinv": lambda p, a, b: p.pinv(_definite(a)),
    "qr": lambda p, a, b: pgas.abs(p.qr(a[:, :2]).R),
    "slogdet": lambda p, a, b: p.slogdet(_definite(a)),
    "solve": lambda p, a, b: p.solve(_definite(a), b[:4, 0]),
    "svd": lambda p, a, b: p.svd(a, full_matrices=False).S,
    "svdvals": lambda p, a, b: p.svdvals(a),
    "tensordot": lambda p, a, b: p.tensordot(a, b, axes=2),
    "trace": lambda p, a, b: p.trace(a),
    "vecdot": lambda p, a, b: p.vecdot(a, b),
    "vector_norm": lambda p, a, b: p.vector_norm(a, axis=0),
}


def operands(name: str, kind: Any, layouts: tuple[str, str]) -> list[pgas.Array]:
    """Two arrays with values in the domain of a function, exact in 16 bits."""
    rng = np.random.default_rng(3)
    low, high = (0.1, 0.9) if name in LOW else (1.1, 2.5) if name in HIGH else (0.3, 1.7)
    made = []
    for layout in layouts:
        values = rng.uniform(low, high, SHAPE).astype(kind)
        made.append(pgas.asarray(values, type=layout, device=DEVICE))
    return made


def ulps_off(got: Any, want: Any) -> int:
    """How many floats of 16 bits lie between values and those of f64, rounded."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = np.asarray(want).astype(np.float32).astype(got.dtype)
    one, other = (x.view(np.int16).astype(np.int64) for x in (np.asarray(got), rounded))
    one, other = (np.where(x < 0, -(x & 0x7FFF), x) for x in (one, other))
    both_nan = np.isnan(np.asarray(got, np.float32)) & np.isnan(np.asarray(rounded, np.float32))
    return int(np.where(both_nan, 0, np.abs(one - other)).max(initial=0))


def compare(what: str, got: Any, want: Any, eps: float) -> str | None:
    """What is wrong with results, beside those of f64."""
    ones, others = (found_in(x, (pgas.Array,)) for x in (got, want))
    if len(ones) != len(others) or not ones:
        return f"{what}: {len(ones)} arrays, not {len(others)}"
    for x, y in zip(ones, others, strict=True):
        a, b = (one.memory.host(one.gather()) for one in (x, y))
        if a.shape != b.shape:
            return f"{what}: shape {a.shape}, not {b.shape}"
        if is_half(x.dtype):
            if a.dtype != x.dtype:
                return f"{what}: values of {a.dtype} in an array of {x.dtype}"
            off = ulps_off(a, b)
            if off > 1:
                return f"{what}: {off} units in the last place off: {shown(a)} not {shown(b)}"
        elif a.dtype.kind in "biu":
            if not (a == b).all():
                return f"{what}: {shown(a)} not {shown(b)}"
        elif not np.allclose(a, b, rtol=eps, atol=eps):
            return f"{what}: {shown(a)} not {shown(b)}"
    return None


def shown(values: Any) -> str:
    """The first few values."""
    return str(values.reshape(-1)[:8].tolist())


def walk(space: Any, calls: dict[str, Made], without: set[str]) -> str | None:
    """Every function of a namespace, in both dtypes, each in layouts of its own; quickly a third, in one."""
    names = [one for one in space.__all__ if isinstance(getattr(space, one), FunctionType)]
    missing = {*names} - {*calls} - without
    if missing:
        return f"nothing says how to call {sorted(missing)}"
    both = [*zip(HALVES, (LAYOUTS, LAYOUTS[::-1]), strict=True)]
    all_of_it = THOROUGH or DEVICE == "cuda"
    for number, name in enumerate([*calls][:: 1 if all_of_it else 3]):
        for kind, layouts in both if all_of_it else both[number % 2 :][:1]:
            given = operands(name, kind, layouts)
            wide = [x.astype(np.float64) for x in given]
            what = f"{name} of {kind} in {layouts}"
            try:
                got, want = calls[name](space, *given), calls[name](space, *wide)
            except Exception as problem:
                return f"{what}: {type(problem).__name__}: {problem}"
            bad = compare(what, got, want, float(pgas.finfo(kind).eps))
            if bad:
                return bad
    return None


def named() -> dict[str, Made]:
    """Calls of all functions of :mod:`redist.pgas`."""
    calls = dict(CALLS)
    for name in unary.__all__:
        calls[name] = lambda p, a, b, name=name: getattr(p, name)(a)
    for name in binary.__all__:
        calls[name] = lambda p, a, b, name=name: getattr(p, name)(a, b)
    return {name: call for name, call in calls.items() if name not in REFUSED | ON_ITS_GRID}


def namespace() -> str | None:
    """The functions of ``pgas``."""
    return walk(pgas, named(), REFUSED | ON_ITS_GRID | WITHOUT_ARRAYS | OTHERS_TELL)


def transforms() -> str | None:
    """Those of ``pgas.fft``."""
    return walk(pgas.fft, TRANSFORMS, WITHOUT_ARRAYS)


def matrices() -> str | None:
    """Those of ``pgas.linalg``."""
    return walk(pgas.linalg, MATRICES, set())


def refusals() -> str | None:
    """What is refused, and by which error."""
    for kind in HALVES:
        a, _ = operands("", kind, LAYOUTS)
        for name in sorted(REFUSED):
            function = getattr(pgas, name)
            try:
                function(*[a] * (1 if name == "bitwise_invert" else 2))
                return f"{name} of {kind} is not refused"
            except TypeError:
                pass
    stored = pgas.asarray(np.ones(SHAPE), dtype="f8e4m3fn", type="{x}, {}")
    for name, call in {**named(), **{f"linalg.{k}": v for k, v in MATRICES.items()}}.items():
        if name in MOVES or name.removeprefix("linalg.") in MOVES:
            continue
        space = pgas.linalg if name.startswith("linalg.") else pgas
        try:
            call(space, stored, stored)
            return f"{name} of {stored.dtype} is not refused"
        except (RedistError, TypeError) as problem:
            if not isinstance(problem, ArgumentTypeError) or "float8_e4m3fn" not in str(problem):
                return f"{name} of {stored.dtype}: {type(problem).__name__}: {problem}"
    return None


MOVES = {
    "array", "asarray", "astype", "broadcast_arrays", "broadcast_to", "concat", "diagonal", "expand_dims",
    "flip", "full_like", "matrix_transpose", "meshgrid", "move_together", "moveaxis", "ones_like", "pad",
    "permute_dims", "reshape", "roll", "squeeze", "stack", "take", "tile", "tril", "triu", "unstack",
    "zeros_like",
}  # fmt: skip
"""Functions that 8-bit floats have: they look at no value."""


def sums() -> str | None:
    """Sums of 2^24 values, along a dim that is cut or not, and that lies inside or outside."""
    for kind in HALVES:
        n = 2**24
        for shape, layout, axis in (
            ((n,), "{x}", 0),
            ((n // 4, 4), "{x}, {}", 0),
            ((4, n // 4), "{}, {x}", 1),
        ):
            ones = pgas.full(shape, 2.0**-10 * 1.625, dtype=kind, type=layout)
            total = pgas.sum(ones, axis=axis)
            want = 2.0**-10 * 1.625 * (n if len(shape) == 1 else n // 4)
            got = np.asarray(total.gather()).astype(np.float64)
            if not (np.abs(got - want) <= 2.0**-8 * want).all():
                return f"sum of {shape} {kind} in {layout}: {got}, not {want}"
    return None


def pending() -> str | None:
    """A pending sum is f32, says the dtype that it will have, and is rounded once wherever it is finished."""
    kind = dtype_asked("bf16")
    a, b = operands("", kind, ("{}, {x}", "{}, {x}"))
    alone = MPI.COMM_WORLD.size == 1
    for made, wide in (
        (pgas.sum(a, axis=1), pgas.sum(a.astype(np.float64), axis=1)),
        (pgas.mean(a, axis=1), pgas.mean(a.astype(np.float64), axis=1)),
        (a @ b.T, a.astype(np.float64) @ b.astype(np.float64).T),
    ):
        if made.dtype != kind:
            return f"{made.type}: dtype {made.dtype}"
        if not alone and (made.type.pending_op, made.type.dtype.name) != ("sum", "f32"):
            return f"{made.type} is not a pending sum in f32"
        whole = made.gather()
        if ulps_off(whole, wide.gather()) > 1:
            return f"{made.type}: {whole} not {wide.gather()}"
        for other in (
            made.settled(), made.copy(), made.to(", ".join(["{x}"] + ["{}"] * (made.ndim - 1))),
            pgas.expand_dims(made, axis=0)[0], +made, made.reshape(-1).reshape(made.shape),
            pgas.stack([made])[0], pgas.broadcast_arrays(made)[0],
            pgas.take(made, pgas.arange(made.shape[0]), axis=0),
            pgas.program(pgas.positive)(made), pickle.loads(pickle.dumps(made)),
            pgas.move_together({"a": made}, {"a": ", ".join(["{}"] * made.ndim)})["a"],
        ):  # fmt: skip
            if other.dtype != kind or (other.gather() != whole).any():
                return f"{made.type} as {other.type}: {other.gather()} not {whole}"
        doubled = (made + made).gather()
        if (doubled != (whole.astype(np.float32) * 2).astype(kind)).any():
            return f"{made.type} doubled: {doubled}"
    return None


def elsewhere() -> str | None:
    """Elements by index from any rank, updates in place, neighbours on the grid, random numbers, tiles."""
    for kind in map(dtype_asked, ("bf16", "float16", "f8e5m2")):
        values = np.arange(120.0).reshape(SHAPE).astype(kind)
        a = pgas.asarray(values, type="{x}, {}")
        a.fence()
        got = a.get((slice(1, 11, 3), 2))
        if got.dtype != kind or (got.view("u1") != values[1:11:3, 2].copy().view("u1")).any():
            return f"get of {kind}: {got}"
        with a.epoch():
            if a.comm.rank == 0:
                a.put((11, slice(0, 3)), np.array([1, 2, 3], kind))
        now = a.gather()
        if now.dtype != kind or now[11, :3].astype(np.float32).tolist() != [1, 2, 3]:
            return f"put into {kind}: {now[11]}"
        part = a[[7, 2, 11]][:, ::2].gather()
        if (part.view("u1") != np.ascontiguousarray(now[[7, 2, 11]][:, ::2]).view("u1")).any():
            return f"index of {kind}: {part}"
        if not is_half(kind):
            continue
        b = a.copy()
        b += 1
        b *= b
        b[0] = 3
        want = ((now.astype("f4") + 1).astype(kind).astype("f4") ** 2).astype(kind)
        want[0] = 3
        if (b.gather() != want).any():
            return f"in place in {kind}: {b.gather()} not {want}"
        up = pgas.nextafter(a, a + 1).gather()
        if (up.view("i2") - now.view("i2") != 1).any():
            return f"nextafter of {kind}: {up}"
        drawn = pgas.random.generator(3).uniform((4096,), dtype=kind).gather().astype("f4")
        if drawn.min() < 0 or drawn.max() >= 1 or abs(drawn.mean() - 0.5) > 0.02:
            return f"random numbers of {kind} from {drawn.min()} to {drawn.max()}"
        seen = pgas.map_tiles(lambda tile: tile, a).gather()
        if seen.dtype != kind or (seen != now).any():
            return f"tiles of {kind}: {seen}"
    return None


def programs() -> str | None:
    """Programs: bits as outside if written so; near them in planned layouts, and in blocks within a limit."""
    comm = MPI.COMM_WORLD
    kind = dtype_asked("bf16")
    rng = np.random.default_rng(0)

    def drawn(shape: tuple[int, ...], layout: str) -> pgas.Array:
        return pgas.asarray((rng.normal(size=shape) * 0.1).astype(kind), type=layout)

    def layers(x: Any, w: Any, v: Any) -> Any:
        h = pgas.maximum(x @ w, 0)
        y = h @ v + 0.5
        return (
            y / (1 + pgas.abs(pgas.sum(y * y, axis=0))),
            pgas.mean(h, axis=1),
            pgas.sort(y, axis=1),
        )

    def wide(x: Any, w: Any) -> Any:
        h = x @ w
        return pgas.sum(pgas.maximum(h, 0) + h * 0.5, axis=0), pgas.exp(h)

    small = drawn((96, 64), "{x}, {}"), drawn((64, 128), "{}, {x}"), drawn((128, 32), "{x}, {}")
    large = drawn((1536, 768), "{x}, {}"), drawn((768, 1536), "{}, {x}")
    folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    others = comm.allreduce(BUFFERS.live_bytes, op=MPI.MAX)  # of programs before this one too
    try:
        for function, args, options in (
            (layers, small, {"layouts": "as written"}),
            (layers, small, {}),
            (wide, large, {"limit": others + 20 * 2**20, "spill": folder}),
        ):
            eager = [one.gather() for one in function(*args)]
            program = pgas.program(function, **options)
            for _ in range(2):
                for one, want in zip(program(*args), eager, strict=True):
                    got = one.gather()
                    if got.dtype != kind:
                        return f"{function.__name__} {options}: {got.dtype}"
                    a, b = got.astype(np.float32), want.astype(np.float32)
                    if "layouts" in options and (a != b).any():
                        return f"{function.__name__} {options}: {shown(a)} not {shown(b)}"
                    if np.abs(a - b).max() > 2.0**-6 * np.abs(b).max():
                        return f"{function.__name__} {options}: {shown(a)} not {shown(b)}"
        with memory_limit(others + 11 * 2**20, spill=folder):
            kept = [large[0] * float(k) for k in range(8)]
            found = [float(pgas.sum(one)) for one in kept]
        base = large[0].gather().astype(np.float64).sum()
        if not np.allclose(found, [base * k for k in range(8)], rtol=0.02, atol=1.0):
            return f"sums of spilled arrays: {found}"
    finally:
        comm.Barrier()
        if comm.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
    return None


def gradients() -> str | None:
    """Gradients outside of programs, in every layout: near those of f64, whatever is pending on the way."""
    names = ("{x}, {}", "{}, {x}", "{}, {}")
    at = pgas.asarray(np.array([3, 0, 3, 7]))
    losses: dict[str, Any] = {
        "sum": lambda a, b: pgas.sum(a * b),
        "mean": lambda a, b: pgas.mean(a * a + b, axis=0)[1],
        "product": lambda a, b: pgas.sum((a @ b.T) * 0.5),
        "einsum": lambda a, b: pgas.einsum("ij,ij->", a, b),
        "rows": lambda a, b: pgas.sum(a.get(at) * b[:4]),
        "of a sum": lambda a, b: pgas.sum(pgas.sum(a, axis=0) * pgas.sum(b, axis=1)[:10]),
    }
    all_layouts = [*product(names, names)]
    for number, (name, loss) in enumerate(losses.items()):
        for layouts in all_layouts if THOROUGH else all_layouts[number % 2 :: 4]:
            kind = dtype_asked(("bf16", "float16")[number % 2])
            a, b = operands("", kind, layouts)
            found = pgas.grad(loss, (0, 1))(a, b)
            wide = pgas.grad(loss, (0, 1))(a.astype(np.float64), b.astype(np.float64))
            for x, g, w in zip((a, b), found, wide, strict=True):
                got, want = g.gather().astype(np.float64), w.gather()
                off = np.abs(got - want).max()
                if g.dtype != kind or off > 2.0**-6 * max(1.0, np.abs(want).max()):
                    return f"{name} of {x.type} in {layouts}: {got} not {want}"
    return None


CHECKS = (
    "namespace", "transforms", "matrices", "refusals", "pending", "elsewhere", "programs", "sums",
    "gradients",
)  # fmt: skip


def program() -> int:
    """0 if every check holds, or all those that are named."""
    comm = MPI.COMM_WORLD
    bad = 0
    asked = [one for one in sys.argv[1:] if one != "--cuda"]
    for name in asked or (CHECKS if DEVICE == "cpu" else WALKS):
        bad += not all_well(comm, name, globals()[name]())
    return int(bad > 0)


if __name__ == "__main__":
    main(program)
