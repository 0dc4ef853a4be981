"""Fourier transforms of random arrays of every layout, compared with NumPy.

As in ``mpirun -n 3 python -m tests.programs.pgas.spectra --n 100 --seed 0``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from redist import RedistError
from redist.pgas.fft import cut_lines as long_lines
from redist.pgas.fft import functions as transforms
from tests.programs.pgas.drawing import Draw, wrong, xp
from tests.programs.pgas.rounds import Check, names_of, run_checks
from tests.programs.together import main

ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
SEVERAL = ("fftn", "ifftn", "rfftn", "irfftn")
REAL = ("rfft", "ihfft", "rfftn")
NORMS = ("backward", "ortho", "forward")


def one(draw: Draw) -> str | None:
    """A transform along one dim, of the same or of another length."""
    name = str(draw.rng.choice(ONE))
    mesh = draw.mesh()
    shape = tuple(draw.size() for _ in range(draw.rng.integers(1, 4)))
    axis = int(draw.rng.integers(-len(shape), len(shape)))
    n = None if draw.rng.random() < 0.5 else int(draw.rng.integers(1, 13))
    norm = str(draw.rng.choice(NORMS))
    values = draw.values(
        shape, str(draw.rng.choice(["f8", "f4"] if name in REAL else ["c16", "c8"]))
    )
    x = draw.array(values, mesh)
    what = f"{name} {x.type} on {mesh}, n={n}, axis={axis}, {norm}"
    try:
        expected: Any = getattr(np.fft, name)(values, n=n, axis=axis, norm=norm)
    except ValueError:
        try:
            getattr(xp.fft, name)(x, n=n, axis=axis, norm=norm)
        except (ValueError, RedistError):
            return None
        return f"{what}: no error"
    return wrong(getattr(xp.fft, name)(x, n=n, axis=axis, norm=norm), expected, what)


def several(draw: Draw) -> str | None:
    """Transforms along several dims, and frequencies moved to the middle."""
    name = str(draw.rng.choice(SEVERAL))
    mesh = draw.mesh()
    shape = tuple(max(2, draw.size()) for _ in range(draw.rng.integers(1, 5)))
    axes = tuple(int(i) for i in draw.rng.permutation(len(shape))[: draw.rng.integers(1, 5)])
    s = None if draw.rng.random() < 0.5 else tuple(int(draw.rng.integers(1, 9)) for _ in axes)
    norm = str(draw.rng.choice(NORMS))
    values = draw.values(shape, "f8" if name in REAL else "c16")
    x = draw.array(values, mesh)
    given: dict[str, Any] = {"s": s, "axes": axes, "norm": norm}
    what = f"{name} {x.type} on {mesh}, {given}"
    expected = getattr(np.fft, name)(values, **given)
    return (
        wrong(getattr(xp.fft, name)(x, **given), expected, what)
        or wrong(xp.fft.fftshift(x, axes=axes), np.fft.fftshift(values, axes), f"shift {what}")
        or wrong(xp.fft.ifftshift(x), np.fft.ifftshift(values), f"back {what}")
    )


def pencils(draw: Draw) -> str | None:
    """No tile grows, whatever is transformed."""
    mesh = draw.meshes[min(1, len(draw.meshes) - 1)]
    values = draw.values((24, 12, 36), "c16")
    x = draw.array(values, mesh)
    if any(part for part in x.type.pending_axes) or len(x.type.used) < len(mesh.axes):
        return None
    y = xp.fft.fftn(x)
    if y.type.tile_bytes > 2 * x.type.tile_bytes:
        return f"{x.type} became {y.type}"
    return wrong(y, np.fft.fftn(values), f"fftn {x.type} on {mesh}")


def long(draw: Draw) -> str | None:
    """A single line that is cut stays cut, whatever its length: by rows and columns, or a chirp."""
    before = transforms.WHOLE_BYTES
    transforms.WHOLE_BYTES = 0
    try:
        p, rng = draw.comm.size, draw.rng
        rest = (2,) if rng.random() < 0.5 and p > 4 else ()
        size = p * p * int(rng.integers(1, 30)) if rng.random() < 0.5 else int(rng.integers(1, 200))
        name, norm = str(rng.choice(ONE)), str(rng.choice(NORMS))
        n = None if rng.random() < 0.5 else int(rng.integers(2, 200))
        single = rng.random() < 0.3
        kind = ("f4" if single else "f8") if name in REAL else ("c8" if single else "c16")
        values = draw.values((max(2, size), *rest), kind)
        x = xp.asarray(values, type="{x}" + ", {}" * len(rest), comm=draw.comm)
        out = getattr(xp.fft, name)(x, axis=0, n=n, norm=norm)
        if p > 1 and not out.type.dims[0]:
            return f"{x.type} became {out.type}"
        want = getattr(np.fft, name)(values, axis=0, n=n, norm=norm)
        return wrong(out, want, f"{name} {x.type}, n={n}, {norm}", scale=8)
    finally:
        transforms.WHOLE_BYTES = before


def frequencies(draw: Draw) -> str | None:
    """Of both kinds."""
    for n in (1, 2, 7, 8):
        what = f"frequencies of {n}"
        x = xp.fft.fftfreq(n, d=0.3, comm=draw.comm)
        y = xp.fft.rfftfreq(n, d=0.3, comm=draw.comm)
        found = wrong(x, np.fft.fftfreq(n, 0.3), what) or wrong(y, np.fft.rfftfreq(n, 0.3), what)
        if found is not None:
            return found
    return None if long_lines.factors(36, 3) == (6, 6) else "wrong factors"


OFTEN: tuple[Check, ...] = (one, several, pencils, long)
ONCE: tuple[Check, ...] = (frequencies,)
CHECKS = names_of([*OFTEN, *ONCE])


def program() -> int:
    """0 if every case agrees with NumPy."""
    return run_checks(OFTEN, ONCE)


if __name__ == "__main__":
    main(program)
