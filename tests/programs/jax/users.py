"""What users of JAX do with redist.jax, on 8 CPU devices: ``python -m tests.programs.jax.users explicit``."""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

from tests.programs.jax.moves import refused, same  # sets the number of devices

# isort: split
import jax
import numpy as np
from jax import numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import redist
import redist.jax
from redist.jax.moves import compiled as programs

P = PartitionSpec
HOST = np.arange(64.0 * 16, dtype=np.float32).reshape(64, 16)


def meshes(kind: AxisType) -> tuple[Mesh, Mesh]:
    """One for training and one for serving, of the same devices."""
    train = jax.make_mesh((4, 2), ("data", "model"), axis_types=(kind, kind))
    return train, jax.make_mesh((8,), ("tp",), axis_types=(kind,))


def ends(before: AxisType, after: AxisType) -> tuple[Any, NamedSharding]:
    """An array under one sharding, and the one that it should get."""
    train, serve = meshes(before)[0], meshes(after)[1]
    w = jax.device_put(HOST, NamedSharding(train, P("data", "model")))
    return w, NamedSharding(serve, P(None, "tp"))


def explicit() -> None:
    """Meshes of ``jax.make_mesh`` have explicit axes; every call takes them, at both ends."""
    assert jax.make_mesh((8,), ("tp",)).axis_types == (AxisType.Explicit,)
    for kinds in product((AxisType.Explicit, AxisType.Auto), repeat=2):
        w, to = ends(*kinds)
        moved = redist.jax.redistribute(w, to)
        assert moved.sharding == to and same(moved, w), kinds
        home = redist.jax.redistribute(moved, w.sharding, donate=True)
        assert home.sharding == w.sharding and same(home, w), kinds
        over = redist.jax.redistribute(w, P("model", "data"))
        assert over.sharding == NamedSharding(w.sharding.mesh, P("model", "data")) and same(over, w)
        inside = jax.jit(lambda a, w=w, to=to: redist.jax.redistribute(a, to, source=w.sharding))(w)
        assert inside.sharding == to and same(inside, w), kinds
        found = redist.jax.compare(w, to)
        assert found.redist.received_bytes == redist.jax.plan_for(w, to).received_bytes
        assert found.xla.held_bytes is not None
        ways = NamedSharding(to.mesh, P(("tp",)))
        there = redist.jax.redistribute({"w": w, "s": jnp.float32(1)}, ways, limit_bytes="1MiB")
        assert there["w"].sharding == ways and there["s"].sharding.mesh == to.mesh
    w, _ = ends(AxisType.Auto, AxisType.Auto)
    renamed = NamedSharding(meshes(AxisType.Explicit)[0], w.sharding.spec)
    assert redist.jax.redistribute(w, renamed).sharding == renamed


def contexts() -> None:
    """Under ``jax.set_mesh`` arrays move as ``jax.device_put`` moves them."""
    for kind in (AxisType.Auto, AxisType.Explicit):
        w, to = ends(kind, kind)
        over = NamedSharding(w.sharding.mesh, P("model", "data"))
        for mesh in (w.sharding.mesh, to.mesh):
            with jax.set_mesh(mesh):
                for wanted in (to, over):
                    moved = redist.jax.redistribute(w, wanted)
                    assert moved.sharding == wanted and same(moved, w)
                assert redist.jax.compare(w, to).n_arrays == 1
                moved = redist.jax.plan_for(w, to).to_jax(to.mesh)(w)
                assert moved.sharding == to and same(moved, w)
        with jax.set_mesh(w.sharding.mesh):
            spec = P("model", "data")
            move = jax.jit(lambda a, w=w, p=spec: redist.jax.redistribute(a, p, source=w.sharding))
            moved = move(w)
            assert moved.sharding == over and same(moved, w), moved.sharding


