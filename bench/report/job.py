"""Inside a job: ``python -m bench.report.job MODULE OPTIONS FILE`` calls ``measure(**options)`` of a module.

All ranks call it; the first writes what it returned to the file, as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from pathlib import Path

RANK_NAMES = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
"""Variables by which PyTorch, MPICH and Open MPI tell a process its rank."""


def is_first() -> bool:
    """**Local.** Whether this is rank 0, or the only process there is."""
    return next((os.environ[name] for name in RANK_NAMES if name in os.environ), "0") == "0"


def say(text: str) -> None:
    """**Local.** Print how far a job has come, once for all ranks."""
    if is_first():
        print(f"bench: {text}", file=sys.stderr, flush=True)


def main(module: str, options: str, stored: str) -> None:
    """Measure and write. **Collective over all ranks of the job.**"""
    warnings.simplefilter("ignore")
    found = importlib.import_module(module).measure(**json.loads(options))
    if is_first():
        Path(stored).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
