"""Methods, NumPy's own functions and statistics on global arrays: calls that NumPy answers too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.programs.pgas.calls import ALL, FLOATS, REAL, Call, Case, Operands
from tests.programs.pgas.drawing import Values

Given = dict[str, Any]
SMALL = ("i4", "i8", "f4", "f8")


def _on(call: Callable[..., Any], kinds: tuple[str, ...] = ALL, least: int = 0, most: int = 3,
        finite: bool = False, filled: bool = False) -> Case:  # fmt: skip
    """A call of one array of any shape."""

    def case(of: Operands) -> tuple[list[Any], Call]:
        shape = of.filled(least, most) if filled else of.shape(least, most)
        return [of.values(shape, of.one_of(kinds), finite)], lambda m, x: call(x)

    return case


def _along(call: Callable[..., Any], kinds: tuple[str, ...], flat: bool = True,
           several: bool = False, finite: bool = False) -> Case:  # fmt: skip
    """A call of one array and an axis: a dim, all of them, or some."""

    def case(of: Operands) -> tuple[list[Any], Call]:
        shape = of.filled(1)
        axis: Any = of.axis(shape)
        if flat and of.rng.random() < 0.3:
            axis = None
        elif several and len(shape) > 1 and of.rng.random() < 0.3:
            axis = tuple(int(i) for i in of.rng.permutation(len(shape))[:2])
        return [of.values(shape, of.one_of(kinds), finite)], lambda m, x: call(x, axis)

    return case


def _with_namespace(call: Callable[..., Any], kinds: tuple[str, ...], several: bool = True,
                    finite: bool = False) -> Case:  # fmt: skip
    """A function of the namespace along an axis."""

    def case(of: Operands) -> tuple[list[Any], Call]:
        values, _ = _along(lambda x, axis: None, kinds, several=several, finite=finite)(of)
        shape = values[0].shape
        axis: Any = None if of.rng.random() < 0.3 else of.axis(shape)
        if several and len(shape) > 1 and of.rng.random() < 0.3:
            axis = tuple(int(i) for i in of.rng.permutation(len(shape))[:2])
        keep = bool(of.rng.integers(2))
        return values, lambda m, x: call(m, x, axis, keep)

    return case


def _reshape(of: Operands) -> tuple[list[Any], Call]:
    x = of.values(of.filled(1), of.one_of(ALL))
    n = x.shape[0]
    wanted: Any = of.one_of([(n, -1), ((n, -1),), (-1,), (x.size, 1), ([x.size],)])
    return [x], lambda m, x: x.reshape(*wanted)


def _transpose(of: Operands) -> tuple[list[Any], Call]:
    x = of.values(of.shape(1), of.one_of(ALL))
    order = [int(i) for i in of.rng.permutation(x.ndim)]
    given: Any = of.one_of([(), (None,), tuple(order), (order,)])
    return [x], lambda m, x: x.transpose(*given)


def _swap(of: Operands) -> tuple[list[Any], Call]:
    x = of.values(of.shape(1), of.one_of(ALL))
    i, j = of.axis(x.shape), of.axis(x.shape)
    return [x], lambda m, x: x.swapaxes(i, j)


def _matrix(call: Callable[..., Any], kinds: tuple[str, ...], finite: bool = True) -> Case:
    def case(of: Operands) -> tuple[list[Any], Call]:
        x = of.values(of.filled(2, 2), of.one_of(kinds), finite)
        k = int(of.rng.integers(-2, 3))
        return [x], lambda m, x: call(m, x, k)

    return case


def _pair(call: Callable[..., Any], kinds: tuple[str, ...], same: bool = True) -> Case:
    """A call of two arrays of one shape, or of one dim."""

    def case(of: Operands) -> tuple[list[Any], Call]:
        shape = of.filled(1, 2)
        other = shape if same else (shape[-1],)
        kind = of.one_of(kinds)
        pair: list[Any] = [of.values(shape, kind, True), of.values(other, kind, True)]
        return pair, lambda m, x, y: call(m, x, y)

    return case


def _take(of: Operands) -> tuple[list[Any], Call]:
    x = of.values(of.filled(1), of.one_of(ALL))
    axis = of.one_of([None, of.axis(x.shape)])
    n = x.size if axis is None else x.shape[axis]
    which = of.rng.integers(-n, n, of.one_of([(3,), (2, 2)]))
    given: Any = of.one_of([which, which.tolist()])
    return [x], lambda m, x: x.take(given, axis)


def _item(of: Operands) -> tuple[list[Any], Call]:
    x = of.values(of.filled(1), of.one_of(SMALL), True)
    at: Any = tuple(int(of.rng.integers(n)) for n in x.shape)
    given = of.one_of([at, (at,), (int(of.rng.integers(x.size)),)])
    return [x], lambda m, x: _number(m, x, x.item(*given))


def _number(m: Any, x: Any, value: Any) -> Any:
    """A number as an array of the kind that is compared."""
    if isinstance(x, np.ndarray):
        return np.asarray(value)
    return m.asarray(value, comm=x.comm)


def _written(change: Callable[[Any], None], kinds: tuple[str, ...] = REAL) -> Case:
    """A method that changes the array."""

    def case(of: Operands) -> tuple[list[Any], Call]:
        def call(m: Any, x: Any) -> Any:
            change(x)
            return x

        return [of.values(of.filled(1), of.one_of(kinds))], call

    return case


def _dot(of: Operands) -> tuple[list[Any], Call]:
    n, k, p = (max(1, of.draw.size()) for _ in range(3))
    kind = of.one_of(("f4", "f8", "c16", "i8"))
    shapes: Any = of.one_of([((n, k), (k, p)), ((k,), (k,)), ((n, k), (k,)), ((2, n, k), (k, p))])
    return [of.values(s, kind, True) for s in shapes], lambda m, x, y: x.dot(y)


def _near(of: Operands) -> tuple[list[Any], Call]:
    kinds = of.one_of(REAL), of.one_of(REAL)
    x = of.values(of.shape(), kinds[0], finite=np.dtype(kinds[1]).kind != "f")
    y = (x * (1 + 1e-6)).astype(kinds[1]) if of.rng.random() < 0.5 else of.values(x.shape, kinds[1])
    same = bool(of.rng.integers(2))
    if of.rng.random() < 0.3:
        return [x], lambda m, x: m.isclose(x, 3.0, atol=0.5, equal_nan=same)
    return [x, y], lambda m, x, y: m.isclose(x, y, rtol=1e-3, equal_nan=same)


def _average(of: Operands) -> tuple[list[Any], Call]:
    x = of.values(of.filled(1), of.one_of(("i4", "f4", "f8", "c16")), True)
    axis = of.axis(x.shape)
    one = of.rng.random() < 0.5
    w = np.asarray(of.rng.random(x.shape[axis] if one else x.shape) + 0.5)
    return [x, w], lambda m, x, w: m.average(x, axis=axis, weights=w)


WHOLE = ["lower", "higher", "nearest", "inverted_cdf", "closest_observation"]
METHODS_OF_QUANTILES = [
    "linear", "linear", *WHOLE, "midpoint", "averaged_inverted_cdf", "interpolated_inverted_cdf", "hazen",
    "weibull", "median_unbiased", "normal_unbiased",
]  # fmt: skip


def _quantile(name: str, whole: int) -> Case:
    def case(of: Operands) -> tuple[list[Any], Call]:
        x = of.values(of.filled(1), of.one_of(("i4", "f8")), of.rng.random() < 0.8)
        x = np.where(np.isinf(x), 1, x).astype(x.dtype)
        x = x // 2 if x.dtype.kind == "i" else x  # else differences overflow in NumPy, not here
        q: Any = of.one_of([0.5, 0.3, 0, 1.0, [0.0, 0.25, 1.0], [[0.1], [0.9]]])
        q = (np.asarray(q) * whole).tolist()
        axis: Any = of.one_of([None, of.axis(x.shape), tuple(range(x.ndim))])
        how = of.one_of(METHODS_OF_QUANTILES)
        if how not in ("linear", *WHOLE) and np.asarray(q).dtype.kind == "i":
            q = float(q)  # else NumPy rounds what lies between to whole numbers, by some methods
        keep, by = bool(of.rng.integers(2)), _by(of)
        if name.startswith("nan") and x.dtype.kind == "f":
            x = np.where(of.rng.random(x.shape) < 0.3, np.nan, x)
        given: Given = {"axis": axis, "method": how, "keepdims": keep}
        return [x], lambda m, x: getattr(by(m), name)(x, q, **given)

    return case


def _topk(of: Operands) -> tuple[list[Any], Call]:
    """Beside NumPy's stable sort; few different values, so that many are equal."""
    kind = of.one_of(REAL)
    x = np.resize(np.append(_some(of, kind), np.asarray([1], kind)), of.filled(1))
    axis, largest = of.axis(x.shape), bool(of.rng.integers(2))
    k = int(of.rng.integers(x.shape[axis] + 1))

    def call(m: Any, x: Any) -> Any:
        if m is not np:
            return tuple(m.topk(x, k, axis=axis, largest=largest))
        n, rows = x.shape[axis], np.flip(x, axis) if largest else x
        order = np.argsort(rows, axis, kind="stable")
        order = n - 1 - np.flip(order, axis) if largest else order
        order = np.take(order, np.arange(k), axis)
        return np.take_along_axis(x, order, axis), order

    return [x], call


