"""A plan as the text of a program with plain mpi4py collectives, to read, to run and to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from redist.errors import ConversionError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, refined_parts
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.layout.tiles import tile_shapes
from redist.lower.boxes import boxes_of_step
from redist.lower.calls import (
    Arrange,
    Axes,
    BoxMove,
    Call,
    Collect,
    CombineAll,
    Embed,
    Keep,
    Permute,
    Scatter,
    Select,
    Swap,
)
from redist.lower.lowering import lower_run, runs_of
from redist.lower.words import arguments, identity_text
from redist.plan.plan import Plan
from redist.plan.rules import resolved_axes
from redist.plan.steps import AllReduce, Step
from redist.plan.topology import FLAT, Topology
from redist.version import __version__

MOST_MOVES = 4096
"""Boxes that change hands one by one are listed in the text: no more than so many."""
MPI_OPS = {"sum": "MPI.SUM", "prod": "MPI.PROD", "max": "MPI.MAX", "min": "MPI.MIN"}
UFUNCS = {"sum": "np.add", "prod": "np.multiply", "max": "np.maximum", "min": "np.minimum"}

FUNCTIONS = {
    "place": '''
def place(comm, sizes, ranks):
    """This rank's place along every axis of a mesh; None if it is not of the mesh."""
    if comm.rank not in ranks:
        return None
    return dict(zip(sizes, map(int, np.unravel_index(ranks.index(comm.rank), list(sizes.values())))))
''',
    "group": '''
def group(comm, sizes, at, axes):
    """The ranks that differ from this one along these axes alone, in the order of their places."""
    color = key = 0
    for axis, size in sizes.items() if at else ():
        if axis in axes:
            key = key * size + at[axis]
        else:
            color = color * size + at[axis]
    return comm.Split(color if at else MPI.UNDEFINED, key)
''',
    "all_to_all": '''
def all_to_all(comm, blocks):
    """Send block k to member k, get one from each."""
    sent = np.ascontiguousarray(blocks)
    got = np.empty_like(sent)
    comm.Alltoall(sent, got)
    return got
''',
    "all_gather": '''
def all_gather(comm, tile):
    """Get the tiles of all members, one after another."""
    got = np.empty((comm.size, *tile.shape), tile.dtype)
    comm.Allgather(np.ascontiguousarray(tile), got)
    return got
''',
    "reduce_scatter": '''
def reduce_scatter(comm, blocks, op):
    """CombineAll block k of all members at member k."""
    sent = np.ascontiguousarray(blocks).reshape(comm.size, -1)
    got = np.empty_like(sent[0])
    comm.Reduce_scatter_block(sent, got, op)
    return got
''',
    "all_reduce": '''
def all_reduce(comm, tile, op):
    """CombineAll the tiles of all members, for all of them."""
    got = np.empty(tile.shape, tile.dtype)
    comm.Allreduce(np.ascontiguousarray(tile), got, op)
    return got
''',
    "embed": '''
def embed(comm, tile, identity):
    """The tile as one of as many blocks as there are members; the others hold nothing yet."""
    blocks = np.full((comm.size, *tile.shape), identity, tile.dtype)
    blocks[comm.rank] = tile
    return blocks
''',
    "hand_over": '''
def hand_over(comm, tile, shape, moves, fill=0, combine=None):
    """Send boxes of the tile to other ranks, and put what they send into a new one.

    A move is (sender, receiver, start in the old tile, start in the new one, shape, order); boxes of
    order 0 are written, others are combined with what is there, in their order.
    """
    out = None if shape is None else np.full(shape, fill, DTYPE)
    requests, arrived = [], []
    for tag, (sender, receiver, source, target, size, order) in enumerate(moves):
        if comm.rank == sender:
            box = tile[tuple(slice(a, a + n) for a, n in zip(source, size))]
        if comm.rank == receiver:
            got = box if sender == receiver else np.empty(size, DTYPE)
            arrived.append((order, target, got))
        if comm.rank == receiver != sender:
            requests.append(comm.Irecv(got, sender, tag))
        if comm.rank == sender != receiver:
            requests.append(comm.Isend(np.ascontiguousarray(box), receiver, tag))
    MPI.Request.Waitall(requests)
    for order, target, got in sorted(arrived, key=lambda one: one[0]):
        at = tuple(slice(a, a + n) for a, n in zip(target, got.shape))
        out[at] = combine(out[at], got) if order else got
    return out
