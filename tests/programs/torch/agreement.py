"""What ranks must agree on: names, arguments, meshes that are parts of one; and where they do not."""

from __future__ import annotations

import re
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import redist
import redist.torch
from redist.torch.calls import MoveOptions, Target
from redist.torch.layouts import from_torch
from redist.torch.redistribute import prepare
from redist.torch.world import world_of
from tests.programs.torch.together import main, run_checks

FULL = torch.arange(8 * 12, dtype=torch.float32).reshape(8, 12)


def line() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("w",))


def grid() -> DeviceMesh:
    shape = (2, dist.get_world_size() // 2)
    return init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))


def move(*args: Any, **options: Any) -> Any:
    return redist.torch.redistribute(*args, timeout_s=30, **options)


def must_fail(said: str, *args: Any, **options: Any) -> None:
    """The same error, which says this, on every rank."""
    texts: list[Any] = [None] * dist.get_world_size()
    try:
        move(*args, **options)
        found = "no error"
    except redist.RequestError as problem:
        found = str(problem)
    dist.all_gather_object(texts, found)
    assert re.search(said, found), f"{said!r} not in {found!r}"
    assert len(set(texts)) == 1 and len(found) < 600, texts


def names() -> None:
    """Tensors are matched by name, whatever the order of a dict; the result has the caller's order."""
    rank, one = dist.get_rank(), line()
    a, b = (distribute_tensor(FULL + k, one, [Shard(0)]) for k in (0, 1000))
    for transport in ("auto", "messages"):
        given = {"a": a, "b": b} if rank else {"b": b, "a": a}
        moved = move(given, one, [Shard(1)], transport=transport)
        assert list(moved) == list(given)
        assert torch.equal(moved["a"].full_tensor(), FULL)
        assert torch.equal(moved["b"].full_tensor(), FULL + 1000)
    given = {"x": {"b": b, "a": a}, "x.a": b} if rank else {"x.a": b, "x": {"a": a, "b": b}}
    moved = move(given, one, [Shard(1)])
    assert torch.equal(moved["x"]["a"].full_tensor(), FULL)
    assert torch.equal(moved["x.a"].full_tensor(), FULL + 1000)
    must_fail("cannot move 'a': only ranks? .*1.* asked for it, not rank 0.* more name",
              {"a" if rank else "z": a}, one, [Shard(1)])  # fmt: skip
    must_fail("cannot move 'b': only rank 1 asked for it", {"a": a} | ({"b": b} if rank == 1 else {}),
              one, [Shard(1)])  # fmt: skip
    must_fail("cannot move 'a': only rank", {} if rank == 1 else {"a": a}, one, [Shard(1)])
    must_fail("both called '0'", {0: a, "0": b}, one, [Shard(1)])