def _pad(of: Operands) -> tuple[list[Any], Call]:
    x = of.values(of.filled(1), of.one_of(ALL))
    mode, by = of.one_of(["constant", "edge", "reflect", "symmetric", "wrap"]), _by(of)
    each = [tuple(int(n) for n in of.rng.integers(0, 4, 2)) for _ in x.shape]
    widths = of.one_of([each, 2, (1, 3), {of.axis(x.shape): 12}])
    values: Any = of.one_of([0, (1, 0)])
    given: Given = {"constant_values": values} if mode == "constant" else {}
    return [x], lambda m, x: by(m).pad(x, widths, mode, **given)


def _convolve(of: Operands) -> tuple[list[Any], Call]:
    kind = of.one_of(("i4", "f4", "f8", "c16"))
    x, w = (of.values((n * m,), kind, True) for n, m in zip(of.filled(2, 2), (20, 9), strict=True))
    x, w = ((one % 100 if kind == "i4" else one) for one in (x, w))
    mode, by = of.one_of(["full", "same", "valid"]), _by(of)
    if of.rng.random() < 0.3:
        return [x], lambda m, x: by(m).convolve(w, x, mode=mode)
    return [x, w], lambda m, x, w: by(m).convolve(x, w, mode=mode)


def _nan(name: str, kinds: tuple[str, ...]) -> Case:
    """A statistic without NaN; some lines have nothing else."""

    def case(of: Operands) -> tuple[list[Any], Call]:
        x = of.values(of.filled(1), of.one_of(kinds), True)
        if x.dtype.kind != "i":
            x = np.where(of.rng.random(x.shape) < 0.4, x.dtype.type(np.nan), x)
            if of.rng.random() < 0.3:
                x[0] = np.nan
        axis: Any = of.one_of([None, of.axis(x.shape), 0, tuple(range(x.ndim))])
        given: Given = {"axis": axis, "keepdims": bool(of.rng.integers(2))}
        if name in ("nanstd", "nanvar"):
            given["ddof"] = int(of.rng.integers(3))
        by_numpy = bool(of.rng.integers(2))
        return [x], lambda m, x: getattr(np if by_numpy else m, name)(x, **given)

    return case


