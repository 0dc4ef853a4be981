"""State dicts: the DTensors in dicts and lists, where each goes, and the same dicts with the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch.distributed.tensor import DTensor, Replicate

from redist.errors import RequestError

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A DTensor, its name in the dicts around it, and the placements that are given for it."""

    name: str
    tensor: DTensor
    placements: Any
    stays: bool = False


def leaves_of(value: Any, placements: Any) -> list[Leaf]:
    """Every DTensor in dicts and lists; ``placements`` is one list for all, or a dict like them.

    In that dict an entry counts for the whole branch below it, and None leaves the branch where it is. A
    tensor of 0 dims cannot be cut: where a list is for a branch, it is replicated.
    """
    return list(_leaves("", value, placements, stays=False))


def _leaves(name: str, value: Any, placements: Any, stays: bool) -> Iterator[Leaf]:
    if isinstance(value, DTensor):
        yield Leaf(name, value, placements, stays)
    elif isinstance(value, (Mapping, list, tuple)):
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, part in pairs:
            inner = f"{name}.{key}" if name else str(key)
            given, still = placements, stays
            if isinstance(placements, Mapping) and _has_dtensors(part):
                given = _entry(placements, key)
                if given is _MISSING:
                    raise RequestError(
                        f"cannot move {inner!r}: placements has no entry for it; add one, or give None for "
                        "a tensor that stays"
                    )
                still = given is None
            elif isinstance(part, DTensor) and part.ndim == 0:
                given = _replicated(placements)
            yield from _leaves(inner, part, given, still)


def _entry(placements: Mapping[Any, Any], key: Any) -> Any:
    """What is given for a key: its entry, or those whose dotted names begin with it."""
    for known in (key, str(key)):
        if known in placements:
            return placements[known]
    start = f"{key}."
    inside = {
        name[len(start) :]: there
        for name, there in placements.items()
        if isinstance(name, str) and name.startswith(start)
    }
    return inside or _MISSING


def _replicated(placements: Any) -> Any:
    """What placements of a whole branch mean for a tensor of 0 dims."""
    if isinstance(placements, (list, tuple)):
        return [Replicate() for _ in placements]
    return placements


def _has_dtensors(value: Any) -> bool:
    if isinstance(value, (Mapping, list, tuple)):
        return any(map(_has_dtensors, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, DTensor)


def rebuilt(value: Any, results: Iterator[DTensor]) -> Any:
    """The same dicts and lists with the results in the places of DTensors."""
    if isinstance(value, DTensor):
        return next(results)
    if isinstance(value, Mapping):
        return {key: rebuilt(part, results) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [rebuilt(part, results) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
