"""What to write instead of a name that is not here: NumPy's names and those of the standard."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from types import FrameType
from typing import Any

import numpy as np

from redist.text.extras import adviser_of

RENAMED = {
    "absolute": "abs", "append": "concat", "fix": "trunc", "matvec": "matmul", "vecmat": "matmul",
    "r_": "concat", "mgrid": "from_function", "ogrid": "meshgrid",
    "amax": "max", "amin": "min", "arccos": "acos", "arccosh": "acosh",
    "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh",
    "argpartition": "argsort", "argwhere": "nonzero", "around": "round", "asanyarray": "asarray",
    "asarray_chkfinite": "asarray", "ascontiguousarray": "asarray", "asfortranarray": "asarray",
    "asmatrix": "asarray", "bitwise_not": "bitwise_invert", "block": "concat", "bmat": "concat",
    "concatenate": "concat", "conjugate": "conj", "cross": "linalg.cross",
    "cumprod": "cumulative_prod", "cumsum": "cumulative_sum", "diagonal": "linalg.diagonal",
    "dot": "matmul", "ediff1d": "diff", "einsum_path": "einsum",
    "flatten": "reshape", "fliplr": "flip", "flipud": "flip", "fromfunction": "from_function",
    "genfromtxt": "read_csv", "identity": "eye", "indices": "from_function",
    "inner": "vecdot", "insert": "concat", "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift", "load": "read_npy", "loadtxt": "read_csv",
    "fromfile": "read_npy", "memmap": "read_npy", "matrix": "asarray", "mod": "remainder",
    "ndarray": "Array", "outer": "linalg.outer",
    "partition": "sort", "piecewise": "where", "power": "pow", "ravel": "reshape",
    "right_shift": "bitwise_right_shift", "rint": "round", "rollaxis": "moveaxis",
    "select": "where", "choose": "where", "sort_complex": "sort",
    "swapaxes": "permute_dims", "trace": "linalg.trace", "transpose": "permute_dims",
    "true_divide": "divide", "unique": "unique_values", "vdot": "vecdot",
    "save": "write_npy",
    "savetxt": "write_csv", "tofile": "write_npy", "read_table": "read_csv", "to_csv": "write_csv",
    "to_parquet": "write_parquet", "from_zarr": "read_zarr", "to_zarr": "write_zarr",
    "vectorize": "map_tiles", "frompyfunc": "map_tiles",
}  # fmt: skip
"""NumPy's name, and ours that does it."""

