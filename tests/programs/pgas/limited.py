"""Random programs within random limits against the functions that they were made of, bit for bit.

With a folder to spill to and without; the least limit that an error names runs, one byte less does not; what
is held stays within what was certified. As in ``mpirun -n 3 python -m tests.programs.pgas.limited --n 50``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from mpi4py import MPI

from redist import CaptureError, NoPlanError, pgas
from redist.pgas.memory import BUFFERS, TileMemory
from redist.pgas.programs.limited import fit
from redist.pgas.programs.limited.limited_program import LimitedProgram
from tests.fakes import numpy_cupy
from tests.programs.gpu.global_checks import OnGpu
from tests.programs.pgas.drawing import Draw
from tests.programs.pgas.programs import (
    EXACT_OPS,
    copied,
    counting_as_large,
    first_unlike,
    other_bits,
    other_values,
    random_function,
)
from tests.programs.together import all_well, main

SLACK = 2**17
"""What runs may hold beside what is certified, with a hundredth of it: numbers, tables, small temporaries."""
CHECKS = ("random",)


@contextmanager
def high_water(memory: TileMemory = BUFFERS) -> Iterator[list[int]]:
    """The most bytes that global arrays held while a block ran."""
    most = [0]
    kind: Any = memory.__class__
    empty, adopt = kind.empty, kind.adopt

    def watched(self: TileMemory, *args: Any) -> Any:
        tile = empty(self, *args)
        most[0] = max(most[0], self.live_bytes)
        return tile

    def adopted(self: TileMemory, *args: Any) -> None:
        adopt(self, *args)
        most[0] = max(most[0], self.live_bytes)

    kind.empty, kind.adopt = watched, adopted
    try:
        yield most
    finally:
        kind.empty, kind.adopt = empty, adopt


@contextmanager
def small_blocks(least_bytes: int = 2**9) -> Iterator[None]:
    """Cut small tiles, too."""
    before = fit.LEAST_BLOCK_BYTES
    fit.LEAST_BLOCK_BYTES = least_bytes
    try:
        yield
    finally:
        fit.LEAST_BLOCK_BYTES = before


def planned_within(step: Any) -> list[LimitedProgram]:
    """The programs that were fitted to a limit."""
    return [one for one in step.compiler.known.values() if isinstance(one, LimitedProgram)]


def touch(arrays: list[Any]) -> None:
    """Let arrays that are put away come back."""
    for array in arrays:
        assert array.tile is None or array.tile.size >= 0


class Outcome:
    """What a program did within a limit: how it differs, the limit that it asks for, if it was planned."""

    def __init__(self, wrong: str | None = None, least: int = 0, planned: bool = False) -> None:
        self.wrong, self.least, self.planned = wrong, least, planned


def run_within(
    function: Callable[..., Any],
    arrays: list[Any],
    want: tuple[Any, list[Any]],
    limit: int,
    spill: str | None,
    layouts: str,
) -> Outcome:
    """**Collective.** Call a program twice within a limit, and compare."""
    differ = other_bits if layouts == "as written" else other_values
    step: Any = pgas.program(layouts=layouts, limit=limit, spill=spill)(function)
    memory = arrays[0].memory
    for call in range(2):
        mine = [copied(one) for one in arrays]
        before = memory.live_bytes
        try:
            with high_water(memory) as most:
                got = step(*mine)
        except NoPlanError as error:
            touch(mine)
            found = first_unlike(mine, arrays, other_bits)
            said = str(error)
            if found or str(error.least_bytes) not in said:
                return Outcome(f"arguments after an error: {found}, {said}")
            return Outcome(None, error.least_bytes, True)
        for one in planned_within(step):
            assert one.fitted is not None
            bound = one.fitted.bound_bytes
            if one.peak_bytes[0] > bound:
                return Outcome(f"{one.peak_bytes[0]} bytes counted, certified {bound}")
            if most[0] > max(before, limit) + limit // 100 + SLACK:
                return Outcome(f"{most[0]} bytes held, limit {limit}, {before} before")
        touch(mine)
        found = first_unlike(got, want[0], differ) or first_unlike(mine, want[1], differ)
        if found:
            return Outcome(f"limit {limit}, spill {spill is not None}, call {call}: {found}")
        del got, mine  # the next call has as much room
    return Outcome(None, 0, bool(planned_within(step)))


def random_limited(draw: Draw, seed: int, spills: Sequence[str | None]) -> tuple[str | None, bool]:
    """A random program within random limits; whether it was planned."""
    mesh = draw.mesh()
    shapes = [(48, 36), (36,), (36, 24), (24, 36)]
    arrays = [draw.array(np.round(draw.values(shape, "f8") * 5.0) + 0.0, mesh) for shape in shapes]
    n = int(draw.rng.integers(5, 31))
    layouts = ("as written", "planned")[draw.rng.integers(2)]
    share = draw.rng.random()
    function = random_function(seed, n, EXACT_OPS)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        given = [copied(one) for one in arrays]
        want = function(*given), given
        what = f"seed {seed}, {n} nodes on {mesh}, {layouts}"
        try:
            for spill in spills:
                least = run_within(function, arrays, want, 1, spill, layouts)
                if least.wrong or not least.least:
                    return f"{what}: {least.wrong}" if least.wrong else None, least.planned
                for limit in (least.least, int(least.least * (1 + share))):
                    found = run_within(function, arrays, want, limit, spill, layouts)
                    if found.wrong or found.least:
                        return f"{what}: {found.wrong or f'{limit} refused: {found.least}'}", True
                below = run_within(function, arrays, want, least.least - 1, spill, layouts)
                if below.least != least.least:
                    said = below.wrong or below.least
                    return f"{what}: {least.least - 1} {spill and 'with spill'} says {said}", True
        except CaptureError as problem:
            return (None if "through another" in str(problem) else f"{what}: {problem}"), False
    return None, True


def program() -> int:
    """0 if every program does within limits what its function does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=20, help="random programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", action="store_true", help="arrays on GPUs")
    parser.add_argument("--without-gpu", action="store_true", help="where NumPy stands for CuPy")
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    if args.without_gpu:
        numpy_cupy.install()
    draw = OnGpu(comm, args.seed) if args.gpu or args.without_gpu else Draw(comm, args.seed)
    spills = (None, "host") if isinstance(draw, OnGpu) else (None,)
    bad = planned = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.n):
            seed = 100_000 * args.seed + number
            with (
                counting_as_large() if number % 2 else nullcontext(),
                small_blocks() if number % 3 else nullcontext(),
            ):
                kinds = (folder, *spills) if number % 3 < 2 else (folder,)
                found, is_planned = random_limited(draw, seed, kinds)
            planned += is_planned
            bad += not all_well(comm, "random", found, str(seed))
        left = os.listdir(folder)
        bad += not all_well(comm, "random", f"files {left}" if left else None, "files")
    few = None if 2 * planned >= args.n else f"only {planned} of {args.n} were planned"
    bad += not all_well(comm, "random", few, "planned")
    if comm.rank == 0:
        print(f"{args.n} programs, {planned} planned, {bad} wrong ({comm.size} ranks)", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    main(program)
