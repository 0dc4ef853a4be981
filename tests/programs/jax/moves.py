"""Checks of redist.jax on 2 to 8 CPU devices: ``python -m tests.programs.jax.moves values``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from random import Random
from typing import Any

N_DEVICES = 8
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + f" --xla_force_host_platform_device_count={N_DEVICES}"
)
os.environ["JAX_ENABLE_X64"] = "1"

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax import numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding  # noqa: E402

import redist  # noqa: E402
import redist.jax  # noqa: E402
from bench.xla.hlo import received_elems  # noqa: E402
from redist.jax.choose import XLA  # noqa: E402
from redist.lower.lowering import lower_plan  # noqa: E402
from redist.lower.memory import peak_bytes  # noqa: E402
from redist.runtime.simulator import global_value, simulate  # noqa: E402

MESHES: tuple[dict[str, int], ...] = (
    {"x": 2},
    {"x": 4},
    {"x": 2, "y": 2},
    {"x": 8},
    {"x": 2, "y": 4},
    {"x": 4, "y": 2},
    {"x": 2, "y": 2, "z": 2},
    {"data": 2, "model": 3},
)
DTYPES = ("float32", "float64", "int8", "uint16", "int64", "complex64", "bool", "bfloat16")


def mesh_of(axes: dict[str, int]) -> Mesh:
    n = int(np.prod(list(axes.values())))
    return Mesh(np.array(jax.devices()[:n]).reshape(list(axes.values())), tuple(axes))


def cut_dims(rng: Random, axes: dict[str, int], ndim: int) -> PartitionSpec:
    """Any of the axes, on any of the dims, in any order."""
    names = list(axes)
    rng.shuffle(names)
    dims: list[list[str]] = [[] for _ in range(ndim)]
    for name in names[: rng.randint(0, len(names))]:
        rng.choice(dims).append(name)
    return PartitionSpec(*(tuple(dim) or None for dim in dims))


def problems(n: int, seed: int, dtypes: tuple[str, ...] = DTYPES) -> Iterator[tuple[Any, Any]]:
    """Arrays with a sharding, and the one they should get."""
    rng = Random(seed)
    for number in range(n):
        axes = MESHES[number % len(MESHES)]
        mesh, ndim = mesh_of(axes), rng.randint(1, 4)
        whole = int(np.prod(list(axes.values())))
        shape = [whole * rng.randint(1, 3) for _ in range(ndim)]
        values = np.random.default_rng(number).integers(-100, 100, shape)
        a, b = (NamedSharding(mesh, cut_dims(rng, axes, ndim)) for _ in range(2))
        yield jax.device_put(jnp.asarray(values).astype(rng.choice(dtypes)), a), b


def same(x: Any, y: Any) -> bool:
    return np.asarray(x).tobytes() == np.asarray(y).tobytes()


def values(n: int) -> None:
    """Bit for bit, with the sharding that was asked for."""
    for x, sharding in problems(n, 0):
        y = redist.jax.redistribute(x, sharding)
        assert y.sharding.is_equivalent_to(sharding, x.ndim), (x.sharding, sharding)
        assert same(x, y), (x.shape, x.sharding, sharding)


def inside_jit(n: int) -> None:
    """Also as a part of a larger program."""
    for x, sharding in problems(n // 2, 1, ("float32",)):
        plan = redist.jax.plan_for(x, sharding)
        move = plan.to_jax(sharding.mesh)
        y = jax.jit(lambda a, move=move: move(a + 1) * 2)(x)
        assert same((np.asarray(x) + 1) * 2, y)


def gradients(n: int) -> None:
    """Of what follows a move; backwards and forwards, as if the array had not moved."""
    for x, sharding in problems(n // 2, 2, ("float32", "float64")):
        weights = jnp.arange(x.size, dtype=x.dtype).reshape(x.shape)

        def loss(a: Any, source: Any = x.sharding, to: Any = sharding, w: Any = weights) -> Any:
            return (jnp.sin(redist.jax.redistribute(a, to, source=source)) * w).sum()

        def plain(a: Any, w: Any = weights) -> Any:
            return (jnp.sin(a) * w).sum()

        value, back = jax.vjp(loss, x)
        (gradient,) = back(jnp.ones_like(value))
        (wanted,) = jax.vjp(plain, x)[1](jnp.ones_like(value))
        assert np.allclose(gradient, wanted, rtol=1e-5), (x.sharding, sharding)
        tangent = jnp.cos(x)
        forward = jax.jvp(loss, (x,), (tangent,))[1]
        assert np.allclose(forward, jax.jvp(plain, (x,), (tangent,))[1], rtol=1e-4)


def adjoints(n: int) -> None:
    """The adjoint plan brings home what JAX says the gradient is."""
    for x, sharding in problems(n // 2, 7, ("float64",)):
        plan = redist.jax.plan_for(x, sharding)
        cotangent = jax.device_put(jnp.sin(x), sharding)
        (wanted,) = jax.vjp(plan.to_jax(sharding.mesh), x)[1](cotangent)
        back = redist.adjoint(plan)
        tiles = {}
        for shard in cotangent.addressable_shards:
            first = shard.replica_id == 0  # of replicas, one has the values, the others nothing yet
            tiles[shard.device.id] = np.asarray(shard.data) * first
        done = simulate(back, tiles).tiles
        assert np.array_equal(global_value(back.target, done), np.asarray(wanted)), str(plan)


def compiled(x: Any, sharding: Any, donate: bool = False) -> tuple[Any, Any]:
    plan = redist.jax.plan_for(x, sharding)
    given = (0,) if donate else ()
    move = jax.jit(plan.to_jax(sharding.mesh, XLA), out_shardings=sharding, donate_argnums=given)
    return plan, move.lower(x).compile()


def bytes(n: int) -> None:
    """What XLA's collectives receive is what the plan says."""
    for x, sharding in problems(n, 3):
        plan, program = compiled(x, sharding)
        text = program.as_text()
        received = received_elems(text, sharding.mesh.size) * x.dtype.itemsize
        assert received == plan.received_bytes, (str(plan), text)