INSTEAD = {
    **{name: f"numpy.{name}([a, b]), which takes global arrays"
       for name in ("column_stack", "hstack", "vstack")},
    "c_": "numpy.column_stack([a, b]), which takes global arrays",
    "row_stack": "numpy.vstack([a, b]), which takes global arrays",
    "dstack": "pgas.stack([a, b], axis=2) for matrices, pgas.concat([a, b], axis=2) for three dims",
    **dict.fromkeys(("numpy", "to_numpy", "values"),
                    "a.gather() for all of it on every rank, or a.local for this rank's tile"),
    **dict.fromkeys(("apply_along_axis", "apply_over_axes"),
                    "it with axis=, or pgas.map_tiles for a function that keeps the shape of a tile"),
    **dict.fromkeys(("savez", "savez_compressed"), "pgas.write_npy(file, a), once for each array"),
    "lexsort": "order = pgas.argsort(minor) and order = order[pgas.argsort(main[order])]: argsort is stable, "
               "so the main key comes last",
    "interp": "x = pgas.clip(x, xp[0], xp[-1]), i = pgas.clip(pgas.searchsorted(xp, x), 1, len(xp) - 1) and "
              "fp[i - 1] + (x - xp[i - 1]) / (xp[i] - xp[i - 1]) * (fp[i] - fp[i - 1]), "
              "with global xp and fp, as by pgas.asarray(xp)",
    **dict.fromkeys(("histogram2d", "histogramdd"),
                    "pgas.bincount(i * n + j, minlength=m * n).reshape(m, n), with i = "
                    "pgas.clip(pgas.digitize(x, edges) - 1, 0, m - 1) and j alike; what lies "
                    "outside counts in the outermost bins"),
    "head": "a[:5]", "tail": "a[-5:]", "iloc": "a[i]", "loc": "a[i]",
    "dropna": "a[~pgas.any(pgas.isnan(a), axis=1)] for rows without nan",
    "fillna": "pgas.where(pgas.isnan(a), value, a)", "isna": "pgas.isnan(a)", "isnull": "pgas.isnan(a)",
    "angle": "pgas.atan2(a.imag, a.real)",
    "array_equiv": "pgas.all(a == b)", "array2string": "str(a)", "array_repr": "repr(a)",
    "array_str": "str(a)",
    "flatiter": "a.reshape(-1)", "nested_iters": "a.local, this rank's tile",
    "isfortran": "a.local.flags.fnc, of this rank's tile",
    "may_share_memory": "numpy.may_share_memory(a.local, b.local)",
    "shares_memory": "numpy.shares_memory(a.local, b.local)",
    "norm": "pgas.linalg.vector_norm(a) or pgas.linalg.matrix_norm(a)",
    "polyfit": "pgas.linalg.lstsq(x[:, None] ** pgas.arange(deg, -1, -1), y), with the coefficients in the "
               "order of NumPy",
    "unravel_index": "numpy.unravel_index(int(a.argmax()), a.shape)",
    "histogram_bin_edges": "pgas.histogram(a, bins)[1]",
    "atleast_1d": "a.reshape(-1)", "atleast_2d": "a[None, :]", "atleast_3d": "a[None, :, None]",
    "broadcast": "pgas.broadcast_arrays(a, b)",
    "compress": "a[mask]", "extract": "a[mask]", "delete": "a[mask]", "take_where": "a[mask]",
    "correlate": "pgas.convolve(a, pgas.flip(v)) for real numbers",
    "copyto": "a[...] = values", "place": "a[mask] = values", "putmask": "a[mask] = values",
    "put": "a[indices] = values", "put_along_axis": "a[indices] = values",
    "fill_diagonal": "pgas.where(pgas.eye(n, dtype=bool), value, a)",
    "diagflat": "pgas.diag(a.reshape(-1))",
    "dump": "pgas.write_npy(path, a)", "dumps": "a.gather().dumps()",
    "flat": "a.reshape(-1)", "tobytes": "a.gather().tobytes()",
    "geomspace": "pgas.exp(pgas.linspace(log(start), log(stop), n))",
    "logspace": "10.0 ** pgas.linspace(start, stop, n)",
    "gradient": "pgas.diff, or (a[2:] - a[:-2]) / 2",
    "hsplit": "slices, as in a[:, :k]", "vsplit": "slices, as in a[:k]", "dsplit": "slices",
    "info": "help(pgas.sum)",
    "intersect1d": "pgas.unique_counts(pgas.concat([a, b]))",
    "union1d": "pgas.unique_values(pgas.concat([a, b]))",
    "iscomplex": "a.imag != 0", "isreal": "a.imag == 0",
    "isneginf": "pgas.isinf(a) & (a < 0)", "isposinf": "pgas.isinf(a) & (a > 0)",
    "ix_": "a[rows][:, columns]", "kron": "pgas.einsum('ij,kl->ikjl', a, b).reshape(m, n)",
    "nanargmax": "pgas.argmax(pgas.where(pgas.isnan(a), -pgas.inf, a), axis=axis)",
    "nanargmin": "pgas.argmin(pgas.where(pgas.isnan(a), pgas.inf, a), axis=axis)",
    "nancumsum": "pgas.cumulative_sum(pgas.where(pgas.isnan(a), 0, a), axis=axis)",
    "nancumprod": "pgas.cumulative_prod(pgas.where(pgas.isnan(a), 1, a), axis=axis)",
    "ndenumerate": "a.box, which says where a.local lies", "nditer": "a.local, this rank's tile",
    "polyval": "c[0] + x * (c[1] + x * c[2]) and so on",
    "rot90": "pgas.flip(a.T, axis=0)", "require": "pgas.asarray(x, dtype=dtype)",
    "resize": "pgas.concat, or a[:n]", "ndim": "a.ndim", "shape": "a.shape", "size": "a.size",
    "sinc": "pgas.sin(pgas.pi * x) / (pgas.pi * x)",
    "trapezoid": "pgas.sum((y[1:] + y[:-1]) / 2 * dx)",
    "tri": "pgas.tril(pgas.ones((n, m)))", "vander": "x[:, None] ** pgas.arange(n)",
    "tril_indices": "pgas.tril(a)", "tril_indices_from": "pgas.tril(a)",
    "triu_indices": "pgas.triu(a)", "triu_indices_from": "pgas.triu(a)",
    "diag_indices": "pgas.diag(a)", "diag_indices_from": "pgas.diag(a)",
    "divmod": "a // b and a % b", "modf": "a - pgas.trunc(a) and pgas.trunc(a)",
    "view": "a.astype(dtype), or a.local.view(dtype) for this rank's tile",
    "itemset": "a[index] = value", "copy": "a.copy()",
    "cond": "s = pgas.linalg.svdvals(a) and s[0] / s[-1]", "multi_dot": "a @ b @ c",
    "lstsq": "x = pgas.linalg.lstsq(a, b), the solution alone; pgas.sum((b - a @ x) ** 2, axis=0) has the "
    "residuals, pgas.linalg.svdvals(a) the singular values",
    "LinAlgError": "numpy.linalg.LinAlgError, from which redist's errors of matrices derive",
    "fft2": "pgas.fft.fftn(a, axes=(-2, -1))", "ifft2": "pgas.fft.ifftn(a, axes=(-2, -1))",
    "rfft2": "pgas.fft.rfftn(a, axes=(-2, -1))", "irfft2": "pgas.fft.irfftn(a, axes=(-2, -1))",
}  # fmt: skip
"""NumPy's name, and an expression that does it."""

