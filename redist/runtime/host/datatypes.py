"""Messages as MPI sees them: plain bytes, or strided bytes by derived datatypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from redist.runtime.copies.addresses import Addresses
from redist.runtime.copies.strided import Strided
from redist.runtime.schedule.compiler import Message


def post(start: Callable[..., MPI.Request], message: Message, table: Addresses, tag: int) -> Any:
    """Start a message with ``comm.Isend`` or ``comm.Irecv``; the request."""
    if not message.forms:
        address = int(table[message.base]) + message.offset
        return start(
            [MPI.memory.fromaddress(address, message.n_bytes), MPI.BYTE], message.peer, tag
        )
    types = [_datatype(form) for _, _, form in message.forms]
    places = [int(table[base]) + offset for base, offset, _ in message.forms]
    joined = MPI.Datatype.Create_struct([1] * len(types), places, types).Commit()
    request = start([MPI.BOTTOM, 1, joined], message.peer, tag)
    for datatype in (joined, *types):  # MPI keeps what a message under way still needs
        datatype.Free()
    return request


def _datatype(form: Strided) -> MPI.Datatype:
    out = MPI.BYTE.Create_contiguous(form.block)
    for count, stride, _ in reversed(form.dims):
        inner = out
        if stride < 0:  # Open MPI takes bytes that go down one by one for bytes that go up
            out = inner.Create_hindexed_block(1, [k * stride for k in range(count)])
        else:
            out = inner.Create_hvector(count, 1, stride)
        inner.Free()
    return out
