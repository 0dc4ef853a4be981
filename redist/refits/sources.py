"""Where weights come from: dicts of the arrays that programs have, and what other ranks know."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from redist.errors import ArgumentError, ArgumentTypeError, RedistError
from redist.layout.array_type import ArrayType
from redist.refits.recorded import Recorded
from redist.refits.weights import Weights
from redist.refits.weights_files import weights_from_dict, weights_to_dict
from redist.text.nested import flattened


def types_in(state: Any) -> dict[str, ArrayType]:
    """**Local.** The types of the arrays in a dict; other arrays than those we know are refused."""
    found: dict[str, ArrayType] = {}
    for name, value in flattened(state, "take weights from"):
        if name in found:
            raise ArgumentError(f"cannot take weights: two arrays have the name {name!r}")
        found[name] = _type_of(name, value)
    return found


def _type_of(name: str, value: Any) -> ArrayType:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], ArrayType):
        return value[1]
    module = type(value).__module__.partition(".")[0]
    if hasattr(value, "placements"):
        from redist.torch.layouts import type_of as type_of_dtensor

        return type_of_dtensor(value)
    if module in ("jax", "jaxlib") and hasattr(value, "sharding"):
        from redist.jax.types import type_of as type_of_jax

        return type_of_jax(value)
    t = getattr(value, "type", None)
    if isinstance(t, ArrayType):
        return t
    raise ArgumentTypeError(
        f"cannot take {name!r} of {type(value).__name__} as a weight: it does not say how it lies on ranks; "
        "need a DTensor, a jax.Array, a global array, or a tile with its type as in "
        "(tile, redist.ArrayType.parse('f32[8, 4]', mesh))"
    )


def gathered(weights: Weights, comm: Any) -> Weights:
    """**Collective.** The weights of all ranks of a communicator or a process group."""
    said: tuple[str | None, str | None]
    try:
        said = json.dumps(weights_to_dict(weights)), None
    except RedistError as problem:  # told to all, who would wait
        said = None, str(problem)
    if type(comm).__module__.partition(".")[0] == "torch":
        from redist.torch.ranks import Ranks

        told = Ranks(comm).gather(said)
    else:
        from redist.runtime.ranks.waiting import TIMEOUT_S
        from redist.runtime.ranks.world import comm_or_world, world_of

        world = world_of(comm_or_world(comm))
        with world.operation(TIMEOUT_S):
            told = world.gather(said)
    for rank, (_, why) in enumerate(told):
        if why is not None:
            raise ArgumentError(f"cannot put weights together: rank {rank}: {why}")
    return united(read_all([text for text, _ in told]))


def read_all(texts: Sequence[str]) -> list[Weights]:
    """Weights from JSON texts; those that are alike are read once."""
    sides: dict[str, Recorded] = {}
    read = {text: weights_from_dict(json.loads(text), sides) for text in dict.fromkeys(texts)}
    return [read[text] for text in texts]


def united(parts: Sequence[Weights]) -> Weights:
    """The tensors of several sides as one, each named by the rank that says so.

    >>> stage = lambda k: Weights({f"layers.{k}.w": "f32[8{tp}]"}, f"tp=2@{2 * k}")
    >>> united([stage(0), stage(0), stage(1), stage(1)])
    <Weights: 2 tensors on 4 ranks>
    >>> united([stage(0), Weights({"layers.0.w": "f32[8]"}, "tp=2")])
    Traceback (most recent call last):
    ...
    redist.errors.ArgumentError: cannot put weights together: 'layers.0.w' is f32[8{tp}] on tp=2 for rank 0
    and f32[8] on tp=2 for rank 1; a name must be the same tensor on all ranks: number layers and experts as
    in the whole model
    """
    first = parts[0]
    different = {id(part): part for part in parts}
    if len(different) == 1:
        return first
    if any((part.recorded_by_rank is None) != (first.recorded_by_rank is None) for part in parts):
        raise ArgumentError(
            "cannot put weights together: some ranks recorded a loader, others did not"
        )
    if first.recorded_by_rank is not None:
        by_rank: dict[int, Recorded] = {}
        for part in parts:
            for rank, one in (part.recorded_by_rank or {}).items():
                if by_rank.setdefault(rank, one).text != one.text:
                    raise ArgumentError(
                        f"cannot put weights together: two loaders of rank {rank} were recorded, and differ; "
                        "give each its own rank, as in redist.Weights.recorded({rank: found})"
                    )
        return Weights.recorded(by_rank)
    types: dict[str, tuple[ArrayType, int]] = {}
    for rank, part in enumerate(parts):
        if part.names != first.names:
            raise ArgumentError(
                f"cannot put weights together: rank {rank} has other rules than rank 0; give all the same"
            )
        if different.pop(id(part), None) is None:
            continue
        for name, t in part.types.items():
            known, other = types.setdefault(name, (t, rank))
            if known != t:
                raise ArgumentError(
                    f"cannot put weights together: {name!r} is {known} on {known.mesh} for rank {other} and "
                    f"{t} on {t.mesh} for rank {rank}; a name must be the same tensor on all ranks: number "
                    "layers and experts as in the whole model"
                )
    return Weights({name: t for name, (t, _) in types.items()}, names=first.names)
