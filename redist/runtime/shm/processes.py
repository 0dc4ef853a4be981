"""Look after other processes of this node."""

from __future__ import annotations


def is_alive(pid: int) -> bool:
    """Whether a process still runs: it exists, and is not a dead one that nobody has waited for.

    >>> import os
    >>> is_alive(os.getpid())
    True
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        return False
    except OSError:
        return True
