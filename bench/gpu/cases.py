"""The strided copies of the GPU table: packs and unpacks of permuted arrays, as lists of moves."""

from __future__ import annotations

import math
from dataclasses import dataclass

from redist.runtime.copies.copy_list import BufferCopy
from redist.runtime.copies.strided import Strided, c_strides, canonical

ITEM_BYTES = 4
"""Cases move f32 where they do not say otherwise."""
WHOLE, PACKED = 0, 1
"""The buffers."""


@dataclass(frozen=True, slots=True)
class CopyCase:
    """``whole.reshape(shape).transpose(order)`` made contiguous, or that undone.

    ``parts`` says that the slices along the first dim of the result are copies of their own, as
    tiles for so many ranks are.

    >>> case = CopyCase("4 column blocks", (8, 4, 2), (1, 0, 2), parts=True)
    >>> [(m.dst_offset, m.src_offset) for m in case.moves()]
    [(0, 0), (64, 8), (128, 16), (192, 24)]
    >>> case.moves()[0].form, case.n_bytes
    (Strided(block=8, dims=((8, 8, 32),)), 256)
    """

    name: str
    shape: tuple[int, ...]
    order: tuple[int, ...]
    parts: bool = False
    unpacks: bool = False
    item_bytes: int = ITEM_BYTES

    @property
    def n_bytes(self) -> int:
        """Of the array."""
        return math.prod(self.shape) * self.item_bytes

    @property
    def whole_bytes(self) -> int:
        """Of the buffer that is packed."""
        return self.n_bytes

    @property
    def label(self) -> str:
        """Its name in tables."""
        return f"{self.name}, {'unpack' if self.unpacks else 'pack'}"

    @property
    def packed_shape(self) -> tuple[int, ...]:
        """The shape of the contiguous side."""
        return tuple(self.shape[k] for k in self.order)

    @property
    def back(self) -> tuple[int, ...]:
        """The order of dims that undoes ``order``."""
        return tuple(self.order.index(k) for k in range(len(self.order)))

    def moves(self) -> list[BufferCopy]:
        """The list of copies between the buffers WHOLE and PACKED."""
        packed, item = self.packed_shape, self.item_bytes
        whole = c_strides(self.shape, item)
        to, of = c_strides(packed, item), [whole[k] for k in self.order]
        first = packed[0] if self.parts else 1
        cut = 1 if self.parts else 0
        out = []
        for k in range(first):
            there, here = (PACKED, k * to[0]), (WHOLE, k * of[0])
            if self.unpacks:
                form = canonical(packed[cut:], item, of[cut:], to[cut:])
                out.append(BufferCopy(*here, *there, _sorted(form)))
            else:
                form = canonical(packed[cut:], item, to[cut:], of[cut:])
                out.append(BufferCopy(*there, *here, form))
        return out


