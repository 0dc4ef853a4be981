"""Read rules: ``*.qkv[q|k|v, :] = *.q, *.k, *.v``.

::

    rule    := stored dims? "=" part ("," part)*
    dims    := "[" sum ("," sum)* "]"
    sum     := product ("|" product)*          segments, one after another
    product := item ("*" item)*                digits of an index, major first
    item    := number | letters | ":" | "_" number? | "(" sum ")"
    part    := name dims?
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from redist.names.patterns import NamePattern
from redist.text.reader import NUMBER, Reader

MOST_SEGMENTS = 4096
_NAME = re.compile(r"[^\s\[\]=,|]+")
_LETTERS = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_BRACES = re.compile(r"\{[A-Za-z][A-Za-z0-9]*\}|[{}]")


@dataclass(frozen=True, slots=True)
class Digit:
    """A factor of a dim: a number, or a variable that stands for one.

    The variable of a letter is the letter, that of ``:`` is ``:0`` in dim 0, that of ``_`` has the
    character at which it stands.
    """

    text: str
    variable: str
    number: int | None = None
    is_padding: bool = False
    at: int = field(default=0, compare=False)

    def size(self, sizes: Mapping[str, int]) -> int:
        """How many values it has."""
        return sizes[self.variable] if self.number is None else self.number


Segments = tuple[tuple[Digit, ...], ...]
"""The digits of each segment of a dim."""
Place = tuple[int, tuple[int, ...]]
"""Where a segment of a dim begins, and the steps of its digits."""


@dataclass(frozen=True, slots=True)
class Sum:
    """Products one after another; an item of a product is a digit or a sum."""

    products: tuple[tuple[Digit | Sum, ...], ...]

    @property
    def segments(self) -> Segments:
        """The digits of each segment; where a product has several sums, the first one is major."""
        found: list[tuple[Digit, ...]] = []
        for product in self.products:
            options = [i.segments if isinstance(i, Sum) else ((i,),) for i in product]
            found += [tuple(itertools.chain(*one)) for one in itertools.product(*options)]
        return tuple(found)

    @property
    def n_segments(self) -> int:
        """How many segments there are."""
        return sum(
            math.prod(item.n_segments if isinstance(item, Sum) else 1 for item in product)
            for product in self.products
        )

    def size(self, sizes: Mapping[str, int]) -> int:
        """The size of the dim."""
        return sum(_size(product, sizes) for product in self.products)

    def places(self, sizes: Mapping[str, int]) -> tuple[Place, ...]:
        """Where each of the segments lies.

        >>> q, k = Digit("q", "q"), Digit("k", "k")
        >>> Sum(((Digit("2", "", 2), Sum(((q,), (k,)))),)).places({"q": 4, "k": 1})
        ((0, (5, 1)), (4, (5, 1)))
        """
        found: list[Place] = []
        offset = 0
        for product in self.products:
            options: list[list[Place]] = []
            for number, item in enumerate(product):
                behind = _size(product[number + 1 :], sizes)
                inner = item.places(sizes) if isinstance(item, Sum) else ((0, (1,)),)
                options.append(
                    [(s * behind, tuple(t * behind for t in steps)) for s, steps in inner]
                )
            for one in itertools.product(*options):
                start = offset + sum(place[0] for place in one)
                found.append((start, tuple(itertools.chain(*(place[1] for place in one)))))
            offset += _size(product, sizes)
        return tuple(found)


def _size(product: tuple[Digit | Sum, ...], sizes: Mapping[str, int]) -> int:
    return math.prod(item.size(sizes) for item in product)


Ref = tuple[int, int]
"""A digit of a segment: the stored dim, and which of its digits."""


@dataclass(frozen=True, slots=True)
class RulePart:
    """One part of a rule: its name, and the digits of its segment that each of its dims is made of."""

    name: NamePattern
    segment: tuple[int, ...]  # which segment, for every stored dim
    dims: tuple[tuple[Ref, ...], ...]
    indices: tuple[tuple[str, Ref], ...]  # letters in braces: they choose the tensor


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. Without dims (None) its one part is the stored tensor under another name."""

    text: str
    stored: NamePattern
    dims: tuple[Sum, ...] | None
    segments: tuple[Segments, ...]  # of every dim
    parts: tuple[RulePart, ...]

    def digit(self, part: RulePart, ref: Ref) -> Digit:
        """The digit that a part refers to."""
        dim, place = ref
        return self.segments[dim][part.segment[dim]][place]