def wrong_on_one() -> None:
    """A wrong argument on one rank is the same error on all, and work goes on after it."""
    one, is_odd = line(), dist.get_rank() == 1
    x = distribute_tensor(FULL, one, [Shard(0)])
    good = [Shard(1)]
    must_fail("^rank 1: .*no such name; did you mean 'weight'", {"weight": x}, one,
              {"weights_" if is_odd else "weight": good})  # fmt: skip
    must_fail("^rank 1: .*'a': placements has no entry", {"a": x, "b": 3}, one,
              {"b" if is_odd else "a": good})  # fmt: skip
    must_fail(
        "^rank 1: cannot move to placements 'nonsense'", x, one, "nonsense" if is_odd else good
    )
    must_fail("^rank 1: .*there is no dim 7", x, one, [Shard(7)] if is_odd else good)
    must_fail("^rank 1: cannot move to 5: it is not a DeviceMesh", x, 5 if is_odd else one, good)
    must_fail("^rank 1: cannot move a Tensor", FULL if is_odd else x, one, good)
    must_fail("^rank 1: cannot use limit_bytes", x, one, good, limit_bytes=-1 if is_odd else None)
    must_fail("^rank 1: unknown transport", x, one, good, transport="?" if is_odd else "auto")
    must_fail("^rank 1: cannot move without placements", x, one, None if is_odd else good)
    must_fail("it goes to f32.* for rank 0, but .* for rank 1", x, one, [Shard(int(not is_odd))])
    ways = ("messages", "auto", "views")
    for first, other in ((first, other) for first in ways for other in ways if first != other):
        said = (
            f"ranks ask for different things; ranks 0, 2-3: .*transport {first}; rank 1: .*{other}"
        )
        must_fail(said, x, one, good, transport=other if is_odd else first)
    plan = redist.synthesize("f32[8{w}, 12]", "f32[8, 12{w}]", mesh=redist.torch.mesh_of(one))
    for wrong, said in (("messages", "different things"), ("?", "^rank 1: unknown transport")):
        try:
            plan.to_torch(transport=wrong if is_odd else "auto")
        except redist.RequestError as problem:
            assert re.search(said, str(problem)), problem
        else:
            raise AssertionError("ranks ran a plan in different ways")
    must_fail("limit 10000.*; rank 1: .*limit 10001", x, one, good, limit_bytes=10000 + is_odd)
    assert torch.equal(move(x, one, good, limit_bytes=1e9).full_tensor(), FULL)


def scalar(mesh: DeviceMesh) -> DTensor:
    return distribute_tensor(torch.tensor(3), mesh, [Replicate()])


def places() -> None:
    """Placements for lists, and kinds of dicts that come back as they were."""
    one = line()
    x = distribute_tensor(FULL, one, [Shard(0)])
    moved = move({"s": [x, (x, 4), x]}, one, {"s": [[Shard(0)], [[Shard(1)], None], None]})["s"]
    assert moved[0].placements == (Shard(0),) and moved[1][0].placements == (Shard(1),)
    assert moved[1][1] == 4 and moved[2] is x and isinstance(moved[1], tuple)
    must_fail(
        "'s': 1 placements for 2 entries; .*as \\[\\[Shard", {"s": [x, x]}, one, {"s": [[Shard(0)]]}
    )
    must_fail("'s.0' to placements .*None", {"s": [x]}, one, {"s": {0: [None]}})
    must_fail("placements for 's.y': there is no such name; leave it out", {"s": {"x": x}}, one,
              {"s": {"x": [Shard(0)], "y": None}})  # fmt: skip
    flat = {"layers.0.w": x, "layers.1.w": x, "layers.1.n": scalar(one), "layers2.w": x, "0.w": x}
    moved = move(
        flat, one, {"layers": [Shard(1)], "layers2": None, "layers.1.w": None, 0: [Replicate()]}
    )
    assert moved["layers.0.w"].placements == (Shard(1),) and moved["0.w"].placements == (
        Replicate(),
    )
    assert moved["layers.1.w"] is x is moved["layers2.w"]
    assert moved["layers.1.n"].placements == (Replicate(),)
    must_fail("'layers2.w': placements has no entry", flat, one, {"layers": [Shard(1)], "0": None})
    given: dict[Any, Any] = {"layers": {"0": [Shard(1)], "1": None}, "layers2": None, "0": None}
    moved = move(flat, one, given)
    assert moved["layers.0.w"].placements == (Shard(1),) and moved["layers.1.w"] is x
    must_fail("for 'layers.7': there is no such name", flat, one,
              given | {"layers": {"0": None, "1": [Shard(1)], "7": None}})  # fmt: skip
    deep = {"m": {"a": x, "b.c": x}, "n": x}
    moved = move(deep, one, {"m": [Shard(1)], "m.b": None, "n": [Shard(1)]})
    assert moved["m"]["a"].placements == (Shard(1),) and moved["m"]["b.c"] is x
    must_fail("for 'n.z': there is no such name; 'n' is a DTensor", deep, one,
              {"m": None, "n": [Shard(1)], "n.z": [Shard(0)]})  # fmt: skip
    must_fail("for 'z': there is no such name", deep, one, {"m": None, "n": None, "z": None})
    plain = {"p": FULL, "m": {"q": FULL, "x": x}}
    said = "'p': it is a plain tensor; give None, or make it a DTensor with distribute_tensor"
    must_fail(said, plain, one, {"p": [Shard(0)], "m": [Shard(1)]})
    must_fail(said, plain, one, {"p": [Shard(0)], "m": None})
    must_fail("'m.q': it is a plain", plain, one, {"m": {"x": [Shard(0)]}, "m.q": [Shard(0)]})
    moved = move(plain, one, {"p": None, "m": [Shard(1)]})
    assert moved["p"] is FULL is moved["m"]["q"] and moved["m"]["x"].placements == (Shard(1),)
    must_fail("^cannot move a dict without a DTensor", {"p": FULL}, one, [Shard(1)])
    mixed = {"p": FULL if dist.get_rank() == 1 else x}
    must_fail("^rank 1: cannot move a dict without a DTensor", mixed, one, [Shard(1)])
    assert move({"state": {}, "lr": 1}, one, [Shard(1)]) == {"state": {}, "lr": 1}
    plans = redist.torch.plan_for(
        {"m": {"a": x, "b": x}, "n": 3}, one, {"m": [Shard(1)], "m.b": None}
    )
    assert list(plans) == ["m.a"] and str(plans["m.a"].target) == "f32[8, 12{w}]", plans
    n_bytes = FULL.nbytes // dist.get_world_size()
    assert plans["m.a"].peak_bytes >= 2 * n_bytes and 0 < plans["m.a"].received_bytes < FULL.nbytes
    assert redist.torch.plan_for({"n": 3}, one, [Shard(1)]) == {}
    world = world_of(None, 30.0)
    prepared = dict(world.prepared)
    move({"m": {"a": x}}, one, [Shard(1)])
    assert world.prepared == prepared, "what was planned is prepared"
    state: Any = torch.nn.Linear(2, 2).state_dict()
    state["weight"] = x
    moved = move(state, one, [Shard(1)])
    assert moved.__class__ is OrderedDict
    assert getattr(moved, "_metadata", 0) == getattr(state, "_metadata", 1)
    assert state["weight"] is x and moved["bias"] is state["bias"]
    must_fail("placements: they are needed, as \\[Shard", {"a": x}, one)


