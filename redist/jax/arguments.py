"""What callers hand over: an array or a tree, then where it goes, then options by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from redist.errors import RequestError

P = ParamSpec("P")
R = TypeVar("R")
MEANT = {"limit": "limit_bytes", "memory": "limit_bytes", "target": "sharding"}
"""What people write, and the argument that they mean."""


def checked(call: Callable[P, R]) -> Callable[P, R]:
    """The same function, but refusing arguments in the wrong order or with a wrong name."""
    known = list(signature(call).parameters)

    @wraps(call)
    def checked_call(*args: P.args, **options: P.kwargs) -> R:
        name = f"redist.jax.{call.__name__}"
        for word in options:
            if word not in known:
                meant = (
                    f"did you mean {MEANT[word]}?"
                    if word in MEANT
                    else f"it takes {', '.join(known)}"
                )
                raise RequestError(
                    f"cannot call {name} with {word}=: there is no such argument; {meant}"
                )
        if args and isinstance(args[0], (Sharding, PartitionSpec)):
            raise RequestError(
                f"cannot move a {type(args[0]).__name__}: the array comes first, then the sharding; "
                f"write {name}(x, sharding)"
            )
        return call(*args, **options)

    return checked_call


def is_end(given: Any) -> bool:
    """Whether this says where an array goes; None leaves it where it is."""
    return given is None or isinstance(given, (Sharding, PartitionSpec))


def check_end(given: Any, name: str = "", is_leaf: bool = True, leaf: Any = None) -> None:
    """Refuse what is not a sharding for the array at ``name`` in a tree; ``leaf`` is that array, if known.

    For a branch, where ``is_leaf`` is false, only what looks like a PartitionSpec is refused.
    """
    if is_end(given):
        return
    spec = _meant_spec(given, _axes_of(leaf))
    do = "give a NamedSharding, or a PartitionSpec such as P('x', None)"
    if isinstance(given, str):
        do = "redist.jax takes JAX's shardings; write one such as P(None, 'x')"
    if spec:
        do = f"write {spec}"
    if spec or is_leaf:
        raise RequestError(
            f"{name}{': ' if name else ''}cannot move to {_shown(given)}: it is a {type(given).__name__}; "
            f"{do} for the mesh that the array is on"
        )


def _shown(given: Any) -> str:
    """What was given, without the elements of an array."""
    if isinstance(given, (jax.Array, np.ndarray)):
        return f"{given.dtype}[{', '.join(map(str, given.shape))}]"
    return repr(given)


def _axes_of(leaf: Any) -> tuple[str, ...] | None:
    """The axes of the mesh that an array is on, or None if nobody knows."""
    is_traced = isinstance(leaf, jax.core.Tracer)
    sharding = None if is_traced else getattr(leaf, "sharding", None)
    return sharding.mesh.axis_names if isinstance(sharding, NamedSharding) else None


def _meant_spec(given: Any, axes: Iterable[str] | None = None) -> str:
    """The PartitionSpec that somebody means who writes an axis, or a tuple or list of them; or nothing.

    >>> _meant_spec((None, "model")), _meant_spec("model"), _meant_spec(3), _meant_spec("f32[8{x}]", "x")
    ("P(None, 'model')", "P('model')", '', '')
    """
    entries = (given,) if isinstance(given, str) else given
    if type(entries) not in (tuple, list) or not all(map(_is_entry, entries)):
        return ""
    names = [n for one in entries if one for n in (one if type(one) is tuple else (one,))]
    if isinstance(given, str) and axes is not None and not set(names) <= set(axes):
        return ""
    return f"P({', '.join(map(repr, entries))})"


def _is_entry(entry: Any) -> bool:
    names = entry if type(entry) is tuple else (entry,)
    return entry is None or all(isinstance(name, str) for name in names)