def small_dtypes() -> None:
    """Elements smaller than a byte go by ``jax.device_put``; what needs a plan names dtype and leaf."""
    train, serve = meshes(AxisType.Auto)
    to = NamedSharding(serve, P(None, "tp"))
    for dtype in ("int4", "uint4"):
        x = jax.device_put(jnp.asarray(HOST % 2).astype(dtype), NamedSharding(train, P("data")))
        moved = redist.jax.redistribute({"q": x, "w": x + x}, to)["q"]
        assert moved.sharding == to and moved.dtype == dtype and same(moved, x)
        inside = jax.jit(lambda a, x=x: redist.jax.redistribute(a, to, source=x.sharding))(x)
        assert inside.sharding == to and same(inside, x)
        refused(f"dtype {dtype}", lambda x=x: redist.jax.plan_for(x, to))
        refused(
            f"['q']: it has dtype {dtype}",
            lambda x=x: redist.jax.redistribute({"q": x}, to, limit_bytes="1GiB"),
        )
        odd = jax.device_put(jnp.ones((4, 10), dtype), NamedSharding(train, P("data")))
        refused(
            f"['q']: cannot cut {dtype}[4, 10]", lambda o=odd: redist.jax.redistribute({"q": o}, to)
        )


def empty() -> None:
    """An empty array is empty under the new sharding, too."""
    train, serve = meshes(AxisType.Auto)
    to = NamedSharding(serve, P("tp"))
    w, _ = ends(AxisType.Auto, AxisType.Auto)
    for shape in ((0, 8), (64, 0), (0,)):
        x = jax.device_put(np.ones(shape, np.float32), NamedSharding(train, P("data")))
        for limit in (None, "1MiB"):
            moved = redist.jax.redistribute({"e": x, "w": w}, to, limit_bytes=limit)
            assert moved["e"].sharding == to and moved["e"].shape == shape
        assert redist.jax.plan_for(x, to).to_jax(serve)(x).shape == shape


def keys() -> None:
    """Keys of random numbers go by ``jax.device_put``."""
    train, serve = meshes(AxisType.Auto)
    w, to = ends(AxisType.Auto, AxisType.Auto)
    many = jax.device_put(jax.random.split(jax.random.key(0), 8), NamedSharding(train, P("data")))
    lone, line = jax.random.key(1), NamedSharding(serve, P("tp"))
    tree = {"w": w, "k": lone, "many": many}
    moved = redist.jax.redistribute(tree, {"w": to, "k": NamedSharding(serve, P()), "many": line})
    assert moved["many"].sharding == line and moved["k"].sharding == NamedSharding(serve, P())
    for name in ("k", "many"):
        assert same(jax.random.key_data(moved[name]), jax.random.key_data(tree[name]))
    stays = redist.jax.redistribute(tree, {"w": to, "k": None, "many": None}, limit_bytes="1GiB")
    assert stays["many"] is many and stays["k"] is lone and stays["w"].sharding == to
    refused(
        "['many']: it has dtype key<fry>",
        lambda: redist.jax.redistribute(tree, line, limit_bytes="1GiB"),
    )


def gradients() -> None:
    """A gradient has the sharding of what it is the gradient of, inside of ``jit`` and outside."""
    for kind in (AxisType.Auto, AxisType.Explicit):
        w, to = ends(kind, AxisType.Auto)

        def loss(a: Any, own: Any = w.sharding, to: Any = to) -> Any:
            return (redist.jax.redistribute(a, to, source=own) ** 2).sum()

        for gradient in (jax.grad(loss), jax.jit(jax.grad(loss))):
            g = gradient(w)
            assert g.sharding == w.sharding and same(g, 2 * HOST)


def plans_as_functions() -> None:
    """What a plan's function returns is over the mesh that was passed."""
    for kind in (AxisType.Auto, AxisType.Explicit):
        w, to = ends(kind, kind)
        for move in (
            redist.jax.plan_for(w, to).to_jax(to.mesh),
            redist.jax.plan_for(w, to).to_jax(),
        ):
            assert same(move(w), w)
        moved = redist.jax.plan_for(w, to).to_jax(to.mesh)(w)
        assert moved.sharding == to and same(moved, w)


def gone() -> None:
    """An array whose memory is gone is refused with its path, before XLA meets it."""
    w, to = ends(AxisType.Auto, AxisType.Auto)
    jax.block_until_ready(redist.jax.redistribute(w, to, donate=True))
    refused(
        "['a']['w']: cannot move an array of shape (64, 16): it was donated or deleted",
        lambda: redist.jax.redistribute({"a": {"w": w}}, to),
    )
    refused("it was donated or deleted", lambda: redist.jax.redistribute(w, to))


