"""The table of rules, by function: filled by the modules beside this one, looked up for every call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redist.errors import GradientError
from redist.pgas.gradients.cotangents import full
from redist.pgas.tiles.tiled import Tiled


@dataclass(frozen=True, slots=True, eq=False)
class Owed:
    """What a rule looks at: a call that was done, and the cotangents of its results.

    ``g`` has the structure of the results, ``y``, with None for one that nothing depends on. ``needed`` are
    the operands, by number, whose cotangents are wanted.
    """

    name: str
    g: Any
    y: Any
    args: tuple[Any, ...]
    options: dict[str, Any]
    operands: tuple[Any, ...]
    needed: frozenset[int]

    @property
    def whole(self) -> Any:
        """The cotangent of the one result, not thin."""
        return full(self.g, self.y.shape)

    def refuse(self, why: str) -> GradientError:
        """The error for a call that has no gradient as it was made."""
        return GradientError(f"cannot differentiate {self.name}: {why}")


Rule = Callable[[Owed], Sequence[Any]]
"""Gives a cotangent, or None, for each operand; they may be of another dtype."""

RULES: dict[Any, Rule | None] = {}
"""By function; None for those whose results do not change with their operands, but in steps."""


def key_of(function: Any) -> Any:
    """The function as calls name it: what passes calls on to whoever decides on layouts is around it.

    >>> from redist.pgas.shapes.shift import flip
    >>> key_of(flip) is flip.__wrapped__
    True
    """
    if getattr(function, "__module__", "").startswith("numpy"):
        return function
    inner = getattr(function, "__wrapped__", function)
    return getattr(function, "calls", inner)  # conversions of 16-bit floats may be around it, too


def rule(*functions: Any) -> Callable[[Rule], Rule]:
    """Let something be the rule of functions; it gives a cotangent for each operand."""

    def note(one: Rule) -> Rule:
        RULES.update({key_of(function): one for function in functions})
        return one

    return note


def rule_of_one(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The same for functions of one array that give one: called as they are, behind ``g`` and ``y``."""

    def note(one: Callable[..., Any]) -> Callable[..., Any]:
        def found(owed: Owed) -> Sequence[Any]:
            first = [one(owed.whole, owed.y, *owed.args, **owed.options)]
            return first + [None] * (len(owed.operands) - 1)

        rule(*functions)(found)
        return one

    return note


def same(owed: Owed) -> Sequence[Any]:
    """The rule of a function of one array that gives its values: they owe what the result owes."""
    return [owed.g]


def constant(*functions: Any) -> None:
    """Note functions whose results do not change with their operands, but in steps."""
    RULES.update({key_of(function): None for function in functions})


def places_of(owed: Owed, thing: Any) -> list[int]:
    """The numbers of the operands that arrays in an argument are, in order."""
    found = [thing] if isinstance(thing, Tiled) else list(thing)
    return [next(i for i, x in enumerate(owed.operands) if x is one) for one in found]
