"""A plan as the text of a JAX program with ``shard_map`` and ``lax`` collectives: what is printed runs."""

from __future__ import annotations

from collections.abc import Sequence

from redist.errors import ConversionError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.lower.calls import (
    Arrange,
    Axes,
    Call,
    Calls,
    Collect,
    CombineAll,
    Embed,
    Keep,
    Permute,
    Scatter,
    Select,
    Swap,
)
from redist.lower.lowering import arguments, identity_text, lower_plan, size_of
from redist.plan.pieces import Piece
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.plan.topology import Topology
from redist.version import __version__

REDUCE = {"sum": "jnp.sum", "prod": "jnp.prod", "max": "jnp.max", "min": "jnp.min"}
FUNCTIONS = {
    "select": '''
def select(tile, places):
    """Along each of these dims keep one index: this device's place along an axis of the mesh."""
    for dim, axis in sorted(places.items(), reverse=True):
        tile = lax.dynamic_index_in_dim(tile, lax.axis_index(axis), dim, keepdims=False)
    return tile
''',
    "permute": '''
def permute(tile, shape, axes, rows, fill=0, combine=None):
    """Cut a box out of every tile, send it, and put what comes into a new tile, row after row.

    A row has the shape of its boxes, their order, and for each of them sender, receiver and where it
    begins in the old tile and in the new one; boxes of order 0 are written, others combined.
    """
    out = jnp.full(shape, fill, tile.dtype)
    me = lax.axis_index(axes)
    n = lax.axis_size(axes)
    for size, order, moves in rows:
        starts = np.zeros((2, n, len(size)), np.int32)
        gets = np.zeros(n, bool)
        for sender, receiver, source, target in moves:
            starts[0, sender], starts[1, receiver], gets[receiver] = source, target, True
        cut, put = (list(jnp.asarray(one)[me]) for one in starts)
        box = tile if size == tile.shape else lax.dynamic_slice(tile, cut, size)
        pairs = [(sender, receiver) for sender, receiver, _, _ in moves]
        if any(a != b for a, b in pairs):
            box = lax.ppermute(box, axes, pairs)
        if size == shape and gets.all() and not order:
            out = box  # whole tiles change hands
            continue
        if order or not gets.all():
            there = lax.dynamic_slice(out, put, size)
            box = combine(jnp.stack([there, box]), axis=0).astype(box.dtype) if order else box
            box = jnp.where(jnp.asarray(gets)[me], box, there)
        out = lax.dynamic_update_slice(out, box, put)
    return out
''',
}


def to_jax_text(plan: Plan, topology: Topology = FLAT) -> str:
    """The text of a program whose ``move(devices)`` is a function of a jax.Array.

    >>> import redist
    >>> plan = redist.synthesize("f32[8{x}, 8]", "f32[8, 8{x}]", mesh=redist.Mesh(x=4))
    >>> print(*to_jax_text(plan).splitlines()[-22:-13], sep="\\n")
    def move_1(devices):
        mesh = Mesh(np.reshape(devices, (4,)), ('x',))
    <BLANKLINE>
        def body(tile):
            # 1 all_to_all over x: f32[8, 8{x}]
            tile = tile.reshape(2, 4, 2).transpose(1, 0, 2)
            tile = lax.all_to_all(tile.reshape(4, 2, 2), ('x',), 0, 0, tiled=True).reshape(4, 2, 2)
            return tile.reshape(8, 2)
    <BLANKLINE>
    """
    check_even(plan)
    runs = lower_plan(plan, topology)
    steps = iter(enumerate(plan.steps, 1))
    bodies: list[str] = []
    for number, calls in enumerate(runs, 1):
        bodies += ["", "", *_run(number, calls, steps)]
    functions = [
        line
        for name, text in FUNCTIONS.items()
        if any(f"{name}(" in line for line in bodies)
        for line in ["", *text.rstrip().splitlines()]
    ]
    ops = "; ".join(step.op for step in plan.steps) or "nothing to do"
    mesh = plan.source.mesh
    head = [
        f'"""{plan.source} -> {plan.target} on {mesh}: {ops}.',
        "",
        f"Made by redist {__version__}; it needs JAX alone. ``move(devices)`` is a function of a jax.Array.",
        '"""',
        "",
        "import jax",
        "import numpy as np",
        "from jax import lax",
        "from jax import numpy as jnp",
        "from jax.sharding import Mesh, PartitionSpec",
    ]
    return "\n".join([*head, *functions, *bodies, "", "", *_whole(len(runs), plan.source)]) + "\n"


def check_even(plan: Plan) -> None:
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


