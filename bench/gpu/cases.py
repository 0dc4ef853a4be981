"""The strided copies of the GPU table: packs and unpacks of permuted arrays, as lists of moves."""

from __future__ import annotations

import math
from dataclasses import dataclass

from redist.runtime.copies.copy_list import BufferCopy
from redist.runtime.copies.strided import Strided, c_strides, canonical

ITEM_BYTES = 4
"""Every case moves f32."""
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

    @property
    def n_bytes(self) -> int:
        """Of the array."""
        return math.prod(self.shape) * ITEM_BYTES

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
        packed = self.packed_shape
        whole = c_strides(self.shape, ITEM_BYTES)
        to, of = c_strides(packed, ITEM_BYTES), [whole[k] for k in self.order]
        first = packed[0] if self.parts else 1
        cut = 1 if self.parts else 0
        out = []
        for k in range(first):
            there, here = (PACKED, k * to[0]), (WHOLE, k * of[0])
            if self.unpacks:
                form = canonical(packed[cut:], ITEM_BYTES, of[cut:], to[cut:])
                out.append(BufferCopy(*here, *there, _sorted(form)))
            else:
                form = canonical(packed[cut:], ITEM_BYTES, to[cut:], of[cut:])
                out.append(BufferCopy(*there, *here, form))
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
