"""Redistribute in one call: plan, prepare, agree and move; a repeated call only moves."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from redist.errors import RedistError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.plan.topology import Topology
from redist.runtime.arguments import Locals
from redist.runtime.ranks.agreement import ArrayPlace, gather_answers, raise_unless_agreed
from redist.runtime.ranks.answers import MOST_TRANSFERS
from redist.runtime.ranks.long_wait import check_timeout
from redist.runtime.ranks.meeting import Disagreement, Met
from redist.runtime.ranks.tokens import NEW, Token
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm, World, comm_or_world, world_of
from redist.runtime.request import Named, TransferOptions, TransferRequest, Type, try_request
from redist.runtime.transfer import Transfer
from redist.text.latest import Latest


class TransferCache:
    """The prepared transfers of a communicator, by the arguments of :func:`redistribute`."""

    def __init__(self) -> None:
        self.by_key: Latest[Any, Transfer] = Latest(MOST_TRANSFERS)

    def close(self) -> None:
        """**Local.** Forget all prepared transfers."""
        self.by_key.clear()


def redistribute(
    local: Locals,
    source: Type | Named,
    target: Type | Named,
    comm: Comm | None = None,
    limit_bytes: int | str | None = None,
    donate: bool = False,
    out: Locals = None,
    *,
    mesh: Mesh | None = None,
    target_mesh: Mesh | None = None,
    topology: Topology | str | None = None,
    timeout_s: float | None = TIMEOUT_S,
) -> Any:
    """**Collective over** ``comm``. Turn a distributed array of one type into another type.

    In an SPMD program, every rank passes its tile of the source::

        rows = np.full((1024, 4096), comm.rank, dtype="f8")        # f64[4096{x}, 4096], x=4
        columns = redist.redistribute(
            rows, "f64[4096{x}, 4096]", "f64[4096, 4096{x}]", comm, mesh=redist.Mesh(x=4)
        )                                                          # (4096, 1024) on every rank

    The result is this rank's tile of the target: ``out`` if given, else a new array. Ranks outside
    the source's mesh pass None; ranks outside the target's mesh get None. ``local`` is not modified
    unless it is donated. After a donation its contents are undefined, and a CuPy array that owns its
    memory is empty if the plan freed it: use neither ``local`` nor anything that shares its memory.
    ``limit_bytes``, a number or text such as ``"64MiB"``, bounds what any rank holds at any time, source
    and target included. On a GPU, a donated array that cannot be emptied (a view, or an array of another
    library) is an error if it does not fit within the limit. Named arrays and types, as dicts, move as
    one operation. Plans and preparations are cached: a repeated request only moves data.
    """
    return redistribute_with_transfer(
        local,
        source,
        target,
        comm,
        limit_bytes,
        donate,
        out,
        mesh,
        target_mesh,
        topology,
        timeout_s,
    )[0]


def redistribute_with_transfer(
    local: Locals,
    source: Type | Named,
    target: Type | Named,
    comm: Comm | None = None,
    limit_bytes: int | str | None = None,
    donate: bool = False,
    out: Locals = None,
    mesh: Mesh | None = None,
    target_mesh: Mesh | None = None,
    topology: Topology | str | None = None,
    timeout_s: float | None = TIMEOUT_S,
) -> tuple[Any, Transfer]:
    """**Collective over** ``comm``. Call :func:`redistribute`; return its result and the transfer used.

    The transfer tells what the call did: its plans, and the bytes that this rank received.
    """
    if comm is None:
        comm = comm_or_world(comm)
    if timeout_s is not TIMEOUT_S:
        check_timeout(timeout_s)
    if not (mesh is None or mesh.__class__ is Mesh):
        mesh = _read_mesh(mesh)
    if not (target_mesh is None or target_mesh.__class__ is Mesh):
        target_mesh = _read_mesh(target_mesh)
    world = world_of(comm, "auto", None, timeout_s)
    key = (_freeze(source), _freeze(target), limit_bytes, donate, mesh, target_mesh, topology)
    cache = world.kept(TransferCache) or world.keep(TransferCache())
    try:
        transfer = cache.by_key.get(key)
    except TypeError:  # something in it is of the wrong kind; the meeting tells all ranks
        transfer = None
    if transfer is None:
        transfer = _prepare(source, target, world, comm, key, timeout_s)
        return transfer(local, out), transfer
    transfer.timeout_s = timeout_s
    try:
        return transfer(local, out), transfer
    except Disagreement:  # others asked for the same in other words, and have not prepared it
        transfer = Transfer.for_request(comm, transfer.request, timeout_s)
        cache.by_key[key] = transfer
        return transfer(local, out), transfer


def prepare(
    source: Type | Named,
    target: Type | Named,
    comm: Comm | None = None,
    limit_bytes: int | str | None = None,
    donate: bool = False,
    *,
    mesh: Mesh | None = None,
    target_mesh: Mesh | None = None,
    topology: Topology | str | None = None,
    timeout_s: float | None = TIMEOUT_S,
) -> Transfer:
    """**Collective over** ``comm``. Plan and prepare a call of :func:`redistribute`, without data.

    The first call with the same arguments then only moves data. The transfer that is returned tells what
    the call will do: its plans, bytes and peak::

        redist.prepare("f64[4096{x}, 4096]", "f64[4096, 4096{x}]", comm, mesh=redist.Mesh(x=4)).peak_bytes
    """
    comm = comm_or_world(comm)
    check_timeout(timeout_s)
    world = world_of(comm, "auto", None, timeout_s)
    mesh, target_mesh = _read_mesh(mesh), _read_mesh(target_mesh)
    key = (_freeze(source), _freeze(target), limit_bytes, donate, mesh, target_mesh, topology)
    return _prepare(source, target, world, comm, key, timeout_s)


def _prepare(
    source: Type | Named,
    target: Type | Named,
    world: World,
    comm: Comm,
    key: tuple[Any, ...],
    timeout_s: float | None,
) -> Transfer:
    """**Collective over** ``comm``. Make the transfer of a call, and keep it by the call's key."""
    limit_bytes, donate, mesh, target_mesh, topology = key[2:]
    options = TransferOptions(limit_bytes, donate, topology=topology)
    asked = try_request(source, target, mesh, target_mesh, world.size, options)
    request = _agree_on_new(world, *asked, timeout_s)
    transfer = Transfer.for_request(comm, request, timeout_s)
    cache = world.kept(TransferCache) or world.keep(TransferCache())
    cache.by_key[key] = transfer
    return transfer


