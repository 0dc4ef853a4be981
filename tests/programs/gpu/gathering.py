"""Which stages NCCL's all-gather carries, and that they arrive bit for bit; on pretended GPUs.

As in ``mpirun -n 4 python -m tests.programs.gpu.gathering``;
``--real`` is NCCL itself, on a GPU that all share.
"""

from __future__ import annotations

import sys
from typing import Any

from mpi4py import MPI

import redist
from redist.runtime.cuda.transports import all_gather as cuda_gather
from tests.problems.problems import Problem
from tests.programs.gpu import carrying, fuzz
from tests.programs.together import all_well, main

Group = tuple[int, ...]
Case = tuple[str, str, redist.Mesh, int, tuple[Group, ...]]
LEAST, JOIN = "LEAST_RANKS", "NcclCommunicator"
LINE, SQUARE = redist.Mesh(x=4), redist.Mesh(x=2, y=2)
BETWEEN: dict[bool, dict[str, Any]] = {False: {"transport": "mpi"}, True: {"node_size": 1}}
"""How ranks of one machine come to send messages: transport mpi knows no NCCL of its own accord."""
ALL = (0, 1, 2, 3)
ROWS, COLUMNS = ((0, 1), (2, 3)), ((0, 2), (1, 3))
CASES: tuple[Case, ...] = (
    ("f32[65{x}, 10]", "f32[65, 10]", LINE, 3, ()),  # the last tile is smaller
    ("f32[64{x}, 10]", "f32[64, 10]", LINE, 3, (ALL,)),
    ("c128[6, 20{x}, 3]", "c128[6, 20, 3]", LINE, 3, (ALL,)),
    ("u8[64, 12{x,y}]", "u8[64, 12]", SQUARE, 3, (ALL,)),
    ("f32[64, 12] sum{x}", "f32[64, 12]", LINE, 3, (ALL,)),  # partial values, to everyone
    ("f32[128, 64] sum{x}", "f32[128, 64]", LINE, 3, (ALL,)),  # the gather of an all-reduce
    ("f32[64{x}, 10{y}]", "f32[64, 10{y}]", SQUARE, 2, COLUMNS),
    ("f32[64{x}, 10{y}]", "f32[64{x}, 10]", SQUARE, 2, ROWS),
    ("f32[64{x}, 10{y}]", "f32[64, 10{y}]", SQUARE, 3, ()),  # of two ranks each
    ("f32[64{x}, 16]", "f32[64, 16{x}]", LINE, 2, ()),
    ("i32[64, 16] sum{x}", "i32[64{x}, 16]", LINE, 2, ()),
)


def on_three(*ranks: int, joins: bool) -> Case:
    """An all-gather of some ranks, which have or do not have a communicator of their own."""
    mesh = redist.Mesh({"z": 3}, ranks=list(ranks))
    return "i64[30{z}, 7]", "i64[30, 7]", mesh, 3, (ranks,) if joins else ()


class Refusing:
    """Joins ranks, but for one: there it is an error."""

    def __init__(self, nccl: Any, rank: int) -> None:
        self.real, self.is_here = nccl.NcclCommunicator, MPI.COMM_WORLD.rank == rank
        self.calls = 0

    def __call__(self, size: int, number: tuple[int, ...], rank: int) -> Any:
        """After the others have joined."""
        self.calls += 1
        made = self.real(size, number, rank)
        if self.is_here:
            raise RuntimeError("no way")
        return made


def wrong(comm: MPI.Comm, case: Case, seed: int, used: carrying.Installed) -> str | None:
    """What is wrong with a case on this rank."""
    source, target, mesh, least, groups = case
    setattr(cuda_gather, LEAST, least)
    options = {**BETWEEN["--real" in sys.argv], "timeout_s": fuzz.TIMEOUT_S}
    ends = [redist.ArrayType.parse(text, mesh) for text in (source, target)]
    del used.nccl.gathers[:], used.shapes[:]
    messages = used.nccl.groups
    said = fuzz.wrong(comm, Problem("gather", *ends), "stream", seed, options)
    if said is not None:
        return str(said)
    have = {ranks for ranks, _ in used.nccl.gathers}
    if have != {tuple(sorted(group)) for group in groups if comm.rank in group}:
        return f"all-gathers of {have}"
    if have and "sum" not in source and used.nccl.groups != messages:
        return f"{used.nccl.groups - messages} groups of messages beside them"
    rounds = sum(n for n, _ in used.shapes)
    if have and "sum" not in source and len(used.nccl.gathers) != rounds:
        return f"{len(used.nccl.gathers)} all-gathers in {rounds} rounds"
    return None


def program() -> int:
    """0 if every stage was carried as it should be, in one round and in many."""
    comm = MPI.COMM_WORLD
    is_real = "--real" in sys.argv
    used = carrying.install("nccl", not is_real, is_real)
    well = True
    for round_bytes in (None, 400):
        if round_bytes is not None:
            carrying.in_small_rounds(round_bytes)
        for number, case in enumerate(CASES):
            said = wrong(comm, case, number, used)
            if said is None and round_bytes and max(used.shapes)[0] < 2:
                said = f"not in rounds: {used.shapes}"
            well = all_well(comm, f"{case[0]} -> {case[1]}, rounds of {round_bytes}", said) and well
    from cupy.cuda import nccl

    refusing = Refusing(nccl, 3)
    setattr(nccl, JOIN, refusing)
    for _ in range(2):  # nobody tries again
        said = wrong(comm, on_three(0, 1, 3, joins=False), 1, used)
        well = all_well(comm, "a rank that cannot join", said) and well
    if refusing.calls != (comm.rank in (0, 1, 3)):
        well = False
        print(f"WRONG rank {comm.rank} tried {refusing.calls} times", flush=True)
    setattr(nccl, JOIN, refusing.real)
    for _ in range(2):
        said = wrong(comm, on_three(3, 0, 2, joins=True), 1, used)
        well = all_well(comm, "three ranks of four", said) and well
    if well and comm.rank == 0:
        print(f"{2 * len(CASES)} all-gathers and others agree ({comm.size} ranks)", flush=True)
    return 0 if well else 1


if __name__ == "__main__":
    main(program)