def memory(n: int) -> None:
    """A compiled program holds no more than was said."""
    for x, sharding in problems(n, 4, ("float32", "int64")):
        x = jnp.tile(x, (8,) + (1,) * (x.ndim - 1))
        x = jax.device_put(x, sharding if number_of(sharding) % 2 else x.sharding)
        x = jax.device_put(x, NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[::-1])))
        plan, program = compiled(x, sharding)
        used = program.memory_analysis()
        held = used.argument_size_in_bytes + used.output_size_in_bytes + used.temp_size_in_bytes
        bound = peak_bytes(lower_plan(plan, XLA)) or plan.source.tile_bytes * 2
        assert held <= bound + 4096, (held, bound, str(plan), program.as_text())


def number_of(sharding: Any) -> int:
    return len(str(sharding.spec))


def donated(n: int) -> None:
    """A donated array is gone; one that is not stays as it was."""
    for x, sharding in problems(n // 2, 5, ("float32",)):
        before = np.asarray(x)
        redist.jax.redistribute(x, sharding)
        assert same(x, before)
        y = redist.jax.redistribute(x, sharding, donate=True)
        assert same(y, before) and (x.is_deleted() or x.sharding.is_equivalent_to(sharding, x.ndim))


def limits(n: int) -> None:
    """The least limit that is named does, one byte less does not."""
    for x, sharding in problems(n, 6, ("float32",)):
        try:
            redist.jax.redistribute(x, sharding, limit_bytes=1)
        except redist.NoPlanError as error:
            least = error.least_bytes
        else:
            continue  # nothing to do
        assert same(x, redist.jax.redistribute(x, sharding, limit_bytes=least))
        try:
            redist.jax.plan_for(x, sharding, limit_bytes=least - 1)
        except redist.NoPlanError:
            continue
        raise AssertionError(f"{least - 1} bytes do, too")


def refused(words: str, what: Any) -> None:
    try:
        what()
    except redist.RedistError as error:
        assert words in str(error), error
        return
    raise AssertionError(f"not refused: {words}")


def errors(n: int) -> None:
    """In words of the user: axes, shardings, and what to do."""
    mesh = mesh_of({"x": 2, "y": 4})
    cut = NamedSharding(mesh, PartitionSpec("x"))
    x = jax.device_put(jnp.ones((8, 8), jnp.float32), cut)
    lone = jnp.ones(8)
    refused(
        "NamedSharding",
        lambda: redist.jax.redistribute(lone, SingleDeviceSharding(jax.devices()[0])),
    )
    refused("source", lambda: jax.jit(lambda a: redist.jax.redistribute(a, cut))(x))
    uneven = redist.synthesize("f32[7{x}]", "f32[7]", mesh=redist.Mesh(x=2))
    refused("which do not divide 7", uneven.to_jax)
    pending = redist.synthesize("f32[8] sum{x}", "f32[8]", mesh=redist.Mesh(x=2))
    refused("holds no pending sum", pending.to_jax)
    two = redist.synthesize(
        "f32[8{x}]",
        "f32[8{z}]",
        mesh=redist.Mesh(x=2),
        target_mesh=redist.Mesh({"z": 2}, ranks=[2, 3]),
    )
    refused("two meshes", two.to_jax)
    plan = redist.synthesize("f32[8{x}]", "f32[8]", mesh=redist.Mesh(x=2))
    refused("shape (4,)", lambda: plan.to_jax()(jnp.ones(4, jnp.float32)))
    refused("a mesh of 8", lambda: plan.to_jax(mesh))


def meshes(n: int) -> None:
    """Between two sets of devices, and between two meshes of the same ones."""
    first, last = jax.devices()[:4], jax.devices()[4:]
    x = jax.device_put(
        jnp.arange(64.0).reshape(8, 8), NamedSharding(Mesh(first, "x"), PartitionSpec("x"))
    )
    there = NamedSharding(Mesh(np.reshape(last, (2, 2)), ("a", "b")), PartitionSpec("b", "a"))
    assert same(x, redist.jax.redistribute(x, there))
    other = NamedSharding(Mesh(np.reshape(first, (2, 2)), ("a", "b")), PartitionSpec("b", "a"))
    y = redist.jax.redistribute(x, other)
    assert same(x, y) and y.sharding == other


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("check")
    parser.add_argument("--n", type=int, default=40)
    args = parser.parse_args()
    globals()[args.check](args.n)
    print(f"{args.check}: well")


if __name__ == "__main__":
    main()
