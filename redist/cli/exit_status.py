"""Exit statuses, and the error that the command line raises itself."""

from __future__ import annotations

from redist.errors import RedistError

OK = 0
FAILED = 1
"""The plan was judged or run, and found wrong."""
WRONG_REQUEST = 2
NO_PLAN = 3
UNKNOWN = 4
"""The solver gave up: neither proved nor refuted."""
BUG = 70
INTERRUPTED = 130
PIPE_CLOSED = 141


class UsageError(RedistError):
    """A command line that makes no sense, or a file that cannot be read or written."""