def parse_rule(text: str) -> Rule:
    """The rule that a text spells.

    >>> rule = parse_rule("*.qkv[8*(q|k|v), :] = *.q, *.k, *.v")
    >>> [part.name.pieces for part in rule.parts], rule.parts[1].dims
    ([('*', '.q'), ('*', '.k'), ('*', '.v')], (((0, 0), (0, 1)), ((1, 0),)))
    >>> parse_rule("*.qkv[q|k = *.q, *.k")
    Traceback (most recent call last):
    ...
    redist.errors.ParseError: cannot parse '*.qkv[q|k = *.q, *.k': expected '|', '*', ',' or ']'
    at character 11 ('=')
    """
    reader = Reader(text)
    stored, start = _name(reader)
    stored = NamePattern(stored.pieces, stored.letters)
    dims = _dims(reader, stored=True) if reader.peek("[") else None
    reader.expect("=", "expected '[' or '='" if dims is None else "expected '='")
    of_dims = tuple(dim.segments for dim in dims or ())
    for digit in (digit for dim in of_dims for digits in dim for digit in digits):
        if digit.variable in stored.shared:
            raise reader.fail("this letter stands in the stored name; take another", digit.at)
    segments = _segments(reader, of_dims, start)
    parts: list[RulePart] = []
    while True:
        name, at = _name(reader, stored.shared)
        lacking = [letter for letter in stored.shared if letter not in name.letters]
        if lacking:
            raise reader.fail(f"expected {{{lacking[0]}}}, as in the stored name", at)
        if name.n_stars != stored.n_stars:
            raise reader.fail(f"expected as many * as in the stored name, {stored.n_stars}", at)
        own = _dims(reader, stored=False) if reader.peek("[") else None
        if len(parts) == len(segments):
            raise reader.fail(
                f"one part too many: the stored dims have {_segments_of(segments)}", at
            )
        if dims is None:
            if own is not None or name.indices:
                raise reader.fail("the stored name has no dims that this could refer to", at)
            parts.append(RulePart(name, (), (), ()))
        else:
            parts.append(_part(reader, name, at, of_dims, segments[len(parts)], own))
        if not reader.accept(","):
            break
    if reader.ahead():
        raise reader.fail("expected ',' or the end")
    if len(parts) < len(segments):
        raise reader.fail(f"expected a part for each of {_segments_of(segments)}, got {len(parts)}")
    return Rule(text, stored, dims, of_dims, tuple(parts))


def _segments_of(segments: list[tuple[int, ...]]) -> str:
    return f"{len(segments)} segment{'s' if len(segments) > 1 else ''}"


def _name(reader: Reader, shared: tuple[str, ...] = ()) -> tuple[NamePattern, int]:
    text = reader.match(_NAME, "expected a name")
    start = reader.at - len(text)
    for found in _BRACES.finditer(text):
        if len(found[0]) == 1:
            raise reader.fail("expected an index such as {e}", start + found.start())
    return NamePattern.of(text, shared), start


def _segments(reader: Reader, of_dims: tuple[Segments, ...], start: int) -> list[tuple[int, ...]]:
    """The segments of all dims, the last dim fastest; those of padding are left out."""
    count = math.prod(len(segments) for segments in of_dims)
    if count > MOST_SEGMENTS:
        raise reader.fail(f"the stored dims have {count} segments; at most {MOST_SEGMENTS}", start)
    kept = [
        [n for n, digits in enumerate(segments) if not any(digit.is_padding for digit in digits)]
        for segments in of_dims
    ]
    found = list(itertools.product(*kept))
    if not found:
        raise reader.fail("the stored dims have nothing but padding", start)
    return found


def _dims(reader: Reader, *, stored: bool) -> tuple[Sum, ...]:
    reader.expect("[", "expected '['")
    dims: list[Sum] = []
    while not reader.accept("]"):
        if dims:
            reader.expect(
                ",", "expected '|', '*', ',' or ']'" if stored else "expected '*', ',' or ']'"
            )
        reader.skip_space()
        start = reader.at
        dim = _sum(reader, len(dims), stored=stored)
        whole = [digit for digits in dim.segments for digit in digits if digit.text == ":"]
        if stored and whole and dim != Sum(((whole[0],),)):
            raise reader.fail("':' is a dim as it is and stands alone; write a letter", start)
        dims.append(dim)
    return tuple(dims)


