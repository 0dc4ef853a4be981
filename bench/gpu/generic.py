"""The same lists of copies by CuPy's own strided copies: what our kernels are measured against.

Elements are those of the arrays, f32: a user of CuPy writes ``b[...] = a[:, 4:8]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from redist.runtime.copies.addresses import Addresses
from redist.runtime.copies.copy_list import BufferCopy
from redist.runtime.cuda.kernels.copies import CudaCopyList

_WORDS = (4, 2, 1)


def word_of(move: BufferCopy) -> int:
    """The widest element, up to f32, in which a move can be written.

    >>> from redist.runtime.copies.strided import Strided
    >>> word_of(BufferCopy(0, 0, 1, 4, Strided(16, ((3, 16, 32),))))
    4
    """
    numbers = [move.form.block, move.dst_offset, move.src_offset]
    numbers += [stride for dim in move.form.dims for stride in dim[1:]]
    return next(word for word in _WORDS if all(n % word == 0 for n in numbers))


def views(move: BufferCopy, bases: Sequence[int]) -> tuple[Any, Any]:
    """Destination and source of a move as arrays of CuPy, over memory that lies there."""
    import cupy

    word = word_of(move)
    while any(int(bases[k]) % word for k in (move.dst, move.src)):
        word //= 2
    shape = [*(dim[0] for dim in move.form.dims), move.form.block // word]
    out = []
    for number, offset, side in ((move.dst, move.dst_offset, 1), (move.src, move.src_offset, 2)):
        strides = [*(dim[side] for dim in move.form.dims), word]
        memory = cupy.cuda.UnownedMemory(int(bases[number]) + offset, 1, None)
        start = cupy.cuda.MemoryPointer(memory, 0)
        out.append(cupy.ndarray(shape, np.dtype(f"u{word}"), memptr=start, strides=strides))
    return out[0], out[1]


class GenericMoves:
    """A list of copies, one call of ``cupy.copyto`` for each; views are made once."""

    def __init__(self, moves: Sequence[BufferCopy]) -> None:
        self.moves = tuple(moves)
        self._views: dict[bytes, list[tuple[Any, Any]]] = {}

    def run(self, bases: Addresses) -> None:
        """Start them on the current stream."""
        import cupy

        key = bases.tobytes()
        if key not in self._views:
            self._views[key] = [views(move, bases.tolist()) for move in self.moves]
        for to, of in self._views[key]:
            cupy.copyto(to, of)


@contextmanager
def generic_copies(lists: dict[int, GenericMoves]) -> Iterator[None]:
    """While inside, transfers on GPUs copy by CuPy's own copies instead of by our kernels.

    ``lists`` keeps what was made, by the number of the list that it stands for.
    """

    def bind(self: CudaCopyList, bases: Addresses, stream: int = 0) -> list[Callable[[], None]]:
        if not self.moves:
            return []
        return [partial(lists.setdefault(id(self), GenericMoves(self.moves)).run, bases)]

    with patch.object(CudaCopyList, "bind", bind):
        yield
