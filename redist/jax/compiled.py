"""A plan as a function of a jax.Array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.custom_derivatives import linear_call

from redist.errors import ConversionError
from redist.layout.array_type import ArrayType
from redist.layout.interop import to_partition_spec
from redist.lower.jax_text import check_even, to_jax_text
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
    check_even(plan)
    devices = _devices(plan, mesh)
    forth = _function(plan, devices, topology)
    before, after = (_in_words_of(mesh, t) for t in (plan.source, plan.target))

    def there(_: Any, x: Any) -> Any:
        return after(forth(x))

    def home(_: Any, y: Any) -> Any:
        return before(_function(back or _plan_back(plan, topology), devices, topology)(y))

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


def _in_words_of(mesh: Any, t: ArrayType) -> Callable[[Any], Any]:
    """A function that gives an array the sharding of a type over a mesh, if the mesh has the type's axes.

    ``shard_map`` leaves axes of its own behind: parts of those of the mesh.
    """
    if mesh is None or tuple(zip(mesh.axis_names, mesh.devices.shape, strict=True)) != t.mesh.axes:
        return lambda x: x
    try:
        spec = jax.sharding.PartitionSpec(*to_partition_spec(t))
    except ConversionError:  # it cuts by a part of an axis
        return lambda x: x
    sharding = jax.sharding.NamedSharding(mesh, spec)
    return lambda x: jax.lax.with_sharding_constraint(x, sharding)


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
    """What the plan's text says."""
    names: dict[str, Any] = {"__name__": "redist plan"}
    exec(compile(to_jax_text(plan, topology), "<plan as JAX>", "exec"), names)
    return names["move"](devices)
