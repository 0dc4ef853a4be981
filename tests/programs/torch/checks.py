"""What users rely on: errors before a byte moves, gradients of batches, memory, deaths."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.placement_types import Partial, _StridedShard

import redist
import redist.torch
from redist.runtime.ranks import long_wait
from redist.torch import ranks
from redist.torch.calls import MoveOptions, Target
from redist.torch.redistribute import prepare
from redist.torch.transfer import HUGE_BYTES
from redist.torch.world import world_of
from tests.programs.torch.peak import peak_bytes
from tests.programs.torch.together import main, run_checks

FULL = torch.arange(12 * 10, dtype=torch.float32).reshape(12, 10)


def line() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))


def errors() -> None:
    """Every wrong request is the same error on every rank, in the user's words; work goes on after it."""
    mesh = line()
    rows = distribute_tensor(FULL, mesh, [Shard(0)])
    n = dist.get_world_size()
    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("2 placements for 1 mesh dim (tp)", lambda: move(rows, mesh, [Shard(0), Shard(1)])),
        ("there is no dim 2", lambda: move(rows, mesh, [Shard(2)])),
        ("'avg' cannot be pending", lambda: move(rows, mesh, [Partial("avg")])),
        ("(7 B) on a rank: tiles and staging take more; the least that works is limit_bytes=",
         lambda: move(rows, mesh, [Shard(1)], 7)),
        ("cannot move 'w', f32[12", lambda: move({"w": rows}, mesh, [Shard(1)], 7)),
        ("placements=", lambda: move(rows, [Shard(1)])),
        ("move module.state_dict()", lambda: move(torch.nn.Linear(2, 2), mesh, [Shard(1)])),
        ("ranks ask for different things", lambda: move(rows, mesh, [Shard(min(dist.get_rank(), 1))])),
        ("DTensor.from_local(torch.empty(0, dtype=", lambda: move(None, mesh, [Shard(1)])),
        ("distribute_tensor(tensor, mesh", lambda: move(FULL, mesh, [Shard(1)])),
        ("cannot use limit_bytes=-1", lambda: move(rows, mesh, [Shard(1)], -1)),
        ("is not a DeviceMesh", lambda: move(rows, "tp", [Shard(1)])),
        ("unknown transport", lambda: redist.torch.redistribute(rows, mesh, [Shard(1)], transport="x")),
        (f"the group has {n} ranks", lambda: far_plan(n).to_torch()),
        ("puts torch.float32", lambda: rows_plan(n).to_torch()(torch.zeros(3))),
    ]  # fmt: skip
    for said, call in wrong:
        try:
            call()
        except redist.RedistError as problem:
            assert said in str(problem), f"{said!r} not in {problem}"
        else:
            assert n == 1 and "different" in said, f"no error: {said}"
    assert torch.equal(move(rows, mesh, [Shard(1)]).full_tensor(), FULL)
    try:
        move(rows, mesh, [Shard(1)], 7)
    except redist.NoPlanError as problem:
        move(rows, mesh, [Shard(1)], problem.least_bytes)


def move(*args: Any) -> Any:
    return redist.torch.redistribute(*args)


def far_plan(n: int) -> redist.Plan:
    return redist.synthesize("f32[8{x}]", "f32[8]", mesh=redist.Mesh(x=n + 1))


def rows_plan(n: int) -> redist.Plan:
    return redist.synthesize("f32[8{x}, 8]", "f32[8, 8{x}]", mesh=redist.Mesh(x=n))


