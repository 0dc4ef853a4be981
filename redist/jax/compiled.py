"""A plan as a function of a jax.Array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.custom_derivatives import linear_call
from jax.sharding import (
    AbstractMesh,
    Mesh,
    NamedSharding,
    PartitionSpec,
    reshard,
    use_abstract_mesh,
)

from redist.errors import ConversionError
from redist.jax.choose import goes_as_bits
from redist.jax.types import is_explicit, sharding_over
from redist.lower.jax_text import check_even, to_jax_text
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.plan.topology import Topology

NO_MESH = AbstractMesh((), ())


def to_jax(
    plan: Plan,
    mesh: Any = None,
    *,
    back: Plan | None = None,
    topology: Topology = FLAT,
    ends: tuple[NamedSharding, NamedSharding] | None = None,
) -> Callable[[Any], Any]:
    """A function that runs the plan's steps with ``shard_map`` and collectives of ``jax.lax``.

    ``mesh`` is a ``jax.sharding.Mesh`` whose devices take the place of the plan's, in order. The function
    can be called, jitted and differentiated; ``back`` is the plan that gradients take from the target to the
    source, and is found if it is not given. The result has the sharding of the plan's target over ``mesh``,
    and a gradient has that of its source; ``ends`` are these two shardings if they are over other meshes.
    """
    check_even(plan)
    devices = _devices(plan, mesh)
    forth = _function(plan, devices, topology)
    before, after = ends or (sharding_over(mesh, t) for t in (plan.source, plan.target))

    def there(_: Any, x: Any) -> Any:
        return _constrained(forth(x), after)

    def home(_: Any, y: Any) -> Any:
        back_home = _function(back or _plan_back(plan, topology), devices, topology)
        return _constrained(back_home(y), before)

    def redistributed(x: Any) -> Any:
        if tuple(x.shape) != plan.source.shape:
            raise ConversionError(
                f"cannot run a plan for {plan.source} on an array of shape {tuple(x.shape)}"
            )
        with use_abstract_mesh(NO_MESH):  # shard_map has a mesh of its own, whatever set_mesh says
            return _typed(linear_call(there, home, (), _with_auto_axes(x, devices)), after)

    return jax.jit(redistributed, out_shardings=after)


def placed(x: Any, sharding: NamedSharding) -> Any:
    """A traced array under a sharding over the devices that it is on, moved by XLA itself."""
    with use_abstract_mesh(NO_MESH):
        x = _with_auto_axes(x, sharding.mesh.devices.reshape(-1))
        return _typed(_constrained(x, sharding), sharding)


def _plan_back(plan: Plan, topology: Topology) -> Plan:
    from redist.planner import synthesize

    return synthesize(
        plan.target,
        plan.source,
        objective=plan.objective,
        strategy=plan.strategy,
        topology=topology,
    )


def _constrained(x: Any, sharding: NamedSharding | None) -> Any:
    """The array under a sharding, by axes of the mesh in it: ``shard_map`` leaves axes of its own behind."""
    if sharding is None:
        return x
    if is_explicit(sharding.mesh):
        mesh = Mesh(sharding.mesh.devices, sharding.mesh.axis_names)
        sharding = NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)
    return lax.with_sharding_constraint(x, sharding)


def _with_auto_axes(x: Any, devices: Any) -> Any:
    """The array without a sharding in its JAX type: ``shard_map`` takes none over another mesh."""
    mesh = jax.typeof(x).sharding.mesh
    if not is_explicit(mesh):
        return x
    free = Mesh(devices.reshape(mesh.axis_sizes), mesh.axis_names)
    return reshard(x, NamedSharding(free, PartitionSpec(*[None] * x.ndim)))


def _typed(x: Any, sharding: NamedSharding | None) -> Any:
    """The array with its sharding in its JAX type, if the mesh has explicit axes."""
    is_typed = sharding is not None and is_explicit(sharding.mesh)
    return reshard(x, sharding) if is_typed else x


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
    """What the plan's text says; elements that XLA would make wider travel as integers of their size."""
    names: dict[str, Any] = {"__name__": "redist plan"}
    exec(compile(to_jax_text(plan, topology), "<plan as JAX>", "exec"), names)
    move: Callable[[Any], Any] = names["move"](devices)
    if not goes_as_bits(plan.source.dtype, devices[0].platform):
        return move

    def move_bits(x: Any) -> Any:
        bits = lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}")
        return lax.bitcast_convert_type(move(bits), x.dtype)

    return move_bits
