"""Plans written as programs of torch.distributed, run by ranks over gloo: values by the simulator's judge.

As in ``python -m tests.programs.torch.texts --ranks 4 --n 40``; needs PyTorch, no MPI.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as processes

import redist
from redist.lower.torch_text import to_torch_text
from redist.runtime.simulator import is_correct, random_tiles
from tests.programs.mpi.cases import problems_for

STRATEGIES = ("collectives", "auto", "no_permute", "direct")


def to_tensor(tile: Any, dtype: Any) -> Any:
    """The same bits as a tensor of PyTorch."""
    if dtype.name == "bf16":
        return torch.from_numpy(tile.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(tile.copy())


def to_array(tensor: Any, dtype: Any) -> Any:
    if dtype.name == "bf16":
        return tensor.contiguous().view(torch.int16).numpy().view(np.uint16)
    return tensor.contiguous().numpy()


def run_rank(rank: int, size: int, n: int, seed: int, store: str, failures: Any) -> None:
    """One rank: every problem whose text PyTorch can run."""
    given = dist.FileStore(store, size)
    dist.init_process_group("gloo", store=given, rank=rank, world_size=size)
    for number, problem in enumerate(itertools.islice(problems_for(size, seed), n)):
        strategy = STRATEGIES[number % len(STRATEGIES)]
        plan = redist.synthesize(problem.source, problem.target, strategy=strategy)
        n_ranks = 1 + max(
            int(r) for t in (plan.source, plan.target) for r in t.mesh.rank_array().tolist()
        )
        part = dist.new_group(list(range(n_ranks)))
        try:
            text = to_torch_text(plan)
        except redist.ConversionError:
            continue
        pending = plan.source.pending_op or plan.target.pending_op
        if rank >= n_ranks or (
            pending and plan.source.dtype.name in ("bool", "f16", "bf16", "c64", "c128")
        ):
            if rank >= n_ranks and "new_group" in text:
                failures.put("skipped")  # groups are made by all ranks of the job
            continue
        if n_ranks < size and "new_group" in text:
            continue
        names: dict[str, Any] = {"__name__": "text"}
        exec(compile(text, "text", "exec"), names)
        tiles = random_tiles(plan.source, number)
        mine = tiles.get(rank)
        dtype = plan.source.dtype
        after = names["move"](None if mine is None else to_tensor(mine, dtype), part)
        got: list[Any] = [None] * n_ranks
        dist.all_gather_object(got, None if after is None else to_array(after, dtype), group=part)
        wanted = set(plan.target.mesh.rank_array().tolist())
        held = {r: tile for r, tile in enumerate(got) if tile is not None and r in wanted}
        failures.put("right" if is_correct(plan, tiles, held) else f"{strategy}: {problem}")
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    failures = processes.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        given = (args.ranks, args.n, args.seed, store, failures)
        processes.spawn(run_rank, given, nprocs=args.ranks)
    said = []
    while not failures.empty():
        said.append(failures.get())
    wrong = sorted({one for one in said if one not in ("right", "skipped")})
    print(f"{said.count('right')} results right, {len(wrong)} wrong")
    for one in wrong:
        print("WRONG", one)
    raise SystemExit(1 if wrong or not said else 0)


if __name__ == "__main__":
    main()
