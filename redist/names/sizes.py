"""Sizes of the letters of a rule, from shapes that are known; then where its parts lie."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from redist.errors import ShapeError
from redist.names.part import Part, whole
from redist.names.rule import Digit, Ref, Rule, RulePart

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Equation:
    """A sum of products of digits, and what it must be."""

    terms: tuple[tuple[Digit, ...], ...]
    total: int
    dim: str

    def settle(self, sizes: dict[str, int]) -> bool:
        """Whether at most one size was not known; then it is now, or the sum does not come out."""
        constant, slope, unknown = 0, 0, ""
        for term in self.terms:
            factor, missing = 1, []
            for digit in term:
                size = digit.number if digit.number is not None else sizes.get(digit.variable)
                if size is None:
                    missing.append(digit.variable)
                else:
                    factor *= size
            if not missing:
                constant += factor
            elif len(missing) == 1 and missing[0] == (unknown or missing[0]):
                unknown = missing[0]
                slope += factor
            elif factor:
                return False
        rest = self.total - constant
        if not unknown or rest < 0:
            if rest:
                least = "at least " if unknown else ""
                raise ShapeError(f"the rule makes {least}{constant} of {self.dim}")
            return True
        if slope == 0:
            return False
        if rest % slope:
            raise ShapeError(f"the rule cannot make {self.dim}: {rest} is no multiple of {slope}")
        sizes[unknown] = rest // slope
        return True


def _solve(equations: Iterable[_Equation], sizes: dict[str, int]) -> dict[str, int]:
    left = list(equations)
    while True:
        still = [equation for equation in left if not equation.settle(sizes)]
        if len(still) == len(left):
            return sizes
        left = still


def _equations_of_part(rule: Rule, part: RulePart, shape: Shape) -> Iterator[_Equation]:
    name = "".join(part.name.pieces)
    if len(shape) != len(part.dims):
        raise ShapeError(f"the rule makes {len(part.dims)} dims of {name}, which has shape {shape}")
    for dim, (refs, size) in enumerate(zip(part.dims, shape, strict=True)):
        term = tuple(rule.digit(part, ref) for ref in refs)
        yield _Equation((term,), size, f"dim {dim} of {name}, which has {size}")


def _check_known(rule: Rule, sizes: Mapping[str, int]) -> None:
    """Every letter and all padding of the rule has a size."""
    digits = [digit for segments in rule.segments for digits in segments for digit in digits]
    for digit in sorted(digits, key=lambda digit: digit.is_padding):
        if digit.number is None and digit.variable not in sizes:
            like = ", as in _96" if digit.is_padding else ""
            raise ShapeError(f"the size of {digit.text} is not known; write it as a number{like}")


def stored_shape(rule: Rule, shapes: Sequence[Shape | None], counts: Mapping[str, int]) -> Shape:
    """The shape of the stored tensor that parts of these shapes make.

    ``counts`` says how many values each index has. Where an index chooses a tensor, the shape is that of
    the first one.
    """
    if rule.dims is None:
        (shape,) = shapes
        assert shape is not None
        return shape
    equations = [
        equation
        for part, shape in zip(rule.parts, shapes, strict=True)
        if shape is not None
        for equation in _equations_of_part(rule, part, shape)
    ]
    sizes = _solve(equations, dict(counts))
    _check_known(rule, sizes)
    return tuple(dim.size(sizes) for dim in rule.dims)


def frames_of(rule: Rule, shape: Shape, shapes: Sequence[Shape | None]) -> tuple[Part, ...]:
    """The parts of a stored tensor of this shape, for every index; names are formats of what ``*`` is.

    >>> from redist.names.rule import parse_rule
    >>> frames = frames_of(parse_rule("*.w[e, :] = *.{e}.w"), (2, 8), [None])
    >>> [(frame.name, frame.shape, frame.starts) for frame in frames]
    [('{0}.0.w', (8,), (0, 0)), ('{0}.1.w', (8,), (1, 0))]
    """
    if rule.dims is None:
        return (whole(rule.parts[0].name.with_indices({}), shape),)
    if len(shape) != len(rule.dims):
        raise ShapeError(f"the rule has {len(rule.dims)} dims, the stored tensor has {len(shape)}")
    equations = [
        _Equation(segments, size, f"a dim of {size}")
        for segments, size in zip(rule.segments, shape, strict=True)
    ]
    for part, known in zip(rule.parts, shapes, strict=True):
        if known is not None:
            equations += _equations_of_part(rule, part, known)
    sizes = _solve(equations, {})
    _check_known(rule, sizes)
    places = [dim.places(sizes) for dim in rule.dims]
    found: list[Part] = []
    for part in rule.parts:
        own = [of_dim[number] for of_dim, number in zip(places, part.segment, strict=True)]

        def run(ref: Ref, part: RulePart = part, own: list[tuple[int, Shape]] = own) -> Run:
            return rule.digit(part, ref).size(sizes), ref[0], own[ref[0]][1][ref[1]]

        runs = [[run(ref) for ref in refs] for refs in part.dims]
        found += _frames(part, runs, [run(ref) for _, ref in part.indices], [s for s, _ in own])
    return tuple(found)


Run = tuple[int, int, int]
"""Size, stored dim and step of a digit."""


def _frames(
    part: RulePart, runs: list[list[Run]], indices: list[Run], starts: list[int]
) -> Iterator[Part]:
    """One part for each value of the indices."""
    shape = tuple(math.prod(size for size, _, _ in of_dim) for of_dim in runs)
    joined = [run for of_dim in runs for run in _join(of_dim)]
    digits, dims, steps = (tuple(run[k] for run in joined) for k in range(3))
    letters = [letter for letter, _ in part.indices]
    for values in itertools.product(*(range(size) for size, _, _ in indices)):
        at = list(starts)
        for value, (_, dim, step) in zip(values, indices, strict=True):
            at[dim] += value * step
        name = part.name.with_indices(dict(zip(letters, values, strict=True)))
        yield Part(name, shape, digits, dims, steps, tuple(at))


def _join(runs: list[Run]) -> list[Run]:
    """Neighbours that are one digit, joined.

    >>> _join([(8, 0, 96), (1, 0, 32), (3, 0, 32), (32, 0, 1)])
    [(768, 0, 1)]
    """
    found: list[Run] = []
    for run in runs:
        size, dim, step = run
        if found and size == 1:
            continue
        if found and (found[-1][0] == 1 or found[-1][1:] == (dim, size * step)):
            run = (found.pop()[0] * size, dim, step)
        found.append(run)
    return found
