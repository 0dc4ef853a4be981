"""From a capture to something that runs: leave out, share, put in order, judge, prepare, write down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from redist.layout.array_type import ArrayType
from redist.pgas.ghosts.tape import COLLECTIVE, Task, TaskKind
from redist.pgas.ghosts.traffic import TileMover
from redist.pgas.programs.capture import Capture, common_classes, most_of, same_or_unknown, union_of
from redist.pgas.programs.keeping import MadeOf, kept_lists, kept_moves, needed_for
from redist.pgas.programs.passes.blocks import BlockedJoin, block_joins
from redist.pgas.programs.passes.fuse import fuse_elements
from redist.pgas.programs.passes.judge import judge
from redist.pgas.programs.passes.order import (
    ReadTogether,
    join_moves,
    needed_before,
    read_sources,
    ready_gaps,
    start_early,
)
from redist.pgas.programs.passes.replay import RecordedRun, Replay, record_runs, write_replay
from redist.pgas.programs.passes.tidy import MADE_ONCE, drop_dead, needed_moves, share_equal
from redist.pgas.watch.seam import SparedMove
from redist.runtime.cuda.transports.carrier_choice import have_own_gpus
from redist.runtime.ranks.world import Comm, world_of
from redist.runtime.redistribute import prepare as prepare_transfer
from redist.runtime.transfer import Transfer

ALWAYS = "always"
"""What ``prefetch`` says if all moves begin early, small ones and those within a node, too."""
EARLY_BYTES, GPU_EARLY_BYTES = 2**16, 2**24
"""Moves of which a rank receives less are not begun early: handing them over costs as much. GPUs of one node
move 16 MiB in some 50 us, by their data sheet."""

MoveEnds = tuple[ArrayType, ArrayType]
"""The types between which something moves."""
PLANNED, AS_WRITTEN = "planned", "as written"


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """What a program may do beside what it must; for comparison.

    ``prefetch`` begins moves between nodes, or between GPUs, early, as soon as their sources are there, or,
    if it is ``"always"``, all others too; ``cache`` keeps moved copies of arguments for the next call.
    ``layouts`` are those of the best plan, or as written: where each function would put its result.
    ``limit_bytes`` is what a rank may hold, ``spill`` the folder to put tiles into where they do not fit;
    ``progress`` says how far a run within a limit has come.
    """

    prefetch: bool | str = True
    cache: bool = True
    layouts: str = PLANNED
    limit_bytes: int | None = None
    spill: str | None = None
    progress: bool = False


@dataclass(frozen=True, slots=True)
class Fates:
    """What became of every captured move in words, and those that no run makes, or none with copies."""

    words: tuple[str, ...]
    spared: tuple[SparedMove, ...]
    kept: tuple[SparedMove, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """A program that can run: with all its moves, and with copies of moved arguments in their places."""

    tasks: tuple[Task, ...]
    replay: Replay
    outputs: tuple[int, ...]
    copies: Mapping[Task, int]
    """Those of the program before it was put in order."""
    lists: Mapping[Task, MadeOf]
    short_replay: Replay | None
    fates: Fates
    figures: dict[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Tidied:
    """A capture without what it need not do: equal tasks once, none that nothing needs, joins in blocks."""

    captured: Capture
    shared: tuple[Task, ...]
    firsts: tuple[int, ...]
    """For every captured move and inspection, the first that it equals."""
    tasks: tuple[Task, ...]
    copies: Mapping[Task, int]
    """Moves whose results are kept from one call to the next, and the argument that each moves."""
    lists: Mapping[Task, MadeOf]
    """Inspections whose lists are kept, and what their indices are made of."""
    repeated: tuple[Task, ...]
    """The tasks of a call that finds all copies and lists kept."""


def tidy_up(
    captured: Capture, comm: Comm, cache: bool, steady: frozenset[int] | None = None
) -> Tidied:
    """**Collective.** Leave out what a capture need not do; all ranks decide alike.

    Copies of moved arguments are kept if so asked: of those in ``steady``, or of all.
    """
    kept, roots = sorted(captured.kept), captured.roots
    live = [roots[n] for n in captured.inputs if n is not None]
    shared, firsts = _share(captured.tasks, kept, roots, comm)
    needed = union_of(comm, needed_moves(shared, kept, roots, live))
    tasks = drop_dead(shared, kept, roots, live, needed)
    if not captured.on_device:
        tasks = block_joins(tasks, kept, roots, captured.shapes)
    else:
        tasks = fuse_elements(tasks, kept, roots, captured.shapes, captured.dtypes)
    found = kept_moves(tasks, captured, comm) if cache else {}
    lists = kept_lists(tasks, captured, comm) if cache else {}
    repeated = list(tasks)
    if lists:  # what was only for them is needed no more
        left = [task for task in tasks if task not in lists]
        needed = union_of(comm, needed_moves(left, kept, roots, live))
        repeated = drop_dead(left, kept, roots, live, needed)
        found = {task: at for task, at in found.items() if task in repeated}
    copies = {task: at for task, at in found.items() if steady is None or at in steady}
    again = tuple(task for task in repeated if task not in copies)
    return Tidied(captured, tuple(shared), tuple(firsts), tuple(tasks), copies, lists, again)


def prepare(tidied: Tidied, comm: Comm, options: ProgramOptions) -> Ready:
    """**Collective.** Make a capture ready to run; all ranks decide alike."""
    captured, shared, firsts = tidied.captured, tidied.shared, tidied.firsts
    kept, roots = sorted(captured.kept), captured.roots
    tasks, copies = tidied.tasks, tidied.copies
    values = tuple(task.out for task in (*copies, *tidied.lists) if task.out is not None)
    outputs = tuple(dict.fromkeys((*kept, *values)))
    ordered = _put_in_order(tasks, outputs, captured, comm, options)
    judge(captured.tasks, ordered, captured.inputs, outputs, roots)
    replay = write_replay(ordered, captured.inputs, outputs)
    short = None
    if values:
        fewer = _put_in_order(tidied.repeated, kept, captured, comm, options)
        before = needed_for(tasks, {*copies, *tidied.lists})
        judge(captured.tasks, fewer, captured.inputs, kept, roots, before)
        short = write_replay(fewer, [*captured.inputs, *values], tuple(kept))
    figures = _figures(captured, shared, tasks, ordered, len(copies))
    fates = fates_of(captured, firsts, tasks, ordered, values)
    return Ready(tuple(ordered), replay, outputs, copies, tidied.lists, short, fates, figures)


def fates_of(
    captured: Capture,
    firsts: Sequence[int],
    tasks: Sequence[Task],
    ordered: Sequence[Task],
    copied: Sequence[int],
) -> Fates:
    """**Local.** What became of every captured move."""
    moves = [task for task in captured.tasks if task.kind in MADE_ONCE]
    left = {task.out for task in tasks}
    begun = {task.out for task in ordered if task.kind is TaskKind.WAIT}
    single = {task.out for task in ordered if task.kind is TaskKind.MOVE}
    said: list[str] = []
    spared: list[SparedMove] = []
    kept: list[SparedMove] = []
    for task, first in zip(moves, (moves[number] for number in firsts), strict=True):
        if task.kind is TaskKind.INSPECT:
            continue
        (move,) = task.moves
        here = captured.nodes[task.node].line, move.source, move.target
        if first is not task:
            said.append(f"made once, for call {first.node}")
            spared.append(SparedMove(*here, f"made once, at {captured.nodes[first.node].line}"))
        elif task.out not in left:
            said.append("not needed")
            spared.append(SparedMove(*here, "nothing needs it"))
        else:
            words = ["begun early"] if task.out in begun else []
            words += [] if task.out in single | begun else ["with others"]
            if task.out in copied:
                words.append("copy kept")
                kept.append(SparedMove(*here, "kept from an earlier call"))
            said.append(", ".join(words))
    return Fates(tuple(said), tuple(spared), tuple(kept))


def _put_in_order(
    tasks: Sequence[Task],
    kept: Sequence[int],
    captured: Capture,
    comm: Comm,
    options: ProgramOptions,
) -> list[Task]:
    """**Collective.** Join moves, prepare them, begin those early that are worth it; record kernels."""
    roots = captured.roots
    next_value = captured.next_value
    needed = most_of(comm, needed_before(tasks, roots))
    sources = same_or_unknown(comm, read_sources(tasks))
    joined = join_moves(tasks, roots, needed, next_value, sources)
    joined = with_transfers(joined)
    gaps = most_of(comm, ready_gaps(joined, roots))
    early = _begins_early(joined, comm, options.prefetch, captured.on_device)
    ordered = start_early(joined, roots, gaps, early, next_value + len(joined))
    if not captured.on_device:
        return ordered
    return record_runs(ordered, kept, roots, captured.shapes, next_value + 2 * len(joined))


def _begins_early(
    tasks: Sequence[Task], comm: Comm, prefetch: bool | str, on_device: bool
) -> list[bool]:
    """**Collective.** Of moves and exchanges, in order: which are begun early; the same on all ranks.

    Between nodes, and within one where each rank has a GPU of its own: others share what copies them.
    """
    world, pays = world_of(comm), False
    if prefetch and comm.size > 1:
        world.drain()
        pays = not world.one_node or (on_device and have_own_gpus(world))
    least_bytes = GPU_EARLY_BYTES if world.one_node else EARLY_BYTES
    out = []
    for task in tasks:
        if task.kind not in COLLECTIVE:
            continue
        mover, is_early = task.function, prefetch == ALWAYS
        if task.kind is TaskKind.MOVE and pays and not is_early:
            assert isinstance(mover, TileMover) and mover.prepared is not None
            plan = mover.prepared.plan
            is_early = plan.received_bytes >= least_bytes * plan.source.mesh.n_devices
        out.append(is_early and task.kind is TaskKind.MOVE)
    return out


def _figures(
    captured: Capture,
    shared: Sequence[Task],
    tasks: Sequence[Task],
    ordered: Sequence[Task],
    n_copies: int,
) -> dict[str, int]:
    """What became of the captured tasks and moves."""

    def count(some: Sequence[Task], kind: TaskKind) -> int:
        return sum(task.kind is kind for task in some)

    moves = [count(some, TaskKind.MOVE) for some in (captured.tasks, shared, tasks)]
    inspected = count(tasks, TaskKind.INSPECT)
    read = sum(isinstance(task.function, ReadTogether) for task in ordered)
    return {
        "nodes": len(captured.nodes),
        "captured tasks": len(captured.tasks),
        "tasks": len(ordered),
        "captured moves": moves[0],
        "made once": moves[0] - moves[1],
        "not needed": moves[1] - moves[2],
        "moves": moves[2],
        "in batches": moves[2] - count(ordered, TaskKind.MOVE) - count(ordered, TaskKind.START),
        "batches": count(ordered, TaskKind.BATCH),
        "begun early": count(ordered, TaskKind.START),
        "kept": n_copies,
        "in blocks": sum(isinstance(task.function, BlockedJoin) for task in ordered),
        "recorded": sum(isinstance(task.function, RecordedRun) for task in ordered),
        **({"inspected": inspected, "read together": read} if inspected else {}),
    }


def _share(
    tasks: Sequence[Task], kept: Any, roots: Any, comm: Comm
) -> tuple[list[Task], list[int]]:
    """**Collective.** Make equal tasks once; moves only where they are equal on all ranks.

    The tasks, and for every move the first that it equals.
    """
    allowed: list[int] | None = None
    while True:
        shared, firsts = share_equal(tasks, kept, roots, allowed)
        common = common_classes(comm, firsts)
        if common == allowed:
            return shared, firsts
        allowed = common


def with_transfers(
    tasks: Sequence[Task], limits: Mapping[MoveEnds, int | None] | None = None
) -> list[Task]:
    """**Collective.** Plan and prepare what moves, in order; each within its limit, by its types."""
    known: dict[tuple[MoveEnds, ...], Transfer] = {}
    out = []
    for task in tasks:
        mover = task.function
        if isinstance(mover, TileMover):
            ends = tuple((move.source, move.target) for move in mover.moves)
            if ends not in known:
                known[ends] = _transfer(ends, mover.comm, limits)
            task = replace(task, function=replace(mover, prepared=known[ends]))
        out.append(task)
    return out


def _transfer(
    ends: Sequence[MoveEnds], comm: Comm, limits: Mapping[MoveEnds, int | None] | None
) -> Transfer:
    """**Collective.** What moves an array, or several as one operation."""
    (source, target), *others = ends
    if not others:
        most = None if limits is None else limits[source, target]
        return prepare_transfer(source, target, comm, most)
    sources = {str(number): source for number, (source, _) in enumerate(ends)}
    targets = {str(number): target for number, (_, target) in enumerate(ends)}
    return prepare_transfer(sources, targets, comm)
