"""``pgas.fft``: the Fourier transforms of the standard. The result keeps the layout of the last step.

For an array of type ``c128[n, n{x}, n{y}]``, ``fftn`` transforms dim 0, lets axis x cut it, transforms dim 1,
lets axis y cut that, and transforms dim 2: pencils, without gathering. The ``type`` of the result says how it
lies.
"""

# ruff: noqa: I001  (names stand side by side)
from __future__ import annotations

from typing import NoReturn

from redist.errors import MissingNameError
from redist.pgas.fft.functions import (
    fft, fftfreq, fftn, fftshift, hfft, ifft, ifftn, ifftshift, ihfft, irfft, irfftn, rfft,
    rfftfreq, rfftn,
)  # fmt: skip

from redist.pgas.global_array import namespace
from redist.pgas.suggestions import explain_missing

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfftn", "rfft", "rfftfreq", "rfftn",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> NoReturn:
    raise MissingNameError(explain_missing("pgas.fft", name, vars(namespace())))
