"""Machines on paper: who shares a node, a link, a pod and processors, and what everything costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.layout.tiles import Ints
from redist.plan.topology import Level, Topology

OWN, NODE, POD, FAR = range(4)
"""How far two ranks are apart: the same rank, the same node, the same pod, or farther."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Ranks in nodes, nodes in pods; seconds, bytes and bytes per second.

    ``rank_rate`` is what one rank sends, or receives, at most; ``node_rate`` what all ranks of a node
    do together, ``pod_rate`` what leaves, or enters, a pod. ``hop_s`` is one of the log2(ranks)
    exchanges of a meeting. ``call_s``, ``stage_s``, ``round_s`` and ``message_s`` are time on a rank's
    processor for every call, stage, round and message; ``byte_s`` for every byte that passes through a
    link, half at either end. ``processors`` is how many all ranks share; None if each has its own.

    >>> machine = Machine("two nodes", 4, rank_rate=1e9, node_rate=2e9)
    >>> machine.distance(0, 0), machine.distance(0, 3), machine.distance(0, 4)
    (0, 1, 2)
    """

    name: str
    ranks_per_node: int
    rank_rate: float
    node_rate: float
    nodes_per_pod: int | None = None
    pod_rate: float = math.inf
    latency_s: float = 0.0
    far_latency_s: float = 0.0
    hop_s: float = 0.0
    node_meeting_s: float = 0.0
    call_s: float = 0.0
    stage_s: float = 0.0
    round_s: float = 0.0
    message_s: float = 0.0
    byte_s: float = 0.0
    copy_rate: float = math.inf
    near_rate: float = math.inf
    combine_rate: float = math.inf
    fresh_rate: float = math.inf
    processors: float | None = None
    memory_bytes: float = math.inf
    is_gpu: bool = False

    def node(self, rank: Any) -> Any:
        """The node of a rank, or of many."""
        return rank // self.ranks_per_node

    def pod(self, rank: Any) -> Any:
        """The pod of a rank, or of many; all are of one if there are none."""
        return 0 * rank if self.nodes_per_pod is None else self.node(rank) // self.nodes_per_pod

    def distance(self, a: int, b: int) -> int:
        """How far two ranks are apart."""
        return int(self.distances(a, np.array(b)))

    def distances(self, rank: int, others: Ints) -> Ints:
        """How far many ranks are from one."""
        same = [others == rank, *(of(others) == of(rank) for of in (self.node, self.pod))]
        return np.select(same, [OWN, NODE, POD], FAR)

    def meeting_s(self, n_ranks: int) -> float:
        """Seconds of a meeting of so many ranks, once the last has come."""
        return self.hop_s * max(1, math.ceil(math.log2(max(2, n_ranks))))

    def topology(self) -> Topology:
        """The machine as plans are told of it."""
        step = self.hop_s * 2 + self.stage_s
        copy = min(self.copy_rate, self.near_rate)
        levels = [Level("node", self.ranks_per_node, _ps(self.node_meeting_s), _fs(copy))]
        near = _ps(self.latency_s + self.message_s)
        rank, link = _fs(self.rank_rate), _fs(self.node_rate)
        if self.nodes_per_pod is None:
            levels.append(Level("network", None, near, rank, link))
        else:
            size = self.ranks_per_node * self.nodes_per_pod
            far = _ps(self.far_latency_s + self.message_s)
            levels.append(Level("pod", size, near, rank, link))
            levels.append(Level("network", None, far, rank, _fs(self.pod_rate)))
        return Topology(tuple(levels), _ps(step))


def _ps(seconds: float) -> int:
    return round(seconds * 1e12)


def _fs(rate: float) -> int:
    return max(1, round(1e15 / rate))
