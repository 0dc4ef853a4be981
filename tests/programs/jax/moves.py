"""Checks of redist.jax on 2 to 8 CPU devices: ``python -m tests.programs.jax.moves values``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from functools import partial
from itertools import permutations
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
from redist.jax.choose import is_reused, plans_between  # noqa: E402
from redist.jax.compiled import to_jax  # noqa: E402
from redist.jax.moves import move_of  # noqa: E402
from redist.jax.trees import moves_of, order_of  # noqa: E402
from redist.lower.hlo import received_elems  # noqa: E402
from redist.plan.rates import XLA  # noqa: E402
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
DTYPES = (
    "float32",
    "float64",
    "int8",
    "uint16",
    "int64",
    "complex64",
    "bool",
    "bfloat16",
    "float8_e5m2",
)
SMALL_FLOATS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""What XLA for CPUs makes wider in collectives."""


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
        for moved in (
            jax.jit(move)(x),
            jax.jit(lambda a, x=x, to=sharding: redist.jax.redistribute(a, to, source=x.sharding))(
                x
            ),
        ):
            wanted = jax.jit(partial(jax.lax.with_sharding_constraint, shardings=sharding))(
                x
            ).sharding
            assert moved.sharding == wanted, (moved.sharding, wanted)


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


def large(n: int, seed: int, dtypes: tuple[str, ...]) -> Iterator[tuple[Any, Any]]:
    """The same problems with shapes alone, so large that tables of a few KiB do not count."""
    for x, sharding in problems(n, seed, dtypes):
        shape = (x.shape[0] * 2**20 // x.size // 48 * 48 + 48, *x.shape[1:])
        yield jax.ShapeDtypeStruct(shape, x.dtype, sharding=x.sharding), sharding


def check_held(n: int, seed: int, donate: bool) -> None:
    """Every plan between two shardings holds no more than was said of this plan, whatever the dtype is."""
    differ = 0
    for x, sharding in large(n, seed, ("float32", "int64", *SMALL_FLOATS)):
        move = move_of("", x, sharding)
        if move.ends is None:
            continue
        gives = donate and is_reused(*move.ends)
        ways = plans_between(*move.ends, donate, "cpu")
        for bound, plan in {(plan.steps, need): (need, plan) for plan, need in ways}.values():
            run = to_jax(plan, sharding.mesh, topology=XLA, ends=(x.sharding, sharding))
            way = jax.jit(run, out_shardings=sharding, donate_argnums=(0,) if gives else ())
            used = way.lower(x).compile().memory_analysis()
            held = used.argument_size_in_bytes + used.output_size_in_bytes + used.temp_size_in_bytes
            held -= used.alias_size_in_bytes
            assert held <= bound, (held, bound, str(plan))
        differ += move.before_bytes != move.after_bytes
    assert differ, "no problem has tiles of two sizes"


def memory(n: int) -> None:
    """A compiled program holds no more than was said."""
    check_held(n, 4, donate=False)


def held_when_donated(n: int) -> None:
    """An array that is given away counts as long as XLA holds it, also if its tile is of another size."""
    check_held(n, 8, donate=True)


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
    for x, sharding in problems(n, 6, ("float32", *SMALL_FLOATS)):
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


def some_tree(rng: Random) -> tuple[Any, Any]:
    """A tree as training has it, and one of shardings."""
    mesh = mesh_of({"x": 2, "y": 4})
    arrays, wanted = {}, {}
    for name in "abcde":
        shape = (8 * rng.randint(1, 4), 8 * rng.randint(1, 4))
        ends = [NamedSharding(mesh, cut_dims(rng, {"x": 2, "y": 4}, 2)) for _ in range(2)]
        arrays[name] = jax.device_put(jnp.full(shape, rng.random(), jnp.float32), ends[0])
        wanted[name] = ends[1]
    return {"layers": arrays}, {"layers": wanted}


def trees(n: int) -> None:
    """Dicts, lists and states: arrays move, host arrays are placed, and all else stays as it is."""
    mesh = mesh_of({"x": 2, "y": 4})
    rows, columns = (NamedSharding(mesh, PartitionSpec(*spec)) for spec in (("x", "y"), ("y", "x")))
    x = jax.device_put(jnp.arange(256.0, dtype=jnp.float32).reshape(16, 16), rows)
    host = np.arange(64, dtype=np.float32).reshape(8, 8)
    state = {"w": x, "opt": [x + 1, (x + 2, {"host": host})], "step": 7, "name": "adam", "no": None}
    moved = redist.jax.redistribute(state, columns)
    assert moved["step"] == 7 and moved["name"] == "adam" and moved["no"] is None
    there = [moved["w"], moved["opt"][0], moved["opt"][1][0], moved["opt"][1][1]["host"]]
    for y, value in zip(there, (x, x + 1, x + 2, host), strict=True):
        assert y.sharding == columns and same(y, value)
    specs = {
        "w": PartitionSpec("y"),
        "opt": [None, columns],
        "step": None,
        "name": None,
        "no": None,
    }
    moved = redist.jax.redistribute(state, specs)
    assert moved["w"].sharding == NamedSharding(mesh, PartitionSpec("y")) and same(moved["w"], x)
    assert moved["opt"][0] is state["opt"][0] and moved["opt"][1][0].sharding == columns
    inside = jax.jit(lambda t: redist.jax.redistribute(t, columns, source={"a": rows, "b": rows}))
    assert jax.tree.map(lambda a: a.sharding, inside({"a": x, "b": x})) == {
        "a": columns,
        "b": columns,
    }
    given = {"a": x + 0, "b": x + 0}
    given["c"] = given["a"]
    moved = redist.jax.redistribute(given, columns, donate=True)
    assert all(same(y, x) for y in moved.values()) and all(a.is_deleted() for a in given.values())
    for words, wrong in (
        ("no sharding is given for ['opt']; give", {k: v for k, v in specs.items() if k != "opt"}),
        ("it is a str", "x"),
        (
            "['w']: cannot use P('z',): the array's mesh has the axes x, y, and no 'z'; name",
            {**specs, "w": PartitionSpec("z")},
        ),
        ("['opt'][1][1]['host']: cannot put a NumPy array", {**specs, "opt": PartitionSpec("x")}),
    ):
        refused(words, lambda wrong=wrong: redist.jax.redistribute(state, wrong))


def scalars(n: int) -> None:
    """Under one sharding for a tree or a branch, arrays of 0 dims are replicated; alone they are refused."""
    mesh = mesh_of({"x": 2, "y": 4})
    rows, all_of_it = (NamedSharding(mesh, PartitionSpec(*spec)) for spec in (("x", "y"), ()))
    columns = NamedSharding(mesh_of({"z": 8}), PartitionSpec(None, "z"))
    w = jax.device_put(jnp.arange(64.0).reshape(8, 8), rows)
    tree = {
        "w": w,
        "s": [jnp.float32(3), jax.device_put(jnp.float32(4), all_of_it)],
        "h": np.array(5),
    }
    moved = redist.jax.redistribute(tree, columns, limit_bytes="1MiB")
    assert moved["w"].sharding == columns and same(moved["w"], w)
    for scalar, value in zip((*moved["s"], moved["h"]), (3, 4, 5), strict=True):
        assert scalar.sharding == NamedSharding(columns.mesh, PartitionSpec()) and scalar == value
    on = {"w": w, "s": tree["s"][1]}
    assert redist.jax.redistribute(on, PartitionSpec("y"))["s"].sharding == all_of_it
    assert redist.jax.compare(on, columns).n_arrays == 1
    inside = jax.jit(lambda t: redist.jax.redistribute(t, {"b": columns}, source={"b": rows}))
    assert same(inside({"b": on})["b"]["w"], w)
    refused("1 entries for 0 dims", lambda: redist.jax.redistribute(on["s"], PartitionSpec("x")))
    wrong = {"w": columns, "s": PartitionSpec("x")}
    refused("['s']: cannot read", lambda: redist.jax.redistribute(on, wrong))


def limit_texts(n: int) -> None:
    """The least limit is written exactly, with its parts, and with what donating saves."""
    mesh = mesh_of({"x": 4, "y": 2})
    rows, columns = (
        NamedSharding(mesh, PartitionSpec(*p)) for p in (("x", "y"), (None, ("x", "y")))
    )
    w = jax.device_put(jnp.ones((1024, 1024), jnp.float32), rows)
    for tree in (w, {"a": w, "b": w + 1}):
        try:
            redist.jax.redistribute(tree, columns, limit_bytes="1MiB")
        except redist.NoPlanError as error:
            said, least = str(error), error.least_bytes
        assert f"the least that redist can guarantee is limit_bytes={least} (" in said, said
        assert "within limit_bytes=1048576 (1 MiB)" in said and "of tiles and staging, " in said, (
            said
        )
        assert "for XLA's copies" in said, said
        assert ("of the tree's other arrays" in said) == isinstance(tree, dict), said
        assert ("; with donate=True limit_bytes=" in said) == isinstance(tree, dict), said
        if tree is w:
            continue  # one call reads the array to the end: giving it away saves nothing
        lower = int(said.partition("; with donate=True limit_bytes=")[2].partition(" ")[0])
        assert lower < least
        copy = jax.tree.map(lambda a: a + 0, tree)
        redist.jax.redistribute(copy, columns, limit_bytes=lower, donate=True)


def tree_limits(n: int) -> None:
    """A tree keeps a limit as a whole: the least that is named does, one byte less does not."""
    rng = Random(9)
    for number in range(max(n // 8, 2)):
        tree, shardings = some_tree(rng)
        moves, _ = moves_of(tree, shardings)
        for donate in (False, True):
            gives = [donate] * len(moves)
            least = min(fullest(moves, order, gives) for order in permutations(range(len(moves))))
            assert fullest(moves, order_of(moves, gives), gives) == least, number
        try:
            redist.jax.redistribute(tree, shardings, limit_bytes=1)
        except redist.NoPlanError as error:
            least = error.least_bytes
            assert least == fullest(moves, order_of(moves, [False] * 5), [False] * 5)
        moved = redist.jax.redistribute(tree, shardings, limit_bytes=least)
        assert jax.tree.all(jax.tree.map(same, moved, tree))
        less = partial(redist.jax.redistribute, tree, shardings, least - 1)
        refused("the least that redist can guarantee", less)


def fullest(moves: Any, order: Any, gives: Any) -> int:
    """What a device holds at the fullest moment of moves in this order, counted move by move."""
    sources = {k: move.before_bytes for k, move in enumerate(moves)}
    results: dict[int, int] = {}
    most = 0
    for k in order:
        own = sources.pop(k)
        most = max(
            most, sum(sources.values()) + sum(results.values()) + moves[k].least_bytes(gives[k])
        )
        results[k] = moves[k].after_bytes
        if moves[k].wanted is not None and not moves[k].is_renamed and not gives[k]:
            sources[k] = own
    return most


def uneven(n: int) -> None:
    """What JAX refuses is refused with the reason, and what to do."""
    mesh = mesh_of({"tp": 8})
    ends = [NamedSharding(mesh, PartitionSpec(*spec)) for spec in ((None, "tp"), ("tp", None))]
    for rows, padded in ((10, 16), (12, 16), (100, 104)):
        x = jax.device_put(jnp.ones((rows, 8), jnp.float32), ends[0])
        try:
            jax.device_put(x, ends[1])
        except ValueError:
            pass
        else:
            raise AssertionError("JAX has uneven tiles now: redist.jax could move them")
        for call in (redist.jax.redistribute, redist.jax.plan_for):
            refused(
                f"dim 0 has {rows} indices, which 8 tiles (tp=8) do not divide, and JAX has tiles of one "
                f"size only; cut dim 1 (8) instead, or pad dim 0 to {padded}",
                lambda x=x, call=call: call(x, ends[1]),
            )
    refused("pad dim 0 to 16", lambda: redist.jax.redistribute(np.ones((10, 4)), ends[1]))


def inputs(n: int) -> None:
    """What people hand over: specs, text for limits, arrays of the host or of one device."""
    mesh = mesh_of({"x": 2, "y": 4})
    rows, columns = (NamedSharding(mesh, PartitionSpec(*spec)) for spec in (("x", "y"), ("y", "x")))
    x = jax.device_put(jnp.arange(64.0).reshape(8, 8), rows)
    y = redist.jax.redistribute(x, PartitionSpec("y", "x"), limit_bytes="10MiB")
    assert y.sharding == columns and same(x, y)
    assert redist.jax.plan_for(x, PartitionSpec("y", "x"), "10MiB").target == redist.jax.type_of(y)
    refused("10 foot", lambda: redist.jax.redistribute(x, columns, limit_bytes="10 foot"))
    assert redist.jax.redistribute(x, rows) is x
    for lone in (np.asarray(x), jnp.asarray(np.asarray(x))):
        z = redist.jax.redistribute(lone, columns)
        assert z.sharding == columns and same(z, x)
        refused(
            "NamedSharding(mesh, ", lambda lone=lone: redist.jax.redistribute(lone, columns.spec)
        )
    few = NamedSharding(Mesh(jax.devices()[:2], "q"), PartitionSpec("q"))
    refused("without a limit", lambda: redist.jax.redistribute(x, few, limit_bytes="1GiB"))
    refused("no collective between different devices", lambda: redist.jax.plan_for(x, few))
    refused("jax.tree.map", lambda: redist.jax.plan_for([x, x], columns))
    both = NamedSharding(mesh, PartitionSpec(("x", "y")))
    line = NamedSharding(mesh_of({"tp": 8}), PartitionSpec("tp"))
    y = redist.jax.redistribute(x, both)
    z = redist.jax.redistribute(y, line)  # the same tiles by another name: nothing is copied
    places = [[s.data.unsafe_buffer_pointer() for s in a.addressable_shards] for a in (y, z)]
    assert z.sharding == line and places[0] == places[1]


def compared(n: int) -> None:
    """The report has the figures of both compiled programs, of one array or of a tree."""
    pairs = [
        (x, sharding)
        for x, sharding in problems(n // 2, 10, ("float32", "int8", *SMALL_FLOATS))
        if not x.sharding.is_equivalent_to(sharding, x.ndim)
    ]
    for x, sharding in pairs:
        plan, found = redist.jax.plan_for(x, sharding), redist.jax.compare(x, sharding)
        assert found.redist.received_bytes == plan.received_bytes
        assert found.lower_bound_bytes == plan.lower_bound_bytes
        assert found.xla.received_bytes is not None and found.redist.held_bytes is not None
        assert found.xla.received_bytes >= plan.lower_bound_bytes
        assert found.tiles_bytes <= found.redist.held_bytes <= found.bound_bytes
        assert found.saved_bytes == (found.xla.held_bytes or 0) - found.redist.held_bytes
    mesh = mesh_of({"x": 4, "y": 2})
    rows, columns = (
        NamedSharding(mesh, PartitionSpec(*p)) for p in (("x", "y"), (None, ("x", "y")))
    )
    w = jax.device_put(jnp.ones((1024, 1024), jnp.float32), rows)
    one, two = (
        redist.jax.compare(w, columns),
        redist.jax.compare({"a": w, "b": w + 1, "n": 3}, columns),
    )
    tile = 2**22 // 8
    assert two.n_arrays == 2 and two.lower_bound_bytes == 2 * one.lower_bound_bytes
    assert two.redist.held_bytes == (one.redist.held_bytes or 0) + 2 * tile, "all that is held"
    assert two.others_bytes == 2 * tile and two.certified_bytes == one.certified_bytes
    assert ": 1 MiB of the tree's other arrays, 1.3 MiB of tiles and staging, " in str(two), str(
        two
    )
    try:
        redist.jax.redistribute({"a": w, "b": w + 1}, columns, limit_bytes=1)
    except redist.NoPlanError as error:
        parts = str(error).partition(", which is ")[2].partition("; with")[0]
        assert f" on any device: {parts}; tiles and staging are proved" in str(two), (parts, two)
    lines = str(one).splitlines()
    assert lines[0].split() == (
        "1 array, 8 devices received by all / least peak per device = source, target + extra".split()
    )
    assert lines[1].split()[:4] == ["redist", "3.5", "MiB", "1.00"], lines
    assert lines[3].split()[-4:] == ["1", "MiB", "0", "B"], lines
    assert lines[2].startswith("XLA's own") and lines[4].endswith(": redist needs 384 KiB less"), (
        lines
    )
    ours, theirs = (line.split("MiB")[-1].strip() for line in lines[1:3])
    said = f"redist needs {ours} per device and XLA's own resharding {theirs or '1 MiB'}: "
    assert lines[4].startswith(f"in addition to source and target, {said}"), lines
    given = redist.jax.compare(w, columns, donate=True)
    assert given.tiles_bytes == tile and "in addition to source and target (donated)" in str(given)
    assert given.redist.held_bytes is not None and not w.is_deleted()
    assert given.redist.held_bytes <= given.bound_bytes, (
        "an only call reads a donated array to the end"
    )
    twice = redist.jax.compare({"a": w, "b": w}, columns, donate=True)
    assert twice.tiles_bytes == two.tiles_bytes, "neither is given away"
    both = redist.jax.compare({"a": w, "b": w + 1}, columns, donate=True)
    assert both.tiles_bytes == 2 * tile and both.bound_bytes < two.bound_bytes
    few = NamedSharding(Mesh(jax.devices()[:2], "q"), PartitionSpec("q"))
    for words, value, there in (
        ("no plan moves anything here; the arrays are in place already", w, rows),
        ("changes devices (8 to 2)", w, few),
        ("come from the host", np.ones((8, 8), np.float32), few),
    ):
        refused(words, lambda value=value, there=there: redist.jax.compare(value, there))
    refused(
        "the least that redist can guarantee",
        lambda: redist.jax.compare(w, columns, limit_bytes="1MiB"),
    )


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
