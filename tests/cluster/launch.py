"""Start a program on the hosts of a cluster with MPI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redist.launch.launcher import OPEN_MPI, Launcher, environment
from tests.cluster.hosts import NETWORK, Cluster

TCP = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
"""MPICH: messages pass through the links, never through the memory that all hosts here share.

So MPI's own ranks of one host talk by TCP too; redist's shared memory within a host is not touched.
"""


@dataclass(frozen=True, slots=True)
class ClusterLauncher:
    """Starts jobs on the hosts of a cluster, so many ranks on each; ranks of a host are neighbours."""

    cluster: Cluster
    ranks_per_host: int
    launcher: Launcher

    @property
    def kind(self) -> str:
        """Whose mpirun it is."""
        return self.launcher.kind

    def command(self, n_ranks: int, program: Sequence[str]) -> list[str]:
        """The command line that runs ``program`` with this Python on all hosts."""
        cluster = self.cluster
        assert n_ranks == cluster.n_hosts * self.ranks_per_host, n_ranks
        start = self.launcher.command(n_ranks, program)
        at = start.index("-n")
        if self.kind == OPEN_MPI:
            hosts = ",".join(f"{address}:{self.ranks_per_host}" for address in cluster.addresses)
            options = [
                *("--host", hosts, "--prtemca", "plm_ssh_agent", str(cluster.launcher)),
                *("--prtemca", "prte_if_include", f"{NETWORK}.0/24"),
                *("--mca", "pml", "ob1", "--mca", "btl", "tcp,self"),
                *("--mca", "btl_tcp_if_include", f"{NETWORK}.0/24"),
            ]
        else:
            options = [
                *("-hosts", ",".join(cluster.addresses), "-ppn", str(self.ranks_per_host)),
                *("-launcher", "ssh", "-launcher-exec", str(cluster.launcher)),
                *("-localhost", f"{NETWORK}.254"),
            ]
        return cluster.at_the_bridge([*start[:at], *options, *start[at:]])


def variables() -> dict[str, str]:
    """The environment of such a command."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {**environment(), **TCP, **threads}
