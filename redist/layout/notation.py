"""Read array types from text: ``f32[1024{x}, 512{y}] sum{z}``; ``str`` of a type writes it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from redist.errors import LayoutError, ParseError
from redist.layout.array_type import OPS, ArrayType
from redist.layout.axes import SubAxis, check_chain
from redist.layout.cuts import cut_dim
from redist.layout.dtype import DType
from redist.layout.mesh import AXIS_NAME, Mesh

_DTYPE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[A-Za-z0-9]+\](?=\s*\[))?")
_NUMBER = re.compile(r"[0-9]+")
_WORD = re.compile(r"[A-Za-z_]+")


@dataclass(slots=True)
class _Reader:
    """A position in a text; every method either moves on or raises at the right character."""

    text: str
    at: int = 0

    def fail(self, reason: str, at: int | None = None) -> ParseError:
        return ParseError(self.text, self.at if at is None else at, reason)

    def skip_space(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def peek(self, symbol: str) -> bool:
        self.skip_space()
        return self.text.startswith(symbol, self.at)

    def accept(self, symbol: str) -> bool:
        found = self.peek(symbol)
        self.at += len(symbol) if found else 0
        return found

    def expect(self, symbol: str, reason: str) -> None:
        if not self.accept(symbol):
            raise self.fail(reason)

    def match(self, pattern: re.Pattern[str], reason: str) -> str:
        self.skip_space()
        found = pattern.match(self.text, self.at)
        if found is None:
            raise self.fail(reason)
        self.at = found.end()
        return found[0]

    def number(self, reason: str) -> int:
        digits = self.match(_NUMBER, reason)
        if len(digits) > 18:
            raise self.fail("expected a number of at most 18 digits", self.at - len(digits))
        return int(digits)


def parse_type(text: str, mesh: Mesh) -> ArrayType:
    """The type that ``text`` spells on ``mesh``.

    >>> print(parse_type("float32[ 512{x}1024, 12{y:(2)2} ]", Mesh(x=2, y=4)))
    f32[1024{x}, 12{y:(2)2}]
    >>> parse_type("f32[8{x]", Mesh(x=2))
    Traceback (most recent call last):
    ...
    redist.errors.ParseError: cannot parse 'f32[8{x]': expected ',' or '}' at character 8 (']')
    """
    reader = _Reader(text)
    dtype = _dtype(reader)
    reader.expect("[", "expected '[' after the dtype")
    shape: list[int] = []
    dims: list[tuple[SubAxis, ...]] = []
    seen: list[SubAxis] = []
    while not reader.accept("]"):
        if shape:
            reader.expect(",", "expected ',' or ']'")
        size, axes = _dim(reader, mesh, seen)
        shape.append(size)
        dims.append(axes)
    op: str | None = None
    pending: tuple[SubAxis, ...] = ()
    reader.skip_space()
    start = reader.at
    if reader.at < len(text):
        op = reader.match(_WORD, f"expected the end or a reduction ({', '.join(OPS)})")
        if op not in OPS:
            raise reader.fail(f"unknown reduction {op!r}, expected one of {', '.join(OPS)}", start)
        pending = _axes(reader, mesh, seen)
        if not pending:
            raise reader.fail("expected an axis", reader.at - 1)
    reader.skip_space()
    if reader.at < len(text):
        raise reader.fail("expected the end")
    return ArrayType(mesh, dtype, tuple(shape), tuple(dims), op, pending)


def _dtype(reader: _Reader) -> DType:
    reader.skip_space()
    start = reader.at
    name = reader.match(_DTYPE, "expected a dtype such as f32")
    try:
        return DType.parse(name)
    except LayoutError as error:
        raise reader.fail(str(error), start) from None


def _dim(reader: _Reader, mesh: Mesh, seen: list[SubAxis]) -> tuple[int, tuple[SubAxis, ...]]:
    """``1024``, ``1024{x}`` or ``512{x}1024`` (the tile written out and checked)."""
    reader.skip_space()
    start = reader.at
    size = reader.number("expected the size of a dim")
    axes = _axes(reader, mesh, seen) if reader.peek("{") else ()
    reader.skip_space()
    if reader.at < len(reader.text) and _NUMBER.match(reader.text, reader.at):
        if not axes and reader.text[reader.at - 1] != "}":
            raise reader.fail("expected ',' or ']'")
        apart = reader.text[reader.at - 1].isspace()
        tile, size = size, reader.number("expected the size of the dim")
        cut = cut_dim(size, math.prod(part.size for part in axes))
        if tile != cut.tile_size:
            missing = f"; or is a ',' missing before {size}?" if apart else ""
            raise reader.fail(
                f"the tile of {size} cut by {cut.n_tiles} is {cut.tile_size}, not {tile}{missing}",
                start,
            )
    return size, axes


def _axes(reader: _Reader, mesh: Mesh, seen: list[SubAxis]) -> tuple[SubAxis, ...]:
    """``{x, y:(2)3}``; ``seen`` collects the parts of the whole type to catch an axis used twice."""
    reader.expect("{", "expected '{' and axes")
    parts: list[SubAxis] = []
    while not reader.accept("}"):
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
            check_chain(mesh, [*seen, part])
        except LayoutError as error:
            raise reader.fail(str(error), start) from None
        parts.append(part)
        seen.append(part)
    return tuple(parts)
