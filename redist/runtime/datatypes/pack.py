"""Pack and unpack data described by MPI datatypes, with redist's copy kernels, on hosts and GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from redist.errors import ArgumentError, ArgumentTypeError, RequestError
from redist.runtime.cuda.arrays import empty_on_device
from redist.runtime.datatypes.across import (
    PACKS,
    UNPACKS,
    Way,
    check_way,
    pack_across,
    unpack_across,
)
from redist.runtime.datatypes.memory import Memory
from redist.runtime.datatypes.type_copies import TypeCopies, copies_of
from redist.text.units import count_of


def pack(
    buffer: Any,
    datatype: MPI.Datatype,
    count: int = 1,
    out: Any = None,
    *,
    offset: int = 0,
    way: Way | None = None,
) -> Any:
    """**Local.** Pack what a datatype describes: the same bytes as ``MPI.Datatype.Pack``, in its order.

    Two columns of a matrix, each packed by redist's copy kernels:

    >>> from mpi4py import MPI
    >>> matrix = np.arange(12.0).reshape(3, 4)
    >>> column = MPI.DOUBLE.Create_vector(3, 1, 4).Commit()
    >>> pack(matrix, column).view("f8"), pack(matrix, column, offset=8).view("f8")
    (array([0., 4., 8.]), array([1., 5., 9.]))

    ``datatype`` must be committed, and may be nested from any constructors; its ``count`` elements follow
    each other at the distance of its extent. Displacements count from byte ``offset`` of ``buffer``, which is
    an array of NumPy, CuPy or another GPU library, or contiguous bytes. The result is ``out``, or new bytes
    on the host or GPU that has the buffer. What a datatype describes is read once, and cached until the
    datatype is freed.

    On a GPU, one kernel packs everything, on the current stream. If ``out`` is on the host, the bytes are
    there on return. ``way`` says how they get there: packed on the GPU and then copied (``"device"``),
    written by the kernel to pinned memory (``"one-shot"``), or copied whole and packed on the host
    (``"staged"``); by default, the way that a model predicts to be the fastest.
    """
    check_way(way, PACKS)
    source, copies = _checked("pack", buffer, "buffer", datatype, count, offset)
    target = None
    if out is not None:
        target = Memory.of(out, "out")
        _check_packed("pack", target, "out", copies)
        _check_writable("pack", target)
        if target.meets(source):
            raise ArgumentError(f"cannot pack {copies}: out lies in the buffer")
        if target.on_device and not source.on_device:
            raise RequestError(
                f"cannot pack {copies}: the buffer is on the host and out on a GPU; pack on the host, then "
                "copy"
            )
    made = out
    if target is None:
        new = empty_on_device if source.on_device else np.empty
        made = new((copies.n_bytes,), np.dtype(np.uint8))
        target = Memory.of(made, "out")
    if copies.n_bytes:
        start = source.address + offset
        if not source.on_device:
            copies.run_on_host(target.address, start, unpacks=False)
        elif target.on_device:
            copies.run_on_gpu(target.address, start, unpacks=False)
        else:
            pack_across(copies, target, start, way)
    return made


def unpack(
    packed: Any,
    datatype: MPI.Datatype,
    out: Any,
    count: int = 1,
    *,
    offset: int = 0,
    way: Way | None = None,
) -> Any:
    """**Local.** Unpack bytes into ``out`` as ``MPI.Datatype.Unpack`` does, and return ``out``.

    >>> from mpi4py import MPI
    >>> column = MPI.INT.Create_vector(2, 1, 3).Commit()
    >>> unpack(np.array([7, 8], "i4"), column, np.zeros((2, 3), "i4"))
    array([[7, 0, 0],
           [8, 0, 0]], dtype=int32)

    The arguments are as in :func:`pack`. Bytes that the datatype does not describe stay as they are; it may
    describe each byte at most once. From the host to a GPU, ``way`` is ``"device"`` (copy the bytes, then
    unpack them there) or ``"one-shot"`` (the kernel reads pinned memory); on return, ``packed`` may be
    written to again.
    """
    check_way(way, UNPACKS)
    target, copies = _checked("unpack", out, "out", datatype, count, offset)
    source = Memory.of(packed, "packed bytes")
    _check_packed("unpack", source, "packed bytes", copies)
    _check_writable("unpack", target)
    if target.meets(source):
        raise ArgumentError(f"cannot unpack {copies}: the packed bytes lie in out")
    if source.on_device and not target.on_device:
        raise RequestError(
            f"cannot unpack {copies}: the packed bytes are on a GPU and out on the host; copy them first"
        )
    if copies.n_bytes:
        start = target.address + offset
        if not target.on_device:
            copies.run_on_host(source.address, start, unpacks=True)
        elif source.on_device:
            copies.run_on_gpu(source.address, start, unpacks=True)
        else:
            unpack_across(copies, source, start, way)
    return out


# Checks


def _checked(
    verb: str, buffer: Any, what: str, datatype: Any, count: Any, offset: Any
) -> tuple[Memory, TypeCopies]:
    """**Local.** The memory that a datatype describes, and its copies, if all of them lie there."""
    if not isinstance(datatype, MPI.Datatype):
        raise ArgumentTypeError(
            f"cannot {verb} by {type(datatype).__name__}: need a datatype of mpi4py, as MPI.DOUBLE"
        )
    if datatype == MPI.DATATYPE_NULL:
        raise ArgumentError(f"cannot {verb} by MPI.DATATYPE_NULL: it was freed, or never made")
    if type(count) is not int or type(offset) is not int:
        for name, number in (("count", count), ("offset", offset)):
            if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
                raise ArgumentTypeError(f"cannot {verb} with {name}={number!r}: need an int")
        count, offset = int(count), int(offset)
    if count < 0:
        raise ArgumentError(f"cannot {verb} with count={count}: need an int >= 0")
    memory = Memory.of(buffer, what)
    copies = copies_of(datatype, count)
    low, high = copies.span
    low, high = low + offset, high + offset
    if copies.n_bytes and low < 0:
        raise RequestError(
            f"cannot {verb} {copies}: it begins {count_of(-low, 'byte')} before the {what}; say by offset= "
            "where in the memory displacement 0 is"
        )
    if copies.n_bytes and high > memory.n_bytes:
        raise RequestError(
            f"cannot {verb} {copies}: it reaches byte {high}, and the {what} has {memory.n_bytes}; give a "
            "larger one, or a smaller count"
        )
    return memory, copies


def _check_packed(verb: str, memory: Memory, what: str, copies: TypeCopies) -> None:
    if memory.n_bytes < copies.n_bytes:
        raise RequestError(
            f"cannot {verb} {copies}: {copies.n_bytes} are packed, {what} has {memory.n_bytes}"
        )


def _check_writable(verb: str, out: Memory) -> None:
    if not out.can_write:
        raise RequestError(f"cannot {verb}: out is read-only")
