"""Read array types from text: ``f32[1024{x}, 512{y}] sum{z}``; ``str`` of a type writes it.

::

    type    := dtype "[" dim ("," dim)* "]" pending?
    dim     := product ("+" product)*                 segments, one after another
    product := factor ("*" factor)*                   digits of an index, major first
    factor  := size cuts? | "(" dim ")"
    cuts    := "{" axes ("/" block ("@" first)? | "=" length (";" length)*)? "}"
    axes    := (axis (":(" before ")" size)?) ","*    parts of axes, major first
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from redist.errors import LayoutError
from redist.layout.array_type import OPS, ArrayType
from redist.layout.axes import SubAxis, check_chain
from redist.layout.cuts import cut_dim
from redist.layout.dtype import DType
from redist.layout.mesh import AXIS_NAME, Mesh
from redist.layout.segments import Factor, Segment, Segments, axes_of, check_segments, size_of
from redist.text.reader import NUMBER, Reader
from redist.text.units import count_of

_DTYPE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[A-Za-z0-9]+\](?=\s*\[))?")
_WORD = re.compile(r"[A-Za-z_]+")


def parse_type(text: str, mesh: Mesh) -> ArrayType:
    """Read a type from ``text`` that uses the axes of ``mesh``.

    >>> print(parse_type("float32[ 512{x}1024, 12{y:(2)2} ]", Mesh(x=2, y=4)))
    f32[1024{x}, 12{y:(2)2}]
    >>> parse_type("f32[8{x]", Mesh(x=2))
    Traceback (most recent call last):
    ...
    redist.errors.ParseError: cannot parse 'f32[8{x]': expected ',' or '}' at character 8 (']')
    """
    reader = Reader(text)
    dtype = _dtype(reader)
    reader.expect("[", "expected '[' after the dtype")
    shape: list[int] = []
    dims: list[tuple[SubAxis, ...]] = []
    every: list[Segments] = []
    seen: list[SubAxis] = []
    while not reader.accept("]"):
        if shape:
            reader.expect(",", "expected ',' or ']'")
        size, axes, segments = _dim(reader, mesh, seen)
        shape.append(size)
        dims.append(axes)
        every.append(segments)
    op: str | None = None
    pending: tuple[SubAxis, ...] = ()
    reader.skip_space()
    start = reader.at
    if reader.at < len(text):
        op = reader.match(_WORD, f"expected the end or a reduction ({', '.join(OPS)})")
        if op not in OPS:
            raise reader.fail(f"unknown reduction {op!r}, expected one of {', '.join(OPS)}", start)
        reader.expect("{", "expected '{' and axes")
        pending = _axes(reader, mesh, seen)
        reader.expect("}", "expected ',' or '}'")
        if not pending:
            raise reader.fail("expected an axis", reader.at - 1)
    reader.skip_space()
    if reader.at < len(text):
        raise reader.fail("expected the end")
    found = tuple(every) if any(every) else ()
    return ArrayType(mesh, dtype, tuple(shape), tuple(dims), op, pending, found)


def read_type(text: str, mesh: Mesh, dtype: DType, shape: Sequence[int]) -> ArrayType:
    """Read the type of an array of this dtype and shape: a complete type, or only the cuts of its dims.

    >>> print(read_type("{x}, {}", Mesh(x=2), DType.parse("f32"), (4, 6)))
    f32[4{x}, 6]
    """
    if "[" in text:
        return parse_type(text, mesh)
    cuts = _split(text)
    if len(cuts) != len(shape):
        raise LayoutError(
            f"cannot use the type {text!r}: {count_of(len(cuts), 'dim')}, but the array "
            f"has {len(shape)}"
        )
    body = ", ".join(
        cut if cut[:1].isdigit() or cut[:1] == "(" else f"{n}{'' if cut in ('', '{}') else cut}"
        for n, cut in zip(shape, cuts, strict=True)
    )
    return parse_type(f"{dtype}[{body}]", mesh)


def _split(text: str) -> list[str]:
    """Split the cuts of dims at commas outside braces."""
    out, depth = [""], 0
    for letter in text:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            out.append("")
        else:
            out[-1] += letter
    cuts = [cut.strip() for cut in out]
    return [] if cuts == [""] else cuts


def parse_dim(text: str, mesh: Mesh) -> Segments:
    """Read the segments of one dim from text such as ``4096{tp}+2*1024``."""
    reader = Reader(text)
    segments = _sum(reader, mesh, [])
    reader.skip_space()
    if reader.at < len(text):
        raise reader.fail("expected the end")
    return segments


def _dtype(reader: Reader) -> DType:
    reader.skip_space()
    start = reader.at
    name = reader.match(_DTYPE, "expected a dtype such as f32")
    try:
        return DType.parse(name)
    except LayoutError as error:
        raise reader.fail(str(error), start) from None


Dim = tuple[int, tuple[SubAxis, ...], Segments]
"""The size of a dim, the axes of a plain one, the segments of another."""


def _dim(reader: Reader, mesh: Mesh, seen: list[SubAxis]) -> Dim:
    """``1024``, ``1024{x}``, ``512{x}1024`` (the tile written out and checked), or a sum of products."""
    reader.skip_space()
    start = reader.at
    segments = _sum(reader, mesh, seen)
    only = segments[0][0] if len(segments) == 1 and len(segments[0]) == 1 else None
    seen += axes_of(mesh, segments) if only is None or only.inner else only.axes
    reader.skip_space()
    if reader.at < len(reader.text) and NUMBER.match(reader.text, reader.at):
        if reader.text[: reader.at].rstrip()[-1:] not in ("}", ")"):
            raise reader.fail("expected ',' or ']'")
        if only is None or not only.is_plain:
            raise reader.fail("a tile written out stands alone; write the size first")
        apart = reader.text[reader.at - 1].isspace()
        tile, size = only.size, reader.number("expected the size of the dim")
        cut = cut_dim(size, only.n_tiles)
        if tile != cut.tile_size:
            missing = f"; or is a ',' missing before {size}?" if apart else ""
            raise reader.fail(
                f"the tile of {size} cut by {cut.n_tiles} is {cut.tile_size}, not {tile}{missing}",
                start,
            )
        only = Factor(size, only.axes)
    if only is not None and only.is_plain:
        return only.size, only.axes, ()
    return size_of(segments), (), segments


def _sum(reader: Reader, mesh: Mesh, seen: list[SubAxis]) -> Segments:
    """Products one after another; ``seen`` are the axes of other dims and of factors before."""
    reader.skip_space()
    start = reader.at
    segments = [*_product(reader, mesh, seen)]
    while reader.accept("+"):
        segments += _product(reader, mesh, seen)
    if len(segments) == 1 and len(segments[0]) == 1 and not segments[0][0].inner:
        return tuple(segments)  # its axes and lengths have been looked at
    try:
        check_segments(mesh, tuple(segments))
    except LayoutError as error:
        raise reader.fail(str(error), start) from None
    return tuple(segments)


def _product(reader: Reader, mesh: Mesh, seen: list[SubAxis]) -> Segments:
    """Factors; numbers behind a sum in brackets multiply each of its segments."""
    before: list[Factor] = []
    inner: Segments | None = None
    behind: list[Factor] = []
    path = list(seen)
    while True:
        reader.skip_space()
        start = reader.at
        if reader.accept("("):
            if inner is not None:
                raise reader.fail(
                    "a sum can be multiplied by numbers behind it, not by another sum", start
                )
            inner = _sum(reader, mesh, path)
            reader.expect(")", "expected '+', '*' or ')'")
            path += axes_of(mesh, inner)
            if len(inner) == 1 and not inner[0][-1].inner:
                before += inner[0]
                inner = None
        else:
            factor = _factor(reader, mesh, path)
            path += factor.axes
            (before if inner is None else behind).append(factor)
        if not reader.accept("*"):
            break
    if inner is None:
        return (tuple(before),)
    grown: tuple[Segment, ...] = tuple((*segment, *behind) for segment in inner)
    if behind and any(segment[-1].inner for segment in inner):
        raise reader.fail("a sum can be multiplied by numbers behind it, not by another sum")
    return ((*before, Factor(size_of(grown), inner=grown)),)


def _factor(reader: Reader, mesh: Mesh, path: list[SubAxis]) -> Factor:
    """``1024``, ``1024{x}``, ``4096{x/48}``, ``4096{x/48@16}`` or ``10{x=3;7}``."""
    size = reader.number("expected the size of a dim")
    if not reader.peek("{"):
        return Factor(size)
    reader.accept("{")
    axes = _axes(reader, mesh, path)
    start = reader.at
    if reader.accept("}"):
        return Factor(size, axes)
    if reader.accept("/"):
        block = reader.number("expected the size of a block")
        if block == 0:
            raise reader.fail("a block has at least one index", start + 1)
        first = reader.number("expected an index") if reader.accept("@") else 0
        reader.expect("}", "expected '}'")
        return Factor(size, axes, block, first)
    if reader.accept("="):
        lengths = [reader.number("expected the length of a tile")]
        while reader.accept(";"):
            lengths.append(reader.number("expected the length of a tile"))
        reader.expect("}", "expected ';' or '}'")
        factor = Factor(size, axes, lengths=tuple(lengths))
        if len(lengths) != factor.n_tiles or sum(lengths) != size:
            raise reader.fail(
                f"need {factor.n_tiles} lengths that add up to {size}, "
                f"got {len(lengths)} that add up to {sum(lengths)}",
                start,
            )
        return factor
    raise reader.fail("expected ',' or '}'")


def _axes(reader: Reader, mesh: Mesh, seen: list[SubAxis]) -> tuple[SubAxis, ...]:
    """``x, y:(2)3``; ``seen`` are the parts that may not be used again."""
    parts: list[SubAxis] = []
    while reader.ahead() not in ("}", "/", "="):
        if parts:
            reader.expect(",", "expected ',' or '}'")
        reader.skip_space()
        start = reader.at
        name = reader.match(AXIS_NAME, "expected an axis name")
        if name not in dict(mesh.axes):
            known = ", ".join(axis for axis, _ in mesh.axes) or "none"
            raise reader.fail(f"unknown axis {name!r}, the mesh has {known}", start)
        part = SubAxis(name, 1, mesh.size(name))
        if reader.accept(":"):
            reader.expect("(", "expected '(' as in x:(2)3")
            pre = reader.number("expected the size before the sub-axis")
            reader.expect(")", "expected ')'")
            part = SubAxis(name, pre, reader.number("expected the size of the sub-axis"))
        try:
            check_chain(mesh, [*seen, *parts, part])
        except LayoutError as error:
            raise reader.fail(str(error), start) from None
        parts.append(part)
    return tuple(parts)