def batches() -> None:
    """A dict of DTensors moves as one, with few rounds, and so do their gradients."""
    mesh = line()
    state = {
        f"w{k}": distribute_tensor((FULL * (k + 1)).clone(), mesh, [Shard(0)]).requires_grad_()
        for k in range(40)
    }
    places = {name: [Shard(k % 2)] for k, name in enumerate(state)}
    moved = redist.torch.redistribute(state, mesh, places)
    for k, (name, weight) in enumerate(moved.items()):
        assert weight.placements == (Shard(k % 2),), weight.placements
        assert torch.equal(weight.full_tensor(), FULL * (k + 1))
        assert weight.requires_grad, name
    sum((w * w).sum().full_tensor() for w in moved.values()).backward()
    for k, weight in enumerate(state.values()):
        assert weight.grad is not None and weight.grad.placements == (Shard(0),)
        assert torch.equal(weight.grad.full_tensor(), 2 * FULL * (k + 1))
    targets = [Target(mesh, (Shard(1),)) for _ in state]
    transfer = prepare(MoveOptions(), targets, list(state), list(state.values()))[1]
    assert dist.get_world_size() == 1 or transfer.rounds <= 4, transfer.rounds


def state_dicts() -> None:
    """State dicts as modules and optimizers have them: what is not a DTensor is handed on unchanged."""
    mesh = line()
    plain = torch.arange(3.0)
    weight = distribute_tensor(FULL, mesh, [Shard(0)])
    state = {
        "state": {
            0: {"step": 7, "count": plain, "exp_avg": weight, "no": None},
            1: {"exp_avg": 2 * weight},
        },
        "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0, 1]}],
        "a.b": 3 * weight,
        "a": {"b": 4 * weight},
    }
    moved = redist.torch.redistribute(state, mesh, [Shard(1)], limit_bytes="1MiB")
    first = moved["state"][0]
    assert first["step"] == 7 and first["count"] is plain and first["no"] is None
    assert moved["param_groups"] == state["param_groups"]
    there = [first["exp_avg"], moved["state"][1]["exp_avg"], moved["a.b"], moved["a"]["b"]]
    for k, tensor in enumerate(there, 1):
        assert tensor.placements == (Shard(1),) and torch.equal(tensor.full_tensor(), k * FULL)
    places = {
        "state": {0: {"exp_avg": [Shard(1)]}, 1: [Replicate()]},
        "a.b": [Shard(0)],
        "a": [Shard(1)],
    }
    moved = redist.torch.redistribute(state, mesh, places)
    assert moved["state"][1]["exp_avg"].placements == (Replicate(),)
    assert torch.equal(moved["state"][0]["exp_avg"].full_tensor(), FULL)
    assert redist.torch.redistribute({"step": 7}, mesh, [Shard(1)]) == {"step": 7}
    try:
        redist.torch.redistribute(state, mesh, {**places, "state": {0: [Shard(1)]}})
    except redist.RequestError as problem:
        assert "cannot move 'state.1': placements has no entry for it" in str(problem), problem
        assert "give None for a tensor that stays" in str(problem), problem
    else:
        raise AssertionError("a name without placements was taken")
    some = {"state.0.exp_avg": [Shard(1)], "state.1": None, "a.b": None, "a": None}
    moved = redist.torch.redistribute(state, mesh, some)
    assert moved["state"][0]["exp_avg"].placements == (Shard(1),)
    assert torch.equal(moved["state"][0]["exp_avg"].full_tensor(), FULL)
    assert moved["state"][1]["exp_avg"] is state["state"][1]["exp_avg"]
    assert moved["a.b"] is state["a.b"] and moved["a"]["b"] is state["a"]["b"]


def modules() -> None:
    """The state dict of a module moves with its scalars, and is loaded into the module again."""
    mesh = line()
    module = distribute_module(
        torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)), mesh
    )
    before = {name: value.full_tensor() for name, value in module.state_dict().items()}
    assert isinstance(module[1].num_batches_tracked, DTensor), "what this is about"
    moved = redist.torch.redistribute(module.state_dict(), mesh, [Shard(0)])
    assert moved["1.num_batches_tracked"].placements == (Replicate(),)
    assert moved["0.weight"].placements == (Shard(0),)
    module.load_state_dict(moved, assign=True)
    assert module[0].weight.placements == (Shard(0),) and module[0].weight.requires_grad
    for name, value in module.state_dict().items():
        assert torch.equal(value.full_tensor(), before[name]), name
    try:
        move({"n": moved["1.num_batches_tracked"]}, mesh, {"n": [Shard(0)]})
    except redist.RedistError as problem:
        assert "n: " in str(problem) and "0 dims" in str(problem), problem
    else:
        raise AssertionError("a tensor of 0 dims was cut")