OF_TILES = frozenset((
    "base", "byteswap", "ctypes", "data", "flags", "getfield", "newbyteorder", "setfield",
    "setflags", "strides",
))  # fmt: skip
"""Attributes of an array of NumPy that only a tile has."""

WITHOUT_DATA = frozenset((
    "base_repr", "binary_repr", "broadcast_shapes", "common_type", "dtype", "errstate",
    "format_float_positional", "format_float_scientific", "get_include", "get_printoptions",
    "getbufsize", "geterr", "geterrcall", "iinfo", "isscalar", "issubdtype",
    "iterable", "mask_indices", "min_scalar_type", "mintypecode", "ndindex", "poly1d", "polyadd",
    "polyder", "polydiv", "polyint", "polymul", "polysub",
    "printoptions", "promote_types", "ravel_multi_index", "set_printoptions", "setbufsize", "seterr",
    "seterrcall", "show_config", "show_runtime", "test", "typename", "ufunc",
))  # fmt: skip
"""What NumPy offers for numbers, dtypes and settings."""

NO_NUMBERS = frozenset((
    "busday_count", "busday_offset", "busdaycalendar", "bytes_", "character", "datetime64",
    "datetime_as_string", "datetime_data", "flexible", "is_busday", "isnat", "object_", "recarray",
    "record", "str_", "timedelta64", "void",
))  # fmt: skip
"""What NumPy has for dates, text and objects."""

FROM_NUMBERS = frozenset((
    "bartlett", "blackman", "frombuffer", "fromiter", "fromregex", "fromstring", "hamming",
    "hanning", "kaiser", "poly", "roots",
))  # fmt: skip
"""What makes small arrays of NumPy."""

RANDOM = {
    **dict.fromkeys(("rand", "random", "random_sample", "ranf", "sample"), "uniform(shape)"),
    "uniform": "uniform(shape, low, high)", "normal": "normal(shape, mean, deviation)",
    **dict.fromkeys(("randn", "standard_normal"), "normal(shape)"),
    **dict.fromkeys(("randint", "random_integers", "integers"), "integers(shape, low, high)"),
    **dict.fromkeys(("seed", "default_rng", "RandomState", "SeedSequence", "Generator", "get_state",
                     "set_state", "get_bit_generator", "set_bit_generator", "BitGenerator", "MT19937",
                     "PCG64", "PCG64DXSM", "Philox", "SFC64", "bit_generator", "spawn"), ""),
}  # fmt: skip
"""NumPy's random functions, and what of a generator does it."""
JOINING = {"CClass": "numpy.column_stack([a, b])", "RClass": "numpy.concatenate([a, b])"}
"""The classes of ``numpy.c_`` and ``numpy.r_``, and what does it."""
ORDERS = ("permutation", "permuted", "shuffle", "choice")


def explain_missing(
    where: str, name: str, offered: Mapping[str, Any], taken: Collection[str] = ()
) -> str:
    """What an error says of a name that a module or the array does not have.

    ``offered`` are pgas's own names, ``taken`` functions of NumPy that take global arrays.

    >>> explain_missing("pgas", "concatenate", {})
    "pgas has no 'concatenate'; write pgas.concat"
    >>> explain_missing("an Array", "roll", {"roll": np.roll})
    "an Array has no 'roll'; write pgas.roll"
    >>> explain_missing("pgas", "cbrt", {})
    "pgas has no 'cbrt'; write numpy.cbrt(a), which takes global arrays"
    >>> explain_missing("pgas", "unwrap", {})
    "pgas has no 'unwrap': it is not offered; a.gather() brings all of a to every rank, for numpy.unwrap"
    """
    said = f"{where} has no {name!r}"
    if name.startswith("_"):
        return said
    return said + _advice(where, name, offered, taken)


def explain_function(where: str, name: str, offered: Mapping[str, Any]) -> str:
    """What an error says of a function of NumPy that was called with a global array.

    >>> explain_function("numpy", "savetxt", {})
    'cannot use numpy.savetxt on a global array; write pgas.write_csv'
    """
    return f"cannot use {where}.{name} on a global array" + _advice(where, name, offered, ())