def _cov(name: str) -> Case:
    def case(of: Operands) -> tuple[list[Any], Call]:
        kind = of.one_of(("i4", "f4", "f8", "c16"))
        shape = tuple(n + 2 for n in of.shape(1, 2))
        rows = bool(of.rng.integers(2))
        x = of.values(shape, kind, True)
        if name == "cov" and of.rng.random() < 0.4:
            return _weighted(of, x, rows)
        if of.rng.random() < 0.3:
            return [x, of.values(shape, kind, True)], lambda m, x, y: getattr(m, name)(
                x, y, rowvar=rows
            )
        return [x], lambda m, x: getattr(m, name)(x, rowvar=rows)

    return case


def _weighted(of: Operands, x: Values, rows: bool) -> tuple[list[Any], Call]:
    """A covariance with weights, global ones or those of NumPy."""
    x = x if x.dtype.kind in "fc" else np.asarray(x % 1000, x.dtype)  # squares are summed
    n = x.shape[-1] if rows or x.ndim == 1 else x.shape[0]
    often, much = of.rng.integers(1, 4, n), np.asarray(of.rng.random(n) + 0.1)
    less, by = int(of.rng.integers(2)), _by(of)
    match of.rng.integers(3):
        case 0:
            both: list[Any] = [x, often, much]
            return both, lambda m, x, f, a: by(m).cov(x, rowvar=rows, fweights=f, aweights=a)
        case 1:
            return [x], lambda m, x: by(m).cov(x, rowvar=rows, fweights=often, ddof=less)
    return [x], lambda m, x: by(m).cov(x, rowvar=rows, aweights=much, ddof=less)