def _sum(reader: Reader, dim: int, *, stored: bool) -> Sum:
    products = [_product(reader, dim, stored=stored)]
    while reader.peek("|"):
        if not stored:
            raise reader.fail("dims of a part have no segments; they stand in the stored dims")
        reader.accept("|")
        products.append(_product(reader, dim, stored=stored))
    found = Sum(tuple(products))
    if found.n_segments > MOST_SEGMENTS:
        raise reader.fail(f"a dim has {found.n_segments} segments; at most {MOST_SEGMENTS}")
    return found


def _product(reader: Reader, dim: int, *, stored: bool) -> tuple[Digit | Sum, ...]:
    items = [_item(reader, dim, stored=stored)]
    while reader.accept("*"):
        items.append(_item(reader, dim, stored=stored))
    return tuple(items)


def _item(reader: Reader, dim: int, *, stored: bool) -> Digit | Sum:
    ahead, at = reader.ahead(), reader.at
    if reader.accept("("):
        inner = _sum(reader, dim, stored=stored)
        reader.expect(")", "expected '|', '*' or ')'" if stored else "expected '*' or ')'")
        return inner
    if reader.accept(":"):
        return Digit(":", f":{dim}", at=at)
    if ahead == "_":
        if not stored:
            raise reader.fail("padding stands in the stored dims only")
        reader.accept("_")
        if NUMBER.match(reader.text, reader.at):
            return Digit("_", "", reader.number("expected a number"), is_padding=True, at=at)
        return Digit("_", f"_{at}", is_padding=True, at=at)
    if NUMBER.match(ahead):
        number = reader.number("expected a number")
        return Digit(str(number), "", number, at=at)
    letters = reader.match(_LETTERS, "expected a number, a letter, ':', '_' or '('")
    return Digit(letters, letters, at=at)


def _part(
    reader: Reader, name: NamePattern, at: int, of_dims: tuple[Segments, ...],
    segment: tuple[int, ...], own: tuple[Sum, ...] | None,
) -> RulePart:  # fmt: skip
    """A part of a rule, its dims as digits of its segment."""
    digits: dict[Ref, Digit] = {}
    for dim, (segments, number) in enumerate(zip(of_dims, segment, strict=True)):
        digits |= {(dim, place): d for place, d in enumerate(segments[number])}
    indices = []
    for letter in name.indices:
        refs = [ref for ref, digit in digits.items() if digit.variable == letter]
        if len(refs) != 1:
            where = reader.text.index(f"{{{letter}}}", at)
            said = "twice" if refs else "not"
            raise reader.fail(f"{letter} is {said} in the stored dims of this part", where)
        indices.append((letter, refs[0]))
        del digits[refs[0]]
    if own is not None:
        made = tuple(tuple(_refs(reader, dim, digits)) for dim in own)
        left = [digit for digit in digits.values() if digit.number != 1]
        if left:
            raise reader.fail(f"the dims of this part lack {left[0].text} of the stored dims", at)
        return RulePart(name, segment, made, tuple(indices))
    by_dim = [tuple(ref for ref in digits if ref[0] == dim) for dim in range(len(of_dims))]
    return RulePart(name, segment, tuple(refs for refs in by_dim if refs), tuple(indices))


def _refs(reader: Reader, dim: Sum, digits: dict[Ref, Digit]) -> list[Ref]:
    """The digits that a dim of a part names, taken out of those that are left."""
    found = []
    for digit in dim.segments[0]:
        same = [ref for ref, other in digits.items() if other.text == digit.text]
        if same:
            found.append(same[0])
            del digits[same[0]]
        elif digit.number != 1:  # a dim of size 1 may be added
            raise reader.fail(f"{digit.text} is not left in the stored dims of this part", digit.at)
    return found


def parse_rules(lines: list[str]) -> tuple[Rule, ...]:
    """One rule a line; empty lines and those that begin with ``#`` are left out."""
    kept = [line.strip() for line in lines]
    return tuple(parse_rule(line) for line in kept if line and not line.startswith("#"))
