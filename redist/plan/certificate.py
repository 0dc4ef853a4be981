"""What was proved about a plan's memory, and how."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Certificate:
    """A verdict on the claim that live bytes never exceed the bound.

    ``verdict`` is ``proved``, ``refuted`` (``counterexample`` has the sizes) or ``unknown``
    (``reason`` says why); ``scope`` says for which arrays; ``bound`` is the formula, with the
    figures of this array in ``bound_bytes``.
    """

    verdict: str
    bound: str
    bound_bytes: int
    scope: str
    method: str
    reason: str = ""
    counterexample: tuple[tuple[str, int], ...] = ()
    seconds: float = 0.0

    def summary(self) -> str:
        """One line for people."""
        match self.verdict:
            case "proved":
                return f"proved for {self.scope} ({self.method}, {self.seconds * 1e3:.0f} ms)"
            case "refuted":
                sizes = ", ".join(f"{name} = {value}" for name, value in self.counterexample)
                return f"REFUTED with {sizes} ({self.method})"
            case _:
                return f"unknown: {self.reason} ({self.method})"
