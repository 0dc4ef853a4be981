"""Ranks that share one GPU, for NCCL: refused on one host, joined if each is on a host of its own."""

from __future__ import annotations


def host_of(rank: int) -> dict[str, str]:
    """What tells NCCL that a rank is on a host of its own, which others reach through this machine.

    >>> host_of(3)["NCCL_HOSTID"]
    'rank 3'
    """
    return {"NCCL_HOSTID": f"rank {rank}", "NCCL_SOCKET_IFNAME": "lo"}
