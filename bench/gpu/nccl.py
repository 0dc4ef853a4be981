"""NCCL on one GPU: it refuses a second rank there, so that one rank sends to itself."""

from __future__ import annotations

from typing import Any

from bench.gpu.timing import times_of


def measure(n_bytes: int, repeats: int) -> dict[str, Any]:
    """**Local.** A grouped send and receive; the rate counts bytes read and written."""
    import cupy

    try:
        from cupy.cuda import nccl

        joined = nccl.NcclCommunicator(1, nccl.get_unique_id(), 0)
    except Exception as error:
        return {"note": f"not measured: {type(error).__name__}: {error}"}
    a = cupy.arange(n_bytes // 4, dtype=cupy.int32)
    b = cupy.zeros_like(a)
    stream = cupy.cuda.get_current_stream()

    def work() -> None:
        nccl.groupStart()
        joined.send(a.data.ptr, n_bytes, nccl.NCCL_UINT8, 0, stream.ptr)
        joined.recv(b.data.ptr, n_bytes, nccl.NCCL_UINT8, 0, stream.ptr)
        nccl.groupEnd()

    work()
    stream.synchronize()
    if not bool((a == b).all()):
        return {"note": "wrong result"}
    times = times_of(work, stream.synchronize, repeats)
    return {
        "note": "",
        "version": nccl.get_version(),
        "median_s": times.median_s,
        "bytes_per_s": 2 * n_bytes / times.median_s,
    }