def uneven_over_two_dims() -> None:
    """Where PyTorch cuts otherwise than redist, the refusal says what to do, and that works."""
    n = dist.get_world_size()
    if n % 2:
        return
    mesh = init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("dp", "tp"))
    full = torch.arange(10 * 8.0).reshape(10, 8)
    twice = distribute_tensor(full, mesh, [Shard(0), Shard(0)])
    if n == 4:
        try:
            move(twice, mesh, [Shard(1), Replicate()])
        except redist.RedistError as problem:
            said = "first, with x.redistribute(placements=[Shard(0), Replicate()])"
            assert said in str(problem), problem
        else:
            raise AssertionError("PyTorch's tiles were taken for ours")
    there = move(
        twice.redistribute(placements=[Shard(0), Replicate()]), mesh, [Shard(1), Replicate()]
    )
    assert torch.equal(there.full_tensor(), full)
    back = move(there, mesh, [Shard(0), Replicate()]).redistribute(placements=[Shard(0), Shard(0)])
    assert torch.equal(back._local_tensor, twice._local_tensor)


def twice_differentiable() -> None:
    """Gradients of gradients go through."""
    mesh = line()
    x = distribute_tensor(FULL.double().clone(), mesh, [Shard(0)]).requires_grad_()
    y = redist.torch.redistribute(x, mesh, [Shard(1)])
    (first,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(second.full_tensor(), 6 * FULL.double())


def fsdp_placements() -> None:
    """What FSDP makes of tensor parallelism is read as it lies; uneven tiles that differ are refused."""
    n = dist.get_world_size()
    grid = (2, n // 2) if n % 2 == 0 else (1, n)
    mesh = init_device_mesh("cpu", grid, mesh_dim_names=("fsdp", "tp"))
    fsdp, tp = mesh.get_coordinate() or [0, 0]
    full = torch.arange(24 * 5, dtype=torch.int64).reshape(24, 5)
    local = full.chunk(grid[1])[tp].chunk(grid[0])[fsdp].clone()
    places = [_StridedShard(0, split_factor=grid[1]), Shard(0)]
    x = DTensor.from_local(local, mesh, places, run_check=False, shape=full.shape, stride=(5, 1))
    assert torch.equal(move(x, mesh, [Replicate(), Replicate()])._local_tensor, full)
    back = move(move(x, mesh, [Shard(1), Replicate()]), mesh, places)
    assert torch.equal(back._local_tensor, local)


def memory() -> None:
    """A move holds no more than its certified peak and two large pages of the system for its new tile.

    gloo adds nothing that shows. Pools count where they are used: those that ``auto`` has made stay
    while ``messages`` moves, but are no part of it.
    """
    mesh, n = line(), dist.get_world_size()
    rows = 1024
    local = torch.ones(rows // n, 2**26 // 4 // rows)
    x = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
    for transport in ("auto", "messages"):
        for places in ([Shard(1)], [Replicate()]):
            options = MoveOptions(transport=transport)
            certified = prepare(options, [Target(mesh, tuple(places))], [""], [x])[1].peak_bytes
            call = partial(redist.torch.redistribute, x, mesh, places, transport=transport)
            measured = peak_bytes(call, has_pools=transport == "auto") + local.nbytes
            most = certified + 2 * HUGE_BYTES
            assert measured <= most, (transport, places, measured, certified)


def shared() -> None:
    """Ranks of one host share memory; segments have no names that could be left behind."""
    world = world_of(None, 60.0)
    assert (world.memory is not None) == (dist.get_world_size() > 1)
    mesh = line()
    x, target = distribute_tensor(FULL, mesh, [Shard(0)]), [Target(mesh, (Shard(1),))]
    for transport in ("auto", "messages", "views"):
        _, transfer = prepare(MoveOptions(transport=transport), target, [""], [x])
        assert transfer.memory is (world.memory if transport == "auto" else None), transport


CHECKS: dict[str, Callable[[], None]] = {
    check.__name__: check
    for check in (
        errors,
        batches,
        state_dicts,
        modules,
        uneven_over_two_dims,
        twice_differentiable,
        fsdp_placements,
        memory,
        shared,
    )
}


def death() -> int:
    """A rank that dies in the middle is an error on the others, soon."""
    mesh = line()
    x = distribute_tensor(FULL, mesh, [Shard(0)])
    move(x, mesh, [Shard(1)])
    dist.barrier()
    if dist.get_rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    try:
        move(x, mesh, [Shard(1)])
    except redist.PeerError as problem:
        print(f"rank {dist.get_rank()} was told: {problem}", flush=True)
        os._exit(0 if time.monotonic() - start < 10 else 1)
    os._exit(1)


def late() -> int:
    """Ranks that wait for another say so: in shared memory with its number, before the first move without."""
    long_wait.FIRST_WORD_S = 0.5
    mesh = line()
    x = distribute_tensor(FULL, mesh, [Shard(0)])
    for _ in range(
        2
    ):  # the first joins the ranks by a collective, the second meets in shared memory
        if dist.get_rank() == 1:
            time.sleep(1.5)
        redist.torch.redistribute(x, mesh, [Shard(1)])
    ranks.SLICE = timedelta(milliseconds=1)
    everyone = ranks.Ranks(dist.group.WORLD)
    for number in range(500):  # some end just after a slice
        time.sleep(0.0005 * ((dist.get_rank() + number) % 5))
        everyone.barrier()
    return 0


def ends_early() -> int:
    """A rank that ends before the first move: the others say what they know, and not that time is up."""
    mesh = line()
    x = distribute_tensor(FULL, mesh, [Shard(0)])
    dist.barrier()
    if dist.get_rank() == 0:
        os._exit(3)
    try:
        move(x, mesh, [Shard(1)])
    except redist.PeerError as problem:
        print(f"rank {dist.get_rank()} was told: {problem}", flush=True)
        os._exit(0)
    os._exit(1)


def gives_up() -> int:
    """A rank that fails in the middle of a move tells the others why."""
    mesh = line()
    x = distribute_tensor(FULL, mesh, [Shard(0)])
    move(x, mesh, [Shard(1)])
    world = world_of(None, 60.0)
    dist.barrier()
    try:
        if dist.get_rank() == 1:
            assert world.memory is not None
            world.memory.failure.abort(MemoryError("no room for a tile"))
        else:
            move(x, mesh, [Shard(1)])
    except redist.PeerError as problem:
        print(f"rank {dist.get_rank()} was told: {problem}", flush=True)
    try:
        move(x, mesh, [Shard(1)])
    except redist.TransferError as problem:
        assert "destroy_process_group() and init_process_group()" in str(problem), problem
    dist.destroy_process_group()  # what the error says helps
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(f"{os.environ['STORE']}-again", size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    mesh = line()
    x = distribute_tensor(FULL, mesh, [Shard(0)])
    assert torch.equal(move(x, mesh, [Shard(1)]).full_tensor(), FULL)
    return 0


def program() -> int:
    """Run the checks that the command line names, or all."""
    names = sys.argv[1:] or list(CHECKS)
    alone = {"death": death, "late": late, "ends_early": ends_early, "gives_up": gives_up}
    if names[0] in alone:
        return alone[names[0]]()
    return run_checks(CHECKS, names)


if __name__ == "__main__":
    main(program)