class Block(torch.nn.Module):  # type: ignore[misc]
    """A layer as transformers have it: tensor parallelism leaves the norm alone."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        self.norm = torch.nn.LayerNorm(8)


def submeshes() -> None:
    """FSDP and tensor parallelism: parameters on submeshes are moved as if they were on the whole mesh."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh, one = grid(), line()
    torch.manual_seed(0)
    model = torch.nn.Sequential(Block(), Block())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for block in model:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    state = model.state_dict()
    assert state["0.norm.weight"].device_mesh.ndim == 1, "what this is about"
    world = world_of(None, 30.0)
    for target, placements in (
        (one, [Shard(0)]),
        (one, [Replicate()]),
        (mesh, [Replicate(), Shard(0)]),
    ):
        moved = move(state, target, placements)
        for name, value in moved.items():
            assert value.device_mesh == target
            assert torch.equal(value.full_tensor(), before[name]), name
        prepared = dict(world.prepared)
        again = move(state, target, placements)
        assert world.prepared == prepared, "the second move is prepared"
        assert all(torch.equal(again[name].to_local(), moved[name].to_local()) for name in moved)
    half = DeviceMesh("cpu", [0, dist.get_world_size() - 1], mesh_dim_names=("gen",))
    moved = move(state, half, [Shard(0)])
    if half.get_coordinate() is not None:
        assert all(torch.equal(moved[name].full_tensor(), before[name]) for name in moved)
    back = move(move(state, one, [Replicate()]), mesh["tp"], [Shard(0)])
    assert all(torch.equal(value.full_tensor(), before[name]) for name, value in back.items())


