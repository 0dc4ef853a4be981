"""What was shown about the memory of a program: in every order of its work."""

from __future__ import annotations

from dataclasses import dataclass

from redist.text.units import format_bytes

VERDICTS = ("proved", "refuted", "unknown")


@dataclass(frozen=True, slots=True)
class MemoryCertificate:
    """A verdict on the claim that live bytes stay within the limit of every place, in every order.

    ``bound_bytes`` has for every place the most bytes that any order reaches: exactly if ``is_exact`` (a
    minimum cut), otherwise at most this many (what the credits prove). A place without a limit has None.

    >>> print(MemoryCertificate("proved", (24,), (32,), True, "minimum cut"))
    proved for every order: 24 B of 32 B (minimum cut)
    """

    verdict: str
    bound_bytes: tuple[int | None, ...]
    limit_bytes: tuple[int | None, ...]
    is_exact: bool
    method: str
    reason: str = ""
    scope: str = "every order"

    def __post_init__(self) -> None:
        assert self.verdict in VERDICTS

    def __str__(self) -> str:
        places = zip(self.bound_bytes, self.limit_bytes, strict=True)
        known = [
            f"{'' if self.is_exact else 'at most '}{format_bytes(bound)} of {format_bytes(limit)}"
            for bound, limit in places
            if bound is not None and limit is not None
        ]
        if self.verdict == "proved":
            return f"proved for {self.scope}: {', '.join(known)} ({self.method})"
        return f"{self.verdict}: {self.reason} ({self.method})"
