"""What a launcher says in the environment: which rank a process is, of how many, and where they meet.

==================  ==========================  ====================================  ========================
started by          rank, size                  meeting place                         token
==================  ==========================  ====================================  ========================
torchrun            RANK, WORLD_SIZE            the agents' store                     in the store
a Dask worker       place among the workers     the scheduler                         at the scheduler
a Ray worker        given, or RANK, WORLD_SIZE  an actor                              in the actor
plain, Kubeflow     RANK, WORLD_SIZE            MASTER_ADDR, MASTER_PORT and 3 more   REDIST_JOIN_TOKEN or own
Kubernetes          JOB_COMPLETION_INDEX,       MASTER_ADDR, else the pod of rank 0   REDIST_JOIN_TOKEN
                    WORLD_SIZE
Slurm               SLURM_PROCID, SLURM_NTASKS  first node, ports from the job's id   REDIST_JOIN_TOKEN or own
==================  ==========================  ====================================  ========================
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from redist.errors import LaunchError
from redist.launch.entrance import Door, Ticket, job_of, own_token
from redist.launch.places import (
    KEY,
    DaskPlace,
    FilePlace,
    Place,
    RayPlace,
    TorchPlace,
    dask_worker,
    in_ray_worker,
    is_torch_store,
)

MASTER_PORT = 29500
"""As PyTorch has it."""
N_PORTS = 4
"""So many ports are tried from MASTER_PORT on: torch's own store may have the first."""
LEAST_SLURM_PORT, N_SLURM_PORTS = 20000, 10000
RANKS = ("RANK", "JOB_COMPLETION_INDEX", "SLURM_PROCID")
SIZES = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
NODES = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
MPI_LAUNCHERS = ("PMI_FD", "PMI_PORT", "PMI_SIZE", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE")
"""One of these is set where a launcher of MPI started this process."""


@dataclass(frozen=True, slots=True)
class Started:
    """Who a process is, and where it meets the others.

    ``at`` is a place, in which the ticket lies under ``key``, or a ticket; ``host`` is the address by
    which the others reach this process, None if it is not known; ``is_guest``: another system owns the
    process, which is not to be ended because a rank has died.
    """

    rank: int
    size: int
    at: Place | Ticket
    key: str = KEY
    host: str | None = None
    is_guest: bool = False


def mpi_launcher(env: Mapping[str, str]) -> str | None:
    """The variable by which a launcher of MPI shows itself, or None.

    >>> mpi_launcher({"PMI_FD": "5", "PMI_SIZE": "4"}), mpi_launcher({"RANK": "0"})
    ('PMI_FD', None)
    """
    return next((name for name in MPI_LAUNCHERS if name in env), None)


def find_started(
    rank: int | None, size: int | None, at: object, token: str | None, timeout_s: float
) -> Started:
    """**Local.** Who this process is and where it meets the others; what is given counts first."""
    env = os.environ
    is_dask = dask_worker() is not None
    is_guest = is_dask or in_ray_worker()
    if at is None and is_guest and "TORCHELASTIC_RUN_ID" not in env:
        at = "dask" if is_dask else "ray"
    if isinstance(at, str) and re.fullmatch("dask(:.+)?", at):
        dask = DaskPlace(at.partition(":")[2] or KEY)
        workers = dask.workers()
        rank = workers.index(dask.address) if rank is None else rank
        size = len(workers) if size is None else size
        return Started(rank, size, dask, host=dask.host, is_guest=True)
    rank = _number("rank", rank, RANKS, env)
    size = _number("size", size, SIZES, env)
    if isinstance(at, str) and re.fullmatch("ray(:.+)?", at):
        ray = RayPlace(at.partition(":")[2] or KEY)
        return Started(rank, size, ray, host=ray.host, is_guest=True)
    if at is None and env.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        address, port = env["MASTER_ADDR"], int(env["MASTER_PORT"])
        key = f"{KEY}/{env.get('TORCHELASTIC_RUN_ID')}/{env.get('TORCHELASTIC_RESTART_COUNT')}"
        return Started(rank, size, TorchPlace.of_torchrun(address, port, timeout_s), key)
    if is_torch_store(at):
        return Started(rank, size, TorchPlace(at), is_guest=is_guest)
    if isinstance(at, str) and at.startswith("{"):
        return Started(rank, size, Ticket.parse(at), is_guest=is_guest)
    if isinstance(at, os.PathLike) or (isinstance(at, str) and at.startswith(("/", "./", "~"))):
        return Started(rank, size, FilePlace(os.path.expanduser(at)), is_guest=is_guest)  # noqa: PTH111
    if isinstance(at, str):
        doors: tuple[Door, ...] = (_door(at),)
    elif at is None:
        doors = doors_from(env)
    elif isinstance(at, Place):
        return Started(rank, size, at, is_guest=is_guest)
    else:
        raise LaunchError(
            f"cannot join at {at!r}: it is no place; give 'host:port', a folder, 'ray', 'dask', a store of "
            "torch.distributed or an object with set, get and wait"
        )
    key = "{}:{}".format(*doors[0])
    ticket = Ticket(doors, job_of(key), own_token() if token is None else token, False)
    return Started(rank, size, ticket, is_guest=is_guest)


def _door(at: str) -> Door:
    """Host and port, as in ``"10.0.0.1:5000"``."""
    host, _, port = at.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise LaunchError(
            f"cannot join at {at!r}: it is no place; give 'host:port', a folder as in './meeting', 'ray' "
            "or 'dask'"
        )
    return host.strip("[]"), int(port)


def doors_from(env: Mapping[str, str]) -> tuple[Door, ...]:
    """**Local.** Where rank 0 serves, as the environment says.

    >>> doors_from({"MASTER_ADDR": "a", "MASTER_PORT": "5000"})[:2]
    (('a', 5000), ('a', 5001))
    >>> doors_from({"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[07-09,12]"})[0][0]
    'n07'
    """
    port = env.get("MASTER_PORT", str(MASTER_PORT))
    if not port.isdecimal() or not 0 < int(port) <= 65535 - N_PORTS:
        raise LaunchError(
            f"cannot join: MASTER_PORT={port} is no port; give a number such as 29500"
        )
    first = int(port)
    nodes = next((env[name] for name in NODES if name in env), None)
    if "MASTER_ADDR" in env:
        host = env["MASTER_ADDR"]
    elif "JOB_COMPLETION_INDEX" in env:
        host = _first_pod(socket.getfqdn(), env["JOB_COMPLETION_INDEX"])
    elif nodes is not None:
        host = first_node(nodes)
        step = ".".join(env.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
        first = LEAST_SLURM_PORT + int(job_of(step), 16) % N_SLURM_PORTS
    else:
        raise LaunchError(
            "cannot join: nothing says where the ranks meet; give at='host:port', or set MASTER_ADDR to the "
            "host of rank 0"
        )
    return tuple((host, first + k) for k in range(N_PORTS))


def first_node(nodes: str) -> str:
    """The first name of a list of nodes as Slurm writes it.

    >>> first_node("gpu[007-009,12],cpu3"), first_node("a,b"), first_node("r[1-2]n[3,4]")
    ('gpu007', 'a', 'r1n3')
    """
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    name = first[0] if first else nodes
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", name)


def _first_pod(name: str, index: str) -> str:
    """The name of pod 0 of an Indexed Job, from that of this pod."""
    pod, dot, domain = name.partition(".")
    if not pod.endswith(f"-{index}"):
        raise LaunchError(
            f"cannot join: MASTER_ADDR is not set, and the name of this pod ({pod}) does not end in its "
            f"index {index}; set MASTER_ADDR to the host name of pod 0"
        )
    return f"{pod.removesuffix(index)}0{dot}{domain}"


def _number(what: str, given: int | None, names: tuple[str, ...], env: Mapping[str, str]) -> int:
    """A number that is given, or that the first of some variables has."""
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, int):
            raise LaunchError(f"cannot join with {what}={given!r}: it is no whole number; give one")
        return given
    name = next((name for name in names if name in env), None)
    if name is None:
        raise LaunchError(
            f"cannot join: nothing says the {what}; give {what}=, start with a launcher that sets one of "
            f"{', '.join(names)}, or use mpirun"
        )
    if not re.fullmatch(r"-?\d+", env[name]):
        raise LaunchError(
            f"cannot join: {name}={env[name]!r} is no whole number; set it to the {what}"
        )
    return int(env[name])
