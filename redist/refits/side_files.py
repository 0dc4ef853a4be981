"""Weights from files: a side written by hand as TOML, or one that was saved as JSON."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from redist.errors import ArgumentError, ReadError, RedistError
from redist.refits.weights import Weights
from redist.refits.weights_json import weights_from_dict

KEYS = ("mesh", "names", "shapes", "types")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


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
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, IndexError) as problem:
        raise ReadError(f"cannot read weights from {str(path)!r}: {problem}") from None
    except RedistError as problem:
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
