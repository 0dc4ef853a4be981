"""How many bytes every memory of a program counts with, what its tasks take on the way, and their times."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from redist.errors import CaptureError
from redist.pgas.ghosts.tape import TaskKind
from redist.pgas.ghosts.traffic import Exchanger, TileMover
from redist.pgas.joins.ein_kernel import EinKernel
from redist.pgas.memory import SHARED_FROM, counted_bytes
from redist.pgas.programs.capture import Capture, ends_in
from redist.pgas.programs.limited.cutting.block_calls import FirstPart, NewBlock, NextPart
from redist.pgas.programs.limited.listing import GraphTask, ListedTasks
from redist.pgas.programs.passes.blocks import BlockedJoin
from redist.pgas.programs.prepare import MoveEnds
from redist.plan.rates import CPU

KNOWN_EXCHANGES = ("select", "fetch", "store", "take", "argmax", "argmin")
"""Exchanges that pass elements in rounds of any size: they take what they are granted."""
TIMES_TILES = 3
"""This many times the tiles of both ends are granted to them: a copy in order, and what is passed on."""


def memory_sizes(listed: ListedTasks, captured: Capture) -> dict[int, int]:
    """**Local.** By memory and value: what it counts with; as everywhere, the tile of the fullest rank."""
    worst: dict[int, int] = {}

    def at_least(number: int | None, n_bytes: int) -> None:
        if number is not None:
            worst[number] = max(n_bytes, worst.get(number, 0))

    for one in listed.tasks:
        task = one.task
        if isinstance(task.function, TileMover):
            at_least(task.out, task.function.move.target.tile_bytes)
        if task.kind is TaskKind.NEW:
            at_least(task.out, task.args[2])
    for end in (*captured.ends, *ends_in(captured.result)):
        if end.tile is not None and listed.bases[end.tile] == end.tile:
            at_least(end.tile, end.type.tile_bytes)
    return {
        base: counted_bytes(
            max(captured.n_bytes.get(base, 0), worst.get(base, 0)), captured.on_device
        )
        for base in {*listed.bases.values()}
    }


def staging_of(
    one: GraphTask, captured: Capture, made_bytes: Mapping[int, int], peaks: Mapping[MoveEnds, int]
) -> int:
    """**Local.** What a task takes beside its operands and results, the same on all ranks if they meet.

    ``made_bytes`` has by node what its tasks make, ``peaks`` what the plans of moves take at their most. What
    an operation says that it needs has its results in it.
    """
    task = one.task
    match task.function:
        case TileMover(move=move):
            ends = move.source.tile_bytes + move.target.tile_bytes
            return max(0, peaks[move.source, move.target] - ends)
        case Exchanger():
            return granted_bytes(task.function, captured.rooms.get(task.node, 0))
        case BlockedJoin() | NewBlock() | FirstPart() | NextPart():
            return task.function.work_bytes
        case EinKernel():
            return task.function.work_bytes(captured.on_device)
    if task.kind is TaskKind.NEW:
        return 0
    return max(0, captured.rooms.get(task.node, 0) - made_bytes.get(task.node, 0))


def granted_bytes(exchanger: Exchanger, room_bytes: int) -> int:
    """What an exchange may take on the way: what its operation says, or enough for rounds of some size.

    Raises :class:`~redist.errors.CaptureError` for those that say nothing and take what they like.
    """
    what, source, target = exchanger.exchange
    if what in KNOWN_EXCHANGES:
        return TIMES_TILES * (source.tile_bytes + target.tile_bytes) + room_bytes + 2 * SHARED_FROM
    if room_bytes:
        return room_bytes + 2 * SHARED_FROM
    raise CaptureError(f"nothing is known of the memory that {what} takes on the way")


def task_times(
    listed: ListedTasks,
    sizes: Mapping[int, int],
    node_ps: Mapping[int, int],
    move_ps: Callable[[TileMover | Exchanger], int],
    byte_fs: int = CPU.byte_fs,
) -> list[int]:
    """**Local.** The modelled time of every task: that of its move, its call, or of touching its tiles.

    ``node_ps`` has what calls compute, which the last task of a call does.
    """
    last = {one.task.node: number for number, one in enumerate(listed.tasks)}
    out = []
    for number, one in enumerate(listed.tasks):
        function = one.task.function
        if isinstance(function, (TileMover, Exchanger)):
            out.append(move_ps(function))
            continue
        touched = sum(sizes.get(n, 0) for n in (*one.reads, *one.updates, *one.makes))
        time_ps = touched * byte_fs // 1000
        if last[one.task.node] == number:
            time_ps = max(time_ps, node_ps.get(one.task.node, 0))
        out.append(time_ps)
    return out