def memory_kinds() -> None:
    """An array in ``pinned_host`` memory moves, and what it holds on devices meanwhile is counted."""
    w, to = ends(AxisType.Auto, AxisType.Auto)
    own = w.sharding.with_memory_kind("pinned_host")
    pinned, call = jax.device_put(w, own), redist.jax.redistribute
    for wanted in (
        to,
        to.with_memory_kind("pinned_host"),
        P("model", "data"),
        own.with_memory_kind("device"),
    ):
        for value in (pinned, {"a": pinned, "b": w}):
            moved = call(value, wanted, limit_bytes="1MiB")
            for y in jax.tree.leaves(moved):
                assert same(y, w) and (y.sharding.memory_kind == "pinned_host") == (
                    getattr(wanted, "memory_kind", "") == "pinned_host"
                )
    assert redist.jax.compare(pinned, to) == redist.jax.compare(w, to)
    assert redist.jax.plan_for(pinned, to) == redist.jax.plan_for(w, to)
    refused("the least that redist can guarantee is", lambda: call(pinned, to, limit_bytes=2000))
    refused("the least that", lambda: call(w, own, limit_bytes=100))
    refused("only changes its kind of memory", lambda: redist.jax.compare(w, own))
    refused("inside jit from pinned_host", lambda: jax.jit(lambda a: call(a, to, source=own))(w))
    given = jax.device_put(w, own)
    assert same(call(given, to, donate=True), w) and given.is_deleted()


def refusals() -> None:
    """Shapes without values, ``vmap``, and ``donate`` inside ``jit``."""
    w, to = ends(AxisType.Auto, AxisType.Auto)
    own, move = w.sharding, redist.jax.redistribute
    like = jax.ShapeDtypeStruct(w.shape, w.dtype, sharding=own)
    assert redist.jax.plan_for(like, to) == redist.jax.plan_for(w, to)
    assert redist.jax.compare({"w": like}, to) == redist.jax.compare({"w": w}, to)
    refused("cannot move ['w']: it is a jax.ShapeDtypeStruct", lambda: move({"w": like}, to))
    bare = jax.ShapeDtypeStruct(w.shape, w.dtype)
    refused("jax.ShapeDtypeStruct that has none", lambda: redist.jax.plan_for(bare, to))
    rows, line = NamedSharding(own.mesh, P("data")), NamedSharding(to.mesh, P("tp"))
    refused(
        "['w']: cannot use P('data',) as source: it names no mesh; give NamedSharding(mesh, ",
        lambda: jax.jit(lambda a: move({"w": a}, to, source={"w": P("data")}))(w),
    )
    refused("['a']['w']: cannot move to 'tp'", lambda: move({"a": {"w": w}}, {"a": {"w": "tp"}}))
    found = redist.jax.compare(w, to)
    said = str(found).partition("guarantees at most ")[2].partition(" on any")[0]
    assert redist.jax.compare(w, to, limit_bytes=said) == found, said
    refused("inside vmap", lambda: jax.vmap(lambda a: move(a, line, source=rows))(w))
    refused("donate_argnums", lambda: jax.jit(lambda a: move(a, to, source=own, donate=True))(w))


def shared_programs() -> None:
    """Equal arrays of a tree share one compiled program, also under a limit that leaves each another room."""
    w, to = ends(AxisType.Auto, AxisType.Auto)
    for limit, donate in product((None, "1MiB"), (False, True)):
        programs.cache_clear()
        tree = {str(k): w + k for k in range(5)}
        moved = redist.jax.redistribute(tree, to, limit_bytes=limit, donate=donate)
        assert same(moved["4"], w + 4) and programs.cache_info().currsize == 1, (limit, donate)