def explain_options(
    function: Callable[..., Any],
    ours: Callable[..., Any],
    options: Mapping[str, Any],
    xp: Any,
    said: str,
) -> str | None:
    """What an error says of arguments that only NumPy's function takes; None if they are not to blame.

    ``ours`` answers it for global arrays, and Python said of the call what ``said`` has.
    """
    where, name = function.__module__, function.__name__
    found = re.search(r"got an unexpected keyword argument '(\w+)'", said)
    if found and found[1] in options:
        wrong = f"{found[1]}="
    elif re.search(rf"(<lambda>|{name})\(\) (takes|missing|got multiple) ", said):
        wrong = "these arguments"
    else:
        return None
    module = getattr(xp, where.partition(".")[2], xp)
    own = next((one for one in (ours, getattr(module, name, None)) if _names_all(one)), None)
    takes = [] if own is None else list(inspect.signature(own).parameters.values())[1:]
    text = ", ".join(one.name if one.default is one.empty else f"{one.name}=" for one in takes)
    of_ours = f"{where.replace('numpy', 'pgas')}.{name}" if hasattr(module, name) else "it"
    what = f"{of_ours} takes {text or 'an array alone'}; " if own is not None else ""
    called = f"{where}.{name}"
    do = f"leave {wrong} out, or call" if found else "call"
    return f"cannot use {called} on a global array with {wrong}: {what}{do} {called} of a.gather()"


def _names_all(function: Any) -> bool:
    """Whether a function says what arguments it takes."""
    if not callable(function):
        return False
    kinds = {one.kind for one in inspect.signature(function).parameters.values()}
    return not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}


def explain_conversion(frame: FrameType | None, size: str, number: str | None = None) -> str:
    """What an error says to code that takes a global array for one of NumPy; a library may be told its own.

    ``number`` is what to write for an array without dims.
    """
    joins = None if frame is None else type(frame.f_locals.get("self")).__name__
    if joins in JOINING:
        return f": write {JOINING[joins]}, which takes global arrays"
    adviser, where = adviser_of(frame)
    if adviser is not None:
        return str(adviser.explain_conversion(where, size))
    if number is not None:
        return f": write {number} for its number, on every rank, or pgas.stack for an array of some"
    return (
        ": pgas's functions leave it where it lies; write a.gather() for all of it on every rank "
        f"({size}), or a.local for this rank's tile"
    )


def explain_random(name: str) -> str:
    """What an error says of a name that ``pgas.random`` does not have.

    >>> explain_random("rand")
    "pgas.random has no 'rand'; write pgas.random.generator(seed).uniform(shape)"
    """
    said = f"pgas.random has no {name!r}"
    if name in RANDOM:
        return f"{said}; write pgas.random.generator(seed)" + (f".{RANDOM[name]}").rstrip(".")
    if name in ORDERS:
        return (
            f"{said}; write a[order] with the same order on every rank, as of "
            "numpy.random.default_rng(seed).permutation(n)"
        )
    if hasattr(np.random, name) or hasattr(np.random.Generator, name):
        return (
            f"{said}: it is not offered; compute it from pgas.random.generator(seed).uniform(shape) or "
            ".normal(shape)"
        )
    return said


def _advice(where: str, name: str, offered: Mapping[str, Any], taken: Collection[str]) -> str:
    if name in RENAMED:
        return f"; write pgas.{RENAMED[name]}"
    if name in INSTEAD:
        return f"; write {INSTEAD[name]}"
    if where != "pgas" and callable(offered.get(name)):
        return f"; write pgas.{name}"
    if where == "an Array" and name in OF_TILES:
        return f"; that of this rank's tile is a.local.{name}"
    known = getattr(np, name, None)
    if where != "pgas" and where.startswith(("pgas", "numpy.")):
        inner = getattr(np, where.rpartition(".")[2], np)
        known = getattr(inner, name, known)
    if name in NO_NUMBERS:
        return ": global arrays hold numbers, no dates, text or objects"
    if isinstance(known, np.ufunc) and known.nout == 1 and known.signature is None:
        operands = ", ".join("abc"[: known.nin])
        return f"; write numpy.{name}({operands}), which takes global arrays"
    if name in taken:
        return f"; write numpy.{name}, which takes global arrays"
    if isinstance(known, type) and issubclass(known, np.generic):
        return f"; dtypes are NumPy's: write numpy.{name}"
    if name in WITHOUT_DATA and where == "numpy":
        return (
            ": it takes numbers of Python and arrays of NumPy; write int(a), float(a) or a.gather()"
        )
    if name in WITHOUT_DATA:
        return f"; write numpy.{name}, which needs no array"
    if name in FROM_NUMBERS:
        return f"; write pgas.asarray(numpy.{name}(...))"
    if callable(known):
        full = where if where.startswith("numpy.") else "numpy"
        return f": it is not offered; a.gather() brings all of a to every rank, for {full}.{name}"
    return "" if known is None else f"; write numpy.{name}, which needs no array"