''',
}
"""What the lines of a program call; it gets those that it needs."""


def to_mpi4py(plan: Plan, topology: Topology = FLAT) -> str:
    """The text of a program that runs the plan's steps; :meth:`redist.Plan.to_mpi4py` tells more."""
    return _Text(plan, topology).write()


@dataclass(slots=True)
class _Text:
    """The lines of a program as they are found."""

    plan: Plan
    topology: Topology
    body: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    groups: dict[tuple[Mesh, Axes], str] = field(default_factory=dict)
    selected: dict[Mesh, set[SubAxis]] = field(default_factory=dict)
    meshes: list[Mesh] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def write(self) -> str:
        """The whole text."""
        plan, types = self.plan, self.plan.types
        n_moves = 0
        for start, end, digits in runs_of(plan):
            if digits is None:
                step, before = plan.steps[start], types[start]
                self._comment(start, step)
                if isinstance(step.action, AllReduce):
                    self._call(CombineAll(step.action.axes, before.pending_op or ""), before)
                else:
                    moves = boxes_of_step(step.action, before, step.after, self.topology)
                    self._hand_over(start, before, step, moves)
                    n_moves += len(moves)
            else:
                calls = lower_run(
                    types[start : end + 1], plan.steps[start:end], digits, self.topology
                )
                done = 0
                for number, stop in enumerate(calls.step_ends, start):
                    self._comment(number, plan.steps[number])
                    for call in calls.calls[done:stop]:
                        if isinstance(call, Permute):
                            shape = types[number].tile_shape
                            self._line(
                                types[number].mesh, f"tile = tile.reshape({arguments(shape)})"
                            )
                            moves = [move for row in call.rows for move in row]
                            self._hand_over(number, types[number], plan.steps[number], moves)
                            n_moves += len(moves)
                        else:
                            self._call(call, types[number])
                    done = stop
                self._line(
                    types[end].mesh, f"tile = tile.reshape({arguments(types[end].tile_shape)})"
                )
        if n_moves > MOST_MOVES:
            raise ConversionError(
                f"cannot write this plan as text: {n_moves} boxes change hands one by one; plan with "
                "strategy='collectives' for sizes that divide evenly, or run it with redist itself"
            )
        return self._join()

    def _comment(self, number: int, step: Step) -> None:
        over = ", ".join(part.text(step.after.mesh) for part in step.over)
        self.body.append(f"# {number + 1} {step.op}{' over ' + over if over else ''}: {step.after}")

    def _call(self, call: Call, before: ArrayType) -> None:
        mesh = before.mesh
        line = partial(self._line, mesh)
        at_ = f"at{self._suffix(mesh)}"
        match call:
            case Arrange(shape, order):
                line(f"tile = tile.reshape({arguments(shape)}).transpose({arguments(order)})")
            case Select(axes, shape, at):
                self.selected.setdefault(mesh, set()).update(axes)
                names = {k: name_of(mesh, axis) for k, axis in zip(at, axes, strict=True)}
                key = ", ".join(
                    f"{at_}[{names[k]!r}]" if k in names else ":" for k in range(len(shape))
                )
                line(f"tile = tile.reshape({arguments(shape)})[{key}]")
            case Swap(axes, shape):
                line(
                    f"tile = all_to_all({self._group(mesh, axes)}, tile.reshape({arguments(shape)}))"
                )
                self.used.add("all_to_all")
            case Collect(axes, shape):
                line(
                    f"tile = all_gather({self._group(mesh, axes)}, tile.reshape({arguments(shape)}))"
                )
                self.used.add("all_gather")
            case Scatter(axes, shape, op):
                block = shape[len(axes) :]
                line(
                    f"tile = reduce_scatter({self._group(mesh, axes)}, tile, {_mpi_op(op, before.dtype)})"
                    f".reshape({arguments(block)})"
                )
                self.used.add("reduce_scatter")
            case CombineAll(axes, op):
                line(
                    f"tile = all_reduce({self._group(mesh, axes)}, tile, {_mpi_op(op, before.dtype)})"
                )
                self.used.add("all_reduce")
            case Embed(axes, shape, op):
                identity = identity_text(op, before.dtype)
                line(
                    f"tile = embed({self._group(mesh, axes)}, tile.reshape({arguments(shape)}), {identity})"
                )
                self.used.add("embed")
            case Keep(axes, op):
                self.selected.setdefault(mesh, set()).update(axes)
                names_ = [name_of(mesh, axis) for axis in axes]
                rest = f"np.full_like(tile, {identity_text(op, before.dtype)})"
                line(f"tile = {rest} if any({at_}[axis] for axis in {names_}) else tile")

    def _line(self, mesh: Mesh, text: str) -> None:
        """Add a line for the ranks of a mesh."""
        is_for_all = mesh.n_devices == self._n_ranks()
        self.body.append(text if is_for_all else f"if at{self._suffix(mesh)}:\n        {text}")

    def _suffix(self, mesh: Mesh) -> str:
        """What tells the names of a mesh from those of another; its axes are needed then."""
        if mesh not in self.meshes:
            self.meshes.append(mesh)
        self.used.add("place")
        return (
            "" if self.plan.source.mesh == self.plan.target.mesh else f"_{self.meshes.index(mesh)}"
        )

    def _group(self, mesh: Mesh, axes: Axes) -> str:
        words = [_word(name_of(mesh, axis)) for axis in axes]
        name = "_".join(["group" + self._suffix(mesh), *words])
        self.groups[mesh, axes] = name
        self.used.add("group")
        return name

    def _hand_over(
        self, number: int, before: ArrayType, step: Step, moves: Sequence[BoxMove]
    ) -> None:
        senders, receivers = before.mesh.rank_array(), step.after.mesh.rank_array()
        rows = [
            f"    ({senders[m.sender]}, {receivers[m.receiver]}, {m.source.start}, "
            f"{m.target.start}, {m.source.shape}, {m.order}),"
            for m in moves
        ]
        self.tables += [f"MOVES_{number + 1} = (", *rows, ")"]
        shapes = {int(rank): shape for rank, shape in tile_shapes(step.after).items()}
        one = set(shapes.values())
        is_everywhere = len(one) == 1 and len(shapes) == self._n_ranks()
        shape = str(one.pop()) if is_everywhere else f"SHAPES_{number + 1}.get(comm.rank)"
        if not is_everywhere:
            self.tables.append(f"SHAPES_{number + 1} = {shapes}")
        op = before.pending_op or step.after.pending_op
        more = ""
        if op is not None:
            more = f", {identity_text(op, before.dtype)}"
            if resolved_axes(before, step.after):
                more += f", {UFUNCS[op]}"
        self.body.append(f"tile = hand_over(comm, tile, {shape}, MOVES_{number + 1}{more})")
        self.used.add("hand_over")

    def _n_ranks(self) -> int:
        plan = self.plan
        ranks = {*plan.source.mesh.rank_array().tolist(), *plan.target.mesh.rank_array().tolist()}
        return max(ranks) + 1

    def _join(self) -> str:
        plan = self.plan
        n_ranks = self._n_ranks()
        dtype = plan.source.dtype
        carrier, combines = dtype.to_numpy(), {"reduce_scatter", "all_reduce"} & self.used
        if carrier.kind in "Mm" or dtype.name == "f16":  # what MPI has no name for
            carrier = np.dtype(f"u{dtype.itemsize}")
        is_viewed = carrier != dtype.to_numpy()
        if carrier.kind not in "buifc":
            raise ConversionError(f"cannot write this plan as text: MPI has no type like {dtype}")
        is_raw = is_viewed or dtype.extended_name is not None
        if is_raw and (combines or plan.source.pending_op or plan.target.pending_op):
            raise ConversionError(f"cannot write this plan as text: MPI cannot combine {dtype}")
        where = str(plan.source.mesh)
        if plan.target.mesh != plan.source.mesh:
            where += f" -> {plan.target.mesh}"
        ops = "; ".join(step.op for step in plan.steps) or "nothing to do"
        lines = [
            f'"""{plan.source} -> {plan.target} on {where}: {ops}.',
            "",
            f"Run it with: mpirun -n {n_ranks} python THIS_FILE. Made by redist {__version__}; it needs",
            "numpy and mpi4py alone.",
            '"""',
            "",
            "import numpy as np",
            "from mpi4py import MPI",
            "",
            f'DTYPE = np.dtype("{carrier}")' + (f"  # carries {dtype}" if is_raw else ""),
        ]
        for mesh in self.meshes:
            sizes = {name_of(mesh, atom): atom.size for atom in self._atoms(mesh)}
            lines.append(f"AXES{self._suffix(mesh)} = {sizes}")
        lines += self.tables
        for name, text in FUNCTIONS.items():
            if name in self.used:
                lines += ["", *text.rstrip().splitlines()]
        lines += ["", "", "def move(tile, comm):"]
        what = f"The tile of this rank after the move; collective over {n_ranks} ranks."
        lines += [f'    """{what}"""', f"    assert comm.size == {n_ranks}"]
        if is_viewed:
            lines.append("    tile = None if tile is None else tile.view(DTYPE)")
        for mesh in self.meshes:
            ranks = mesh.ranks if isinstance(mesh.ranks, range) else list(mesh.ranks)
            end = self._suffix(mesh)
            lines.append(f"    at{end} = place(comm, AXES{end}, {ranks})")
        for (mesh, axes), name in self.groups.items():
            atoms = [atom for atom in self._atoms(mesh) if any(atom.inside(a) for a in axes)]
            names = [name_of(mesh, atom) for atom in atoms]
            end = self._suffix(mesh)
            lines.append(f"    {name} = group(comm, AXES{end}, at{end}, {names})")
        lines += [f"    {line}" for line in self.body]
        for (mesh, _), name in self.groups.items():
            is_for_all = mesh.n_devices == n_ranks
            only = "" if is_for_all else f"if at{self._suffix(mesh)}:\n        "
            lines.append(f"    {only}{name}.Free()")
        if not self.body:
            lines.append("    tile = None if tile is None else tile.copy()")
        if is_viewed:
            view = f'tile.view("{dtype.to_numpy()}")'
            lines.append(f"    tile = None if tile is None else {view}")
        lines.append("    return tile")
        lines += ["", *self._main(n_ranks)]
        return "\n".join(lines) + "\n"

    def _atoms(self, mesh: Mesh) -> tuple[SubAxis, ...]:
        """The axes of a mesh, cut wherever a call names a part of one."""
        named = [*self.selected.get(mesh, ())]
        named += [axis for (other, axes) in self.groups if other == mesh for axis in axes]
        return tuple(atom for atom in refined_parts(mesh, named) if atom.size > 1)

    def _main(self, n_ranks: int) -> list[str]:
        shapes = {int(rank): shape for rank, shape in tile_shapes(self.plan.source).items()}
        return [
            "",
            'if __name__ == "__main__":',
            "    world = MPI.COMM_WORLD",
            f"    shapes = {shapes}",
            "    shape = shapes.get(world.rank)",
            "    before = None if shape is None else np.ones(shape, DTYPE)",
            "    after = move(before, world)",
            '    print(f"rank {world.rank}: {shape} -> {None if after is None else after.shape}")',
        ]


def name_of(mesh: Mesh, atom: SubAxis) -> str:
    """What an atom is called in the text: as the notation writes it."""
    return atom.text(mesh)


def _mpi_op(op: str, dtype: DType) -> str:
    """MPI's name of a reduction; it has others for truth values."""
    if dtype.name == "bool":
        return "MPI.LOR" if op in ("sum", "max") else "MPI.LAND"
    return MPI_OPS[op]


def _word(name: str) -> str:
    """The name as part of a variable's."""
    return "".join(c if c.isalnum() else "_" for c in name).strip("_")
