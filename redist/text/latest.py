"""A dict that keeps a limited number of values: when it is full, the oldest is dropped."""

from __future__ import annotations

from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Latest(dict[K, V]):
    """The ``most`` values that were added last. One that is set again keeps its place.

    >>> found = Latest(2)
    >>> found["a"], found["b"], found["a"], found["c"] = 1, 2, 3, 4
    >>> found
    {'b': 2, 'c': 4}
    """

    __slots__ = ("most",)

    def __init__(self, most: int) -> None:
        self.most = most

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle knows how many there may be before it sets the first."""
        return type(self), (self.most,), None, None, iter(self.items())

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self.most and key not in self:
            del self[next(iter(self))]
        super().__setitem__(key, value)
