"""Moves beside kernels, without a GPU: who waits for whom on streams."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from mpi4py import MPI

from redist.runtime.cuda.beside import BesideStream, MoveBeside
from redist.runtime.ranks.background import StartedMove
from redist.runtime.ranks.world import World
from tests.fakes import pretended_cupy as pretend


@pytest.fixture
def world() -> Iterator[World]:
    """One rank of its own, with a pretended GPU."""
    with pretend.gone_afterwards():
        pretend.install("one")
        comm = MPI.COMM_SELF.Dup()
        found = World(comm)
        yield found
        found.close()
        comm.Free()


def started(world: World, said: list[str]) -> tuple[StartedMove, Any]:
    """A move that was put on its stream, and has not run; the stream of the caller."""
    stream = sys.modules["cupy"].cuda.Stream(non_blocking=True)
    with stream:
        stream.add(lambda: said.append("source"))
        beside = BesideStream.of(world)
        move = MoveBeside(beside, lambda: pretend.CURRENT[0].add(lambda: said.append("move")))
    future = world.enqueue(move)
    future.result()
    return StartedMove(future, False, lambda one: None, move), stream


def test_a_move_waits_for_its_source_and_who_waits_for_it_for_the_move(world: World) -> None:
    said: list[str] = []
    move, stream = started(world, said)
    assert not said  # the host has waited for nothing
    with stream:
        move.wait()
        stream.add(lambda: said.append("use"))
    stream.synchronize()
    assert said == ["source", "move", "use"]
    assert move.is_done()


def test_whatever_ranks_do_together_later_waits_for_moves_that_were_started(world: World) -> None:
    said: list[str] = []
    _, stream = started(world, said)
    with stream, world.operation(None):
        stream.add(lambda: said.append("operation"))
    stream.synchronize()
    assert said == ["source", "move", "operation"]


def test_the_stream_that_holds_the_memory_waits_too(world: World) -> None:
    said: list[str] = []
    move, stream = started(world, said)
    move.wait()  # on another stream
    with stream:
        stream.add(lambda: said.append("lent again"))
    stream.synchronize()
    assert said == ["source", "move", "lent again"]


def test_a_move_that_nobody_waits_for_holds_its_arrays_until_it_is_done(world: World) -> None:
    array = sys.modules["cupy"].empty((8,), "u1")
    memory = weakref.ref(array)

    beside = BesideStream.of(world)
    world.enqueue(MoveBeside(beside, partial(id, array))).result()
    del array
    gc.collect()
    assert memory() is not None
    beside.stream.synchronize()
    world.enqueue(MoveBeside(beside, lambda: None)).result()
    gc.collect()
    assert memory() is None


def test_after_a_failure_nobody_waits_for_a_stream_that_may_never_end(world: World) -> None:
    def fail() -> None:
        world.failure.broken = "a rank has left"
        pretend.CURRENT[0].add(lambda: pytest.fail("somebody waits for it"))
        raise ValueError("a rank has left")

    beside = BesideStream.of(world)
    future = world.enqueue(MoveBeside(beside, fail))
    with pytest.raises(ValueError, match="has left"):
        future.result()
    world.drain()
    beside.close()
    beside.stream.queue.clear()
    beside.stream.done = beside.stream.put
    world.failure.broken = None


def test_a_move_that_fails_has_left_the_stream(world: World) -> None:
    said: list[str] = []

    def fail() -> None:
        pretend.CURRENT[0].add(lambda: said.append("half"))
        raise ValueError("no room")

    beside = BesideStream.of(world)
    future = world.enqueue(MoveBeside(beside, fail))
    with pytest.raises(ValueError, match="no room"):
        future.result()
    assert said == ["half"]
