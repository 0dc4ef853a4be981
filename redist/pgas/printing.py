"""How a global array prints: shape, dtype, type, and a corner of this rank's tile."""

from __future__ import annotations

import numpy as np

from redist.errors import RequestError
from redist.pgas.kinds import number_kind
from redist.pgas.tiles.devices import name_of
from redist.pgas.tiles.tiled import Tiled, tile_in

CORNER = 3
"""Elements shown along each dim."""


def format_array(a: Tiled) -> str:
    """Show an array in a few lines, without a message: every rank shows what it has.

    A number whose reduction is pending takes one line: ``<f64[] sum pending: float(a) on every rank>``.
    """
    if a.memory.is_ghost:
        return f"<{a.type}, captured: no values>"
    op = a.type.pending_op
    if op is not None and a.ndim == 0:
        return f"<{a.type.dtype}[] {op} pending: {number_call(a)} on every rank>"
    where = f", {name_of(a)}" if a.memory.on_device else ""
    head = f"pgas.Array {a.type} on {a.mesh}{where}"
    if op is not None:
        over = ", ".join(str(part) for part in dict.fromkeys(p.name for p in a.type.pending_axes))
        head += f": the {op} over {over} is pending"
    tile = tile_in(a)
    if tile is None:
        return f"{head}\n  rank {a.comm.rank} holds nothing of it"
    corner = a.memory.host(tile[(slice(CORNER),) * tile.ndim])
    body = np.array2string(corner, precision=4, separator=", ", threshold=50)
    more = "" if corner.shape == tile.shape else " ..."
    what = "tile" if op is None else f"only its part of the {op}"
    lines = [head, f"  rank {a.comm.rank}, {what} {list(tile.shape)}:{more}"]
    lines += [f"    {line}" for line in body.splitlines()]
    if op is not None:
        lines.append("  for all values, call a.gather() on every rank")
    return "\n".join(lines)


def format_value(a: Tiled) -> str:
    """**Local.** A number as NumPy prints it, if this rank has it; other arrays as above."""
    if a.ndim or a.type.pending_op is not None or a.memory.is_ghost or a.tile is None:
        return format_array(a)
    return str(a.memory.host(a.tile)[()])


def number_call(a: Tiled) -> str:
    """What to write for the number that an array without dims is."""
    return {"b": "bool(a)", "i": "int(a)", "u": "int(a)", "c": "complex(a)"}.get(
        number_kind(a.dtype), "float(a)"
    )


def format_number(a: Tiled, how: str) -> str:
    """**Local.** Write an array without dims as a number, as ``f"{a:.3f}"`` does.

    It sends no message, so that it may stand under ``if rank == 0``: a value that is still pending, or that
    lies on other ranks, is refused.
    """
    a.memory.check_values("format", a.type, noted=True)
    if a.memory.is_ghost:
        return format(a.dtype.type(1), how)
    if a.type.pending_op is None and a.tile is not None:
        return format(a.memory.number_in(a.tile), how)
    why = "it is on other ranks"
    if a.type.pending_op is not None:
        why = f"its {a.type.pending_op} is pending"
    raise RequestError(
        f"cannot write {a.type} as {how!r}: {why}, and formatting sends no message; "
        f"call {number_call(a)} on every rank, and format that"
    )
