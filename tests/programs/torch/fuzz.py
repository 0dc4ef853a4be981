"""Random plans run by ranks of PyTorch and compared with the simulator, bit for bit.

As in ``python -m tests.programs.torch.fuzz --n 100 --seed 0``,
on ranks that the launcher of this folder starts.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

import redist
from redist.errors import ConversionError
from redist.plan.plan import Plan
from redist.runtime.simulator import simulate
from redist.torch.layouts import to_torch
from tests.problems.problems import Problem
from tests.programs.mpi.cases import problems_for, random_values
from tests.programs.torch.together import BACKEND, everywhere, main

WAYS = ("auto", "messages", "views")
NO_ARITHMETIC = ("u16", "u64", "f8e5m2")
"""PyTorch does not combine these; NumPy does, in memory."""


def problems(size: int, seed: int, device: str) -> Iterator[Problem]:
    """Problems without end, of elements that PyTorch has, and combines if they are on a GPU."""
    for problem in problems_for(size, seed):
        if device != "cpu" and not combines(problem):
            continue
        try:
            to_torch(problem.source.dtype)
        except ConversionError:
            continue
        yield problem


def combines(problem: Problem) -> bool:
    """Whether nothing is to be combined, or PyTorch can do it."""
    pending = problem.source.pending_op or problem.target.pending_op
    return not pending or problem.source.dtype.name not in NO_ARITHMETIC


def to_tensor(array: NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    if array.size == 0:
        return torch.empty(array.shape, dtype=dtype)
    raw = torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy())
    return raw.view(dtype).reshape(array.shape)


def bits(tensor: torch.Tensor) -> bytes:
    if tensor.numel() == 0:
        return b""
    return tensor.contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes()


class Counted:
    """Counts the bytes of the messages that PyTorch is asked to receive."""

    def __init__(self) -> None:
        self.n_bytes = 0

    def __call__(self, op: Any, tensor: torch.Tensor, *args: Any) -> Any:
        if op is dist.irecv:
            self.n_bytes += tensor.nbytes
        return ORIGINAL(op, tensor, *args)


ORIGINAL = dist.P2POp


def trial(
    plan: Plan, way: str, tiles: dict[int, Any], wanted: dict[int, Any], device: str
) -> str | None:
    """What goes wrong on this rank if a plan is run twice; None if nothing does."""
    rank, dtype = dist.get_rank(), to_torch(plan.source.dtype)
    move = plan.to_torch(device=device, transport=way, timeout_s=60)
    given = tiles.get(rank)
    local = None if given is None else to_tensor(given, dtype).to(device)
    before = None if local is None else bits(local)
    wrong = None
    for _ in range(2):  # every rank goes through both, whatever it finds
        counted = Counted()
        with mock.patch.object(dist, "P2POp", counted):
            got = move(local)
        wrong = wrong or difference(got, wanted.get(rank), dtype)
        if local is not None and bits(local) != before:
            wrong = "the source was modified"
        if (way, device) == ("messages", "cpu") and counted.n_bytes != move.received_bytes:
            wrong = f"messages of {counted.n_bytes} bytes, planned {move.received_bytes}"
    total = torch.tensor(move.received_bytes, device=device if BACKEND == "nccl" else "cpu")
    dist.all_reduce(total)
    if int(total) != plan.received_bytes:
        wrong = f"received {int(total)} bytes, planned {plan.received_bytes}"
    return wrong


def difference(got: torch.Tensor | None, want: Any, dtype: torch.dtype) -> str | None:
    """In what a tile differs from the one that must come out."""
    if got is None or want is None:
        return None if got is want else f"got {got}, wanted {want}"
    if tuple(got.shape) != want.shape or got.dtype != dtype:
        return f"shape {tuple(got.shape)}, wanted {want.shape}"
    return None if bits(got) == np.ascontiguousarray(want).tobytes() else "other bits"


def problem_text(plan: Plan) -> str:
    return f"{plan.source} on {plan.source.mesh} -> {plan.target} on {plan.target.mesh}"


def program() -> int:
    """0 if all ranks agree with the simulator on every problem."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    size, wrong = dist.get_world_size(), 0
    for number, problem in enumerate(
        itertools.islice(problems(size, args.seed, args.device), args.n)
    ):
        rng = Random(number)
        way = WAYS[number % len(WAYS)]
        if way == "views" and not combines(problem):
            way = "messages"
        strategy = rng.choice(("auto", "auto", "collectives", "no_permute"))
        plan = redist.synthesize(problem.source, problem.target, strategy=strategy)
        tiles = random_values(plan.source, number)
        wanted = simulate(plan, tiles).tiles
        try:
            said = trial(plan, way, tiles, wanted, args.device)
        except Exception as failure:
            said = repr(failure)
            print(
                f"rank {dist.get_rank()}, {number} {way} {problem_text(plan)}: {said}", flush=True
            )
        found = everywhere(said)
        wrong += bool(found)
        if found and dist.get_rank() == 0:
            print(f"WRONG {number} {way} {strategy} {problem}: {found[0]}", flush=True)
    if dist.get_rank() == 0:
        print(f"{args.n - wrong} of {args.n} plans agree ({size} ranks)", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    main(program)
