"""``pgas.fft``: the Fourier transforms of the standard. The result stays where the last dim was free.

With a of ``c128[n, n{x}, n{y}]``, ``fftn`` transforms dim 0, hands x to it, transforms dim 1, hands y
over, and transforms dim 2: pencils, no gathering. ``.type`` of the result says where it lies.
"""

# ruff: noqa: I001  (names stand side by side)
from __future__ import annotations

from redist.pgas.fft.functions import (
    fft, fftfreq, fftn, fftshift, hfft, ifft, ifftn, ifftshift, ihfft, irfft, irfftn, rfft,
    rfftfreq, rfftn,
)  # fmt: skip

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfftn", "rfft", "rfftfreq", "rfftn",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
