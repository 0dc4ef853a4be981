"""The text of the loops for GPUs, and what the compiler calls numbers."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

C_TYPES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
"""Types of the numbers that loops are compiled for."""


@lru_cache(maxsize=16)
def source_of(*names: str) -> str:
    """**Local.** The text of files of loops, after what all of them share."""
    folder = Path(__file__).parent
    return "\n".join(
        (folder / f"{one}.cu").read_text(encoding="utf-8") for one in ("threads", *names)
    )
