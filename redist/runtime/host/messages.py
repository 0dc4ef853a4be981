"""Messages of a stage to and from other nodes, those of several rounds at a time."""

from __future__ import annotations

import contextlib
from typing import Any

from mpi4py import MPI

from redist.runtime.copies.addresses import Addresses
from redist.runtime.host.datatypes import post
from redist.runtime.ranks.tokens import Tag
from redist.runtime.ranks.waiting import abandon
from redist.runtime.ranks.world import World
from redist.runtime.schedule.compiler import Round


class MessageRounds:
    """The rounds of which messages are under way; a context that leaves none behind.

    After a failure none may be written into arrays that are others' again: receives are taken back,
    and what MPI may still touch, ``held`` included, is kept alive for good.
    """

    def __init__(self, world: World, held: Any) -> None:
        self._world, self._held = world, held
        self._open: dict[int, tuple[list[Any], list[Any]]] = {}
        """Receives and sends by the number of the round."""

    def __enter__(self) -> MessageRounds:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            receives = [one for got, _ in self._open.values() for one in got]
            with contextlib.suppress(MPI.Exception):
                abandon(receives, self._open, self._held)

    def post(self, number: int, round_: Round, table: Addresses) -> None:
        """Let receives wait for their messages, pack what is sent, and send it."""
        comm = self._world.comm
        receives, sends = self._open[number] = [], []
        receives += [post(comm.Irecv, m, table, Tag.DATA) for m in round_.receives]
        round_.pack.run(table)
        sends += [post(comm.Isend, m, table, Tag.DATA) for m in round_.sends]

    def wait(self, number: int) -> None:
        """Wait for the messages of a round, if that was not done before."""
        receives, sends = self._open.get(number, ([], []))
        if receives or sends:
            self._world.wait([*receives, *sends])
        self._open.pop(number, None)
