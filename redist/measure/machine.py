"""Describe the machine and the software that figures depend on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import numpy as np


def machine() -> dict[str, Any]:
    """**Local.** What figures depend on besides the code.

    >>> sorted(machine())
    ['cores', 'numpy', 'processor', 'python', 'system']
    """
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,  # of the machine, not those that MPI bound this process to
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