def apart() -> None:
    """Meshes of ranks that are no parts of one are refused, in one line, and so are other types."""
    rank, one, n = dist.get_rank(), line(), dist.get_world_size()
    meshes = [DeviceMesh("cpu", [k, (k + 1) % n], mesh_dim_names=("p",)) for k in range(2)]
    mine = meshes[int(rank == 1)]
    x = DTensor.from_local(FULL[:4], mine, [Shard(0)], run_check=False)
    must_fail("'v': it is on a submesh .ranks .* for rank 0; .* for rank 1.*from_local",
              {"v": x}, one, [Shard(0)])  # fmt: skip
    x = distribute_tensor(FULL, one, [Shard(0)])
    must_fail("'v': it goes to different meshes .*for rank 1.; give the same mesh on every rank$",
              {"v": x}, mine, [Shard(0)])  # fmt: skip
    must_fail(
        "it goes to .*; give the same mesh and placements on every rank$", x, one, [Shard(rank % 2)]
    )
    must_fail("^cannot move: rank 0 gives a DTensor, ranks 1-3 a dict; give the same",
              {"a": x} if rank else x, one, [Shard(1)])  # fmt: skip
    must_fail(
        "^cannot move: ranks 1-3 give a DTensor, rank 0 a dict",
        x if rank else [x],
        one,
        [Shard(1)],
    )
    y = distribute_tensor(FULL, one, [Shard(rank % 2)])
    must_fail("'v': ranks ask for different things; it is on .*w.* for rank 1$",
              {"u": distribute_tensor(FULL, one, [Shard(0)]), "v": y}, one, [Shard(0)])  # fmt: skip


def disjoint() -> None:
    """Ranks outside the source's mesh give an empty DTensor; types of both ends can be written."""
    train, other = (DeviceMesh("cpu", ranks, mesh_dim_names=("p",)) for ranks in ([0, 1], [2, 3]))
    if train.get_coordinate() is None:
        x = DTensor.from_local(torch.empty(0), train, [Shard(0)], run_check=False, shape=FULL.shape,
                               stride=FULL.stride())  # fmt: skip
    else:
        x = distribute_tensor(FULL, train, [Shard(0)])
    there = move({"x": x}, other, [Shard(1)])["x"]
    assert other.get_coordinate() is None or torch.equal(there.full_tensor(), FULL)
    assert other.get_coordinate() is not None or there.to_local().numel() == 0
    target = redist.from_placements([Shard(1)], redist.torch.mesh_of(other), x.dtype, x.shape)
    assert redist.synthesize(redist.torch.type_of(x), target).target == redist.torch.type_of(there)
    plan = redist.torch.plan_for(x, other, [Shard(1)])
    assert plan.source == redist.torch.type_of(x) and plan.target == redist.torch.type_of(there)
    mesh = grid()
    parts = distribute_tensor(FULL, mesh["dp"], [Shard(0)])
    whole = redist.torch.mesh_of(mesh)
    means = redist.from_placements([Shard(0), Replicate()], whole, parts.dtype, parts.shape)
    _, transfer = prepare(MoveOptions(), [Target(mesh, (Shard(1), Replicate()))], [""], [parts])
    assert redist.same_layout(transfer.plans[0].source, means), transfer.plans[0].source
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.complex64, torch.int8):
        found = redist.from_placements([Shard(0), Replicate()], whole, dtype, FULL.shape)
        assert found.dtype == from_torch(dtype), found


