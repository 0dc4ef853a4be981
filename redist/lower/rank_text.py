"""Plans as texts of programs that ranks run, with the collectives of one system or another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from redist.errors import ConversionError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, refined_parts
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.layout.tiles import tile_shapes
from redist.lower.calls import (
    Arrange,
    Axes,
    Call,
    Collect,
    CombineAll,
    Digits,
    Embed,
    Keep,
    Permute,
    Scatter,
    Select,
    Swap,
)
from redist.lower.lowering import arguments, identity_text, lower_run, runs_of
from redist.plan.pieces import Piece, list_pieces
from redist.plan.plan import Plan
from redist.plan.rules import resolved_axes
from redist.plan.steps import AllReduce, Step
from redist.plan.topology import Topology
from redist.version import __version__

MOST_MOVES = 4096
"""Boxes that change hands one by one are listed in the text: no more than this many."""

PLACE = '''
def place(sizes, ranks, rank):
    """The place of a rank along every axis of a mesh; None if it is not of the mesh."""
    if rank not in ranks:
        return None
    device, at = ranks.index(rank), {}
    for axis, size in reversed(sizes.items()):
        device, at[axis] = divmod(device, size)
    return at
'''


@dataclass(frozen=True, slots=True)
class SentAs:
    """How elements travel: the dtype as text, whether only as raw bits, and the dtype to view them as."""

    text: str
    is_raw: bool = False
    view: str = ""


@dataclass(frozen=True, slots=True)
class System:
    """The words of a system: what its programs import and call."""

    name: str
    command: str
    needs: str
    imports: tuple[str, ...]
    carrier: Callable[[DType], SentAs]
    op: Callable[[str, DType], str]
    ufuncs: Mapping[str, str]
    functions: Mapping[str, str]
    """What the lines of a program call; it gets those that it needs."""
    main: str
    rank: str
    size: str
    free: str
    transpose: str
    full_like: str
    infinity: str
    copy: str
    sorts_groups: bool = False
    """Whether members of a group are always in the order of their ranks."""


@dataclass(slots=True)
class RankText:
    """The lines of a program as they are found."""

    plan: Plan
    topology: Topology
    system: System
    body: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    groups: dict[tuple[Mesh, Axes], str] = field(default_factory=dict)
    selected: dict[Mesh, set[SubAxis]] = field(default_factory=dict)
    meshes: list[Mesh] = field(default_factory=list)

    def write(self) -> str:
        """The whole text."""
        plan, types = self.plan, self.plan.types
        n_moves = 0
        for start, end, digits in self._runs():
            if digits is None:
                step, before = plan.steps[start], types[start]
                self._comment(start, step)
                if isinstance(step.action, AllReduce):
                    self._call(CombineAll(step.action.axes, before.pending_op or ""), before)
                else:
                    pieces, _ = list_pieces(step.action, before, step.after, self.topology)
                    moves = [box for piece in pieces for box in _boxes(piece)]
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
                            self._line(
                                types[number].mesh, f"tile = {_seen_as(types[number].tile_shape)}"
                            )
                            moves = [move for row in call.rows for move in row]
                            self._hand_over(number, types[number], plan.steps[number], moves)
                            n_moves += len(moves)
                        else:
                            self._call(call, types[number])
                    done = stop
                self._line(types[end].mesh, f"tile = {_seen_as(types[end].tile_shape)}")
        if n_moves > MOST_MOVES:
            raise ConversionError(
                f"cannot write this plan as text: {n_moves} boxes change hands one by one; plan with "
                "strategy='collectives' for sizes that divide evenly, or run it with redist itself"
            )
        return self._join()

    def _runs(self) -> Iterator[tuple[int, int, Digits | None]]:
        """Runs of steps; one by one and without digits where groups cannot be had in their order."""
        meshes = [t.mesh for t in self.plan.types]
        ordered = all(bool(np.all(np.diff(mesh.rank_array()) > 0)) for mesh in meshes)
        if ordered or not self.system.sorts_groups:
            yield from runs_of(self.plan)
        else:
            yield from ((k, k + 1, None) for k in range(len(self.plan.steps)))

    def _comment(self, number: int, step: Step) -> None:
        over = ", ".join(part.text(step.after.mesh) for part in step.over)
        self.body.append(f"# {number + 1} {step.op}{' over ' + over if over else ''}: {step.after}")

    def _call(self, call: Call, before: ArrayType) -> None:
        """Add the line of a call."""
        mesh, system = before.mesh, self.system
        at = f"at{self._suffix(mesh)}"
        match call:
            case Arrange(shape, order):
                text = f"{_seen_as(shape)}.{system.transpose}({arguments(order)})"
            case Select(axes, shape, dims):
                self.selected.setdefault(mesh, set()).update(axes)
                places = {k: f"{at}[{a.text(mesh)!r}]" for k, a in zip(dims, axes, strict=True)}
                key = ", ".join(places.get(k, ":") for k in range(len(shape)))
                text = f"{_seen_as(shape)}[{key}]"
            case Swap(axes, shape):
                text = f"all_to_all({self._group(mesh, axes)}, {_seen_as(shape)})"
            case Collect(axes, shape):
                text = f"all_gather({self._group(mesh, axes)}, {_seen_as(shape)})"
            case Scatter(axes, shape, op):
                members, name = self._group(mesh, axes), system.op(op, before.dtype)
                block = arguments(shape[len(axes) :])
                text = f"reduce_scatter({members}, tile, {name}).reshape({block})"
            case CombineAll(axes, op):
                members, name = self._group(mesh, axes), system.op(op, before.dtype)
                text = f"all_reduce({members}, tile, {name})"
            case Embed(axes, shape, op):
                members = self._group(mesh, axes)
                text = f"embed({members}, {_seen_as(shape)}, {self._identity(op)})"
            case Keep(axes, op):
                self.selected.setdefault(mesh, set()).update(axes)
                names = [axis.text(mesh) for axis in axes]
                rest = f"{system.full_like}(tile, {self._identity(op)})"
                text = f"{rest} if any({at}[axis] for axis in {names}) else tile"
            case Permute():
                raise AssertionError("boxes are handed over")
        self._line(mesh, f"tile = {text}")

    def _line(self, mesh: Mesh, text: str) -> None:
        """Add a line for the ranks of a mesh."""
        self.body.append(self._for_ranks_of(mesh, text))

    def _for_ranks_of(self, mesh: Mesh, text: str) -> str:
        is_for_all = mesh.n_devices == self._n_ranks()
        return text if is_for_all else f"if at{self._suffix(mesh)}:\n        {text}"

    def _suffix(self, mesh: Mesh) -> str:
        """What tells the names of a mesh from those of another; its axes are needed then."""
        if mesh not in self.meshes:
            self.meshes.append(mesh)
        one_mesh = self.plan.source.mesh == self.plan.target.mesh
        return "" if one_mesh else f"_{self.meshes.index(mesh)}"

    def _group(self, mesh: Mesh, axes: Axes) -> str:
        words = [_word(axis.text(mesh)) for axis in axes]
        name = "_".join(["group" + self._suffix(mesh), *words])
        self.groups[mesh, axes] = name
        return name

    def _hand_over(
        self, number: int, before: ArrayType, step: Step, moves: Sequence[Piece]
    ) -> None:
        rows = [
            f"    {(m.sender, m.receiver, m.src_lo, m.dst_lo, m.shape, m.order)}," for m in moves
        ]
        self.tables += [f"MOVES_{number + 1} = (", *rows, ")"]
        shapes = {int(rank): shape for rank, shape in tile_shapes(step.after).items()}
        one = set(shapes.values())
        is_everywhere = len(one) == 1 and len(shapes) == self._n_ranks()
        shape = str(one.pop()) if is_everywhere else f"SHAPES_{number + 1}.get({self.system.rank})"
        if not is_everywhere:
            self.tables.append(f"SHAPES_{number + 1} = {shapes}")
        op = before.pending_op or step.after.pending_op
        more = ""
        if op is not None:
            more = f", {self._identity(op)}"
            if resolved_axes(before, step.after):
                more += f", {self.system.ufuncs[op]}"
        self.body.append(f"tile = hand_over(comm, tile, {shape}, MOVES_{number + 1}{more})")

    def _identity(self, op: str) -> str:
        return identity_text(op, self.plan.source.dtype).replace("np.inf", self.system.infinity)

    def _n_ranks(self) -> int:
        plan = self.plan
        ranks = {*plan.source.mesh.rank_array().tolist(), *plan.target.mesh.rank_array().tolist()}
        return max(ranks) + 1

    def _join(self) -> str:
        plan, system = self.plan, self.system
        n_ranks, dtype = self._n_ranks(), plan.source.dtype
        carrier = system.carrier(dtype)
        is_combined = any(t.pending_op for t in (plan.source, plan.target)) or any(
            f"{name}(" in line for line in self.body for name in ("reduce_scatter", "all_reduce")
        )
        if carrier.is_raw and is_combined:
            raise ConversionError(
                f"cannot write this plan as text: {system.name} cannot combine {dtype}"
            )
        where = str(plan.source.mesh)
        if plan.target.mesh != plan.source.mesh:
            where += f" -> {plan.target.mesh}"
        ops = "; ".join(step.op for step in plan.steps) or "nothing to do"
        lines = [
            f'"""{plan.source} -> {plan.target} on {where}: {ops}.',
            "",
            f"Run it with: {system.command.format(n=n_ranks)}.",
            f"Made by redist {__version__}; it needs {system.needs} alone.",
            '"""',
            "",
            *system.imports,
            "",
            f"DTYPE = {carrier.text}" + (f"  # carries {dtype}" if carrier.is_raw else ""),
        ]
        for mesh in self.meshes:
            sizes = {atom.text(mesh): atom.size for atom in self._atoms(mesh)}
            ranks = mesh.ranks if isinstance(mesh.ranks, range) else list(mesh.ranks)
            end = self._suffix(mesh)
            lines += [f"AXES{end} = {sizes}", f"RANKS{end} = {ranks}"]
        lines += self.tables
        body = self._body(n_ranks, carrier.view)
        for name, text in system.functions.items():
            if any(f"{name}(" in line for line in body):
                lines += ["", *text.rstrip().splitlines()]
        what = f"The tile of this rank after the move; collective over {n_ranks} ranks."
        lines += ["", "", "def move(tile, comm):", f'    """{what}"""']
        shapes = {int(rank): shape for rank, shape in tile_shapes(plan.source).items()}
        main = system.main.strip().format(shapes=shapes, n=n_ranks).splitlines()
        lines += [*(f"    {line}" for line in body), "", "", 'if __name__ == "__main__":']
        return "\n".join([*lines, *(f"    {line}" for line in main)]) + "\n"

    def _body(self, n_ranks: int, view: str) -> list[str]:
        """The lines of the function that moves, which itself begins and ends the steps' lines."""
        system = self.system
        lines = [f"assert {system.size} == {n_ranks}"]
        if view:
            lines.append("tile = None if tile is None else tile.view(DTYPE)")
        for mesh in self.meshes:
            end = self._suffix(mesh)
            lines.append(f"at{end} = place(AXES{end}, RANKS{end}, {system.rank})")
        for (mesh, axes), name in self.groups.items():
            atoms = [atom for atom in self._atoms(mesh) if any(atom.inside(a) for a in axes)]
            names = [atom.text(mesh) for atom in atoms]
            end = self._suffix(mesh)
            lines.append(f"{name} = group(comm, AXES{end}, RANKS{end}, {names})")
        lines += self.body
        for (mesh, _), name in self.groups.items():
            lines.append(self._for_ranks_of(mesh, system.free.format(name=name)))
        if not self.body:
            lines.append(f"tile = None if tile is None else tile.{system.copy}()")
        if view:
            lines.append(f"tile = None if tile is None else tile.view({view})")
        return [*lines, "return tile"]

    def _atoms(self, mesh: Mesh) -> tuple[SubAxis, ...]:
        """The axes of a mesh, cut wherever a call names a part of one."""
        named = [*self.selected.get(mesh, ())]
        named += [axis for (other, axes) in self.groups if other == mesh for axis in axes]
        return tuple(atom for atom in refined_parts(mesh, named) if atom.size > 1)


