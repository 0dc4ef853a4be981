"""``redist.join()``: plain processes become the ranks of an MPI job, without mpirun.

MPICH finds its job by three variables, ``PMI_FD``, ``PMI_RANK`` and ``PMI_SIZE``: a connection to the
process that started it, on which it asks a few questions (PMI-1). So a process that wants to join

1. connects to the server of its job, proves that it knows the token, and waits until all ranks are there;
   every mistake is found at this point, in Python, and is an error on all of them;
2. hands this connection to MPICH, whose ``MPI_Init`` exchanges addresses over it;
3. replaces the connection by a socket within the process. From then on nothing that happens to the server
   affects MPI, and the connection carries only a few short messages: see
   :class:`~redist.runtime.ranks.membership.Membership`.
"""

from __future__ import annotations

import faulthandler
import os
import socket
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redist.errors import LaunchError
from redist.launch.entrance import MORE_S, Ticket, enter, invite, node_name, own_addresses, serve_at
from redist.launch.hello import Hello
from redist.launch.places import DaskPlace, read_text
from redist.launch.started import Started, find_started, mpi_launcher
from redist.runtime.ranks.membership import JOINED, Membership, raise_if_joined

if TYPE_CHECKING:
    from mpi4py import MPI


def join(
    rank: int | None = None,
    size: int | None = None,
    at: Any = None,
    token: str | None = None,
    timeout_s: float = 60.0,
) -> MPI.Comm:
    """Make this process a rank of its job, as mpirun would have done.

    For example, in a program that torchrun, Slurm, Kubernetes, Ray or Dask starts on every rank::

        import redist

        comm = redist.join()                   # before anything imports mpi4py.MPI or redist.pgas
        mesh = redist.Mesh(x=comm.size)

    **Collective over** the processes of the job. Each process reads its rank from its environment; arguments
    take precedence. ``at`` is where the processes meet: ``"host:port"``, where rank 0 serves; a folder that
    all of them can access; a store of ``torch.distributed``; ``"ray"``; ``"dask"``; or an object with
    ``set``, ``get`` and ``wait``. ``token`` is a secret that all ranks know: by default
    ``REDIST_JOIN_TOKEN``, or else the one in a file that only this user can read.

    A mistake (a rank that does not join, joins twice or gives another size, or a wrong token) raises
    :class:`~redist.LaunchError` on every process that tries to join, no later than ``timeout_s`` and a few
    seconds after its call. Ranks on the same host share memory. A process can join only once. Under mpirun
    this does nothing.

    Returns ``MPI.COMM_WORLD``.
    """
    if not timeout_s > 0:
        raise LaunchError(f"cannot join within timeout_s={timeout_s}: give seconds above 0")
    raise_if_joined()
    launcher = mpi_launcher(os.environ)
    if launcher is not None:
        return _launched(launcher, rank, size)
    started = find_started(rank, size, at, token, timeout_s)
    problem, library = _look_at_mpi()
    size = started.size
    if size < 1:
        raise LaunchError(f"cannot join {size} ranks: give a size of 1 or more")
    me = f"process {os.getpid()} on {socket.gethostname()}"
    hello = Hello(started.rank, size, node_name(), me, library, problem)
    sock, job = _go_in(started, hello, token or "", timeout_s)
    _start_mpi(sock.fileno(), hello, timeout_s)
    joined = _cut_loose(sock, started, job)
    JOINED.append(joined)
    from mpi4py import MPI

    node = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    joined.is_one_node = node.size == size
    node.Free()
    return MPI.COMM_WORLD


def _launched(launcher: str, rank: int | None, size: int | None) -> MPI.Comm:
    """The job that mpirun has made; raise if it is not the one that is asked for."""
    from redist.runtime.mpi_library import MPI, why_alone

    comm = MPI.COMM_WORLD
    if why_alone():
        raise LaunchError(
            f"cannot join: {launcher} is set, but MPI knows of one rank only{why_alone()}, or start the "
            "processes without MPI, as with srun --mpi=none"
        )
    for what, given, found in (("rank", rank, comm.rank), ("size", size, comm.size)):
        if given is not None and given != found:
            raise LaunchError(
                f"cannot join with {what}={given}: mpirun has started this process as rank {comm.rank} of "
                f"{comm.size}; leave {what} out"
            )
    return comm


