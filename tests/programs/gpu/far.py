"""Copies and reductions whose offsets, strides and runs pass 2^31 and 2^32 bytes, on a GPU.

As in ``python -m tests.programs.gpu.far``: two buffers of 5 GiB, filled and compared on the GPU. What is
wrong is put right while it is counted, so that in the end only what was written beside remains.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from redist.layout.dtype import DType
from redist.runtime.copies.copy_list import BufferCopy
from redist.runtime.copies.strided import Strided
from redist.runtime.cuda.kernels.blocking import Tuning
from redist.runtime.cuda.kernels.rounds import CudaCopyList, CudaReductionList

GIB = 2**30
SIZE = 5 * GIB
NEEDED = 12 * GIB
TARGET, SOURCE = 0, 1
MOST_DIMS = 4

COPIES: dict[str, list[tuple[int, int, int, tuple[tuple[int, int, int], ...]]]] = {
    # (dst offset, src offset, block, dims of (count, dst stride, src stride))
    "one run": [(32, 16, 4 * GIB + GIB // 2, ())],
    "a run that lies anywhere": [(5, 3, 4 * GIB + 77, ())],
    "halves that change places": [(2 * GIB + 512, 16, 2 * GIB, ()), (0, 3 * GIB, 2 * GIB, ())],
    "rows far apart": [(64, 0, GIB, ((2, 3 * GIB + 16, 2 * GIB + 256),))],
    "rows that touch": [(0, 8, 3 * GIB // 2, ((3, 3 * GIB // 2, GIB),))],
    "few bytes of every page": [(1, 7, 3, ((SIZE // 4096, 4096, 4096),))],
    "backwards": [(0, SIZE - 16, 16, ((SIZE // 16, 16, -16),))],
    "a transpose": [(8, 4, 4, ((GIB // 4, 16, 4), (4, 4, GIB)))],
    "a transpose back": [(8, 0, 4, ((4, GIB, 4), (GIB // 4, 4, 16)))],
    "bytes of two halves": [(2, 1, 1, ((SIZE // 2 - 2, 2, 1), (2, 1, SIZE // 2)))],
    "three that interleave": [
        (0, 0, 4, ((GIB // 4, 12, 4),)),
        (4, 2 * GIB + 16, 4, ((GIB // 4, 12, 4),)),
        (8, 4 * GIB - 64, 4, ((GIB // 4, 12, 4),)),
    ],
}
SUMS = {
    # (dst offset, src offsets, block, dims), with what is there or without
    "runs": (4 * GIB + 48, (0, 2 * GIB + 16, 4 * GIB + 32), GIB // 2, ()),
    "rows": (16, (0, 48, GIB - 16), GIB, ((2, 4 * GIB - 64, 2 * GIB + 128),)),
    "elements": (1, (3, GIB + 4, 2 * GIB + 1), 1, ((GIB // 2, 8, 2), (2, 2, 3 * GIB // 2))),
}

KERNELS = r"""
typedef unsigned char u8;
typedef long long i64;
__device__ u8 value(i64 i, int buffer)
{
    return (u8)((unsigned long long)(2 * i + buffer + 1) * 0x9e3779b97f4a7c15ull >> 56);
}
#define EACH(i, n) \
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (i64)blockDim.x)

extern "C" __global__ void fill(u8 *a, i64 n, int buffer) { EACH(i, n) a[i] = value(i, buffer); }

extern "C" __global__ void differing(const u8 *a, i64 n, int buffer, unsigned long long *wrong)
{
    EACH(i, n) if (a[i] != value(i, buffer)) atomicAdd(wrong, 1ull);
}

/* numbers: dst offset, block, bytes in all, n_dims, then count, dst and src stride of each of 4 dims,
 * then whether what was there counts, the number of sources, and their offsets. */
