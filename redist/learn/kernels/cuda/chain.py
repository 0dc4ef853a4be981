"""Merges by chains of nearest neighbours on a GPU: steps follow each other without a word from the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.learn.kernels.cuda.near import SHARED_BYTES, TREE_THREADS
from redist.learn.kernels.library import source_of
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.cuda.loops import functions_for, n_processors, run_loop
from redist.text.progress import Said

STAGE = 4096
"""Steps that are started before the host looks how many merges are done."""


def merge_on_gpu(linkage: int, far: Any, said: Said) -> Any:
    """**Local.** All merges of points in the order of chains, in memory; ``far`` is changed.

    ``linkage`` is its number in chain.cu.
    """
    xp, n = functions_for(far), len(far)
    blocks = min(-(-n // TREE_THREADS), n_processors())
    size, chain, merges = xp.ones(n), xp.zeros(n, np.int64), xp.zeros((n - 1, 4))
    # Length of the chain, where it begins, merges done, from, into, the last of the chain, the one before.
    state = to_device(np.array([1, 0, 0, -1, -1, 0, -1, 0]))
    places = xp.zeros(3), xp.zeros(blocks, np.int64), xp.zeros(blocks)
    options = f"-DTHREADS={TREE_THREADS}", f"-DLINKAGE={linkage}"
    done = 0
    while done < n - 1:
        run_loop(
            source_of("least", "chain"), "chain_step", blocks, TREE_THREADS, far, n, size, chain, merges,
            state, *places, np.inf, options=options, shared_bytes=SHARED_BYTES,
            times=min(STAGE, 3 * (n - done)),
        )  # fmt: skip
        done = int(to_host(state)[2])
        said(done, n - 1)
    return to_host(merges)
