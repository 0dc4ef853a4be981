"""State dicts: the DTensors in dicts and lists, where each goes, and the same dicts with the results."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate

_MISSING = object()
_KINDS = (Mapping, list, tuple)
"""What holds DTensors."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A DTensor, the keys that lead to it, and the placements that are given for it.

    ``problem`` says why these cannot be read.
    """

    path: tuple[str, ...]
    tensor: DTensor
    placements: Any
    stays: bool = False
    problem: str | None = None

    @property
    def name(self) -> str:
        """Its name as a user writes it."""
        return ".".join(self.path)


def leaves_of(value: Any, placements: Any) -> list[Leaf]:
    """Every DTensor in dicts and lists; ``placements`` is one list for all, or a dict like them.

    In that dict an entry counts for the whole branch below it, and None leaves the branch where it is. A
    tensor of 0 dims cannot be cut: where a list is for a branch, it is replicated.
    """
    return list(_leaves((), value, placements, False, None))


def _leaves(
    path: tuple[str, ...], value: Any, placements: Any, stays: bool, problem: str | None
) -> Iterator[Leaf]:
    if isinstance(value, DTensor):
        yield Leaf(path, value, placements, stays, problem)
    elif isinstance(value, _KINDS):
        is_for_each = not stays and _is_for_each(value, placements)
        if is_for_each and problem is None:
            problem = _superfluous(path, value, placements)
        for position, (key, part) in enumerate(_pairs(value)):
            inner = (*path, _word(key, position))
            given, still, wrong = placements, stays, problem
            if is_for_each and _has_dtensors(part):
                given = _entry(placements, key)
                if given is _MISSING:
                    name = ".".join(inner)
                    wrong = wrong or (
                        f"cannot move {name!r}: placements has no entry for it; add one, or give None "
                        "for a tensor that stays"
                    )
                still = given is None
            elif isinstance(part, DTensor) and part.ndim == 0:
                given = _replicated(placements)
            yield from _leaves(inner, part, given, still, wrong)


def _pairs(value: Any) -> Iterator[tuple[Any, Any]]:
    return iter(value.items()) if isinstance(value, Mapping) else enumerate(value)


def _word(key: Any, position: int) -> str:
    """A key in a name; a parameter that is a key is named by its place."""
    return f"#{position}" if isinstance(key, torch.Tensor) else str(key)


def _is_for_each(value: Any, placements: Any) -> bool:
    """Whether placements has an entry for each part of a dict or list, and is not one list for all."""
    if isinstance(placements, Mapping):
        return True
    is_list = isinstance(value, (list, tuple)) and isinstance(placements, (list, tuple))
    return is_list and any(entry is None or isinstance(entry, _KINDS) for entry in placements)


def _entry(placements: Any, key: Any) -> Any:
    """What is given for a key: its entry, or those whose dotted names begin with it."""
    if not isinstance(placements, Mapping):
        return placements[key] if key < len(placements) else _MISSING
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


def _superfluous(path: Sequence[str], value: Any, placements: Any) -> str | None:
    """Why there are placements for something that is not there; None if there are none."""
    if not isinstance(placements, Mapping):
        if len(placements) == len(value):
            return None
        where = repr(".".join(path)) if path else "a list"
        return (
            f"cannot move {where}: {len(placements)} placements for {len(value)} entries; give one list of "
            "placements for each, as [[Shard(0)], [Shard(1)]], or one for all, as [Shard(0)]"
        )
    keys = {str(key) for key, _ in _pairs(value)}
    for name in map(str, placements):
        if name not in keys and not any(name.startswith(f"{key}.") for key in keys):
            full = ".".join((*path, name))
            near = get_close_matches(name, keys, 1)
            guess = f"did you mean {'.'.join((*path, near[0]))!r}?" if near else "leave it out"
            return f"cannot move by placements for {full!r}: there is no such name; {guess}"
    return None


def _replicated(placements: Any) -> Any:
    """What placements of a whole branch mean for a tensor of 0 dims."""
    if isinstance(placements, (list, tuple)):
        return [Replicate() for _ in placements]
    return placements


def _has_dtensors(value: Any) -> bool:
    if isinstance(value, _KINDS):
        return any(map(_has_dtensors, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, DTensor)


def rebuilt(value: Any, results: Iterator[DTensor]) -> Any:
    """The same dicts and lists with the results in the places of DTensors."""
    if isinstance(value, DTensor):
        return next(results)
    if isinstance(value, Mapping):
        # A copy is of the same class, and keeps what a module notes on its state dict.
        found = copy.copy(value) if isinstance(value, dict) else dict(value)
        for key, part in value.items():
            found[key] = rebuilt(part, results)
        return found
    if isinstance(value, (list, tuple)):
        parts = [rebuilt(part, results) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
