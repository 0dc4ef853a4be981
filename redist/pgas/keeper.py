"""Bytes of other ranks that are kept for a while, within a bound: the one used longest ago goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

MOST_BYTES = 2**28
"""What is kept on a rank, unless it is said otherwise."""


class Keeper:
    """Keeps values by key up to a number of bytes, and counts how often they were there.

    >>> keeper = Keeper(100)
    >>> keeper.put("a", 1, 60), keeper.put("b", 2, 60), keeper.put("c", 3, 101)
    (True, True, False)
    >>> keeper.get("a"), keeper.get("b"), keeper.n_bytes, (keeper.hits, keeper.misses)
    (None, 2, 60, (1, 1))
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self.n_bytes = self.hits = self.misses = self.dropped = 0
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Hashable) -> Any:
        """What is kept under a key; None if nothing is."""
        found = self._held.get(key)
        if found is None:
            self.misses += 1
            return None
        self._held.move_to_end(key)
        self.hits += 1
        return found[0]

    def put(self, key: Hashable, value: Any, n_bytes: int) -> bool:
        """Keep a value, and drop others for it; whether it is small enough to be kept."""
        self.drop(key)
        if n_bytes > self.most_bytes:
            return False
        while self.n_bytes + n_bytes > self.most_bytes:
            self.drop(next(iter(self._held)))
            self.dropped += 1
        self._held[key] = value, n_bytes
        self.n_bytes += n_bytes
        return True

    def drop(self, key: Hashable) -> None:
        """Keep a value no longer."""
        found = self._held.pop(key, None)
        if found is not None:
            self.n_bytes -= found[1]

    def clear(self) -> None:
        """Keep nothing."""
        self._held.clear()
        self.n_bytes = 0


FAR_BYTES = Keeper()
"""Copies of arguments that programs moved, and blocks that one-sided reads fetched."""
