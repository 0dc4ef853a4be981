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

from collections.abc import Callable
from typing import Any

from redist.runtime.arguments import CallArguments
from redist.runtime.cuda.arrays import current_stream, empty_on_device
from redist.runtime.ranks.world import World


class BesideStream:
    """The stream of a rank for moves that were started over a communicator."""

    def __init__(self) -> None:
        import cupy

        self.device = cupy.cuda.Device()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.last: Any = None
        """The end of what was put there last."""

    @staticmethod
    def of(world: World) -> BesideStream:
        """**Local.** That of a communicator."""
        found = world.kept(BesideStream)
        if found is None:
            found = world.keep(BesideStream())
            world.after_started = found.join
        return found

    def join(self) -> None:
        """**Local.** Let the current stream wait for all that was put there so far."""
        last = self.last
        if last is not None and not last.done:
            current_stream().wait_event(last)

    def close(self) -> None:
        """**Local.** Wait until all is done."""
        self.stream.synchronize()


class MoveBeside:
    """Work for a thread of the background, on the stream beside, behind what the caller's was given."""

    def __init__(self, world: World, work: Callable[[], Any]) -> None:
        self._beside = BesideStream.of(world)
        self._work: Callable[[], Any] | None = work
        self._ready, self._end = current_stream().record(), None

    def __call__(self) -> Any:
        """**Collective.** Start the move; its result, which is there when its stream has come to the end."""
        beside, work = self._beside, self._work
        assert work is not None
        with beside.device, beside.stream:
            beside.stream.wait_event(self._ready)
            try:
                return work()
            except BaseException:  # what it launched before may use its arrays
                beside.stream.synchronize()
                raise
            finally:
                self._end = beside.last = beside.stream.record()

    def is_done(self) -> bool:
        """**Local.** Whether the GPU has come to the end."""
        return self._end is not None and bool(self._end.done)

    def join(self) -> None:
        """**Local.** Let the current stream wait for the end; then source and result are held no longer."""
        if self._end is not None:
            current_stream().wait_event(self._end)
        self._work = None


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
    except Exception:  # CuPy's own kind of error: there is no memory
        return out, None
    return arguments.by_name(made), MoveBeside(world, work)
