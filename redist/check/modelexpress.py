"""Transfers of NVIDIA ModelExpress: published shards, copies that loaders would make, planned segments.

One object (JSON, say) has what a refit knows, in the words of ModelExpress::

    {"tensors": [{"name", "elsize", "full_shape",                   a shard table, mx.reshard.shard_table.v1
                  "shards": [{"agent_name", "addr", "shard_offset", "shape"}]}],
     "receivers": [{"agent_name",
                    "copies": [{"src_name", "box", "param_name", "dest_offset", "dest_stride"}],
                    "segments": [{"session", "src_addr", "param_name", "dst_byte", "nbytes"}]}]}

``box`` and ``dest_stride`` are what their ``resolve_slice`` makes of a recorded copy: a start and a stop
for every dim of the source tensor, and the parameter's strides in the order of those dims. Offsets and
strides of copies count elements, those of segments bytes. Agents are ranks in the order of their names
here: those that publish, then those that receive.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from redist.check.boxes import Boxes, BoxRow, BufferRow
from redist.errors import ArgumentError

Run = tuple[int, ...]


def transfer_of(data: Mapping[str, Any]) -> tuple[list[Run], Boxes, Boxes]:
    """Runs, source and target of a refit, for :func:`redist.check_runs`.

    >>> import redist
    >>> w = {"name": "w", "elsize": 2, "full_shape": [4, 6]}
    >>> w["shards"] = [{"agent_name": "t0", "addr": 4096, "shard_offset": [0, 0], "shape": [4, 6]}]
    >>> copy = {"src_name": "w", "box": [[2, 4], [0, 6]], "param_name": "p", "dest_offset": 0}
    >>> copy["dest_stride"] = [6, 1]
    >>> segment = {"session": "t0", "src_addr": 4120, "param_name": "p", "dst_byte": 0, "nbytes": 24}
    >>> data = {"tensors": [w], "receivers": [{"agent_name": "r0", "copies": [copy], "segments": [segment]}]}
    >>> redist.check_runs(*transfer_of(data)).is_right
    True
    >>> segment["src_addr"] -= 2
    >>> print(redist.check_runs(*transfer_of(data)).faults[0])
    wrong bytes: byte 0 of 'p' on rank 1, w[2, 0], comes from byte 22 of 'memory at 4096' on \
rank 0, w[1, 5] (1 run)
    """
    try:
        return _transfer(data)
    except (KeyError, TypeError, ValueError) as problem:
        raise ArgumentError(
            f"cannot read a transfer of ModelExpress: {type(problem).__name__} {problem}; "
            "see redist.check.modelexpress for its form"
        ) from None


def _transfer(data: Mapping[str, Any]) -> tuple[list[Run], Boxes, Boxes]:
    shapes = {t["name"]: tuple(t["full_shape"]) for t in data["tensors"]}
    items = {t["name"]: t["elsize"] for t in data["tensors"]}
    shards = [
        (s["agent_name"], s["addr"], t["name"], s) for t in data["tensors"] for s in t["shards"]
    ]
    agents = [one["agent_name"] for one in data["receivers"]]
    ranks = {
        name: k for k, name in enumerate(dict.fromkeys([*sorted({s[0] for s in shards}), *agents]))
    }
    memory = _Memory(ranks)
    rows: list[BoxRow] = []
    for agent, at, name, shard in sorted(shards, key=lambda one: one[:2]):
        n_bytes = items[name]
        for size in shard["shape"]:
            n_bytes *= size
        buffer, offset = memory.take(agent, at, n_bytes)
        rows.append(
            (buffer, name, shard["shard_offset"], shard["shape"], offset, None, items[name])
        )
    source = Boxes.of(shapes, memory.buffers, rows)
    buffers: list[BufferRow] = []
    asked: list[BoxRow] = []
    runs: list[Run] = []
    for receiver in data["receivers"]:
        number: dict[str, int] = {}
        ends: dict[str, int] = {}
        for copy in receiver["copies"]:
            name, item = copy["param_name"], items[copy["src_name"]]
            shape = [stop - start for start, stop in copy["box"]]
            strides = [step * item for step in copy["dest_stride"]]
            last = sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
            begin = copy["dest_offset"] * item
            ends[name] = max(ends.get(name, 0), begin + last + item)
            at = number.setdefault(name, len(buffers) + len(number))
            lo = [start for start, _ in copy["box"]]
            asked.append((at, copy["src_name"], lo, shape, begin, strides, item))
        for segment in receiver["segments"]:
            number.setdefault(segment["param_name"], len(buffers) + len(number))
        for segment in receiver["segments"]:
            come, offset = memory.find(segment["session"], segment["src_addr"])
            to = number[segment["param_name"]]
            runs.append((0, come, offset, to, segment["dst_byte"], segment["nbytes"]))
        buffers += [(ranks[receiver["agent_name"]], name, ends.get(name, 0)) for name in number]
    return runs, source, Boxes.of(shapes, buffers, asked)


class _Memory:
    """Addresses of agents as buffers: shards that touch are in one, so that a segment may cover several."""

    def __init__(self, ranks: dict[str, int]) -> None:
        self.ranks = ranks
        self.buffers: list[BufferRow] = []
        self.begin: list[tuple[str, int]] = []

    def take(self, agent: str, at: int, n_bytes: int) -> tuple[int, int]:
        """The buffer of a shard, and the offset in it; shards come by agent and address."""
        if self.begin and self.begin[-1][0] == agent:
            first = self.begin[-1][1]
            rank, name, size = self.buffers[-1]
            if at <= first + size:
                self.buffers[-1] = rank, name, max(size, at + n_bytes - first)
                return len(self.buffers) - 1, at - first
        self.begin.append((agent, at))
        self.buffers.append((self.ranks[agent], f"memory at {at}", n_bytes))
        return len(self.buffers) - 1, 0

    def find(self, agent: str, at: int) -> tuple[int, int]:
        """The last buffer of an agent that begins before an address, and how far behind its begin that is."""
        near = bisect_right(self.begin, (agent, at)) - 1
        if near < 0 or self.begin[near][0] != agent:
            near += 1
        if near >= len(self.begin) or self.begin[near][0] != agent:
            raise ValueError(f"{agent} publishes nothing")
        return near, at - self.begin[near][1]