def _agree_on_new(
    world: World,
    request: TransferRequest | None,
    error: RedistError | None,
    timeout_s: float | None,
) -> TransferRequest:
    """**Collective.** The request, if all ranks make it and none has prepared it; else raise on all."""
    token = Token.ERROR if request is None else request.token | NEW
    with world.operation(timeout_s):
        met = world.meet(token)
    if request is None or met is not Met.SAME:
        text = None if request is None else request.text
        answers = gather_answers(world.comm, text, error, timeout_s, ArrayPlace.UNPREPARED)
        all_new = all(
            place == ArrayPlace.UNPREPARED and failed is None for _, failed, place, _ in answers
        )
        raise_unless_agreed(
            "cannot make a transfer" if all_new else "cannot transfer", answers, error
        )
    assert request is not None
    return request


def _read_mesh(mesh: Mesh | None) -> Mesh | None:
    """A mesh that was given as text or as a dict; if it is wrong, all ranks are told later."""
    with suppress(RedistError):
        return Mesh.of(mesh)
    return mesh


def _freeze(types: Type | Named) -> Any:
    """Types as part of a key; whatever is not a mapping stays what it is."""
    if type(types) is ArrayType:  # quicker than to ask for a mapping
        return types
    return tuple(types.items()) if isinstance(types, Mapping) else types