def _histogram(of: Operands) -> tuple[list[Any], Call]:
    x = of.values(of.filled(1), of.one_of(("i4", "u1", "f4", "f8")), True)
    x = np.asarray(np.abs(x) % 50, x.dtype)
    given: Given = of.one_of([
        {}, {"bins": 4}, {"bins": [0, 1, 2, 7.5]}, {"bins": 5, "range": (1, 6)}, {"density": True},
    ])  # fmt: skip
    if of.rng.random() < 0.3:
        w = of.values(x.shape, "f8", True)
        return [x, w], lambda m, x, w: tuple(m.histogram(x, weights=w))
    return [x], lambda m, x: tuple(m.histogram(x, **given))


def _bincount(of: Operands) -> tuple[list[Any], Call]:
    x = np.asarray(of.rng.integers(0, 9, of.shape(1, 1)), of.one_of(("i4", "u2", "i8")))
    least = int(of.rng.integers(0, 14))
    if x.size and of.rng.random() < 0.4:
        return [x, of.values(x.shape, "f8", True)], lambda m, x, w: m.bincount(x, w, least)
    return [x], lambda m, x: m.bincount(x, minlength=least)


def _diag(of: Operands) -> tuple[list[Any], Call]:
    x = of.values(of.shape(1, 2), of.one_of(ALL))
    k = int(of.rng.integers(-3, 4))
    return [x], lambda m, x: m.diag(x, k)


def _unique(of: Operands) -> tuple[list[Any], Call]:
    x = of.values(of.shape(0, 1), of.one_of(("i2", "f8", "u1")))
    given: Any = {
        f"return_{name}": bool(of.rng.integers(2)) for name in ("index", "inverse", "counts")
    }
    return [x], lambda m, x: np.unique(x, **given)


def _by(of: Operands) -> Any:
    """NumPy's function, or that of the namespace."""
    by_numpy = bool(of.rng.integers(2))
    return lambda m: np if by_numpy else m


def _some(of: Operands, kind: str) -> Values:
    """Few values of a dtype, so that many are equal; floats with NaN, infinities and both zeros."""
    n = int(of.rng.choice([0, 1, 2, 7, 40]))
    out = np.asarray(of.rng.integers(0, 9, n), kind)
    if out.dtype.kind in "fc":
        odd = np.asarray([np.nan, np.inf, -np.inf, -0.0, 0.5]).astype(kind)
        out = np.where(of.rng.random(n) < 0.3, of.rng.choice(odd, n), out)
    return out


def _isin(of: Operands) -> tuple[list[Any], Call]:
    kind = of.one_of(ALL)
    other = kind if of.rng.random() < 0.6 else of.one_of(ALL)
    x = np.resize(np.append(_some(of, kind), np.asarray([1, 0], kind)), of.shape())
    values = _some(of, other)
    given: Given = {"invert": bool(of.rng.integers(2)), "assume_unique": False}
    by = _by(of)
    match of.rng.integers(4):
        case 0 if np.dtype(other).kind != "c":
            pair: list[Any] = [x, values.reshape(-1, 1) if of.rng.random() < 0.3 else values]
            return pair, lambda m, x, y: by(m).isin(x, y, **given)
        case 1:
            listed = values.tolist()
            return [x], lambda m, x: by(m).isin(x, listed, **given)
        case 2 if values.size:
            one = values[0].item()
            return [x], lambda m, x: by(m).isin(x, one, **given)
    return [x], lambda m, x: by(m).isin(x, values, **given)


