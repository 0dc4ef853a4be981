"""Functions of Python that do the same in every call: what they do is found out once."""

from __future__ import annotations

import dis
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

MODULES = ("numpy", "redist.pgas")
"""Modules that a function may name: what they hold does not change."""
BUILT_IN = ("abs", "pow", "round")


@dataclass(frozen=True, slots=True)
class FixedJoin:
    """A function that its code and the modules that it names say all about."""

    code: CodeType
    modules: tuple[str, ...]
    function: Callable[..., Any] = field(compare=False)

    def __call__(self, *elements: Any) -> Any:
        """What the function gives."""
        return self.function(*elements)


def as_fixed(function: Callable[..., Any]) -> FixedJoin | None:
    """**Local.** The function as one that does the same in every call; None if that is not known.

    Written again in a later call, as ``lambda`` is, it equals itself.

    >>> square, factor = (lambda: lambda a, b: (a - b) ** 2), 3.0
    >>> as_fixed(square()) == as_fixed(square()), as_fixed(lambda a: a * factor)
    (True, None)
    """
    if not isinstance(function, FunctionType) or function.__closure__ or function.__defaults__:
        return None
    code = function.__code__
    names = _names_outside(code)
    if function.__kwdefaults__ or names is None:
        return None
    modules = []
    for name in names:
        thing = function.__globals__.get(name)
        if isinstance(thing, ModuleType) and thing.__name__ in MODULES:
            modules.append(f"{name} is {thing.__name__}")
        elif thing is not None or name not in BUILT_IN:
            return None
    return FixedJoin(code, tuple(modules), function)


@lru_cache(maxsize=512)
def _names_outside(code: CodeType) -> tuple[str, ...] | None:
    """The names that code looks up outside itself; None if it has other code in it, or writes names."""
    if any(isinstance(one, CodeType) for one in code.co_consts):
        return None
    found: dict[str, None] = {}
    for step in dis.get_instructions(code):
        if step.opname.startswith(("STORE_GLOBAL", "STORE_NAME", "IMPORT", "STORE_ATTR")):
            return None
        if step.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME")):
            found[str(step.argval)] = None
    return tuple(found)
