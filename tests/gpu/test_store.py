"""One store of pinned memory for all transfers of a carrier."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from redist.runtime.cuda.transports.carriers import ByMessages


class Pinned:
    """Memory of the host that notes when it comes and goes."""

    log: ClassVar[list[str]] = []

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes, self.ptr = n_bytes, 64 * len(self.log) + 64
        self.log.append(f"+{n_bytes}")

    def __del__(self) -> None:
        self.log.append(f"-{self.n_bytes}")


def test_transfers_of_a_carrier_share_memory_of_the_largest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Pinned, "log", [])
    cupy: Any = SimpleNamespace(cuda=SimpleNamespace(PinnedMemory=Pinned))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    world: Any = None
    carrier = ByMessages(world)
    small, large = carrier.lease(), carrier.lease()
    small.reserve(100, 50)
    large.reserve(200, 50)
    event = SimpleNamespace(synchronize=lambda: Pinned.log.append("read"))
    stream = SimpleNamespace(record=lambda: event)
    for lease in (small, large, small, large):
        with lease.lent() as (send, receive):
            assert send != receive
            lease.pool.mark(stream)
    # What is too small goes before more is taken, and not before it was read.
    assert Pinned.log[:3] == ["+100", "+50", "read"]
    assert sorted(Pinned.log[3:5]) == ["-100", "-50"]
    assert Pinned.log[5:] == ["+200", "+50"]
    sizes = [one.send_bytes + one.receive_bytes for one in (small, large)]
    assert sizes == [150, 250]