def _look_at_mpi() -> tuple[str, str]:
    """**Local.** Why this process cannot be a rank of a new job, if so; and its MPI library."""
    import mpi4py

    if "mpi4py.MPI" not in sys.modules:
        mpi4py.rc.initialize = mpi4py.rc.finalize = (
            False  # Membership.leave ends it, if that can be
        )
    from redist.runtime.mpi_library import MPI

    name, version = MPI.get_vendor()
    library = f"{name} {'.'.join(map(str, version))}"
    if MPI.Is_initialized():
        return (
            "MPI has started in this process already; call redist.join() before anything imports "
            "mpi4py.MPI or redist.pgas"
        ), library
    if name != "MPICH":
        return (
            f"mpi4py uses {library}, which only its own launcher starts; use its mpirun, or MPICH (pip "
            "install mpich, MPI4PY_MPIABI=mpich)"
        ), library
    return "", library


def _go_in(
    started: Started, hello: Hello, secret: str, timeout_s: float
) -> tuple[socket.socket, str]:
    """**Collective.** Meet all ranks: rank 0 starts the server, if no ticket says that there is one."""
    place, size = started.at, hello.size
    try:
        match place:
            case Ticket() as ticket:
                if hello.rank == 0 and not ticket.is_open:
                    serve_at(ticket, size, timeout_s)
                return enter(lambda: ticket, hello, timeout_s)
            case _:
                if hello.rank == 0:
                    hosts = [started.host] if started.host else own_addresses()
                    place.set(started.key, invite(hosts, size, timeout_s, secret).text())

                def find() -> Ticket:
                    found = Ticket.parse(read_text(place, started.key, timeout_s))
                    return replace(found, token=found.token + secret)

                return enter(find, hello, timeout_s)
    finally:
        if isinstance(place, DaskPlace):
            place.close()


def _start_mpi(fd: int, hello: Hello, timeout_s: float) -> None:
    """**Collective.** Start MPI on a connection to the server."""
    from mpi4py import MPI

    mine = {
        "PMI_FD": str(fd),
        "PMI_RANK": str(hello.rank),
        "PMI_SIZE": str(hello.size),
        "MPIR_CVAR_NO_COLLECTIVE_FINALIZE": "1",
    }
    os.environ.update(mine)
    # MPI_Init holds Python's lock. If a rank dies meanwhile the server hangs up, and MPI ends the process; if
    # it is not the server that MPI waits for, only a thread in C can.
    faulthandler.dump_traceback_later(timeout_s + MORE_S, exit=True)
    try:
        MPI.Init_thread()
    except MPI.Exception as error:
        raise LaunchError(
            f"cannot join as rank {hello.rank} of {hello.size}: MPI does not start ({error}); did another "
            "rank die?"
        ) from None
    finally:
        faulthandler.cancel_dump_traceback_later()
        for name in mine:  # what this process starts is no part of the job
            os.environ.pop(name, None)
    _remove_names()


def _cut_loose(sock: socket.socket, started: Started, job: str) -> Membership:
    """**Local.** Give MPI a socket within this process in the place of its connection to the server."""
    theirs, near = socket.socketpair()
    control = socket.socket(fileno=os.dup(sock.fileno()))
    os.dup2(theirs.fileno(), sock.fileno(), inheritable=False)
    theirs.close()
    sock.detach()  # MPI still writes there when all objects of Python are gone
    with suppress(OSError):  # the server has gone already: the membership will notice
        control.sendall(b'{"joined": true}\n')
    return Membership(started.rank, started.size, job, control, near, started.is_guest)


def _remove_names() -> None:
    """**Local.** Take the names off MPICH's shared memory, which all ranks of the node have mapped.

    So it ends with them, however they end.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        name = line.split()[-1]
        if name.startswith("/dev/shm/mpich_"):
            Path(name).unlink(missing_ok=True)
