"""Times of work on one GPU by one process: many launches in a row, the stream waited for."""

from __future__ import annotations

import time
from collections.abc import Callable

from redist.measure.timing import Times

WARM_UPS = 2


def times_of(
    work: Callable[[], object], wait: Callable[[], object], repeats: int, row: int = 10
) -> Times:
    """**Local.** Seconds of one ``work``, of ``row`` started at once and waited for together."""
    for _ in range(WARM_UPS):
        work()
    wait()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(row):
            work()
        wait()
        seconds.append((time.perf_counter() - start) / row)
    return Times.of(seconds)


def copy_rate(n_bytes: int, repeats: int = 11) -> float:
    """**Local.** Bytes read and written in a second by the driver's contiguous copy."""
    import cupy

    a, b = (cupy.zeros(n_bytes, cupy.uint8) for _ in range(2))
    stream = cupy.cuda.get_current_stream()
    times = times_of(
        lambda: cupy.cuda.runtime.memcpyAsync(b.data.ptr, a.data.ptr, n_bytes, 3, stream.ptr),
        stream.synchronize,
        repeats,
    )
    return 2 * n_bytes / times.median_s