def _digitize(of: Operands) -> tuple[list[Any], Call]:
    kind = of.one_of(ALL[:11])
    edges = np.sort(_some(of, of.one_of(REAL)))
    edges = edges[~np.isnan(edges)]
    edges = edges[::-1] if of.rng.random() < 0.5 else edges
    x = np.resize(np.append(_some(of, kind), np.asarray([1], kind)), of.shape())
    right, by = bool(of.rng.integers(2)), _by(of)
    match of.rng.integers(3):
        case 0:
            pair: list[Any] = [x, edges.copy()]
            return pair, lambda m, x, y: by(m).digitize(x, y, right=right)
        case 1:
            listed = edges.tolist()
            return [x], lambda m, x: by(m).digitize(x, listed, right=right)
    return [x], lambda m, x: by(m).digitize(x, edges, right=right)


def _nan_to_num(of: Operands) -> tuple[list[Any], Call]:
    kind = of.one_of(ALL)
    x = of.values(of.shape(), kind)
    if x.dtype.kind in "fc":
        odd = np.asarray([np.nan, np.inf, -np.inf]).astype(kind)
        odd = odd if x.dtype.kind == "f" else np.append(odd, [complex(np.inf, np.nan), 1j * np.inf])
        x = np.where(of.rng.random(x.shape) < 0.4, of.rng.choice(odd, x.shape), x).astype(kind)
    given: Given = of.one_of([
        {}, {"nan": -1}, {"nan": 2.5, "posinf": 7}, {"neginf": -1e3, "posinf": 1.5, "nan": 3.0},
    ])  # fmt: skip
    by = _by(of)
    return [x], lambda m, x: by(m).nan_to_num(x, **given)


def _search_in(of: Operands) -> tuple[list[Any], Call]:
    """Sorted numbers or sought ones that are no global array."""
    row = np.sort(_some(of, of.one_of(REAL)))
    kind = of.one_of(REAL)
    x = np.resize(np.append(_some(of, kind), np.asarray([1], kind)), of.shape(1))
    side: Any = of.one_of(["left", "right"])
    by = _by(of)
    match of.rng.integers(3):
        case 0:
            sought: Any = of.one_of([x, x.tolist(), 2.5, np.float64(3)])
            return [row], lambda m, y: by(m).searchsorted(y, sought, side=side)
        case 1:
            listed = row.tolist()
            return [x], lambda m, x: by(m).searchsorted(listed, x, side=side)
    return [x], lambda m, x: by(m).searchsorted(row, x, side=side)


def _joined(name: str) -> Case:
    def case(of: Operands) -> tuple[list[Any], Call]:
        shape = of.filled(1, 2)
        pair: list[Any] = [of.values(shape, of.one_of(("i4", "f4", "f8"))) for _ in range(2)]
        return pair, lambda m, x, y: getattr(np, name)([x, y])

    return case


def _np(name: str, *args: Any, kinds: tuple[str, ...] = ALL, least: int = 1, finite: bool = False,
        **given: Any) -> Case:  # fmt: skip
    """A function of NumPy, whatever it is given."""
    return _on(
        lambda x: getattr(np, name)(x, *args, **given), kinds, least, finite=finite, filled=True
    )