def averages() -> None:
    """A pending average is the sum, divided, as PyTorch has it; also with gradients, and of halves."""
    one, n = line(), dist.get_world_size()
    half = DeviceMesh("cpu", [0, n - 1], mesh_dim_names=("gen",))
    for dtype in (torch.float32, torch.bfloat16, torch.complex64):
        local = (FULL % 8 + 4 * dist.get_rank()).to(dtype)
        x = DTensor.from_local(local.clone(), one, [Partial("avg")], run_check=False)
        mean = (FULL % 8 + 2 * (n - 1)).to(dtype)
        for placements in ([Shard(0)], [Shard(1)], [Replicate()], [Partial()]):
            assert torch.equal(move({"x": x}, one, placements)["x"].full_tensor(), mean)
        there = move(x, half, [Shard(1)])
        assert half.get_coordinate() is None or torch.equal(there.full_tensor(), mean)
        assert torch.equal(x.to_local(), local), "the source is as it was"
        assert torch.equal(x.redistribute(one, [Replicate()]).to_local(), mean), "PyTorch's own"
    slopes = []
    for way in (move, DTensor.redistribute):
        x = DTensor.from_local(FULL.clone(), one, [Partial("avg")], run_check=False).detach()
        way(x.requires_grad_(), one, [Replicate()]).sum().backward()
        slopes.append((x.grad.placements, x.grad.to_local()))
    assert slopes[0][0] == slopes[1][0] and torch.equal(slopes[0][1], slopes[1][1]), slopes
    whole = DTensor.from_local(FULL.long(), one, [Partial("avg")], run_check=False)
    must_fail("cannot take the average of torch.int64", whole, one, [Shard(0)])
    op = "avg" if dist.get_rank() else "sum"
    x = DTensor.from_local(FULL, one, [Partial(op)], run_check=False)
    must_fail("averages of x", {"x": x}, one, [Shard(0)])


def gradients_of_some() -> None:
    """Gradients come back from some of the ranks; the others take part with nothing."""
    one = line()
    half = DeviceMesh("cpu", [0, dist.get_world_size() - 1], mesh_dim_names=("gen",))
    for full, placements in ((FULL, [Shard(0)]), (FULL[0], [Replicate()]), (FULL, [Shard(1)])):
        x = distribute_tensor(full, one, [Shard(0)]).requires_grad_()
        y = move(x, half, placements)
        assert half.get_coordinate() is not None or y.to_local().numel() == 0
        (y.to_local() ** 2).sum().backward()
        assert x.grad is not None and torch.equal(x.grad.full_tensor(), 2 * full)


def uneven() -> None:
    """What FSDP makes of 10 rows cut by tensor parallelism: the error gives the call that helps."""
    from torch.distributed.tensor.placement_types import _StridedShard

    mesh, one = grid(), line()
    dp, tp = mesh.get_coordinate() or [0, 0]
    full = torch.arange(10 * 3.0).reshape(10, 3)
    local = full.chunk(2)[tp].chunk(2)[dp].clone()
    places = [_StridedShard(0, split_factor=2), Shard(0)]
    x = DTensor.from_local(local, mesh, places, run_check=False, shape=full.shape, stride=(3, 1))
    call = r"x.redistribute\(placements=\[Replicate\(\), Shard\(0\)\]\)"
    must_fail(f"w: .*here: redistribute it first, with {call}", {"w": x}, one, [Shard(0)])
    moved = move(x.redistribute(placements=[Replicate(), Shard(0)]), one, [Shard(0)])
    assert torch.equal(moved.full_tensor(), full)
    call = r".redistribute\(placements=\[Shard\(0\), Shard\(0\)\]\)"
    said = rf"here: move it to \[Shard\(0\), Replicate\(\)\], and then {call}"
    must_fail(said, moved, mesh, [Shard(0), Shard(0)])


CHECKS: dict[str, Callable[[], None]] = {
    check.__name__: check
    for check in (
        names,
        wrong_on_one,
        places,
        submeshes,
        apart,
        disjoint,
        averages,
        gradients_of_some,
        uneven,
    )
}


def program() -> int:
    """Run the checks that the command line names, or all."""
    return run_checks(CHECKS, sys.argv[1:] or CHECKS)


if __name__ == "__main__":
    main(program)
