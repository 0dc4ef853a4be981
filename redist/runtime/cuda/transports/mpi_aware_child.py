"""Hand MPI pointers of GPU memory and see whether the data arrives; a process of its own.

As in ``python -m redist.runtime.cuda.transports.mpi_aware_child 0``: all alone, on GPU 0.
"""

from __future__ import annotations

import ctypes
import sys

import numpy as np

SIZES = (8, 4096, 2**17, 2**22)
"""Short messages and long ones take different ways through MPI."""


def main() -> int:
    """0 and a last line that says so if everything arrived."""
    import cupy
    from mpi4py import MPI

    from redist.runtime.cuda.transports.mpi_aware import TRIES, WORKS

    cupy.cuda.Device(int(sys.argv[1])).use()
    comm = MPI.COMM_SELF
    ask = getattr(ctypes.CDLL(None), "MPIX_Query_cuda_support", None)
    print(TRIES, flush=True)
    if ask is not None and not ask():
        print("the library says that it was built without CUDA", file=sys.stderr)
        return 1
    for n_bytes in SIZES:
        values = (np.arange(n_bytes) * 7 % 251).astype(np.uint8)
        source, target = cupy.asarray(values), cupy.zeros(n_bytes, np.uint8)
        cupy.cuda.get_current_stream().synchronize()
        ends = [MPI.memory.fromaddress(int(a.data.ptr), n_bytes) for a in (target, source)]
        got = comm.Irecv([ends[0], MPI.BYTE], 0, 0)
        MPI.Request.Waitall([got, comm.Isend([ends[1], MPI.BYTE], 0, 0)])
        if not np.array_equal(cupy.asnumpy(target), values):
            print(f"{n_bytes} bytes did not arrive as they were sent", file=sys.stderr)
            return 1
    print(WORKS, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
