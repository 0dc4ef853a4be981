"""What one rank holds, as the copies of a loader tell it: boxes of named tensors in its stored tensors.

A loader copies views of named tensors into views of what it stores. A view of a tensor is a list of
strided dims; where these are dims of the tensor, or digits of them, the view is a few boxes::

    param[0:8].copy_(q[rank * 8 : rank * 8 + 8])      rows 8 to 16 of q, in one box
    param.view(2, 6, 4)[:, 0:4].copy_(q.view(2, 4, 4))    4 rows of q behind each other, twice: two boxes
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from redist.check.box_places import Places
from redist.check.boxes import Boxes
from redist.errors import ArgumentError, LayoutError
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.layout.notation import parse_type
from redist.names.digits import boxes_in

Shape = tuple[int, ...]


class RecordedBox(NamedTuple):
    """Indices ``lo`` to ``lo + shape`` of a named tensor, and where they lie in a stored one.

    The first begins at byte ``offset``, and neighbours along a dim are ``strides`` bytes apart.
    """

    stored: str
    tensor: str
    lo: Shape
    shape: Shape
    offset: int
    strides: Shape


class View(NamedTuple):
    """Elements of a buffer: sizes of dims, steps between neighbours, place of the first, all in elements."""

    shape: Shape
    strides: Shape
    offset: int


@dataclass(frozen=True)
class Recorded:
    """What one rank holds: shape and dtype of its stored tensors, shapes of named ones, and boxes.

    >>> one = Recorded({"qkv": ((4, 2), DType.parse("bf16"))}, {"q": (4, 2)},
    ...                (RecordedBox("qkv", "q", (2, 0), (2, 2), 0, (4, 2)),))
    >>> Recorded.from_text(one.text) == one
    True
    """

    stored: Mapping[str, tuple[Shape, DType]]
    tensors: Mapping[str, Shape]
    boxes: tuple[RecordedBox, ...] = field(repr=False)

    @cached_property
    def by_tensor(self) -> dict[tuple[str, str], list[RecordedBox]]:
        """The boxes of each named tensor in each stored one."""
        found: dict[tuple[str, str], list[RecordedBox]] = {}
        for box in self.boxes:
            found.setdefault((box.stored, box.tensor), []).append(box)
        return found

    @cached_property
    def text(self) -> str:
        """As JSON text, which is equal for what is alike.

        Boxes that differ in their names and places alone share a form.
        """
        at, of = (
            {name: k for k, name in enumerate(names)} for names in (self.stored, self.tensors)
        )
        forms: dict[tuple[Shape, Shape, Shape], int] = {}
        boxes = []
        for b in self.boxes:
            form = forms.setdefault((b.lo, b.shape, b.strides), len(forms))
            boxes.append([at[b.stored], of[b.tensor], form, b.offset])
        data = {
            "stored": [[name, d.name, list(shape)] for name, (shape, d) in self.stored.items()],
            "tensors": [[name, list(shape)] for name, shape in self.tensors.items()],
            "forms": [[list(numbers) for numbers in form] for form in forms],
            "boxes": boxes,
        }
        return json.dumps(data, separators=(",", ":"))

    @staticmethod
    def from_text(text: str) -> Recorded:
        """What has this text."""
        data = json.loads(text)
        stored = {name: (tuple(shape), DType.parse(d)) for name, d, shape in data["stored"]}
        tensors = {name: tuple(shape) for name, shape in data["tensors"]}
        forms = [[tuple(numbers) for numbers in form] for form in data["forms"]]
        at, of = list(stored), list(tensors)
        boxes = tuple(
            RecordedBox(at[s], of[t], forms[k][0], forms[k][1], offset, forms[k][2])
            for s, t, k, offset in data["boxes"]
        )
        found = Recorded(stored, tensors, boxes)
        found.__dict__["text"] = text
        return found


def boxes_of_view(
    shape: Sequence[int], of: View, there: View
) -> Iterator[tuple[Shape, Shape, int, Shape]]:
    """The boxes of a tensor of this shape that a view ``of`` it has, and where they lie in a view like it.

    First index, shape, place of the first element, and step between neighbours of each dim, in elements.

    >>> whole, turned = View((3, 8), (8, 1), 8), View((3, 8), (1, 3), 100)
    >>> [*boxes_of_view((4, 8), whole, turned)]
    [((1, 0), (3, 8), 100, (1, 3))]
    >>> [*boxes_of_view((4, 8), View((32,), (1,), 0), View((32,), (2,), 0))]
    [((0, 0), (4, 8), 0, (16, 2))]
    """
    if 0 in of.shape:
        return
    steps = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    lo = [of.offset // step % n if n else 0 for n, step in zip(shape, steps, strict=True)]
    dims = [(n, a, b) for n, a, b in zip(of.shape, of.strides, there.strides, strict=True) if n > 1]
    digits: list[list[tuple[int, int, int]]] = [[] for _ in shape]
    flat: list[tuple[int, tuple[int, int, int]]] = []
    left = sorted(dims, key=lambda dim: dim[1])
    while left:
        n, a, b = left.pop(0)
        if a == 0:
            raise LayoutError("it has an element twice")
        d = next((d for d, size in enumerate(shape) if size > 1 and steps[d] <= a), None)
        if d is None or a % steps[d]:
            raise LayoutError("its elements are not along dims of the tensor")
        c = a // steps[d]
        taken = sum((m - 1) * step for m, step, _ in digits[d])
        if lo[d] + taken + (n - 1) * c < shape[d]:
            digits[d].append((n, c, b))
            continue
        # The view goes on into the next dim: as many steps as fit into this one are a digit of it.
        fit = shape[d] // c
        if fit > 1 and shape[d] % c == 0 and n % fit == 0 and lo[d] + taken < c:
            digits[d].append((fit, c, b))
            left = sorted([*left, (n // fit, a * fit, b * fit)], key=lambda dim: dim[1])
        elif c == 1 and not digits[d] and not left:
            flat.append((d, (n, a, b)))
        else:
            raise LayoutError("it goes on from one row into the middle of the next")
    rows = _flat_rows(shape, steps, of.offset, flat[0]) if flat else [(0, [], [])]
    until = flat[0][0] + 1 if flat else 0
    along = [_ranges(lo[d], digits[d]) for d in range(until, len(shape))]
    for begin, counted, row_steps in rows:
        for ranges in itertools.product(*along):
            first = (*(at for at, _ in counted), *(r[0] for r in ranges))
            counts = (*(n for _, n in counted), *(r[1] for r in ranges))
            place = there.offset + begin + sum(r[2] for r in ranges)
            yield first, counts, place, (*row_steps, *(r[3] for r in ranges))


def _ranges(lo: int, digits: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Ranges of one dim that has these digits, small steps first: first index, length, place, step."""
    inner = [(n, c, b) for n, c, b in digits if c == 1]
    length, step = (inner[0][0], inner[0][2]) if inner else (1, 0)
    outer = [digit for digit in digits if digit[1] != 1]
    if len(inner) > 1 or any(c < n for c, n in _reach(digits)):
        raise LayoutError("it has an element twice")
    found = []
    for index in itertools.product(*(range(n) for n, _, _ in reversed(outer))):
        chosen = list(zip(reversed(index), outer, strict=True))
        at = lo + sum(k * c for k, (_, c, _) in chosen)
        found.append((at, length, sum(k * b for k, (_, _, b) in chosen), step))
    return found


