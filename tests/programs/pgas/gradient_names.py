"""Every name of the namespace: its gradient is right, it is constant, it is refused, or has nothing to do.

As in ``mpirun -n 3 python -m tests.programs.pgas.gradient_names``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from redist import GradientError
from tests.problems.smooth_programs import slope_along
from tests.programs.pgas.drawing import Draw, Values, xp
from tests.programs.pgas.rounds import names_of, run_checks
from tests.programs.together import main

NEAR = 1e-6
"""Relative error against differences."""


def _square(x: Any) -> Any:
    return xp.matmul(x, xp.matrix_transpose(x)) + xp.eye(x.shape[-2])


def _tall(x: Any) -> Any:
    return xp.matrix_transpose(x)


INDICES = np.array([[0, 1, 1, 0], [1, 2, 0, 0], [2, 2, 2, 1]])
SMOOTH_NAMES: dict[str, Callable[[Any], Any]] = {
    **{
        name: (lambda x, name=name: getattr(xp, name)(x))  # type: ignore[misc]
        for name in (
            "abs acos asin asinh atan atanh concat conj cos cosh cumulative_prod exp expm1 log log1p log2 "
            "log10 max mean median min negative positive prod ptp real reciprocal sin sinh sort sqrt square "
            "std sum tan tanh tril triu var flip matrix_transpose nanmax nanmean nanmedian nanmin nanprod "
            "nanstd nansum nanvar nan_to_num cov corrcoef diff squeeze expand_dims average asarray array "
            "from_dlpack imag"
        ).split()
    },
    "acosh": lambda x: xp.acosh(x + 2),
    "concat": lambda x: xp.concat([x, 2 * x]),
    "imag": lambda x: xp.imag(x * 1j),
    "squeeze": lambda x: xp.squeeze(x[:1], axis=0),
    "cumulative_sum": lambda x: xp.cumulative_sum(x, axis=1),
    "cumulative_prod": lambda x: xp.cumulative_prod(x, axis=1),
    **{
        name: (lambda x, name=name: getattr(xp, name)(x, 1.3 - x))  # type: ignore[misc]
        for name in (
            "add atan2 copysign divide hypot logaddexp maximum minimum multiply pow remainder subtract"
        ).split()
    },
    "astype": lambda x: xp.astype(x, "f8"),
    "broadcast_arrays": lambda x: xp.broadcast_arrays(x, x[:1])[1],
    "broadcast_to": lambda x: xp.broadcast_to(x, (2, 3, 4)),
    "clip": lambda x: xp.clip(x, 0.3, 0.6),
    "compress": lambda x: xp.compress([True, False, True], x, axis=0),
    "diag": lambda x: xp.diag(x[0], 1),
    "ein": lambda x: xp.ein(
        "ik,jk->ij", x, x + 0.05, join=lambda a, b: xp.abs(a - b) ** 3, agg="max"
    ),
    "einsum": lambda x: xp.einsum("ij,kj->ik", x, x),
    "matmul": lambda x: xp.matmul(x, _tall(x)),
    "meshgrid": lambda x: xp.meshgrid(x[0], x[1])[0],
    "moveaxis": lambda x: xp.moveaxis(x, 0, 1),
    "convolve": lambda x: xp.convolve(xp.reshape(x, (-1,)), x[0], mode="same"),
    "nanpercentile": lambda x: xp.nanpercentile(x, 30),
    "nanquantile": lambda x: xp.nanquantile(x, 0.3, axis=1),
    "pad": lambda x: xp.pad(x, ((2, 1), (0, 3)), "reflect"),
    "percentile": lambda x: xp.percentile(x, 30),
    "topk": lambda x: xp.topk(x, 2, axis=0).values,
    "quantile": lambda x: xp.quantile(x, 0.3, axis=1),
    "permute_dims": lambda x: xp.permute_dims(x, (1, 0)),
    "repeat": lambda x: xp.repeat(x, [1, 0, 3], axis=0),
    "reshape": lambda x: xp.reshape(x, (2, 6)),
    "roll": lambda x: xp.roll(x, (1, 2), axis=(0, 1)),
    "stack": lambda x: xp.stack([x, x * x], axis=1),
    "take": lambda x: xp.take(x, xp.asarray([2, 0, 2]), axis=0),
    "take_along_axis": lambda x: xp.take_along_axis(x, xp.asarray(INDICES), axis=0),
    "tensordot": lambda x: xp.tensordot(x, x, axes=((1,), (1,))),
    "tile": lambda x: xp.tile(x, (2, 1, 3)),
    "unstack": lambda x: xp.unstack(x, axis=1)[2],
    "vecdot": lambda x: xp.vecdot(x, x * x),
    "where": lambda x: xp.where(x > 0.5, x, x * x),
    "full": lambda x: xp.full((3, 4), 2.0) * x,
}
LINALG_NAMES: dict[str, Callable[[Any], Any]] = {
    **{
        name: (lambda x, name=name: getattr(xp.linalg, name)(_square(x)))  # type: ignore[misc]
        for name in (
            "cholesky det diagonal inv matrix_norm matrix_transpose pinv svdvals trace eigvalsh"
        ).split()
    },
    "cross": lambda x: xp.linalg.cross(_tall(x), _tall(x) * _tall(x) + 1),
    "eigh": lambda x: xp.linalg.eigh(_square(x)).eigenvectors ** 2,
    "matmul": lambda x: xp.linalg.matmul(x, _tall(x)),
    "matrix_power": lambda x: xp.linalg.matrix_power(_square(x), -2),
    "eig": lambda x: _power(xp.linalg.eig(_square(x) + 0.3 * _square(x) ** 2).eigenvalues),
    "outer": lambda x: xp.linalg.outer(x[0], x[1]),
    "qr": lambda x: xp.linalg.qr(_tall(x)).R ** 2,
    "slogdet": lambda x: xp.linalg.slogdet(_square(x)).logabsdet,
    "solve": lambda x: xp.linalg.solve(_square(x), x),
    "svd": lambda x: xp.linalg.svd(_tall(x), full_matrices=False).U ** 2,
    "tensordot": lambda x: xp.linalg.tensordot(x, x, axes=2),
    "vecdot": lambda x: xp.linalg.vecdot(x, x),
    "vector_norm": lambda x: xp.linalg.vector_norm(x, axis=0),
}


def _power(z: Any) -> Any:
    return xp.real(z * xp.conj(z)) + xp.imag(z)


FFT_NAMES: dict[str, Callable[[Any], Any]] = {
    **{
        name: (lambda x, name=name: _power(getattr(xp.fft, name)(x + 1j * x * x)))  # type: ignore[misc]
        for name in "fft ifft fftn ifftn fftshift ifftshift".split()
    },
    **{
        name: (lambda x, name=name: _power(getattr(xp.fft, name)(x)))  # type: ignore[misc]
        for name in "rfft ihfft rfftn".split()
    },
    **{
        name: (lambda x, name=name: getattr(xp.fft, name)(x + 1j * x * x))  # type: ignore[misc]
        for name in "irfft hfft irfftn".split()
    },
}
CONSTANT_NAMES: dict[str, Callable[[Any], Any]] = {
    **{
        name: (lambda x, name=name: getattr(xp, name)(x))  # type: ignore[misc]
        for name in (
            "all any argmax argmin argsort ceil count_nonzero floor isfinite isinf isnan logical_not "
            "round sign signbit trunc zeros_like ones_like empty_like stop_gradient"
        ).split()
    },
    **{
        name: (lambda x, name=name: getattr(xp, name)(x, 0.5))  # type: ignore[misc]
        for name in (
            "allclose equal floor_divide greater greater_equal isclose less less_equal logical_and "
            "logical_or logical_xor nextafter not_equal full_like"
        ).split()
    },
    "searchsorted": lambda x: xp.searchsorted(xp.asarray([0.2, 0.5]), x),
    "digitize": lambda x: xp.digitize(x, np.array([0.2, 0.5])),
    "isin": lambda x: xp.isin(x, x[:1]),
    "nonzero": lambda x: xp.nonzero(x)[0],
}
REFUSED_NAMES: dict[str, Callable[[Any], Any]] = {
    "unique_all": lambda x: xp.unique_all(x).values,
    "unique_counts": lambda x: xp.unique_counts(x).values,
    "unique_inverse": lambda x: xp.unique_inverse(x).values,
    "unique_values": lambda x: xp.unique_values(x),
    "map_tiles": lambda x: xp.map_tiles(np.sin, x),
    "move_together": lambda x: xp.move_together({"x": x}, {"x": x.type})["x"],
    "histogram": lambda x: xp.histogram(x, bins=4, weights=x)[0],
    "bincount": lambda x: xp.bincount(xp.asarray([0, 1, 1, 0]), x[0]),
}
WITHOUT = set(
    (
        "API_VERSIONS Array __array_api_version__ __array_namespace_info__ arange bitwise_and "
        "bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor bool "
        "broadcast_shapes can_cast checkpoint column_names complex64 complex128 custom_gradient e "
        "empty eye fft finfo float16 float32 float64 from_function from_local grad iinfo inf int8 int16 "
        "int32 int64 isdtype linalg linspace nan newaxis ones pi program random read_csv "
        "read_hdf5 read_npy read_parquet read_zarr repeat_until result_type to_dask to_ray uint8 "
        "uint16 uint32 uint64 value_and_grad write_csv write_npy write_parquet write_zarr zeros "
    ).split()
)
"""Names of what is given no real numbers, or gives no arrays."""
LINALG_REFUSED = {
    "eigvals": lambda x: xp.linalg.eigvals(_square(x)),
    "lstsq": lambda x: xp.linalg.lstsq(_tall(x), _tall(x)[:, 0])[0],
}
LINALG_CONSTANT = {"matrix_rank": lambda x: xp.linalg.matrix_rank(x)}
FFT_WITHOUT = {"fftfreq", "rfftfreq"}


def every_name(draw: Draw) -> str | None:
    """Each name of the namespace has a rule that gives the right slope, is constant, or is refused."""
    tables: list[tuple[Any, list[dict[str, Any]], set[str]]] = [
        (xp, [SMOOTH_NAMES, CONSTANT_NAMES, REFUSED_NAMES], WITHOUT),
        (xp.linalg, [LINALG_NAMES, LINALG_CONSTANT, LINALG_REFUSED], set()),
        (xp.fft, [FFT_NAMES, {}, {}], FFT_WITHOUT),
    ]
    values = np.random.default_rng(3).uniform(0.15, 0.85, (3, 4))
    rows = "{" + draw.meshes[0].axes[0][0] + "}"
    x = xp.asarray(values, type=f"{rows}, {{}}", mesh=draw.meshes[0])
    for space, (smooths, constants, refused), without in tables:
        listed = [*smooths, *constants, *refused, *without]
        odd = set(space.__all__) ^ set(listed)
        if odd or len(set(listed)) < len(listed):
            return f"{space.__name__}: neither a rule nor a reason, or two: {sorted(odd)}"
        for name, function in smooths.items():
            found = _slope_differs(function, values, x)
            if found:
                return f"{space.__name__}.{name}: {found}"
        for name, function in constants.items():
            g = xp.grad(lambda x, f=function: xp.sum(x) + xp.sum(xp.astype(f(x), "f8")) * 0.0)
            if name != "empty_like" and not np.array_equal(g(x).gather(), np.ones((3, 4))):
                return f"{space.__name__}.{name} is not constant"
        for name, function in refused.items():
            try:
                xp.grad(lambda x, f=function: xp.sum(f(x)))(x)
            except GradientError as error:
                said = str(error)
                if not (said.startswith("cannot differentiate ") and "gradient_names.py:" in said):
                    return f"{space.__name__}.{name}: {error}"
                continue
            return f"{space.__name__}.{name} is not refused"
    return None


def _slope_differs(function: Callable[[Any], Any], values: Values, x: Any) -> str | None:
    """How a slope differs from that of differences of global arrays."""
    weights = np.random.default_rng(4).uniform(0.5, 1.5, 1000)

    def loss(x: Any) -> Any:
        y = function(x)
        w = xp.reshape(xp.asarray(weights[: y.size]), y.shape)
        return xp.sum(y * w)

    way: Values = np.asarray(np.random.default_rng(5).standard_normal(values.shape))
    want, doubt = slope_along(lambda v: float(loss(xp.asarray(v))), [values], [way])
    found = float(np.vdot(xp.grad(loss)(x).gather(), way))
    near = NEAR * max(1.0, abs(want))
    return None if abs(found - want) <= near and doubt <= near else f"{found}, not {want} ({doubt})"


CHECKS = names_of([every_name])


def program() -> int:
    """Every name."""
    return run_checks([], [every_name])


if __name__ == "__main__":
    main(program)
