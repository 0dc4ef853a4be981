"""Refits over process groups: random plans by memory and by messages, and trainers that die.

``kill ipc copy`` and the like end the first rank, which trains, in the middle of a refit, by SIGKILL;
``kill ipc copy engine`` ends the last one, which serves. With ``messages`` ranks hear of it by memory that
they share; with ``far`` they share none; with ``early`` it dies before, with ``vote`` when all has arrived.
Tensors lie on a GPU if ``REDIST_TEST_DEVICE`` says ``cuda``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from random import Random
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from redist.errors import PeerError, RequestError, TransferError
from redist.runtime.refit import program
from redist.runtime.refit.bound import BoundRefit
from redist.torch.layouts import to_torch
from redist.torch.ranks import SharedMemory
from redist.torch.refit import bind
from tests.problems.small_refits import SmallRefit, random_refit, small_refit
from tests.programs.torch.together import main, run_checks

TIMEOUT_S = 8.0
DEVICE = os.environ.get("REDIST_TEST_DEVICE", "cpu")
N = int(os.environ.get("REDIST_TEST_REFITS", "12"))
Tensors = dict[str, torch.Tensor]
WAYS = [
    (transport, commit)
    for transport in ("ipc", "messages")
    for commit in ("copy", "swap", "in place")
]


def tensors(plan: SmallRefit, tiles: dict[str, Any], of_source: bool) -> Tensors:
    """The same as tensors: bf16 is one of PyTorch's dtypes."""
    side = plan.source if of_source else plan.target
    return {
        name: torch.from_numpy(np.ascontiguousarray(tile))
        .view(to_torch(side.types[name].dtype))
        .to(DEVICE)
        for name, tile in tiles.items()
    }


def bits(tensor: torch.Tensor) -> Any:
    """The bits of a tensor."""
    return (
        tensor.cpu().contiguous().view(torch.uint8).numpy() if tensor.numel() else np.zeros(0, "u1")
    )


def differs(have: Tensors, want: Tensors) -> str:
    """The first tensor that is not as wanted; empty if none."""
    if set(have) != set(want):
        return "names"
    return next(
        (name for name in want if not np.array_equal(bits(have[name]), bits(want[name]))), ""
    )


def go(refit: BoundRefit, given: Tensors, *args: Any, **options: Any) -> Any:
    return refit.send(*args, **options) if given else refit.receive()