def _reach(digits: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """The step of each digit, and how far those before it reach."""
    reach = 1
    for n, c, _ in digits:
        yield c, reach
        reach += (n - 1) * c


def _flat_rows(
    shape: Sequence[int], steps: Sequence[int], offset: int, flat: tuple[int, tuple[int, int, int]]
) -> list[tuple[int, list[tuple[int, int]], list[int]]]:
    """Boxes of a range that goes on through several dims: place, first and count of each, steps."""
    d, (n, _, b) = flat
    first = offset // steps[d]
    sizes = [
        (size, step // steps[d]) for size, step in zip(shape[: d + 1], steps[: d + 1], strict=True)
    ]
    found = []
    for box in boxes_in(first, first + n, sizes):
        at = sum(k * step for (k, _), (_, step) in zip(box, sizes, strict=True)) - first
        found.append((at * b, list(box), [step * b for _, step in sizes]))
    return found


def types_of(by_rank: Mapping[int, Recorded]) -> dict[str, ArrayType]:
    """Types whose tile on each rank has the shape of its stored tensor: tiles one after another.

    >>> one = Recorded({"w": ((4, 2), DType.parse("bf16"))}, {}, ())
    >>> print(types_of({0: one, 3: one})["w"])
    bf16[8{rank}, 2]
    """
    having: dict[str, dict[int, tuple[Shape, DType]]] = {}
    for rank in sorted(by_rank):
        for name, tile in by_rank[rank].stored.items():
            having.setdefault(name, {})[rank] = tile
    known: dict[object, ArrayType] = {}
    found = {}
    for name in sorted(having):
        key = tuple(having[name].items())
        if key not in known:
            known[key] = _type_of(name, having[name])
        found[name] = known[key]
    return found


def _type_of(name: str, tiles: Mapping[int, tuple[Shape, DType]]) -> ArrayType:
    shapes = list(dict.fromkeys(shape for shape, _ in tiles.values()))
    dtypes = {dtype for _, dtype in tiles.values()}
    first = shapes[0]
    mesh = Mesh({"rank": len(tiles)}, ranks=list(tiles))
    differ = [
        d
        for d in range(len(first))
        if len({shape[d] for shape in shapes if len(shape) == len(first)}) > 1
    ]
    if len(dtypes) > 1 or len({len(shape) for shape in shapes}) > 1 or len(differ) > 1:
        said = ", ".join(f"{dtype}{list(shape)}" for shape, dtype in dict.fromkeys(tiles.values()))
        raise LayoutError(
            f"cannot put what ranks recorded together: {name!r} is {said}; tiles may differ in the size "
            "of one dim"
        )
    dim = differ[0] if differ else 0
    dims = [str(n) for n in first]
    if first:
        sizes = [shape[dim] for shape, _ in tiles.values()]
        even = len(shapes) == 1 or len(tiles) == 1
        lengths = "" if even else "=" + ";".join(map(str, sizes))
        dims[dim] = f"{sum(sizes)}{{rank{lengths}}}"
    return parse_type(f"{dtypes.pop()}[{', '.join(dims)}]", mesh)


def check_apart(one: Recorded) -> None:
    """**Local.** Raise if two boxes of a stored tensor have a byte in common: which of them would serve?

    >>> rows = lambda name, at: RecordedBox("p", name, (0,), (3,), at, (2,))
    >>> check_apart(Recorded({"p": ((6,), DType.parse("bf16"))}, {"a": (3,), "b": (3,)},
    ...                      (rows("a", 0), rows("b", 6))))
    """
    numbers = {name: k for k, name in enumerate(one.stored)}
    sizes = [dtype.itemsize for _, dtype in one.stored.values()]
    buffers = [
        (0, name, math.prod(shape) * size)
        for (name, (shape, _)), size in zip(one.stored.items(), sizes, strict=True)
    ]
    rows = [
        (numbers[b.stored], b.tensor, b.lo, b.shape, b.offset, b.strides, sizes[numbers[b.stored]])
        for b in one.boxes
    ]
    try:
        side = Boxes.of(one.tensors, buffers, rows)
        Places(side, side.n_dims)
    except ArgumentError as problem:
        what = str(problem).removeprefix("cannot use ")
        raise LayoutError(f"cannot use what a loader stored: {what}") from None


def tensors_of(sides: Iterable[Recorded]) -> dict[str, Shape]:
    """Named tensors and their shapes; an error if two ranks say different ones."""
    found: dict[str, Shape] = {}
    for side in sides:
        for name, shape in side.tensors.items():
            if found.setdefault(name, shape) != shape:
                raise LayoutError(
                    f"cannot put what ranks recorded together: {name!r} has shape {found[name]} and {shape}"
                )
    return found