METHODS: dict[str, Case] = {
    ".sum": _along(lambda x, axis: x.sum(axis, keepdims=True), SMALL, several=True),
    ".prod": _along(lambda x, axis: x.prod(axis, np.dtype("f8")), SMALL, several=True, finite=True),
    ".mean": _along(lambda x, axis: x.mean(axis, dtype="f8"), SMALL, several=True),
    ".std": _along(lambda x, axis: x.std(axis, ddof=0), SMALL, several=True, finite=True),
    ".var": _along(lambda x, axis: x.var(axis=axis, keepdims=True), SMALL, several=True, finite=True),
    ".max": _along(lambda x, axis: x.max(axis), REAL, several=True),
    ".min": _along(lambda x, axis: x.min(axis, keepdims=True), REAL, several=True),
    ".any": _along(lambda x, axis: x.any(axis), ALL, several=True),
    ".all": _along(lambda x, axis: x.all(axis), ALL, several=True),
    ".argmax": _along(lambda x, axis: x.argmax(axis), REAL),
    ".argmin": _along(lambda x, axis: x.argmin(axis, keepdims=True), REAL),
    ".cumsum": _along(lambda x, axis: x.cumsum(axis), SMALL),
    ".cumprod": _along(lambda x, axis: x.cumprod(axis, np.dtype("f8")), SMALL, finite=True),
    ".reshape": _reshape, ".transpose": _transpose, ".swapaxes": _swap, ".take": _take, ".item": _item,
    ".ravel": _on(lambda x: x.ravel()), ".flatten": _on(lambda x: x.flatten()),
    ".squeeze": _on(lambda x: x[None].squeeze()),
    ".diagonal": _matrix(lambda m, x, k: x.diagonal(k), ALL),
    ".trace": _matrix(lambda m, x, k: x.trace(k), SMALL),
    ".repeat": _along(lambda x, axis: x.repeat(2, axis), ALL),
    ".astype": _on(lambda x: x.astype("c16"), ("bool", "i4", "f4")),
    ".clip": _on(lambda x: x.clip(1, 4), SMALL), ".round": _on(lambda x: x.round(1), ("f4", "f8", "i4")),
    ".conj": _on(lambda x: x.conj()), ".conjugate": _on(lambda x: x.conjugate()),
    ".real": _on(lambda x: x.real), ".imag": _on(lambda x: x.imag),
    ".itemsize": _on(lambda x: x if x.itemsize == x.dtype.itemsize else x[0, 0, 0, 0]),
    ".nonzero": _on(lambda x: x.nonzero(), ALL, 1), ".dot": _dot,
    ".fill": _written(lambda x: x.fill(3)), ".sort": _written(lambda x: x.sort(axis=0)),
    ".argsort": _along(lambda x, axis: x.argsort(axis, stable=True), REAL),
    ".searchsorted": _pair(lambda m, x, y: m.sort(x.ravel()).searchsorted(y.ravel()), ("f8", "i8")),
    ".tolist": _on(lambda x: x if np.shape(x.tolist()) == x.shape or 0 in x.shape else x[0, 0, 0, 0]),
}  # fmt: skip
"""Methods as NumPy's are called."""

STATISTICS: dict[str, Case] = {
    "median": _with_namespace(lambda m, x, axis, keep: m.median(x, axis=axis, keepdims=keep), SMALL),
    "ptp": _with_namespace(lambda m, x, axis, keep: m.ptp(x, axis=axis, keepdims=keep), SMALL),
    "quantile": _quantile("quantile", 1), "percentile": _quantile("percentile", 100),
    "nanquantile": _quantile("nanquantile", 1), "nanpercentile": _quantile("nanpercentile", 100),
    "topk": _topk, "pad": _pad, "convolve": _convolve,
    "average": _average, "cov": _cov("cov"), "corrcoef": _cov("corrcoef"), "histogram": _histogram,
    **{f"nan{name}": _nan(f"nan{name}", (*SMALL, "c16")) for name in ("sum", "prod", "mean", "std", "var")},
    **{f"nan{name}": _nan(f"nan{name}", SMALL) for name in ("max", "min", "median")},
    "bincount": _bincount, "diag": _diag, "isclose": _near,
    "isin": _isin, "digitize": _digitize, "nan_to_num": _nan_to_num, "np.searchsorted": _search_in,
    "allclose": _pair(lambda m, x, y: m.all(m.isclose(x, x + 1e-9)), ("f8", "f4")),
}  # fmt: skip

