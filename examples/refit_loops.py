"""Reinforcement learning in three shapes: the policy is trained under FSDP and served by tensor parallelism.

==========  =====================================================  ====================
loop        who trains and who serves                              in the shape of
==========  =====================================================  ====================
colocated   all ranks do both, in turn                             verl's hybrid engine
apart       half of the ranks train, half serve, in step           slime
behind      the same; rollouts are one step behind, and only the   NeMo-RL's
            layer that was trained is sent                         asynchronous loop
==========  =====================================================  ====================

The plan is made once, on every rank alike, and bound to tensors. Then each refit is one call. Needs PyTorch::

    torchrun --nproc-per-node 4 examples/refit_loops.py --steps 3 --width 64
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist

import redist

State = dict[str, torch.Tensor]
Value = Callable[[str], float]
Spans = tuple[tuple[tuple[int, int], ...], ...]
LAYERS = 2


def sides(width: int, train: list[int], serve: list[int]) -> tuple[redist.Weights, redist.Weights]:
    """Rows of separate tensors on the ranks that train; fused columns and rows on those that serve."""
    shapes = {
        f"layers.{n}.{name}": f"f32[{rows}, {columns}]"
        for n in range(LAYERS)
        for name, rows, columns in (
            ("gate", 4 * width, width), ("up", 4 * width, width), ("down", width, 4 * width),
        )
    }  # fmt: skip
    fsdp = redist.Mesh({"dp": len(train)}, ranks=train)
    tp = redist.Mesh({"tp": len(serve)}, ranks=serve)
    trained = redist.Weights.declare({"*": "{dp}, {}"}, fsdp, shapes=shapes)
    served = redist.Weights.declare(
        {"*.gate_up": f"2*{4 * width}{{tp}}, {{}}", "*.down": "{}, {tp}"}, tp,
        names=f"*.gate_up[{4 * width}|{4 * width}, :] = *.gate, *.up",
    )  # fmt: skip
    return trained, served


def zeros(weights: redist.Weights, rank: int) -> State:
    """This rank's tensors of a side, empty; {} if it has none."""
    return {
        name: torch.zeros([sum(hi - lo for lo, hi in dim) for dim in found])
        for name, type in weights.types.items()
        if (found := redist.spans_of(type, rank)) is not None
    }


def spans(weights: redist.Weights, name: str, rank: int) -> Spans:
    """The rows and columns of a stored tensor that a rank has."""
    found = redist.spans_of(weights.types[name], rank)
    assert found is not None, f"rank {rank} has no part of {name}"
    return found


def fill(state: State, weights: redist.Weights, rank: int, value: Value) -> None:
    """Tensors as after a step of training: element (i, j) is i - j / 1000 + a value by name."""
    for name, tensor in state.items():
        (first, _), *_ = spans(weights, name, rank)[0]
        i = torch.arange(first, first + tensor.shape[0])[:, None]
        tensor.copy_(i - torch.arange(tensor.shape[1]) / 1000 + value(name))


def must_serve(state: State, weights: redist.Weights, rank: int, value: Value) -> None:
    """Raise unless served tensors are those of a step."""
    for name, tensor in state.items():
        rows, columns = spans(weights, name, rank)
        wanted = []
        for part in weights.parts_of(name):
            start, n = part.starts[0], part.shape[0]
            own = [k for lo, hi in rows for k in range(lo, hi) if start <= k < start + n]
            i = torch.tensor(own)[:, None] - start
            j = torch.tensor([k for lo, hi in columns for k in range(lo, hi)])
            wanted.append(i - j / 1000 + value(part.name))
        assert torch.equal(tensor, torch.cat(wanted)), name


def trained_at(step: int, name: str) -> float:
    """All tensors are trained in every step."""
    return step + name.count("u")


def trained_in_turn(step: int, name: str) -> float:
    """One layer is trained in a step; the others are those of the step in which it was their turn."""
    layer = int(name.split(".")[1])
    return max((s for s in range(step + 1) if s % LAYERS == layer), default=0)


def colocated(steps: int, width: int) -> redist.RefitPlan:
    """Every rank trains and serves: its own share of what it needs is copied, the rest comes from others."""
    rank, every = dist.get_rank(), list(range(dist.get_world_size()))
    trained, served = sides(width, every, every)
    plan = redist.refit(trained, served, limit_bytes="16MiB")
    served = plan.target  # with the names that the other side's make
    policy, engine = zeros(trained, rank), zeros(served, rank)
    with plan.bind(policy, engine, transport="torch") as refit:
        for step in range(steps):
            fill(policy, trained, rank, partial(trained_at, step))
            refit.send(version=step)
            must_serve(engine, served, rank, partial(trained_at, step))
    return plan


def apart(steps: int, width: int) -> redist.RefitPlan:
    """Ranks that train send, ranks that serve receive."""
    rank, half = dist.get_rank(), dist.get_world_size() // 2
    trained, served = sides(width, list(range(half)), list(range(half, 2 * half)))
    plan = redist.refit(trained, served, limit_bytes="16MiB")
    served = plan.target  # with the names that the other side's make
    policy, engine = zeros(trained, rank), zeros(served, rank)
    with plan.bind(policy or None, engine or None, transport="torch") as refit:
        for step in range(steps):
            if policy:
                fill(policy, trained, rank, partial(trained_at, step))
                refit.send(version=step)
            else:
                assert refit.receive() == step
                must_serve(engine, served, rank, partial(trained_at, step))
    return plan


def behind(steps: int, width: int) -> redist.RefitPlan:
    """While layers are trained one at a time, rollouts go on with the weights of the step before."""
    rank, half = dist.get_rank(), dist.get_world_size() // 2
    trained, served = sides(width, list(range(half)), list(range(half, 2 * half)))
    plan = redist.refit(trained, served, limit_bytes="16MiB")
    served = plan.target  # with the names that the other side's make
    policy, engine = zeros(trained, rank), zeros(served, rank)

    with plan.bind(policy or None, engine or None, transport="torch") as refit:
        for step in range(steps):
            if policy:
                fill(policy, trained, rank, partial(trained_in_turn, step))
                changed = [name for name in policy if int(name.split(".")[1]) == step % LAYERS]
                refit.send(version=step, changed=changed if step else None)
            else:
                if step:  # a rollout with the weights of the step before
                    must_serve(engine, served, rank, partial(trained_in_turn, step - 1))
                refit.receive()
                must_serve(engine, served, rank, partial(trained_in_turn, step))
    return plan


def main() -> None:
    """Run the three loops, and compare every weight that is served with what was trained."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--width", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    for loop in (colocated, apart, behind):
        plan = loop(args.steps, args.width)
        if dist.get_rank() == 0:
            print(f"{loop.__name__}: {args.steps} refits of {len(plan.names)} tensors, "
                  f"{plan.received_bytes / 2**20:.1f} MiB each in {plan.rounds} round(s), "
                  f"{plan.certificate.verdict}: right")  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
