"""What is known of a datatype, kept with it by MPI: its copies, for the host and for GPUs."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from mpi4py import MPI

from redist.errors import ArgumentError
from redist.runtime.copies.addresses import Addresses
from redist.runtime.copies.copy_list import CopyList
from redist.runtime.copies.kernels import kernels
from redist.runtime.cuda.arrays import current_stream
from redist.runtime.cuda.kernels.rounds import CudaCopyList
from redist.runtime.datatypes.strided_type import Blocks, StridedType, turned
from redist.text.latest import Latest
from redist.text.units import count_of

MOST_COUNTS = 8
"""Counts of a datatype whose copies are kept."""
FAR_BYTES = 2**25
"""From this size on bytes go past the cache; less is likely to be sent while it is still there."""


class TypeCopies:
    """The copies of so many elements of a datatype, made for the host and for GPUs when first needed."""

    def __init__(self, made: StridedType, count: int) -> None:
        self.count, self.n_bytes = count, made.n_bytes * count
        self.span = made.span(count)
        self._made = made
        self._blocks: Blocks | None = None
        self._on_host: dict[bool, CopyList] = {}
        self._on_gpu: dict[bool, CudaCopyList] = {}

    def __str__(self) -> str:
        each = f"a datatype of {count_of(self._made.n_bytes, 'byte')}"
        return each if self.count == 1 else f"{self.count} of {each}"

    @property
    def blocks(self) -> Blocks:
        """What is packed, by copies into packed bytes."""
        if self._blocks is None:
            self._blocks = self._made.times(self.count)
        return self._blocks

    def _moves(self, unpacks: bool) -> Blocks:
        return turned(self.blocks) if unpacks else self.blocks

    def run_on_host(self, packed: int, buffer: int, unpacks: bool) -> None:
        """**Local.** Copy between these addresses of the host."""
        moves = self._on_host.get(unpacks)
        if moves is None:
            streams = self.n_bytes >= FAR_BYTES
            moves = self._on_host[unpacks] = CopyList.of(self._moves(unpacks), streams)
        compiled = kernels()
        if compiled is None:
            moves.run(_table(packed, buffer))
        else:  # a table of ctypes is made in a fifth of the time
            table = _Addresses(packed, buffer)
            compiled.copy(*moves.pointer, ctypes.addressof(table), int(moves.streams))

    def run_on_gpu(self, packed: int, buffer: int, unpacks: bool) -> None:
        """**Local.** Start to copy, on the current stream; a GPU reaches both addresses."""
        moves = self._on_gpu.get(unpacks)
        if moves is None:
            moves = self._on_gpu[unpacks] = CudaCopyList.of(self._moves(unpacks))
        moves.run(_table(packed, buffer), current_stream().ptr)


_Addresses = ctypes.c_size_t * 2


def _table(packed: int, buffer: int) -> Addresses:
    return np.array([packed, buffer], dtype=np.uintp)


# Reading a datatype once


class _Kept:
    """What is known of a datatype, for as long as MPI has it."""

    def __init__(self, made: StridedType) -> None:
        self.made = made
        self.copies: Latest[int, TypeCopies] = Latest(MOST_COUNTS)


_KEY = MPI.Datatype.Create_keyval()
"""MPI keeps attributes with a datatype and drops them when it is freed: its number may come again."""


def copies_of(datatype: MPI.Datatype, count: int) -> TypeCopies:
    """**Local.** The copies of so many elements of a datatype, kept with it."""
    kept: Any = datatype.Get_attr(_KEY)
    if kept is None:
        _check_committed(datatype)
        kept = _Kept(StridedType.of(datatype))
        datatype.Set_attr(_KEY, kept)
    found = kept.copies.get(count)
    if found is None:
        found = kept.copies[count] = TypeCopies(kept.made, count)
    made: TypeCopies = found
    return made


def _check_committed(datatype: MPI.Datatype) -> None:
    """**Local.** An error if MPI says so: it is asked to pack nothing."""
    if not datatype.Get_extent()[1]:  # mpi4py would divide by it
        return
    try:
        datatype.Pack(b"", bytearray(0), 0, MPI.COMM_SELF)
    except MPI.Exception as error:
        if error.Get_error_class() != MPI.ERR_TYPE:
            raise
        raise ArgumentError(
            f"cannot use a datatype of {count_of(datatype.Get_size(), 'byte')}: it is not committed; call "
            "its Commit() once, before"
        ) from None
