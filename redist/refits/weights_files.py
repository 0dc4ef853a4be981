"""Weights as plain data, both ways, and from files: JSON, and TOML that is written by hand."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from redist.errors import ArgumentError, ReadError, RedistError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.layout.notation import parse_type
from redist.refits.recorded import Recorded
from redist.refits.weights import Weights

KEYS = ("mesh", "names", "shapes", "types")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


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


def read_weights(path: str | Path) -> Weights:
    """The weights in a file: JSON of weights, or TOML with ``mesh``, ``types``, ``names`` and ``shapes``.

    ``types`` and ``names`` are those of :meth:`Weights.declare`. Keys of ``shapes`` may stand for several
    tensors: ``"layers.{0..7}.w"`` are eight.
    """
    where = Path(path)
    try:
        text = where.read_text(encoding="utf-8")
        if where.suffix == ".json":
            return weights_from_dict(json.loads(text))
        return _declared(_tables(text))
    except (OSError, ValueError, KeyError, TypeError, IndexError, RedistError) as problem:
        raise ReadError(f"cannot read weights from {str(path)!r}: {problem}") from None


def _tables(text: str) -> Mapping[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:  # pragma: no cover
        import tomli as tomllib

    return tomllib.loads(text)


def _declared(data: Mapping[str, Any]) -> Weights:
    unknown = sorted(set(data) - set(KEYS))
    if unknown:
        raise ArgumentError(f"unknown key {unknown[0]!r}; known: {', '.join(KEYS)}")
    types = data.get("types")
    if not isinstance(types, Mapping):
        raise ArgumentError("there is no table [types] with layouts by pattern")
    layouts = {pattern: text if text != "" else None for pattern, text in types.items()}
    given = data.get("shapes")
    shapes = None
    if given is not None and not isinstance(given, Mapping):
        raise ArgumentError("shapes is no table [shapes] with a shape by name")
    if given is not None:
        shapes = {name: text for key, text in given.items() for name in expanded(key)}
    return Weights.declare(layouts, data.get("mesh"), shapes=shapes, names=data.get("names"))


def expanded(text: str) -> Iterator[str]:
    """The names that ranges in braces stand for.

    >>> list(expanded("layers.{9..10}.experts.{0..1}.w"))[:3]
    ['layers.9.experts.0.w', 'layers.9.experts.1.w', 'layers.10.experts.0.w']
    """
    pieces = _RANGE.split(text)
    ranges = [range(int(a), int(b) + 1) for a, b in zip(pieces[1::3], pieces[2::3], strict=True)]
    if not all(ranges):
        raise ArgumentError(
            f"{text!r} stands for no name: the first number of a range is the lower one"
        )
    for one in itertools.product(*ranges):
        out = pieces[0]
        for number, rest in zip(one, pieces[3::3], strict=True):
            out += f"{number}{rest}"
        yield out
