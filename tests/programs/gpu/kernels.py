"""Random lists of copies and reductions on a GPU, every byte compared with the CPU's.

As in ``compute-sanitizer --tool memcheck python -m tests.programs.gpu.kernels --n 40``: every buffer is then
an allocation of its own, so that the tool sees every step outside.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from random import Random
from typing import Any

import numpy as np

from redist.layout.dtype import DType
from redist.runtime.cuda.kernels.blocking import Tuning
from redist.runtime.cuda.kernels.rounds import CudaCopyList, CudaReductionList
from tests.programs.gpu.lists import Case, random_case, random_reduction, same_values

REDUCTIONS = [("sum", "f32"), ("prod", "c64"), ("max", "i8"), ("min", "f64"), ("sum", "f16")]
if find_spec("ml_dtypes"):
    REDUCTIONS += [("sum", "bf16"), ("sum", "f8e4m3fn"), ("max", "f8e5m2fnuz")]
GUARD = 0xA5
GUARD_BYTES = 64


def placed(case: Case) -> tuple[list[Any], Any]:
    """The buffers on the GPU, each with guards around it, and their addresses."""
    import cupy

    arrays, bases = [], np.zeros(len(case.buffers), np.uintp)
    for k, (buffer, phase) in enumerate(zip(case.buffers, case.phases, strict=True)):
        whole = np.full(phase + buffer.size + GUARD_BYTES, GUARD, np.uint8)
        whole[phase : phase + buffer.size] = buffer
        arrays.append(cupy.asarray(whole))
        bases[k] = arrays[-1].data.ptr + phase
    return arrays, bases


def differs(case: Case, arrays: list[Any], wanted: list[Any], dtype: DType | None) -> str | None:
    """The first buffer that is not as it must be."""
    for k, (array, want, phase) in enumerate(zip(arrays, wanted, case.phases, strict=True)):
        got = array.get()
        inside = got[phase : phase + want.size]
        same = np.array_equal(inside, want) if dtype is None else same_values(inside, want, dtype)
        if not same:
            return f"buffer {k} differs: {case.moves[:3]}"
        if (got[:phase] != GUARD).any() or (got[phase + want.size :] != GUARD).any():
            return f"buffer {k} was written beside: {case.moves[:3]}"
    return None


def copied(seed: int, most: int) -> str | None:
    """What is wrong with one random list of copies."""
    import cupy

    rng = Random(seed)
    case = random_case(rng, most=rng.choice([most // 50, most // 5, most]))
    tuning = Tuning() if seed % 2 else Tuning(loose_from=40)
    arrays, bases = placed(case)
    CudaCopyList.of(case.moves, tuning).run(bases, cupy.cuda.get_current_stream().ptr)
    return differs(case, arrays, case.wanted(), None)


def reduced(seed: int, most: int, op: str, name: str) -> str | None:
    """What is wrong with one random list of reductions."""
    import cupy

    dtype = DType.parse(name)
    one = random_reduction(Random(seed), most // 4, dtype)
    combine = CudaReductionList.of(one.case.moves, op, dtype, copies=one.copies)
    case = one.after_copies({chain.move for chain in combine.chains})
    arrays, bases = placed(case)
    combine.run(bases, cupy.cuda.get_current_stream().ptr)
    return differs(case, arrays, one.wanted(op, dtype), dtype)


def main() -> int:
    """0 if every list left what it must."""
    import cupy

    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=100_000, help="bytes of a copy")
    parser.add_argument("--alone", action="store_true", help="every buffer its own allocation")
    args = parser.parse_args()
    if args.alone:
        cupy.cuda.set_allocator(None)
    wrong = 0
    for k in range(args.n):
        said = copied(args.seed + k, args.most)
        if k % 4 == 0:
            said = said or reduced(args.seed + k, args.most, *REDUCTIONS[k // 4 % len(REDUCTIONS)])
        if said is not None:
            wrong += 1
            print(f"WRONG {args.seed + k}: {said}", flush=True)
    print(f"{args.n - wrong} of {args.n} lists of copies agree with the CPU's", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
