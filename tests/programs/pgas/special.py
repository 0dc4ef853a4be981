"""Functions at infinities, NaN and zeros, on arrays of every layout, compared with the standard.

As in ``mpirun -n 3 python -m tests.programs.pgas.special --n 20 --seed 0``.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from redist import Mesh
from redist.layout.tiles import box_of
from redist.pgas.tiles.layouts import dtype_of
from tests.programs.pgas.drawing import Draw, Values, xp
from tests.programs.pgas.layouts import layouts
from tests.programs.pgas.rounds import Check, names_of, run_checks
from tests.programs.pgas.standard import expected
from tests.programs.together import main

ODD = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -2.5, 1e-30)


def drawn(draw: Draw, shape: tuple[int, ...], dtype: str) -> Values:
    """Ordinary numbers; half of the time many of the others among them."""
    out = draw.values(shape, dtype)
    if draw.rng.random() < 0.5 or out.dtype.kind == "i":
        return out
    for part in (out.real, out.imag) if out.dtype.kind == "c" else (out,):
        odd = draw.rng.choice(ODD, shape).astype(part.dtype)
        np.copyto(part, odd, where=draw.rng.random(shape) < 0.4)
    return out


def placed(draw: Draw, values: Values, mesh: Mesh) -> Any:
    """The values in any layout."""
    types = list(layouts(mesh, dtype_of(values.dtype), values.shape))
    return xp.asarray(values, type=types[draw.rng.integers(len(types))], comm=draw.comm)


def wrong(out: Any, want: Values, what: str) -> str | None:
    """What differs in this rank's tile, signs of zeros included."""
    box = box_of(out.type, out.comm.rank)
    if out.dtype != want.dtype or out.shape != want.shape:
        return f"{what}: {out.dtype}{out.shape}, not {want.dtype}{want.shape}"
    if box is None:
        return None
    part, tile = want[tuple(slice(*ends) for ends in box)], out.local
    for a, b in ((tile.real, part.real), (tile.imag, part.imag)):
        zero = b == 0
        if not np.allclose(a, b, 1e-6, 0, equal_nan=True) or np.any(
            np.signbit(a)[zero] != np.signbit(b)[zero]
        ):
            return f"{what} of {out.type}: {tile.tolist()}, not {part.tolist()}"[:1500]
    return None


def functions(draw: Draw) -> str | None:
    """Functions of one operand, complex or real."""
    mesh = draw.mesh()
    values = drawn(
        draw, (draw.size(), draw.size()), str(draw.rng.choice(["c16", "c8", "f8", "f4"]))
    )
    x = placed(draw, values, mesh)
    found = (
        wrong(getattr(xp, name)(x), expected(name)(values), f"{name} on {mesh}")
        for name in ("expm1", "tanh", "tan")
    )
    return next((text for text in list(found) if text), None)


def division(draw: Draw) -> str | None:
    """``//`` of arrays, with numbers on either side, and in place."""
    mesh, floor_divide = draw.mesh(), expected("floor_divide")
    shape = draw.size(), draw.size()
    a = drawn(draw, shape, str(draw.rng.choice(["f8", "f4"])))
    b = drawn(draw, shape[draw.rng.integers(2) :], str(draw.rng.choice(["f8", "f4", "i4"])))
    number = float(draw.rng.choice([np.inf, -np.inf, 2.5]))
    x, y = placed(draw, a, mesh), placed(draw, b, mesh)
    kept = placed(draw, a, mesh)
    found = [
        wrong(xp.floor_divide(x, y), floor_divide(a, b), f"floor_divide by {y.type} on {mesh}"),
        wrong(x // number, floor_divide(a, number), f"// {number}"),
        wrong(number // x, floor_divide(number, a), f"{number} //"),
        wrong(
            operator.ifloordiv(kept, y), floor_divide(a, b).astype(a.dtype), f"//= {y.type} {mesh}"
        ),
    ]
    return next((text for text in found if text), None)


OFTEN: tuple[Check, ...] = (functions, division)
CHECKS = names_of(OFTEN)


def program() -> int:
    """0 if every case agrees with the standard."""
    np.seterr(all="ignore")
    return run_checks(OFTEN)


if __name__ == "__main__":
    main(program)