def random_plans() -> None:
    """Every transport and commit, all tensors and some."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for seed in range(N):
        rng = Random(f"{seed} of {size}")
        program.DIRECT_BYTES = rng.choice([1, 16, 2**20])
        plan = random_refit(rng, size)
        names = sorted(plan.source_tensors)
        changed = sorted(rng.sample(names, rng.randrange(len(names) + 1)))
        transport, commit = WAYS[seed % len(WAYS)]
        if size == 1 and transport == "ipc":
            transport = "auto"
        given = tensors(plan, plan.sending(rank, 1), True)
        got = tensors(plan, plan.receiving(rank), False)
        with bind(plan, given, got, transport=transport, commit=commit, timeout_s=30.0) as refit:
            for version, some, before in ((1, None, 0), (2, changed, 1), (3, None, 0)):
                for name, values in tensors(plan, plan.sending(rank, version), True).items():
                    given[name].copy_(values)
                go(refit, given, version, changed=some)
                want = tensors(plan, plan.wanted(rank, version, some, before), False)
                wrong = differs(refit.tiles, want)
                assert not wrong and refit.version == version, (
                    seed,
                    version,
                    transport,
                    commit,
                    wrong,
                )
                dist.barrier()


def dtensors() -> None:
    """DTensors are taken by their local tensors; what is wrong is one error on all, and all goes on."""
    rank, size = dist.get_rank(), dist.get_world_size()
    plan = small_refit(size, size, together=True)
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("x",))
    whole = {name: torch.zeros(one.type.shape, dtype=to_torch(one.type.dtype))
             for name, one in plan.source_tensors.items()}  # fmt: skip
    given = {name: distribute_tensor(value, mesh, [Shard(0)]) for name, value in whole.items()}
    for name, values in tensors(plan, plan.sending(rank, 1), True).items():
        given[name].to_local().copy_(values)
    got = tensors(plan, plan.receiving(rank), False)
    for said, wrong in (
        ("'ab': it is torch.float32", {**got, "ab": torch.zeros(3)}),
        ("it is on meta", {**got, "ab": torch.zeros(3, device="meta")}),
        ("values that change sign", {**got, "ab": torch.zeros(3, dtype=torch.complex64).conj()}),
        ("not contiguous", {**got, "o": got["o"].t().contiguous().t()}),
    ):
        try:
            bind(plan, given, wrong if rank == size - 1 else got, timeout_s=30.0)
        except RequestError as problem:
            assert said in str(problem) and (size == 1 or f"rank {size - 1}: " in str(problem)), (
                problem
            )
        else:
            raise AssertionError("nobody minded")
    with bind(plan, given, got, timeout_s=30.0) as refit:
        refit.send("a version")
        assert not differs(got, tensors(plan, plan.wanted(rank, 1), False))


def die() -> None:
    """End this process as nothing else does."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill() -> None:
    """A rank dies in the middle of a refit: the others that serve keep what they have."""
    transport, commit = sys.argv[2:4]
    if transport in ("far", "early"):  # as between hosts
        SharedMemory.join = lambda ranks: None  # type: ignore[method-assign]
    rank, size = dist.get_rank(), dist.get_world_size()
    dying = size - 1 if sys.argv[4:] == ["engine"] else 0
    plan = small_refit(size // 2, size - size // 2)
    given = tensors(plan, plan.sending(rank, 1), True)
    got = tensors(plan, plan.receiving(rank), False)
    how = "ipc" if transport in ("ipc", "vote") else "messages"
    refit = bind(plan, given, got, transport=how, commit=commit, timeout_s=TIMEOUT_S)
    go(refit, given, 1)
    for name, values in tensors(plan, plan.sending(rank, 2), True).items():
        given[name].copy_(values)
    if rank == dying:
        for tensor in given.values():  # what arrives of this must never be served
            tensor.fill_(7)
        ranks: Any = refit._ranks
        if transport == "ipc":
            gather = ranks.gather

            def gathered(value: Any) -> Any:
                found = gather(value)
                ranks.meet = die
                return found

            ranks.gather = gathered
        elif transport == "early":
            die()
        elif transport == "vote":
            ranks.vote = lambda value: die()
        else:
            exchange, calls = ranks._ranks.exchange, [0]

            def half(sends: Any, receives: Any) -> None:
                calls[0] += 1
                if calls[0] > 1:
                    die()
                exchange(sends, receives)

            ranks._ranks.exchange = half
    start = time.monotonic()
    try:
        go(refit, given, 2)
        said = "" if given else "nothing"
    except (PeerError, TransferError) as problem:
        said = str(problem)
    took = time.monotonic() - start
    if got:
        serves = not differs(refit.tiles, tensors(plan, plan.wanted(rank, 1), False))
        keeps = commit != "in place"
        assert refit.version == (1 if keeps else None), refit.version
        assert serves or not keeps, "the old weights are gone"
        assert said and said != "nothing" and took < TIMEOUT_S + 4, (said, took)
        print(f"kept after {took:.1f} s: {said.splitlines()[0]}", flush=True)
        start = time.monotonic()
        try:
            refit.receive()
        except TransferError as problem:
            assert "group any more" in str(problem), problem
        else:
            raise AssertionError("it goes on as if nothing had been")
        assert time.monotonic() - start < 1
    time.sleep(1)  # others may still hear from this rank
    sys.stdout.flush()
    os._exit(0)


CHECKS = {"random plans": random_plans, "dtensors": dtensors}


def checks() -> int:
    if sys.argv[1:2] == ["kill"]:
        kill()
    return run_checks(CHECKS, CHECKS if DEVICE == "cpu" else ["random plans"])


if __name__ == "__main__":
    main(checks)
