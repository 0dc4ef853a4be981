"""The warning about expressions that bring much of an array onto every rank."""

from __future__ import annotations

import math
import warnings
from functools import lru_cache

from redist.errors import GatherWarning
from redist.layout.array_type import ArrayType
from redist.layout.lower_bound import lower_bound_bytes
from redist.text.call_site import Line, calling_line
from redist.text.units import format_bytes

SMALL_BYTES = 2**20
"""Smaller arrays may be anywhere."""
SHARE = 10
"""A tenth of an array is much."""


@lru_cache(maxsize=4096)
def gathered_bytes(source: ArrayType, target: ArrayType) -> int:
    """What every rank must receive of an array that gets more copies; 0 if that is little.

    >>> from redist.layout.mesh import Mesh
    >>> cut, whole = (ArrayType.parse(t, Mesh(x=4)) for t in ("f64[1024{x}, 1024]", "f64[1024, 1024]"))
    >>> gathered_bytes(cut, whole), gathered_bytes(whole, cut)
    (6291456, 0)
    """
    n_bytes = source.global_elems * source.dtype.itemsize
    if n_bytes < SMALL_BYTES or _copies(target) <= _copies(source):
        return 0
    received = lower_bound_bytes(source, target) // target.mesh.n_devices
    return received if received * SHARE > n_bytes else 0


def _copies(t: ArrayType) -> int:
    """How many devices hold each element, or a part of its pending value."""
    return t.mesh.n_devices // math.prod(t.cuts)


def warn_of_gather(source: ArrayType, target: ArrayType, rank: int, warned: set[Line]) -> None:
    """**Local.** Warn if a move gathers much, unless the user's line is among those ``warned`` of.

    Rank 0 speaks for all; where warnings are errors all ranks raise.
    """
    n_bytes = gathered_bytes(source, target)
    if not n_bytes:
        return
    line = calling_line()
    if line in warned:
        return
    warned.add(line)
    if rank != 0 and not _is_error(line):
        return
    share = 100 * target.tile_bytes // (source.global_elems * source.dtype.itemsize)
    warnings.warn_explicit(
        f"this gathers {format_bytes(n_bytes)} onto each of {target.mesh.n_devices} ranks: "
        f"{source} -> {target}, {share} % of the array everywhere; cut the operands alike with "
        f".to(type), or reduce before you combine; if every rank shall have it, "
        f'write .to("{target}") and keep the result',
        GatherWarning,
        line.file,
        line.number,
    )


def _is_error(line: Line) -> bool:
    with warnings.catch_warnings(record=True):
        try:
            warnings.warn_explicit("", GatherWarning, line.file, line.number)
        except GatherWarning:
            return True
    return False
