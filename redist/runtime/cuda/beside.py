"""Moves of GPU arrays that go on beside the kernels of their caller: a stream for what was started.

A move that was started runs on a stream of its own. A thread of the background puts it there, because hosts
meet before kernels may read what neighbours have::

    caller's stream   k1  k2 |e   k3  k4  k5  ......  | wait for f |  k6, which uses the result
    stream beside              wait for e | the move |f

``e`` says that the source is there, and that those who had the memory of the result before are done with it.
Three rules keep memory apart, because CuPy's pool lends what was given back to the same stream again, at
once. The caller makes the result, so its memory belongs to the caller's stream. Source and result are held
until the caller's stream waits for ``f``. And what the move takes on its way belongs to the stream beside
alone, which uses it in order.

Whatever ranks do together later waits for ``f``, too: operations follow each other on the GPU as on the host.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from redist.runtime.arguments import CallArguments
from redist.runtime.cuda.arrays import current_gpu, current_stream, empty_on_device
from redist.runtime.ranks.world import World

_ABANDONED: list[MoveBeside] = []
"""Moves that failed when neighbours were at work: nobody knows when their streams are done, if ever."""


class BesideStream:
    """The stream of a rank for moves that were started over a communicator."""

    def __init__(self, world: World) -> None:
        import cupy

        self.world, self.device = world, cupy.cuda.Device()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.last: Any = None
        """The end of what was put there last."""
        self.started: list[MoveBeside] = []
        """Moves that nobody has waited for: they hold their arrays until the GPU is done."""

    @staticmethod
    def of(world: World) -> BesideStream:
        """**Local.** That of a communicator."""
        found = world.kept(BesideStream)
        if found is None:
            found = world.keep(BesideStream(world))
            world.after_started = found.join
        return found

    def join(self) -> None:
        """**Local.** Let the current stream wait for all that was put there so far."""
        last = self.last
        if last is not None and self.world.failure.broken is None and not last.done:
            current_stream().wait_event(last)

    def close(self) -> None:
        """**Local.** Wait until all is done; nothing fails if CUDA has ended before, or another rank has."""
        if self.world.failure.broken is None:
            with contextlib.suppress(Exception):
                self.stream.synchronize()


class MoveBeside:
    """Work for a thread of the background, on the stream beside, behind what the caller's was given."""

    def __init__(self, beside: BesideStream, work: Callable[[], Any]) -> None:
        self._beside, self._stream = beside, current_stream()
        self._work: Callable[[], Any] | None = work
        self._ready, self._end, self._has_failed = self._stream.record(), None, False
        beside.started[:] = [one for one in beside.started if not one.is_done()]
        beside.started.append(self)

    def __call__(self) -> Any:
        """**Collective.** Start the move; its result, which is there when its stream has come to the end."""
        beside, work = self._beside, self._work
        assert work is not None
        try:
            with beside.device, beside.stream:
                beside.stream.wait_event(self._ready)
                try:
                    return work()
                finally:
                    self._end = beside.last = beside.stream.record()
        except BaseException as error:  # what was launched may use its arrays
            self._has_failed = True
            if self._end is None:  # CUDA's own error: the ranks have not heard of it
                beside.world.abort_once(error)
            if beside.world.failure.broken is None:
                beside.stream.synchronize()
            else:
                _ABANDONED.append(self)
            raise

    def is_done(self) -> bool:
        """**Local.** Whether the GPU has come to the end, or the move has failed."""
        return self._has_failed or (self._end is not None and bool(self._end.done))

    def join(self) -> None:
        """**Local.** Let streams wait for the end; then source and result are held no longer.

        They are the current one, and the one on which the move was started: its memory holds both.
        """
        if self._end is None or self._has_failed:  # or an interrupt came before
            return
        current = current_stream()
        current.wait_event(self._end)
        if self._stream.ptr != current.ptr:
            self._stream.wait_event(self._end)
        self._work = None
        with contextlib.suppress(ValueError):  # it is known that it is done
            self._beside.started.remove(self)


def try_beside(
    world: World, arguments: CallArguments, local: Any, out: Any, work: Callable[[], Any]
) -> tuple[Any, MoveBeside | None]:
    """**Local.** ``out`` with arrays of the current stream's memory where it had none, and a move into them.

    There is no such move if there is no room for them, or if arguments are wrong: the call itself says so.
    """
    found = arguments.try_in_order(local, out)
    if found is None:
        return out, None
    made = []
    try:
        for item, (plan, array) in enumerate(zip(arguments.schedule.plans, found[1], strict=True)):
            shape = arguments.target_shape(item)
            if array is None and shape is not None:
                array = empty_on_device(shape, plan.target.dtype.to_numpy())
            made.append(array)
        beside = BesideStream.of(world)
        move = MoveBeside(beside, work) if beside.device.id == current_gpu() else None
    except Exception:  # CuPy's own kind of error: there is no memory
        return out, None
    return (out, None) if move is None else (arguments.by_name(made), move)
