"""What an expert writes by hand: one MPI collective that does the whole work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib

from redist.measure.cases import Case
from redist.measure.contenders.contender import Contender, Ends
from redist.measure.contenders.naive import why_no_reduction
from redist.measure.values import AnyArray, ValueBox, boxes


class AlltoallwByHand(Contender):
    """One Alltoallw on subarray types: each pair of ranks exchanges what their tiles share."""

    label = "Alltoallw"

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        super().__init__(case, comm, ends)
        source, target = boxes(case.source), boxes(case.target)
        me, everyone = comm.rank, range(comm.size)
        sent = [_piece(case, source, target, me, rank) for rank in everyone]
        received = [_piece(case, source, target, rank, me) for rank in everyone]
        element = dtlib.from_numpy_dtype(case.source.dtype.to_numpy())
        self._types: list[MPI.Datatype] = []
        self._send = self._message(self.input, sent, source.get(me), element)
        self._recv = self._message(self.output, received, target.get(me), element)

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        """It moves values and adds none."""
        return None if case.source.pending_op is None else "it adds nothing up"

    def run(self) -> None:
        """One call. **Collective over `comm`.**"""
        self.comm.Alltoallw(self._send, self._recv)

    def close(self) -> None:
        """Free the types. **Local.**"""
        super().close()
        for datatype in self._types:
            datatype.Free()

    def _message(
        self,
        tile: AnyArray | None,
        pieces: Sequence[ValueBox | None],
        outer: ValueBox | None,
        element: MPI.Datatype,
    ) -> list[object]:
        """A tile with one type for each rank: where in it the piece for that rank lies."""
        types, counts = [], []
        for piece in pieces:
            if piece is None or outer is None:
                types.append(element)
                counts.append(0)
                continue
            starts = [a - b for a, b in zip(piece.lo, outer.lo, strict=True)]
            datatype = element.Create_subarray(outer.shape, piece.shape, starts).Commit()
            self._types.append(datatype)
            types.append(datatype)
            counts.append(1)
        buffer = np.empty(0, self.case.source.dtype.to_numpy()) if tile is None else tile
        return [buffer, (counts, [0] * len(pieces)), types]


def _piece(
    case: Case, source: dict[int, ValueBox], target: dict[int, ValueBox], sender: int, receiver: int
) -> ValueBox | None:
    """What one rank sends to another; of several that hold the same, one sends."""
    if sender not in source or receiver not in target:
        return None
    tile = source[sender]
    holders = [rank for rank, box in source.items() if box == tile]
    chosen = receiver if receiver in holders else holders[receiver % len(holders)]
    return tile.meet(target[receiver]) if chosen == sender else None


class ReduceScatterByHand(Contender):
    """One Reduce_scatter: the sum of all partial values, each rank's rows to that rank."""

    label = "Reduce_scatter"

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        super().__init__(case, comm, ends)
        target = boxes(case.target)
        self._counts = [int(np.prod(target[rank].shape)) for rank in range(comm.size)]

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        """Blocks of rows, one for each rank, in order."""
        reason = why_no_reduction(case)
        rows = sorted(boxes(case.target).items())
        stacked = all(box.shape[1:] == case.target.shape[1:] for _, box in rows)
        if reason or not stacked or case.target.cuts[0] != case.target.mesh.n_devices:
            return reason or "Reduce_scatter cuts rows only"
        in_order = [box.lo for _, box in rows] == sorted(box.lo for _, box in rows)
        return None if in_order else "Reduce_scatter keeps the order of ranks"

    def run(self) -> None:
        """One call. **Collective over `comm`.**"""
        self.comm.Reduce_scatter(self.input, self.output, self._counts, MPI.SUM)


class AllReduceByHand(Contender):
    """One Allreduce: the sum of all partial values, everywhere."""

    label = "Allreduce"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        """A target that every rank holds whole."""
        reason = why_no_reduction(case)
        return reason or ("Allreduce cuts nothing" if any(case.target.dims) else None)

    def run(self) -> None:
        """One call. **Collective over `comm`.**"""
        self.comm.Allreduce(self.input, self.output, MPI.SUM)
