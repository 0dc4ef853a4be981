"""Workers of joblib and of ``multiprocessing`` are no ranks: what needs all ranks is not sent to them."""

from __future__ import annotations

import sys
from types import FrameType

from redist.errors import RequestError
from redist.runtime.ranks.world import Comm

SENDERS = (
    "joblib.externals.loky.backend.reduction",
    "loky.backend.reduction",
    "multiprocessing.reduction",
)
"""What pickles for workers."""


def refuse_workers(what: str, comm: Comm) -> None:
    """**Local.** Raise if something of several ranks is being pickled for a worker process."""
    if comm.size > 1 and _is_sent(sys._getframe(1)):
        raise RequestError(
            f"cannot send {what} to a worker process: it cannot join this MPI job of {comm.size} ranks; "
            "write n_jobs=None, the ranks are the jobs"
        )


def _is_sent(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") in SENDERS:
            return True
        frame = frame.f_back
    return False
