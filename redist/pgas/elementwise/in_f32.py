"""Functions that work on f32 copies of 16-bit floats, and round what they give."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from redist.pgas.elementwise.apply import astype
from redist.pgas.kinds import F32, AnyDType, is_float, is_half, is_stored, promote, refuse_if_stored
from redist.pgas.structures import mapped
from redist.pgas.tiles.tiled import Tiled

F = TypeVar("F", bound=Callable[..., Any])
SAID = "16-bit floats are converted to f32 for it, which takes a copy"


def in_f32(function: F) -> F:
    """Let a function work on f32 copies of 16-bit floats; f32 results are rounded back.

    Sorting, searching and counting lose nothing by it: every such float is one of 32 bits.
    """
    return _widened(function, rounds=True)


def gives_f32(function: F) -> F:
    """The same for a function whose results stay f32: factors of matrices are made to be used further."""
    return _widened(function, rounds=False)


def _widened(function: F, rounds: bool) -> F:
    name = function.__name__
    end = "; results are rounded back." if rounds else ", and so are results."

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        for one in (*args, *options.values()) if options else args:
            if _is_small(one):
                break
            if isinstance(one, (list, tuple)) and any(map(_is_small, one)):
                break
        else:
            return function(*args, **options)
        found: list[AnyDType] = []

        def widen(one: Any) -> Any:
            if isinstance(one, Tiled):
                found.append(one.dtype)
            if not _is_small(one):
                return one
            refuse_if_stored(f"use {name}", one.dtype)
            return astype(one, F32) if isinstance(one, Tiled) else one.astype(F32)

        made = function(*mapped(args, widen), **mapped(options, widen))
        target = promote(*filter(is_float, found))
        if not rounds or not is_half(target):
            return made
        return mapped(made, lambda one: _rounded(one, target))

    called.__doc__ = f"{function.__doc__ or ''} {SAID}{end}"
    return called  # type: ignore[return-value]


def _is_small(one: Any) -> bool:
    """Whether it has floats of 16 or 8 bits."""
    if not isinstance(one, (Tiled, np.ndarray, np.generic)):
        return False
    return is_half(one.dtype) or is_stored(one.dtype)


def _rounded(one: Any, target: AnyDType) -> Any:
    return astype(one, target) if isinstance(one, Tiled) and one.dtype == F32 else one