def _run(number: int, calls: Calls, steps: object) -> list[str]:
    """A function for one run of steps that share a mesh."""
    mesh = calls.source.mesh
    names = _names(mesh, calls.atoms)
    lines = [
        f"def move_{number}(devices):",
        f"    mesh = Mesh(np.reshape(devices, {tuple(a.size for a in calls.atoms)}), {names})",
        "",
        "    def body(tile):",
    ]
    done = 0
    for end in calls.step_ends:
        at, step = next(steps)  # type: ignore[call-overload]
        over = ", ".join(part.text(mesh) for part in step.over)
        lines.append(f"        # {at} {step.op}{' over ' + over if over else ''}: {step.after}")
        lines += [f"        {_line(call, calls)}" for call in calls.calls[done:end]]
        done = end
    lines += [
        f"        return tile.reshape({arguments(calls.target.tile_shape)})",
        "",
        f"    before, after = {_cuts(calls.source, calls.atoms)}, {_cuts(calls.target, calls.atoms)}",
        "    return jax.shard_map(body, mesh=mesh, in_specs=before, out_specs=after, check_vma=False)",
    ]
    return lines


def _whole(n_runs: int, t: ArrayType) -> list[str]:
    mesh = t.mesh
    dtype = t.dtype.extended_name or str(t.dtype.to_numpy())
    body = "x"
    for number in range(1, n_runs + 1):
        body = f"move_{number}(devices)({body})"
    return [
        "def move(devices):",
        f'    """A function of a jax.Array on {mesh.n_devices} devices, in the order of the mesh."""',
        f"    return lambda x: {body}",
        "",
        "",
        'if __name__ == "__main__":',
        f"    array = jnp.ones({t.shape}, jnp.{'bool_' if dtype == 'bool' else dtype})",
        f"    print(jax.jit(move(jax.devices()[:{mesh.n_devices}]))(array).sharding)",
    ]


def _line(call: Call, calls: Calls) -> str:
    """One call as a line."""
    mesh, dtype = calls.source.mesh, calls.source.dtype
    match call:
        case Arrange(shape, order):
            return f"tile = tile.reshape({arguments(shape)}).transpose({arguments(order)})"
        case Select(axes, shape, at):
            places = dict(zip(at, _names(mesh, axes), strict=True))
            return f"tile = select(tile.reshape({arguments(shape)}), {places})"
        case Swap(axes, shape):
            swapped = (
                f"lax.all_to_all({_blocks(axes, shape)}, {axes_text(mesh, axes)}, 0, 0, tiled=True)"
            )
            return f"tile = {swapped}.reshape({arguments(shape)})"
        case Collect(axes, shape):
            after = (*(axis.size for axis in axes), *shape)
            view = f"tile.reshape({arguments(shape)})"
            return f"tile = lax.all_gather({view}, {axes_text(mesh, axes)}).reshape({arguments(after)})"
        case Scatter(axes, shape, "sum"):
            return f"tile = lax.psum_scatter({_blocks(axes, shape)}, {axes_text(mesh, axes)})"
        case Scatter(axes, shape, op):
            swapped = (
                f"lax.all_to_all({_blocks(axes, shape)}, {axes_text(mesh, axes)}, 0, 0, tiled=True)"
            )
            return f"tile = {REDUCE[op]}({swapped}, axis=0).astype(tile.dtype)"
        case CombineAll(axes, "sum" | "max" | "min" as op):
            return f"tile = lax.p{op}(tile, {axes_text(mesh, axes)})"
        case CombineAll(axes, op):
            gathered = f"lax.all_gather(tile, {axes_text(mesh, axes)})"
            return f"tile = {REDUCE[op]}({gathered}, axis=0).astype(tile.dtype)"
        case Embed(axes, shape, op):
            after = (size_of(axes), *shape)
            empty = f"jnp.full({after}, {identity_text(op, dtype)}, tile.dtype)"
            place = f"lax.axis_index({axes_text(mesh, axes)})"
            return f"tile = {empty}.at[{place}].set(tile.reshape({arguments(shape)}))"
        case Keep(axes, op):
            place = f"lax.axis_index({axes_text(mesh, axes)})"
            return f"tile = jnp.where({place} == 0, tile, {identity_text(op, dtype)})"
        case Permute(before, after, rows, op):
            table = "".join(f"{_row(mesh, row)}, " for row in rows)
            more = f", {identity_text(op, dtype)}, {REDUCE[op]}" if op else ""
            view = f"tile.reshape({arguments(before)})"
            return f"tile = permute({view}, {after}, {_names(mesh, calls.atoms)}, ({table}){more})"


def _row(mesh: Mesh, row: Sequence[Piece]) -> str:
    at = {rank: number for number, rank in enumerate(mesh.ranks)}
    moves = tuple((at[m.sender], at[m.receiver], m.src_lo, m.dst_lo) for m in row)
    return f"({row[0].shape}, {row[0].order}, {moves})"


def _blocks(axes: Axes, shape: tuple[int, ...]) -> str:
    return f"tile.reshape({arguments((size_of(axes), *shape[len(axes) :]))})"


def _names(mesh: Mesh, axes: Axes) -> tuple[str, ...]:
    return tuple(axis.text(mesh) for axis in axes)


def axes_text(mesh: Mesh, axes: Axes) -> str:
    """Axes as an argument of a collective."""
    return str(_names(mesh, axes))


def _cuts(t: ArrayType, atoms: Axes) -> str:
    dims = [
        str(tuple(a.text(t.mesh) for part in dim for a in atoms if a.inside(part)) or None)
        for dim in t.dims
    ]
    return f"PartitionSpec({', '.join(dims)})"
