"""The same blocks by Dask, whose workers spill: a job of ``python -m bench larger blocks``."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from bench.larger.blocks import CUTS, BlockStack, error_of
from bench.peers.dask import DaskPrograms
from bench.report.job import say
from examples import transformer

ERROR = 1e-4


def measure(
    sizes: list[int], workers: int, limit_bytes: int, repeat: int, folder: str
) -> dict[str, Any]:
    """Weights are cut as redist's are, one chunk a worker; a worker may hold so many bytes of them."""
    stack, programs = BlockStack(*sizes), DaskPrograms(workers, limit_bytes, folder)
    given = programs.place(stack.x(), None)
    weights = [
        {name: programs.place(w, CUTS[name]) for name, w in stack.layer(number).items()}
        for number in range(stack.n_layers)
    ]
    call = programs.ready(partial(transformer.stack, programs.xp), [given, weights])
    error = error_of(programs.values(call())[0], stack.by_numpy())
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
        say(f"larger: {programs.library} {seconds[-1]:.3f} s")
    spilled = programs.spilled_bytes()
    programs.close()
    about = {"library": programs.library, "times": seconds, "wrong": bool(error > ERROR)}
    return {**about, "spilled_bytes": spilled}
