"""Random datatypes of MPI packed and unpacked on a GPU, every byte compared with MPI's on the host.

As in ``python -m tests.programs.gpu.packs --n 1000``; pinned memory and memory that is not, in every way.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

import numpy as np

from tests.problems.datatypes import Drawn, ways_agree


def pinned(n_bytes: int) -> Any:
    """An array in pinned memory."""
    import cupyx

    return cupyx.empty_pinned(n_bytes, np.uint8)


def wrong(seed: int) -> str | None:
    """What is wrong with one datatype."""
    import cupy

    drawn = Drawn(seed)
    checks = {
        "on the GPU": drawn.agree(cupy.asarray, cupy.asnumpy),
        "to the host": ways_agree(drawn, cupy, partial(np.empty, dtype=np.uint8)),
        "to pinned memory": ways_agree(drawn, cupy, pinned),
    }
    found = [name for name, agreed in checks.items() if not all(agreed)]
    drawn.free()
    return ", ".join(found) or None


def main() -> int:
    """0 if all agree with MPI."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    bad = 0
    for seed in range(args.seed, args.seed + args.n):
        said = wrong(seed)
        if said is not None:
            bad += 1
            print(f"WRONG {seed}: {said}", flush=True)
    print(f"{args.n - bad} of {args.n} datatypes are packed as MPI does", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