@dataclass(frozen=True, slots=True)
class FaceCase:
    """The six faces of a box of f32, so many layers each, side by side; or those put in their places.

    What ranks exchange whose boxes have neighbours on all sides. Every face is a copy of its own, without
    the edges of the box: no two faces share an element.

    >>> case = FaceCase("faces", (4, 4, 8), width=1)
    >>> case.n_bytes, len(case.moves())
    (224, 6)
    >>> case.moves()[-1].form
    Strided(block=4, dims=((2, 8, 128), (2, 4, 32)))
    """

    name: str
    shape: tuple[int, ...]
    width: int
    unpacks: bool = False
    item_bytes: int = ITEM_BYTES

    @property
    def n_bytes(self) -> int:
        """Of the faces."""
        return sum(math.prod(shape) for _, shape in self.faces()) * self.item_bytes

    @property
    def whole_bytes(self) -> int:
        """Of the box."""
        return math.prod(self.shape) * self.item_bytes

    @property
    def label(self) -> str:
        """Its name in tables."""
        return f"{self.name}, {'unpack' if self.unpacks else 'pack'}"

    def faces(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """First index and shape of every face."""
        w, out = self.width, []
        for dim, n in enumerate(self.shape):
            shape = tuple(w if k == dim else m - 2 * w for k, m in enumerate(self.shape))
            for at in (0, n - w):
                out.append((tuple(at if k == dim else w for k in range(len(shape))), shape))
        return out

    def moves(self) -> list[BufferCopy]:
        """The list of copies between the buffers WHOLE and PACKED."""
        whole, at, out = c_strides(self.shape, self.item_bytes), 0, []
        for first, shape in self.faces():
            start = sum(i * step for i, step in zip(first, whole, strict=True))
            packed = c_strides(shape, self.item_bytes)
            sides = (whole, packed) if self.unpacks else (packed, whole)
            form = canonical(shape, self.item_bytes, *sides)
            ends = (WHOLE, start, PACKED, at) if self.unpacks else (PACKED, at, WHOLE, start)
            out.append(BufferCopy(*ends, form))
            at += math.prod(shape) * self.item_bytes
        return out


def _sorted(form: Strided) -> Strided:
    """Dims in the order of the destination, the slowest first."""
    dims = sorted(form.dims, key=lambda dim: (-abs(dim[1]), -abs(dim[2])))
    return Strided(form.block, tuple(dims))


_FORMS = (
    ("4 column blocks", (128, 4, 32), (1, 0, 2), (0, 2), True),
    ("8 column blocks", (128, 8, 16), (1, 0, 2), (0, 2), True),
    ("permute (1,0,2), 4 KiB runs", (4, 4, 1024), (1, 0, 2), (0, 1), False),
    ("permute (1,0,2), 256 B runs", (16, 16, 64), (1, 0, 2), (0, 1), False),
    ("transpose", (128, 128), (1, 0), (0, 1), False),
    ("permute (0,2,1)", (4, 64, 64), (0, 2, 1), (1, 2, 0), False),
    ("permute (2,0,1)", (16, 16, 64), (2, 0, 1), (1, 2, 0), False),
    ("permute (2,1,0)", (16, 16, 64), (2, 1, 0), (1, 2, 0), False),
    ("cyclic, stride 4", (128, 32, 4), (2, 0, 1), (0, 1), True),
)
"""Name, shape of 2**14 elements, order, the dims that are doubled in turn, whether in parts."""


def copy_cases(n_bytes: int) -> list[CopyCase]:
    """All cases for arrays of at least so many bytes.

    >>> cases = copy_cases(2**30)
    >>> cases[0].shape, cases[4].label, cases[9].label, {case.n_bytes for case in cases}
    ((16384, 4, 4096), 'permute (1,0,2), 4 KiB runs, pack', 'transpose, unpack', {1073741824})
    """
    out = []
    for name, shape, order, doubled, parts in _FORMS:
        dims, turn = list(shape), 0
        while math.prod(dims) * ITEM_BYTES < n_bytes:
            dims[doubled[turn % len(doubled)]] *= 2
            turn += 1
        out += [CopyCase(name, tuple(dims), order, parts, unpacks) for unpacks in (False, True)]
    return out


def more_cases(n_bytes: int) -> list[CopyCase | FaceCase]:
    """Transposes of small elements and of odd pitches, and the faces of boxes of so many bytes.

    >>> [(case.name, case.shape) for case in more_cases(2**30)[::2]][:4]  # doctest: +NORMALIZE_WHITESPACE
    [('transpose, 1-byte elements', (32768, 32768)), ('transpose, 2-byte elements', (32768, 16384)),
     ('transpose, odd pitches', (16383, 16385)),
     ('transpose, 2-byte elements, odd pitches', (32767, 16385))]
    """
    kinds = [
        ("transpose, 1-byte elements", 1, 0),
        ("transpose, 2-byte elements", 2, 0),
        ("transpose, odd pitches", 4, 1),
        ("transpose, 2-byte elements, odd pitches", 2, 1),
        ("transpose, 1-byte elements, odd pitches", 1, 1),
    ]
    out: list[CopyCase | FaceCase] = []
    for name, item, odd in kinds:
        rows = 1 << (n_bytes // item).bit_length() // 2
        shape = (rows - odd, n_bytes // item // rows + odd)
        out += [CopyCase(name, shape, (1, 0), False, back, item) for back in (False, True)]
    side = 1 << (n_bytes // ITEM_BYTES).bit_length() // 3
    box = (side, side, n_bytes // ITEM_BYTES // side**2)
    for width in (1, 4):
        name = f"faces of a box, {width} deep"
        out += [FaceCase(name, box, width, back) for back in (False, True)]
    return out
