"""Joins by name, by a function of NumPy or of ``pgas``, and what they are of this many operands."""

from __future__ import annotations

import dis
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError
from redist.pgas.elementwise import binary, unary

# Functions of Python that do the same in every call: what they do is found out once.


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


FOLDED = (
    "add", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor",
    "maximum", "minimum", "multiply", "subtract",
)  # fmt: skip
"""Functions of two operands that join any number: the first two, then the result and the third, and so on."""


def _copy(x: Any) -> Any:
    return x


NAMES: dict[str, tuple[Callable[..., Any], int]] = {
    "copy": (_copy, 1),
    **{name: (getattr(unary, name), 1) for name in unary.__all__},
    **{name: (getattr(binary, name), 2) for name in binary.__all__},
}
"""Every join that has a name, and of how many operands it is."""


def find_join(what: str, join: Any, n_operands: int) -> tuple[Callable[..., Any], bool]:
    """**Local.** The function that joins this many operands; whether it does the same in every call.

    ``what`` begins an error, after "cannot".

    >>> find_join("join", "multiply", 3)[1], find_join("join", lambda a, b: a - b, 2)[1]
    (True, True)
    """
    if isinstance(join, str):
        if join not in NAMES:
            raise ArgumentError(
                f"cannot {what}: no join is called {join!r}; use a name of an element-wise function, as "
                "'multiply' or 'subtract', or a function of the operands' elements"
            )
        return _of_operands(what, join, n_operands), True
    if isinstance(join, np.ufunc):
        if join.__name__ in FOLDED:
            return _of_operands(what, join.__name__, n_operands), True
        if join.signature is not None or (join.nin, join.nout) != (n_operands, 1):
            raise ArgumentError(
                f"cannot {what}: numpy.{join.__name__} does not join {n_operands} elements into one"
            )
        return join, True
    if not callable(join):
        raise ArgumentTypeError(
            f"cannot {what}: the join is {type(join).__name__}, not a function or a name of one"
        )
    for name, (function, _) in NAMES.items():
        if join is function:
            return _of_operands(what, name, n_operands), True
    fixed = as_fixed(join)
    return (join, False) if fixed is None else (fixed, True)


def _of_operands(what: str, name: str, n_operands: int) -> Callable[..., Any]:
    function, n = NAMES[name]
    if name in FOLDED:
        return _folded(function)
    if n != n_operands:
        raise ArgumentError(
            f"cannot {what}: {name} joins {n} operand{'s' * (n > 1)}, not {n_operands}"
        )
    return function


@lru_cache(maxsize=64)
def _folded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of two as a function of any number."""
    return lambda *elements: reduce(function, elements)