extern "C" __global__ void check(u8 *a, const i64 *numbers, unsigned long long *wrong)
{
    const i64 *dims = numbers + 4, *rest = numbers + 16;
    EACH(i, numbers[2]) {
        i64 at = i % numbers[1], place = i / numbers[1], to = numbers[0] + at, of = at;
        for (i64 k = numbers[3] - 1; k >= 0; k--) {
            i64 q = place % dims[3 * k];
            place /= dims[3 * k];
            to += q * dims[3 * k + 1], of += q * dims[3 * k + 2];
        }
        u8 want = rest[0] ? value(to, 0) : 0;
        for (i64 k = 0; k < rest[1]; k++)
            want += value(of + rest[2 + k], 1);
        if (a[to] != want)
            atomicAdd(wrong, 1ull);
        a[to] = value(to, 0);
    }
}
"""


class Far:
    """Two large buffers on the GPU."""

    def __init__(self) -> None:
        import cupy

        self.kernels = cupy.RawModule(code=KERNELS)
        self.buffers = [cupy.empty(SIZE, np.uint8) for _ in range(2)]
        self.bases = np.array([buffer.data.ptr for buffer in self.buffers], np.uintp)
        self.wrong = cupy.zeros(1, np.uint64)
        for number, buffer in enumerate(self.buffers):
            self.start("fill", buffer, np.int64(SIZE), np.int32(number))

    def start(self, name: str, *args: Any) -> None:
        """One of the kernels above."""
        self.kernels.get_function(name)((4096,), (256,), args)

    def check(self, move: BufferCopy, offsets: tuple[int, ...], with_old: bool) -> None:
        """Count the bytes that a move did not bring, and undo it."""
        import cupy

        form = move.form
        dims = [number for dim in form.dims for number in dim]
        dims += [0] * (3 * MOST_DIMS - len(dims))
        head = [move.dst_offset, form.block, form.n_bytes, len(form.dims)]
        numbers = [*head, *dims, int(with_old), len(offsets), *offsets]
        self.start("check", self.buffers[TARGET], cupy.array(numbers, np.int64), self.wrong)

    def found(self) -> int:
        """Bytes that are wrong, those included that nobody should have touched."""
        for number, buffer in enumerate(self.buffers):
            self.start("differing", buffer, np.int64(SIZE), np.int32(number), self.wrong)
        wrong = int(self.wrong[0])
        self.wrong.fill(0)
        return wrong

    def copy(self, moves: list[BufferCopy]) -> int:
        """How many bytes are wrong after copies by the kernel."""
        import cupy

        stream = cupy.cuda.get_current_stream().ptr
        CudaCopyList.of(moves, Tuning()).prepared(self.bases).bind(self.bases, stream)()
        for move in moves:
            self.check(move, (move.src_offset,), False)
        return self.found()

    def reduce(self, moves: list[BufferCopy], with_old: bool) -> int:
        """How many bytes are wrong after a sum: of what is there, or one that begins with a copy."""
        import cupy

        stream = cupy.cuda.get_current_stream().ptr
        first = 0 if with_old else 1
        made = CudaReductionList.of(moves[first:], "sum", DType.parse("u8"), copies=moves[:first])
        assert len(made.chains) == first
        made.run(self.bases, stream)
        self.check(moves[0], tuple(move.src_offset for move in moves), with_old)
        return self.found()


def copies_of(name: str) -> list[BufferCopy]:
    """The moves of a list of copies."""
    return [
        BufferCopy(TARGET, dst, SOURCE, src, Strided(block, dims))
        for dst, src, block, dims in COPIES[name]
    ]


def sum_of(name: str) -> list[BufferCopy]:
    """The moves of a sum, all into one place."""
    dst, sources, block, dims = SUMS[name]
    return [BufferCopy(TARGET, dst, SOURCE, src, Strided(block, dims)) for src in sources]


def main() -> int:
    """0 if every byte is right, or nothing could be tried."""
    import cupy

    free = cupy.cuda.runtime.memGetInfo()[0]
    if free < NEEDED:
        print(f"SKIPPED: needs {NEEDED >> 30} GiB on the GPU, {free >> 30} are free")
        return 0
    far = Far()
    assert far.found() == 0
    results = {name: far.copy(copies_of(name)) for name in COPIES}
    results |= {f"sum of {name}": far.reduce(sum_of(name), False) for name in SUMS}
    results |= {f"sum of {name} and what is there": far.reduce(sum_of(name), True) for name in SUMS}
    for name, wrong in results.items():
        print(f"{name}: {f'WRONG {wrong} bytes' if wrong else 'right'}", flush=True)
    return 1 if any(results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
