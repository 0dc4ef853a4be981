"""State dicts: the DTensors in nested dicts and lists, where each goes, and the dicts of results."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate

_MISSING = object()
_ALL = object()
"""The key of what is given for a whole branch, beside entries for parts of it."""
_KINDS = (Mapping, list, tuple)
"""What holds DTensors."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A DTensor, the keys that lead to it, and the placements that are given for it."""

    path: tuple[str, ...]
    tensor: DTensor
    placements: Any
    stays: bool = False

    @property
    def name(self) -> str:
        """Its name as a user writes it."""
        return ".".join(self.path)


def leaves_of(value: Any, placements: Any) -> tuple[list[Leaf], str | None]:
    """Every DTensor in nested dicts and lists, and why the placements cannot be read, or None.

    ``placements`` is one list for all, or a nested dict of lists. In that dict an entry applies to the whole
    branch below it, in nested dicts and in dotted names; the longest match wins, and None leaves the branch
    where it is. A tensor of 0 dims cannot be cut: where a list applies to a branch, it is replicated.
    """
    problems: list[str] = []
    leaves = list(_leaves((), value, placements, False, problems))
    if not leaves and placements is not None and _has(torch.Tensor, value):
        problems.append(
            "cannot move a dict without a DTensor: its tensors are plain; make them DTensors with "
            "distribute_tensor(tensor, mesh, placements)"
        )
    return leaves, next(iter(problems), None)


def _leaves(
    path: tuple[str, ...], value: Any, placements: Any, stays: bool, problems: list[str]
) -> Iterator[Leaf]:
    if isinstance(value, DTensor):
        if path and isinstance(placements, Mapping):
            problems += _below_a_leaf(path, placements)
        yield Leaf(path, value, placements, stays)
    elif isinstance(value, _KINDS):
        is_for_each = not stays and _is_for_each(value, placements)
        if is_for_each:
            problems += _superfluous(path, value, placements)
        below = _below(placements) if is_for_each else {}
        for position, (key, part) in enumerate(_pairs(value)):
            inner = (*path, _word(key, position))
            given, is_own = placements, False
            if is_for_each:
                given, is_own = _entry(placements, below, key)
                problems += _wrong_entry(inner, part, given, is_own)
            if isinstance(part, DTensor) and part.ndim == 0 and not is_own:
                given = _replicated(given)
            still = given is None if is_for_each else stays
            yield from _leaves(inner, part, given, still, problems)


def _wrong_entry(path: Sequence[str], part: Any, given: Any, is_own: bool) -> list[str]:
    """Why what is given for a part of a dict makes no sense."""
    name = ".".join(path)
    if given is _MISSING and _has(DTensor, part):
        return [
            f"cannot move {name!r}: placements has no entry for it; add one, or give None for a tensor that "
            "stays"
        ]
    is_plain = isinstance(part, torch.Tensor) and not isinstance(part, DTensor)
    if is_plain and is_own and given is not None:
        return [
            f"cannot move {name!r}: it is a plain tensor; give None, or make it a DTensor with "
            "distribute_tensor"
        ]
    return []


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


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """A dotted name as a beginning and the rest, longest beginning first.

    >>> list(_splits("a.b.c"))
    [('a.b', 'c'), ('a', 'b.c')]
    """
    at = name.rfind(".")
    while at >= 0:
        yield name[:at], name[at + 1 :]
        at = name.rfind(".", 0, at)


def _below(placements: Any) -> dict[str, dict[str, Any]]:
    """The entries with dotted names, by each of their beginnings."""
    found: dict[str, dict[str, Any]] = {}
    for name in placements if isinstance(placements, Mapping) else ():
        if isinstance(name, str):
            for start, rest in _splits(name):
                found.setdefault(start, {})[rest] = placements[name]
    return found


def _entry(placements: Any, below: Mapping[str, Any], key: Any) -> tuple[Any, bool]:
    """What is given for a key, and whether by its own name: else for a branch around it, or below it."""
    if not isinstance(placements, Mapping):
        return (placements[key], True) if key < len(placements) else (_MISSING, False)
    name = str(key)
    own = next((placements[known] for known in (key, name) if known in placements), _MISSING)
    given = _around(placements, name) if own is _MISSING else own
    inside = below.get(name, {})
    if inside and given is not _MISSING:
        inside = {**(given if isinstance(given, Mapping) else {_ALL: given}), **inside}
    return inside or given, own is not _MISSING


def _around(placements: Mapping[Any, Any], name: str) -> Any:
    """What the entry of the nearest branch around a dotted name has for it."""
    for start, rest in _splits(name):
        number = int(start) if start.isdecimal() else start
        given = placements.get(start, placements.get(number, _MISSING))
        if isinstance(given, Mapping):
            given, _ = _entry(given, _below(given), rest)
        if given is not _MISSING:
            return given
    return placements.get(_ALL, _MISSING)


def _superfluous(path: Sequence[str], value: Any, placements: Any) -> list[str]:
    """Why there are placements for something that is not there."""
    if not isinstance(placements, Mapping):
        if len(placements) == len(value):
            return []
        where = repr(".".join(path)) if path else "a list"
        return [
            f"cannot move {where}: {len(placements)} placements for {len(value)} entries; give one list of "
            "placements for each, as [[Shard(0)], [Shard(1)]], or one for all, as [Shard(0)]"
        ]
    keys = {str(key) for key, _ in _pairs(value)}
    inside: dict[str, dict[str, None]] = {}
    for start, rest in (split for key in keys for split in _splits(key)):
        inside.setdefault(start, {})[rest] = None
    for key, given in placements.items():
        name = str(key)
        if key is _ALL or name in keys or any(start in keys for start, _ in _splits(name)):
            continue
        if name not in inside:
            full = ".".join((*path, name))
            near = get_close_matches(name, keys, 1)
            guess = f"did you mean {'.'.join((*path, near[0]))!r}?" if near else "leave it out"
            return [f"cannot move by placements for {full!r}: there is no such name; {guess}"]
        if isinstance(given, Mapping):
            wrong = _superfluous((*path, name), inside[name], given)
            if wrong:
                return wrong
    return []


def _below_a_leaf(path: Sequence[str], placements: Mapping[Any, Any]) -> list[str]:
    """Why there are placements for something below a DTensor."""
    return [
        f"cannot move by placements for {'.'.join((*path, str(name)))!r}: there is no such name; "
        f"{'.'.join(path)!r} is a DTensor"
        for name in placements
        if name is not _ALL
    ]


def _replicated(placements: Any) -> Any:
    """What placements of a whole branch mean for a tensor of 0 dims."""
    if isinstance(placements, (list, tuple)):
        return [Replicate() for _ in placements]
    return placements


def _has(kind: type, value: Any) -> bool:
    """Whether a value is one of these, or has one inside."""
    if isinstance(value, _KINDS):
        parts = value.values() if isinstance(value, Mapping) else value
        return any(_has(kind, part) for part in parts)
    return isinstance(value, kind)


def rebuilt(value: Any, results: Iterator[DTensor]) -> Any:
    """The same dicts and lists with the results in place of DTensors."""
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
