"""Weights as plain data, both ways: what ranks tell each other, and what is kept in files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redist.errors import ArgumentError, RedistError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.layout.notation import parse_type
from redist.refits.recorded import Recorded
from redist.refits.weights import Weights


def weights_to_dict(weights: Weights) -> dict[str, Any]:
    """Rules, meshes, types and the numbers of the types that tensors have; boxes if they were recorded.

    >>> weights_to_dict(Weights({"a": "f32[8{x}]", "b": "f32[8{x}]"}, "x=2"))
    {'names': '', 'meshes': ['x=2'], 'types': [[0, 'f32[8{x}]']], 'tensors': {'a': 0, 'b': 0}}
    """
    meshes: dict[Mesh, int] = {}
    types: dict[ArrayType, int] = {}
    tensors = {}
    for name, t in weights.types.items():
        meshes.setdefault(t.mesh, len(meshes))
        tensors[name] = types.setdefault(t, len(types))
    data: dict[str, Any] = {
        "names": str(weights.names),
        "meshes": [str(mesh) for mesh in meshes],
        "types": [[meshes[t.mesh], str(t)] for t in types],
        "tensors": tensors,
    }
    if weights.recorded_by_rank is None:
        return data
    sides = {id(one): one for one in weights.recorded_by_rank.values()}
    places = {key: k for k, key in enumerate(sides)}
    recorded = {
        "ranks": [[rank, places[id(one)]] for rank, one in weights.recorded_by_rank.items()],
        "sides": [one.text for one in sides.values()],
    }
    return {**data, "recorded": recorded}


def weights_from_dict(data: Mapping[str, Any], known: dict[str, Recorded] | None = None) -> Weights:
    """What :func:`weights_to_dict` made. What ranks recorded is read once for those that share ``known``.

    >>> one = Weights({"a": "f32[8{x}]"}, "x=2@3;1", names="a = b")
    >>> weights_from_dict(weights_to_dict(one)) == one
    True
    """
    try:
        if "recorded" in data:
            known = {} if known is None else known
            texts = data["recorded"]["sides"]
            for text in texts:
                if text not in known:
                    known[text] = Recorded.from_text(text)
            sides = [known[text] for text in texts]
            return Weights.recorded({rank: sides[k] for rank, k in data["recorded"]["ranks"]})
        meshes = [Mesh.parse(text) for text in data["meshes"]]
        types = [parse_type(text, meshes[k]) for k, text in data["types"]]
        found = {name: types[k] for name, k in data["tensors"].items()}
        return Weights(found, names=data["names"])
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as problem:
        if isinstance(problem, RedistError):
            raise
        raise ArgumentError(f"cannot read weights: {problem!r}") from None