def wrong_arguments() -> None:
    """Text of redist's types, arguments in the wrong order, a wrong name, and ``shard_map``."""
    w, to = ends(AxisType.Auto, AxisType.Auto)
    own, calls = w.sharding, (redist.jax.redistribute, redist.jax.compare, redist.jax.plan_for)
    for call in calls:
        refused("it is a str; write P('model')", lambda c=call: c(w, "model"))
        for text in ("f32[64, 16{model}]", "tp"):
            refused("redist.jax takes JAX's shardings", lambda c=call, t=text: c(w, t))
        for wrong in (to, P("model")):
            refused("the array comes first, then the sharding", lambda c=call, s=wrong: c(s, w))
        refused("cannot move to float32[64, 16]:", lambda c=call: c(w, w))
        refused("did you mean limit_bytes?", lambda c=call: c(w, to, limit="1GiB"))
        refused("it takes x, sharding, limit_bytes", lambda c=call: c(w, to, foo=1))
    for source in (None, own):
        inside = jax.shard_map(
            lambda a, s=source: redist.jax.redistribute(a, P(), source=s),
            mesh=own.mesh,
            in_specs=own.spec,
            out_specs=own.spec,
        )
        for run in (inside, jax.jit(inside)):
            refused("cannot move an array inside shard_map", lambda r=run: r(w))


def wrong_leaves() -> None:
    """What is wrong in a tree is told with the path of the leaf, before anything moves."""
    train, _ = meshes(AxisType.Auto)
    w = jax.device_put(HOST, NamedSharding(train, P("data", "model")))
    b = jax.device_put(HOST[0], NamedSharding(train, P("model")))
    tree = {"layer1": {"w": w, "b": b}, "layer2": {"w": w, "b": b}}
    good = {"w": P("model"), "b": P()}
    assert redist.jax.redistribute(tree, {"layer1": good, "layer2": None})["layer2"]["b"] is b
    for words, wrong in (
        (
            "['layer1']['w']: cannot use P('data', 'data'): it names axis 'data' 2 times",
            {**good, "w": P("data", "data")},
        ),
        (
            "['layer1']['b']: cannot use P(('data', 'data'),): it names axis 'data' 2 times",
            {**good, "b": P(("data", "data"))},
        ),
        (
            "['layer1']['b']: cannot use P('tp',): the array's mesh has the axes data, model, and no 'tp'",
            {**good, "b": P("tp")},
        ),
        (
            "['layer1']['w']: cannot read partition spec (None, None, 'model'): 3 entries for 2 dims",
            {**good, "w": P(None, None, "model")},
        ),
        (
            "['layer1']['b']: cannot read partition spec (None, 'model'): 2 entries for 1 dim",
            {**good, "b": P(None, "model")},
        ),
        (
            "['layer1']['w']: cannot move to (None, 'model'): it is a tuple; write P(None, 'model') for",
            {**good, "w": (None, "model")},
        ),
        (
            "['layer1']['w']: cannot move to 'model': it is a str; write P('model') for",
            {**good, "w": "model"},
        ),
        ("['layer1']: cannot move to ['model']: it is a list; write P('model') for", ["model"]),
        ("arrays: no sharding is given for ['layer1']['b']; give", {"w": P()}),
        (
            "arrays: a sharding is given for ['layer1']['c'], and there is no such array; give",
            {**good, "c": P()},
        ),
        ("['layer1']['w']: cannot move to {'a': P()}: it is a dict", {**good, "w": {"a": P()}}),
        (
            "arrays: ['layer1']: the shardings are in a tuple, the arrays in a dict; give",
            (P(), P()),
        ),
    ):
        for call in (redist.jax.redistribute, redist.jax.compare):
            refused(words, lambda call=call, s=wrong: call(tree, {"layer1": s, "layer2": good}))
    for alone in (redist.jax.redistribute, redist.jax.compare, redist.jax.plan_for):
        refused("write P(None, 'model')", lambda call=alone: call(w, (None, "model")))
        refused("cannot use P('data', 'data')", lambda call=alone: call(w, P("data", "data")))
    refused("no sharding is given for [1]; give", lambda: redist.jax.redistribute([w, b], [P()]))
    refused("a tree of 1 leaf:", lambda: redist.jax.plan_for({"w": w}, P()))
    refused("a tree of 2 leaves:", lambda: redist.jax.plan_for([w, b], P()))
    refused(
        "cannot move the array within limit_bytes=1 (1 B)",
        lambda: redist.jax.redistribute(HOST, w.sharding, limit_bytes=1),
    )


def main() -> None:
    check = sys.argv[1]
    globals()[check]()
    print(f"{check}: well")


if __name__ == "__main__":
    main()
