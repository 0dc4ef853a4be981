"""Ranges of a file or of an arena: the first hole that is large enough, in whole pages."""

from __future__ import annotations

from bisect import bisect_left

from redist.text.units import ceil_div


class FirstFit:
    """Lends ranges of whole pages from a length that has an end, or none.

    >>> ranges = FirstFit(page_bytes=10, most_bytes=30)
    >>> ranges.take(8), ranges.take(20), ranges.take(1)
    (0, 10, None)
    >>> ranges.give(0, 8)
    >>> ranges.take(3), ranges.end_bytes
    (0, 30)
    """

    def __init__(self, page_bytes: int, most_bytes: int | None = None) -> None:
        self.page_bytes = page_bytes
        self.end_bytes = 0
        """Nothing was ever lent behind it."""
        self._most = most_bytes
        self._starts: list[int] = []
        self._sizes: list[int] = []

    def rounded(self, n_bytes: int) -> int:
        """Bytes in whole pages, one at least."""
        return max(1, ceil_div(n_bytes, self.page_bytes)) * self.page_bytes

    def take(self, n_bytes: int) -> int | None:
        """Where a range of this many bytes starts; None if there is no hole for it and no more length."""
        size = self.rounded(n_bytes)
        for at, hole in enumerate(self._sizes):
            if hole >= size:
                start = self._starts[at]
                if hole == size:
                    del self._starts[at], self._sizes[at]
                else:
                    self._starts[at] += size
                    self._sizes[at] -= size
                return start
        if self._most is not None and self.end_bytes + size > self._most:
            return None
        start = self.end_bytes
        self.end_bytes += size
        return start

    def give(self, start: int, n_bytes: int) -> None:
        """Take a range back, and join it with the holes beside it."""
        size = self.rounded(n_bytes)
        at = bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] == start + size:
            size += self._sizes.pop(at)
            del self._starts[at]
        if at and self._starts[at - 1] + self._sizes[at - 1] == start:
            self._sizes[at - 1] += size
        else:
            self._starts.insert(at, start)
            self._sizes.insert(at, size)
