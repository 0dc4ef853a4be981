"""What is written without redist: by hand, one MPI collective that does the whole work, and naively.

Naive is what someone writes first: bring everything everywhere, then keep one's own part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib

from redist.layout.tiles import indices_of
from redist.measure.cases import Case
from redist.measure.contenders.contender import Contender, Ends
from redist.measure.values import AnyArray, ValueBox, boxes


class GatherAndSlice(Contender):
    """All-gather all tiles, put the array together, keep a slice; the buffers are made once."""

    label = "naive all-gather"

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        super().__init__(case, comm, ends)
        shape, dtype = case.source.shape, case.source.dtype.to_numpy()
        first: dict[ValueBox, int] = {}
        for rank, box in sorted(boxes(case.source).items()):
            first.setdefault(box, rank)
        self._own = self.input if comm.rank in first.values() else np.empty(0, dtype)
        counts = dict.fromkeys(range(comm.size), 0)
        counts |= {rank: int(np.prod(box.shape)) for box, rank in first.items()}
        self._flat = np.zeros(sum(counts.values()), dtype)
        self._recv = [self._flat, list(counts.values()), dtlib.from_numpy_dtype(dtype)]
        # Blocks of rows in the order of ranks are the array itself; others are put in their place.
        stacked = all(box.shape[1:] == shape[1:] for box in first)
        stacked = stacked and list(first) == sorted(first, key=lambda box: box.lo)
        self._whole = self._flat.reshape(shape) if stacked else np.zeros(shape, dtype)
        self._moves = [] if stacked else list(self._places(first))

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        """It moves values and adds none."""
        return None if case.source.pending_op is None else "it adds nothing up"

    def run(self) -> None:
        """Gather, put together, slice. **Collective over `comm`.**"""
        self.comm.Allgatherv(self._own, self._recv)
        for place, tile in self._moves:
            np.copyto(place, tile)
        _keep(self, self._whole)

    def _places(self, first: dict[ValueBox, int]) -> Iterator[tuple[AnyArray, AnyArray]]:
        """For every tile, where it goes in the array and where it was received."""
        start = 0
        for box in first:
            stop = start + int(np.prod(box.shape))
            place = tuple(map(slice, box.lo, box.hi))
            yield self._whole[place], self._flat[start:stop].reshape(box.shape)
            start = stop


class JustSlice(Contender):
    """Every rank has the whole array already."""

    label = "slice"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        """Every rank that needs a tile must hold the array."""
        source = case.source
        there = set(case.target.mesh.ranks) <= set(source.mesh.ranks)
        if there and not any(source.dims) and source.pending_op is None:
            return None
        return "the ranks do not hold the whole array"

    def run(self) -> None:
        """Copy a slice. **Local.**"""
        if self.input is not None:
            _keep(self, self.input)


class ReduceAndSlice(Contender):
    """Every rank holds a partial value of the whole array: Allreduce, keep a slice."""

    label = "naive Allreduce"

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        super().__init__(case, comm, ends)
        self._whole = np.zeros(case.source.shape, case.source.dtype.to_numpy())

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        """Sums of which every rank holds a part."""
        if not any(case.target.dims):
            return "one Allreduce is all there is: see by hand"
        return why_no_reduction(case)

    def run(self) -> None:
        """Add up, slice. **Collective over `comm`.**"""
        self.comm.Allreduce(self.input, self._whole, MPI.SUM)
        _keep(self, self._whole)


def why_no_reduction(case: Case) -> str | None:
    """Why a case is not one sum of which every rank of one mesh holds a part; None if it is."""
    source, target = case.source, case.target
    if source.pending_op != "sum" or target.pending_op is not None:
        return "written for a pending sum that is resolved"
    if any(source.dims) or source.mesh != target.mesh:
        return "written for one mesh and partial values of the whole array"
    if np.prod([part.size for part in source.pending_axes]) != source.mesh.n_devices:
        return "written for a sum over all ranks"
    return None


def _keep(contender: Contender, whole: AnyArray) -> None:
    if contender.output is not None and contender.target_box is not None:
        place = tuple(map(slice, contender.target_box.lo, contender.target_box.hi))
        np.copyto(contender.output, whole[place])


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


class PackedByHand(Contender):
    """Pack what each rank needs by lists of indices, one Alltoallv, unpack: for tiles that are not boxes."""

    label = "pack, Alltoallv"
    knows_segments = True

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        super().__init__(case, comm, ends)
        dtype, me, everyone = case.source.dtype.to_numpy(), comm.rank, range(comm.size)
        self._sent, self._got = (
            [_places(case, *pair) for pair in pairs]
            for pairs in (
                [(me, rank, 0) for rank in everyone],
                [(rank, me, 1) for rank in everyone],
            )
        )
        element = dtlib.from_numpy_dtype(dtype)
        self._send, self._recv = (
            (np.empty(sum(counts), dtype), counts)
            for counts in ([_count(at) for at in places] for places in (self._sent, self._got))
        )
        self._messages = [[flat, counts, element] for flat, counts in (self._send, self._recv)]

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        """It moves values and adds none, and every value lies on one rank."""
        if case.source.pending_op is not None:
            return "it adds nothing up"
        alone = case.source.mesh.n_devices == np.prod(case.source.cuts)
        return None if alone else "written for sources without replicas"

    def run(self) -> None:
        """Pack, send, unpack. **Collective over `comm`.**"""
        if self.input is not None:
            for at, part in zip(self._sent, _parts(*self._send), strict=True):
                if len(part):
                    part[...] = self.input[at].reshape(-1)
        self.comm.Alltoallv(*self._messages)
        if self.output is not None:
            for at, part in zip(self._got, _parts(*self._recv), strict=True):
                if len(part):
                    self.output[at] = part.reshape([len(own.reshape(-1)) for own in at])


Places = tuple[AnyArray, ...]
"""Where values lie in a tile: a list for every dim, as ``np.ix_`` makes them."""


def _places(case: Case, sender: int, receiver: int, side: int) -> Places:
    """Where what one rank sends another lies, in the source's tile or in the target's."""
    ends = (case.source, sender), (case.target, receiver)
    if any(rank not in t.mesh.ranks for t, rank in ends):
        return np.ix_(*([],) * case.source.ndim)
    held = [indices_of(t, rank) for t, rank in ends]
    own = held[side]
    return np.ix_(
        *(
            np.flatnonzero(np.isin(mine, other))
            for mine, other in zip(own, held[1 - side], strict=True)
        )
    )


def _count(at: Places) -> int:
    return int(np.prod([own.size for own in at], dtype=np.int64))


def _parts(flat: AnyArray, counts: Sequence[int]) -> list[AnyArray]:
    return np.split(flat, np.cumsum(counts)[:-1])
