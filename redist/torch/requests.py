"""What ranks ask for, and what they agree on: the same names, and types that fit together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.runtime.ranks.answers import by_text
from redist.text.units import count_of, ranks_in_words

Ends = tuple[ArrayType, ArrayType]
"""Where a tensor is, and where it goes."""


@dataclass(frozen=True, slots=True)
class Request:
    """What one rank asks for: tensors by name, all in the same order, and how they move.

    Without names, ranks agree on the text of ``how`` alone.
    """

    names: tuple[str, ...]
    ends: tuple[Ends, ...]
    how: str

    @property
    def text(self) -> str:
        """All there is to agree on."""
        items = [
            f"{name}: {_text(*ends)}" for name, ends in zip(self.names, self.ends, strict=True)
        ]
        return f"{'; '.join(items)} {self.how}"


@lru_cache(maxsize=4096)
def _text(source: ArrayType, target: ArrayType) -> str:
    return f"{source} on {source.mesh} -> {target} on {target.mesh}"


def agreed_ends(requests: Sequence[Request], ranks: Sequence[int]) -> tuple[Ends, ...]:
    """The ends that all ranks mean; an error that shows the first difference if there is none.

    Ranks may name different meshes for a tensor if these are parts of one, as FSDP names the ranks of its
    own group: then the tensor is on all of them, a copy on each part. ``ranks`` has the numbers of the
    ranks in the job; meshes count in places there.
    """
    _check_names(requests, ranks)
    first = requests[0]
    found = []
    for item, name in enumerate(first.names):
        sides = [[request.ends[item][side] for request in requests] for side in (0, 1)]
        source, target = (_united(types) for types in sides)
        if source is None or target is None:
            raise RequestError(_why_apart(name, sides, ranks))
        found.append((source, target))
    hows = said_by([request.how for request in requests], ranks)
    if len(hows) > 1:
        said = "; ".join(f"{who}: {how}" for how, who in list(hows.items())[:2])
        raise RequestError(f"cannot move: ranks ask for different things; {said}")
    return tuple(found)


def _check_names(requests: Sequence[Request], ranks: Sequence[int]) -> None:
    """Raise unless all ranks move tensors of the same names."""
    every = [frozenset(request.names) for request in requests]
    odd = sorted({name for names in every for name in names - every[0] | every[0] - names})
    if odd:
        has = [rank for rank, names in zip(ranks, every, strict=True) if odd[0] in names]
        lacks = [rank for rank in ranks if rank not in has]
        those, others = ranks_in_words(has, 0), ranks_in_words(lacks, 0)
        if not odd[0]:  # a DTensor that is not in a dict has no name
            raise RequestError(
                f"cannot move: {those} {'gives' if len(has) == 1 else 'give'} a DTensor, {others} a dict; "
                "give the same on every rank"
            )
        more = f" (and so with {count_of(len(odd) - 1, 'more name')})" if odd[1:] else ""
        raise RequestError(
            f"cannot move {odd[0]!r}: only {those} asked for it, not {others}{more}; give the same names on "
            "every rank"
        )


def _united(types: Sequence[ArrayType]) -> ArrayType | None:
    """The type of which every rank names a part; None if there is none."""
    meshes = sorted({t.mesh for t in types}, key=lambda mesh: min(mesh.ranks))
    if len({_apart_from_ranks(t) for t in types}) > 1:
        return None
    if len(meshes) == 1:
        return types[0]
    members = [rank for mesh in meshes for rank in mesh.ranks]
    is_named = all(types[rank].mesh == mesh for mesh in meshes for rank in mesh.ranks)
    if len(set(members)) < len(members) or not is_named:
        return None
    name = "copies"
    while name in dict(meshes[0].axes):
        name += "_"
    mesh = Mesh([(name, len(meshes)), *meshes[0].axes], ranks=members)
    return _on_mesh(types[0], mesh)


def _apart_from_ranks(t: ArrayType) -> tuple[ArrayType, tuple[tuple[str, int], ...]]:
    """What types on parts of one mesh have in common."""
    return _on_mesh(t, Mesh(t.mesh.axes)), t.mesh.axes


def _on_mesh(t: ArrayType, mesh: Mesh) -> ArrayType:
    return ArrayType(mesh, t.dtype, t.shape, t.dims, t.pending_op, t.pending_axes)


def _why_apart(name: str, sides: Sequence[Sequence[ArrayType]], ranks: Sequence[int]) -> str:
    """Why the ends of a tensor do not fit together, by the first two ranks that differ."""
    what = f"{name!r}" if name else "a DTensor"
    for is_target, types in enumerate(sides):
        if _united(types) is not None:
            continue
        other = next(k for k, t in enumerate(types) if t != types[0])
        a, b = types[0], types[other]
        here, there = (ranks_in_words([ranks[k] for k in t.mesh.ranks], 0) for t in (a, b))
        if _apart_from_ranks(a) == _apart_from_ranks(b) and is_target:
            return (
                f"cannot move {what}: it goes to different meshes ({here} for rank {ranks[0]}; {there} for "
                f"rank {ranks[other]}); give the same mesh on every rank"
            )
        if _apart_from_ranks(a) == _apart_from_ranks(b):
            return (
                f"cannot move {what}: it is on a submesh ({here} for rank {ranks[0]}; {there} for rank "
                f"{ranks[other]}), and these are no parts of one mesh on the ranks that call; put it on the "
                "whole mesh with DTensor.from_local(v.to_local(), mesh, [v.placements[0], Replicate()], "
                "shape=v.shape, stride=v.stride())"
            )
        word, advice = "is on", ""
        if is_target:
            word, advice = "goes to", "; give the same mesh and placements on every rank"
        return (
            f"cannot move {what}: ranks ask for different things; it {word} {a} of {a.mesh} ({here}) for "
            f"rank {ranks[0]}, but {b} of {b.mesh} ({there}) for rank {ranks[other]}{advice}"
        )
    return f"cannot move {what}: ranks ask for different things"


def said_by(texts: Sequence[str | None], ranks: Sequence[int]) -> dict[str, str]:
    """Who says what, in words.

    >>> said_by(["a", None, "a", "b"], [4, 5, 6, 7])
    {'a': 'ranks 4, 6', 'b': 'rank 7'}
    """
    pairs = zip(ranks, texts, strict=True)
    found = by_text((rank, text) for rank, text in pairs if text is not None)
    return {text: ranks_in_words(who, 0) for text, who in found.items()}


def error_of_all(errors: Sequence[str | None], ranks: Sequence[int]) -> str | None:
    """One text for the errors of some ranks; None if there are none."""
    found = said_by(errors, ranks)
    if len(found) == 1 and None not in errors:
        return next(iter(found))
    said = [f"{who}: {text}" for text, who in found.items()]
    more = f"; and {len(said) - 3} more errors" if len(said) > 3 else ""
    return "; ".join(said[:3]) + more if said else None