def _seen_as(shape: Sequence[int]) -> str:
    """The tile with other dims, as text."""
    return f"tile.reshape({arguments(shape)})"


def _word(name: str) -> str:
    """The name as part of a variable's."""
    return "".join(c if c.isalnum() else "_" for c in name).strip("_")


def _boxes(piece: Piece) -> Iterator[Piece]:
    """A piece as boxes of its two tiles: itself, or several if it has steps.

    >>> piece = Piece(0, 1, 0, (0, 1), (0, 0), (3, 2), (12,), (6,), ((0, 4, 2), (0, 1, 1)))
    >>> [(box.src_lo, box.dst_lo, box.shape) for box in _boxes(piece)]
    [((1,), (0,), (2,)), ((5,), (2,), (2,)), ((9,), (4,), (2,))]
    """
    if not piece.steps:
        yield piece
        return
    runs = {dim: k for k, (dim, _, _) in enumerate(piece.steps)}  # the last of a dim has step 1
    combs = [k for k, (dim, _, _) in enumerate(piece.steps) if runs[dim] != k]
    for places in itertools.product(*(range(piece.shape[k]) for k in combs)):
        src, dst = ([lo[k] for k in runs.values()] for lo in (piece.src_lo, piece.dst_lo))
        for k, at in zip(combs, places, strict=True):
            dim, src_step, dst_step = piece.steps[k]
            src[dim] += (piece.src_lo[k] + at) * src_step
            dst[dim] += (piece.dst_lo[k] + at) * dst_step
        shape = tuple(piece.shape[k] for k in runs.values())
        yield replace(piece, src_lo=tuple(src), dst_lo=tuple(dst), shape=shape, steps=())