FUNCTIONS: dict[str, Case] = {
    "np.mean": _np("mean", axis=0, kinds=SMALL),
    "np.std": _np("std", ddof=0, kinds=SMALL, finite=True),
    "np.sum": _np("sum", kinds=SMALL, axis=-1, keepdims=True),
    "np.max": _np("max", kinds=REAL),
    "np.amin": _np("amin", 0, kinds=REAL),
    "np.count_nonzero": _np("count_nonzero", axis=0),
    "np.sort": _np("sort", axis=None, kinds=REAL),
    "np.argsort": _np("argsort", axis=0, kinds=REAL, kind=None, stable=True),
    "np.median": _np("median", kinds=SMALL),
    "np.clip": _np("clip", 0, 3, kinds=SMALL),
    "np.reshape": _np("reshape", (-1, 1)),
    "np.ravel": _np("ravel"),
    "np.transpose": _np("transpose"),
    "np.squeeze": _np("squeeze"),
    "np.expand_dims": _np("expand_dims", 0),
    "np.flip": _np("flip"),
    "np.round": _np("round", 2, kinds=("f4", "f8")),
    "np.real": _np("real"),
    "np.copy": _np("copy"),
    "np.zeros_like": _np("zeros_like"),
    "np.full_like": _np("full_like", 1),
    "np.tile": _np("tile", 2),
    "np.nonzero": _np("nonzero"),
    "np.argwhere": _np("argwhere"),
    "np.flatnonzero": _np("flatnonzero"),
    "np.cumsum": _np("cumsum", kinds=SMALL),
    "np.diff": _np("diff", kinds=SMALL, axis=0),
    "np.where": _on(lambda x: np.where(x > 1, x, 0), SMALL),
    "np.where 1": _on(lambda x: np.where(x > 1), SMALL, 1),
    "np.split": _on(lambda x: np.array_split(x, 3), ALL, 1),
    "np.split at": _on(lambda x: np.split(x, [1, 3]), ALL, 1),
    "np.unique": _unique,
    "np.concatenate": _joined("concatenate"),
    "np.stack": _joined("stack"),
    "np.vstack": _joined("vstack"),
    "np.hstack": _joined("hstack"),
    "np.column_stack": _joined("column_stack"),
    "np.dot": _pair(lambda m, x, y: np.dot(x, y), ("f8",), same=False),
    "np.inner": _pair(lambda m, x, y: np.inner(x, y), ("f8",)),
    "np.vdot": _pair(lambda m, x, y: np.vdot(x, y), ("f8", "c16")),
    "np.outer": _pair(lambda m, x, y: np.outer(x, y), ("f8",)),
    "np.tensordot": _pair(lambda m, x, y: np.tensordot(x, y, axes=([0], [0])), ("f8",)),
    "np.einsum": _matrix(lambda m, x, k: np.einsum("ij->j", x), ("f8",)),
    "np.tril": _matrix(lambda m, x, k: np.tril(x, k), ALL),
    "np.diag": _matrix(lambda m, x, k: np.diag(x, k), ALL),
    "np.linalg.norm": _matrix(
        lambda m, x, k: np.linalg.norm(x, axis=(None, 0, 1, (0, 1), None)[k]), FLOATS
    ),
    "np.linalg.norm 1": _matrix(lambda m, x, k: np.linalg.norm(x, 1), ("f4", "f8")),
    "np.linalg.svd": _matrix(lambda m, x, k: np.linalg.svd(x, compute_uv=False), ("f8",)),
    "np.fft.fft": _matrix(lambda m, x, k: np.fft.fft(x, axis=0), ("f8", "c16")),
    "np.fft.rfft2": _matrix(lambda m, x, k: np.fft.rfft2(x), ("f8",)),
    "np.cov": _matrix(lambda m, x, k: np.cov(x, bias=True), ("f8",)),
    "np.histogram": _on(
        lambda x: tuple(np.histogram(x, 4)), ("f8", "i4"), 1, finite=True, filled=True
    ),
    "np.isclose": _pair(lambda m, x, y: np.isclose(x, y, atol=3), ("f8", "i4")),
    "np.moveaxis": _on(lambda x: np.moveaxis(x, 0, -1), ALL, 1),
    "np.shape": _on(lambda x: x.reshape(np.shape(x))),
    "np.take_along_axis": _pair(
        lambda m, x, y: np.take_along_axis(x, np.argsort(x, axis=0, stable=True), 0), ("f8",)
    ),
}
"""NumPy's own functions, which find those of the namespace by their names."""

ROUGH = {
    ".sum", ".prod", ".mean", ".std", ".var", ".cumsum", ".cumprod", ".trace", ".dot", "average", "cov",
    "corrcoef", "histogram", "bincount", "nansum", "nanprod", "nanmean", "nanstd", "nanvar", "nanmedian",
    "nanquantile", "nanpercentile", "convolve",
    "median", "quantile", "percentile", "np.mean", "np.std", "np.sum",
    "np.cumsum", "np.dot", "np.inner", "np.vdot", "np.outer", "np.tensordot", "np.einsum", "np.linalg.norm",
    "np.linalg.norm 1", "np.linalg.svd", "np.fft.fft", "np.fft.rfft2", "np.cov", "np.median", "np.histogram",
}  # fmt: skip
"""Calls whose floats depend on the order of sums."""
NUMPY_CASES = {**METHODS, **STATISTICS, **FUNCTIONS}
