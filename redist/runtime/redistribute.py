"""One call: plan, prepare, agree and move; the second call like it only moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpi4py import MPI

from redist.errors import RedistError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.plan.topology import Topology
from redist.runtime.arguments import Locals
from redist.runtime.ranks.agreement import all_agree
from redist.runtime.ranks.world import SAME, Disagreement, World
from redist.runtime.ranks.worlds import world_of
from redist.runtime.request import (
    ERROR_WORD,
    NEW_WORD,
    TIMEOUT_S,
    Named,
    TransferOptions,
    TransferRequest,
    Type,
)
from redist.runtime.transfer import Transfer

REMEMBERED = 64
"""Prepared transfers that a communicator keeps."""


def redistribute(
    local: Locals,
    source: Type | Named,
    target: Type | Named,
    comm: MPI.Comm | None = None,
    limit_bytes: int | None = None,
    donate: bool = False,
    out: Locals = None,
    *,
    mesh: Mesh | None = None,
    target_mesh: Mesh | None = None,
    topology: Topology | None = None,
    timeout_s: float | None = TIMEOUT_S,
) -> Any:
    """**Collective over** ``comm``. Turn a distributed array of one type into another type.

    In an SPMD program, every rank with its tile of the source::

        rows = np.full((1024, 4096), comm.rank, dtype="f8")        # f64[4096{x}, 4096], x=4
        columns = redist.redistribute(
            rows, "f64[4096{x}, 4096]", "f64[4096, 4096{x}]", comm, mesh=redist.Mesh(x=4)
        )                                                          # (4096, 1024) on every rank

    The result is this rank's tile of the target: ``out`` where given, else a new array; ranks
    outside the source's mesh pass None, those outside the target's get None. ``local`` is not
    modified unless it is donated: then its contents are undefined afterwards, and a CuPy array that
    owns its memory is empty where the plan frees it; do not use it, nor what shares its memory.
    ``limit_bytes`` bounds what any rank holds at any time, source and target included; on a GPU an
    error says where it has no room for a donated array that cannot be emptied (a view, or one of
    another library). Dicts of named arrays and types move as one operation. Plans and preparations
    are remembered: a repeated request only moves data.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    world = world_of(comm, timeout_s=timeout_s)
    key = _key(source, target, limit_bytes, donate, mesh, target_mesh, topology)
    try:
        transfer: Transfer | None = world.transfers.get(key)
    except TypeError:  # something in it is of the wrong kind; the meeting tells all ranks
        transfer = None
    if transfer is not None:
        transfer.timeout_s = timeout_s
        try:
            return transfer(local, out)
        except Disagreement:
            pass  # others asked for the same in other words, and have not prepared it
    else:
        options = TransferOptions(limit_bytes, donate, topology=topology)
        _meet_as_new(world, source, target, mesh, target_mesh, options, timeout_s)
    transfer = Transfer(
        source,
        target,
        comm,
        mesh=mesh,
        target_mesh=target_mesh,
        limit_bytes=limit_bytes,
        donate=donate,
        topology=topology,
        timeout_s=timeout_s,
    )
    transfer.serve_requests()
    if len(world.transfers) >= REMEMBERED:
        world.transfers.pop(next(iter(world.transfers)))
    world.transfers[key] = transfer
    return transfer(local, out)


def _meet_as_new(
    world: World,
    source: Type | Named,
    target: Type | Named,
    mesh: Mesh | None,
    target_mesh: Mesh | None,
    options: TransferOptions,
    timeout_s: float | None,
) -> None:
    """Find out whether all ranks have the same new request; raise on all of them if not."""
    world.check_usable()
    world.finish()
    asked, error = None, None
    try:
        asked = TransferRequest.of(source, target, mesh, target_mesh, world.size, options)
    except RedistError as problem:
        error = problem
    with world.failing_together():
        met = world.meet(ERROR_WORD if error else NEW_WORD, 0, timeout_s)
    if error or met != SAME:
        text = asked.text if asked else None
        all_agree(world.comm, "cannot transfer", text, error, timeout_s)


def prepared(
    comm: MPI.Comm,
    source: Type | Named,
    target: Type | Named,
    limit_bytes: int | None = None,
) -> Transfer:
    """**Local.** The transfer behind a call of :func:`redistribute` that has just been made."""
    return world_of(comm).transfers[_key(source, target, limit_bytes, False, None, None, None)]


def _key(source: Type | Named, target: Type | Named, *options: Any) -> tuple[Any, ...]:
    if type(source) is ArrayType and type(target) is ArrayType:
        return (source, target, *options)
    return (_frozen(source), _frozen(target), *options)


def _frozen(types: Type | Named) -> Any:
    return tuple(types.items()) if isinstance(types, Mapping) else types
