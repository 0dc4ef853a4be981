"""A plan as a function of a jax.Array."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax.custom_derivatives import linear_call
from jax.sharding import NamedSharding

from redist.errors import ConversionError
from redist.jax.emit import run_calls
from redist.jax.types import refined_mesh, spec_of
from redist.layout.array_type import ArrayType
from redist.layout.interop import to_partition_spec
from redist.lower.lowering import lower_plan
from redist.plan.plan import Plan
from redist.plan.topology import FLAT, Topology


def to_jax(
    plan: Plan, mesh: Any = None, *, back: Plan | None = None, topology: Topology = FLAT
) -> Callable[[Any], Any]:
    """A function that runs the plan's steps with ``shard_map`` and collectives of ``jax.lax``.

    ``mesh`` is a ``jax.sharding.Mesh`` whose devices play the plan's, in order. The function can be
    called, jitted and differentiated; ``back`` is the plan that gradients take, from the target to the
    source, and is found if it is not given.
    """
    _check(plan)
    devices = _devices(plan, mesh)
    forth = _function(plan, devices, topology)

    def there(_: Any, x: Any) -> Any:
        return forth(x)

    def home(_: Any, y: Any) -> Any:
        return _function(back or _plan_back(plan, topology), devices, topology)(y)

    def redistributed(x: Any) -> Any:
        if tuple(x.shape) != plan.source.shape:
            raise ConversionError(
                f"cannot run a plan for {plan.source} on an array of shape {tuple(x.shape)}"
            )
        return linear_call(there, home, (), x)

    return redistributed


def _plan_back(plan: Plan, topology: Topology) -> Plan:
    from redist.planner import synthesize

    return synthesize(
        plan.target,
        plan.source,
        objective=plan.objective,
        strategy=plan.strategy,
        topology=topology,
    )


def _check(plan: Plan) -> None:
    """Refuse what a jax.Array cannot be, with the reason."""
    for name, t in (("source", plan.source), ("target", plan.target)):
        if t.pending_op is not None:
            raise ConversionError(
                f"cannot run this plan with JAX: a jax.Array holds no pending {t.pending_op}, "
                f"and its {name} is {t}"
            )
    if plan.source.mesh != plan.target.mesh:
        raise ConversionError(
            "cannot run this plan with JAX: source and target are on two meshes; "
            "redist.jax.redistribute moves arrays between them with jax.device_put"
        )
    for t in plan.types:
        if not t.is_even:
            dim = next(i for i in range(t.ndim) if not t.cut(i).is_even)
            raise ConversionError(
                f"cannot run this plan with JAX: dim {dim} of {t} is cut into {t.cuts[dim]} tiles, "
                f"which do not divide {t.shape[dim]}; a jax.Array has tiles of one size"
            )


def _devices(plan: Plan, mesh: Any) -> Any:
    if mesh is None:
        mesh = jax.sharding.Mesh(jax.devices()[: plan.source.mesh.n_devices], ("all",))
    if mesh.devices.size != plan.source.mesh.n_devices:
        raise ConversionError(
            f"cannot run a plan for {plan.source.mesh.n_devices} devices on a mesh of "
            f"{mesh.devices.size}"
        )
    return mesh.devices.reshape(-1)


def _function(plan: Plan, devices: Any, topology: Topology) -> Callable[[Any], Any]:
    runs = lower_plan(plan, topology)
    parts = []
    for calls in runs:
        mesh = refined_mesh(devices, calls.source.mesh, calls.atoms)
        parts.append(
            jax.shard_map(
                partial(run_calls, calls),
                mesh=mesh,
                in_specs=spec_of(calls.source, calls.atoms),
                out_specs=spec_of(calls.target, calls.atoms),
                check_vma=False,
            )
        )

    def run(x: Any) -> Any:
        for part in parts:
            x = part(x)
        return x

    return run


def user_sharding(t: ArrayType, mesh: Any) -> NamedSharding | None:
    """The sharding of a type over the user's own mesh; None if it needs parts of axes."""
    try:
        spec = to_partition_spec(t)
    except ConversionError:
        return None
    return NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
