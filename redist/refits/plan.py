"""The plan of a refit: who sends which bytes of which tensors to whom, and in which round."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, PlanFormatError, ReadError, WriteError
from redist.layout.axes import Ints
from redist.plan.topology import Topology
from redist.refits.blocks import Paired, check_pairs
from redist.refits.pairs import Pair, find_pairs
from redist.refits.rounds import Turns, rounds_of
from redist.refits.runs import Lister
from redist.refits.senders import choose_senders
from redist.refits.weights import Rules, Weights
from redist.text.svg import write_if
from redist.text.units import limit_from
from redist.version import __version__

if TYPE_CHECKING:
    from redist.check.refits import RefitCertificate
    from redist.check.verdict import Verdict
    from redist.runtime.refit.bound import BoundRefit


@dataclass(frozen=True, eq=False)
class RefitPlan:
    """A plan to move weights from one side to the other, equal on every rank that makes it.

    >>> import redist
    >>> train = redist.Weights({"q": "f32[8{dp}, 4]", "k": "f32[4{dp}, 4]"}, redist.Mesh(dp=2))
    >>> serve = redist.Weights({"qk": "f32[8{tp}+4{tp}, 4]"}, redist.Mesh({"tp": 2}, ranks=[2, 3]),
    ...                        names="qk[8|4, :] = q, k")
    >>> plan = redist.refit(train, serve)
    >>> plan.received_bytes, plan.lower_bound_bytes, plan.rounds
    (192, 192, 1)
    >>> plan.runs(3)[["peer", "offset", "there_offset", "bytes"]].tolist()
    [(1, 64, 0, 32), (1, 0, 0, 64)]

    ``runs(rank)`` lists what a rank receives, and ``runs(rank, sends=True)`` what it sends. ``certificate``
    has the findings of an independent checker. ``bind`` attaches the plan to arrays and a transport.
    """

    source: Weights
    target: Weights
    pairs: tuple[Pair, ...]
    turns: Turns
    limit_bytes: int | None
    topology: Topology | None
    cast: bool
    least_sent_bytes: int
    """Bytes that the busiest rank must send, whoever sends what."""

    def runs(self, rank: int, sends: bool = False) -> NDArray[Any]:
        """The runs that a rank receives, or sends: one row of :data:`redist.refits.runs.RUN` for each."""
        return self._lister.runs(rank, sends=sends)

    @cached_property
    def _lister(self) -> Lister:
        return Lister(self.pairs, self.turns)

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks of both sides."""
        return tuple(sorted({*self.source.ranks, *self.target.ranks}))

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return self.turns.n_rounds

    @property
    def names(self) -> tuple[str, ...]:
        """The named tensors that move, in alphabetical order."""
        return tuple(sorted({name for pair in self.pairs for name in pair.names}))

    @cached_property
    def _figures(self) -> tuple[dict[int, int], dict[int, int], int]:
        sent: dict[int, int] = {}
        received: dict[int, int] = {}
        bound = 0
        for pair in self.pairs:
            for _, sender, receiver, moved in pair.moves():
                _add(sent, sender, moved)
                _add(received, receiver, moved)
            n_bytes = pair.elems * pair.wire
            for own, ranks, needing in pair.classes():
                for atom in range(len(pair.meeting.holders)):
                    requests = pair.atom == atom
                    lacks = ~np.isin(needing[pair.slot[requests]], ranks[pair.slots_of(atom)])
                    bound += len(own) * int(n_bytes[requests][lacks].sum())
        return sent, received, bound

    @property
    def sent_bytes(self) -> Mapping[int, int]:
        """Bytes that each rank sends to others."""
        return dict(self._figures[0])

    @property
    def received_by_rank(self) -> Mapping[int, int]:
        """Bytes that each rank receives from others."""
        return dict(self._figures[1])

    @property
    def received_bytes(self) -> int:
        """Bytes received by all ranks together."""
        return sum(self._figures[1].values())

    @property
    def lower_bound_bytes(self) -> int:
        """The least bytes that any plan moves: all that ranks need and do not hold, as sent on the wire."""
        return self._figures[2]

    def bytes_between(self) -> Mapping[tuple[int, int], int]:
        """Bytes by (sender, receiver), for pairs of ranks between which any bytes move."""
        n = 1 + max(self.ranks, default=0)
        total: dict[int, int] = {}
        for pair in self.pairs:
            for _, sender, receiver, moved in pair.moves():
                _add(total, sender * n + receiver, moved)
        return {divmod(key, n): n_bytes for key, n_bytes in sorted(total.items())}

    @property
    def staging_bytes(self) -> int:
        """The most bytes that any rank sends and receives in one round."""
        return int(self.turns.busiest.max(initial=0))

    @property
    def in_step(self) -> float:
        """What rounds cost: the sum of each round's busiest load, over the load of the busiest rank.

        Loads are bytes sent and received. It is 1.0 if the same rank is the busiest in every round.
        """
        sent, received = self._figures[:2]
        busiest = max((sent.get(r, 0) + received.get(r, 0) for r in self.ranks), default=0)
        return float(self.turns.busiest.sum() / busiest) if busiest else 1.0

    @property
    def asked(self) -> tuple[str, str, int | None, bool, Topology | None]:
        """The request that the plan answers: digests of both sides, limit, casts, topology."""
        sides = self.source.digest(), self.target.digest()
        return *sides, self.limit_bytes, self.cast, self.topology

    @cached_property
    def digest(self) -> str:
        """Text that identifies the plan; it is equal on every rank that makes this plan."""
        found = hashlib.blake2b(digest_size=16)
        found.update(repr((self.asked, self.least_sent_bytes)).encode())
        for pair in self.pairs:
            found.update(pair.sender.astype("<i4").tobytes())
        for column in self.turns.columns:
            found.update(column.astype("<i8").tobytes())
        return found.hexdigest()

    @cached_property
    def certificate(self) -> RefitCertificate:
        """The checker's verdict: every element arrives once and right; bytes, staging and balance."""
        from redist.check.refits import certify

        return certify(self)

    def check(self) -> Verdict:
        """Check every run of every rank, as :func:`redist.check_runs` does for other systems.

        The certificate checks each kind of tensor once; this method checks all runs, one by one.
        """
        from redist.check.runs import check_runs
        from redist.refits.manifest import boxes_of, rows_of

        source, target = boxes_of(self.source), boxes_of(self.target)
        return check_runs(rows_of(self), source, target, limit_bytes=self.limit_bytes)

    def to_json(self) -> str:
        """The plan as JSON text; :meth:`from_json` reads it."""
        from redist.refits.serial import refit_to_json

        return refit_to_json(self)

    @staticmethod
    def from_json(text: str) -> RefitPlan:
        """Read a plan from JSON text that :meth:`to_json` wrote."""
        from redist.refits.serial import refit_from_json

        return refit_from_json(text)

    def save(self, path: str | Path) -> None:
        """Write the plan to a file, compressed."""
        from redist.refits.serial import save_refit

        save_refit(self, path)

    @staticmethod
    def load(path: str | Path) -> RefitPlan:
        """Read a plan from a file that :meth:`save` wrote."""
        from redist.refits.serial import load_refit

        return load_refit(path)

    def bind(
        self, send: Mapping[str, Any] | None = None, receive: Mapping[str, Any] | None = None, *,
        comm: Any = None, transport: str = "auto", **how: Any,
    ) -> BoundRefit:  # fmt: skip
        """**Collective over** ``comm``. Attach the plan to this rank's tiles, to send and receive versions.

        ``send`` and ``receive`` are dicts of NumPy, CuPy or PyTorch arrays by the names of stored tensors.
        A rank that only sends, or only receives, leaves the other one out. ``comm`` is an MPI communicator,
        by default of all ranks, or a PyTorch process group.

        ``transport`` is ``"mpi"`` or ``"torch"``, for messages or mapped memory between the ranks of an MPI
        communicator or of a process group; ``"ipc"``, for mapped memory alone; or ``"auto"``, which depends
        on ``comm``. Other arguments are those of :func:`redist.runtime.refit.bind.bind`.
        """
        on_torch = transport == "torch" or type(comm).__module__.partition(".")[0] == "torch"
        way = transport if transport not in ("mpi", "torch") else "auto"
        if on_torch:
            from redist.torch.refit import bind as bind_torch

            return bind_torch(self, send, receive, group=comm, transport=way, **how)
        from redist.runtime.refit.bind import bind

        return bind(self, send, receive, comm=comm, transport=way, **how)

    def svg(self, path: str | Path | None = None) -> str:
        """Draw the refit as SVG: who sends to whom, the load of each rank, rounds; ``path`` also gets it."""
        from redist.refits.picture import draw_refit

        return write_if(draw_refit(self), path)

    def __str__(self) -> str:
        from redist.refits.table import format_refit

        return format_refit(self)

    def __repr__(self) -> str:
        return f"<RefitPlan: {len(self.names)} tensors, {self.rounds} rounds, {self.digest[:8]}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RefitPlan) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def _add(totals: dict[int, int], ranks: Ints, n_bytes: Ints) -> None:
    found, which = np.unique(ranks, return_inverse=True)
    sums = np.zeros(len(found), dtype=np.int64)
    np.add.at(sums, which.reshape(-1), n_bytes.reshape(-1))
    for rank, n in zip(found.tolist(), sums.tolist(), strict=True):
        if n:
            totals[rank] = totals.get(rank, 0) + n


def refit(
    source: Weights, target: Weights, *, names: Rules = None, limit_bytes: int | str | None = None,
    cast: bool = False, topology: Topology | str | Path | None = None, pair: Paired | None = None,
    folder: str | Path | None = None,
) -> RefitPlan:  # fmt: skip
    """Plan how the target gets its weights from the source; needs no MPI and no GPU.

    >>> import redist
    >>> train = redist.Weights({"w": "f32[8{x}, 4]"}, "x=2")
    >>> serve = redist.Weights({"w": "bf16[8, 4{y}]"}, "y=2@2")
    >>> redist.refit(train, serve)
    Traceback (most recent call last):
    ...
    redist.errors.ArgumentError: cannot refit 'w': it is f32 at the source and bf16 at the target; say
    cast=True to convert
    >>> redist.refit(train, serve, cast=True).received_bytes
    64

    The plan depends only on the arguments, so it is equal on every rank. ``names`` are rules for a target
    that has none: they say which named tensors of the source its stored tensors are made of. ``limit_bytes``
    is the most that a rank sends and receives in one round, so that a buffer of this size is enough; None
    means a single round. ``cast`` allows other dtypes at the target; the narrower dtype is sent. With a
    ``topology``, senders on the same node are preferred, and shared links are loaded evenly.
    ``pair={"*.weight": ("*.weight_scale_inv", (128, 128))}`` says which stored tensors are the scales of the
    blocks of others; it is an error unless every rank has the scales of exactly its blocks.

    If ``folder`` is given, a plan is kept there under a digest of the request, and read from there the next
    time. A file that cannot be read is replaced.
    """
    for side, what in ((source, "source"), (target, "target")):
        if not isinstance(side, Weights):
            raise ArgumentError(
                f"cannot refit: the {what} is {type(side).__name__}; need redist.Weights, as in "
                "redist.Weights({'w': 'bf16[4096{tp}, 4096]'}, mesh)"
            )
    target = target.with_names(names)
    source, target = source.met(target), target.met(source)
    if pair is not None:
        check_pairs(source, pair, "source")
        check_pairs(target, pair, "target")
    limit = limit_from(limit_bytes)
    if isinstance(topology, (str, Path)):
        topology = Topology.load(topology)
    asked = source.digest(), target.digest(), limit, cast, topology
    kept = None if folder is None else _place_of(Path(folder), asked)
    if kept is not None:
        with contextlib.suppress(ReadError, PlanFormatError):
            plan = RefitPlan.load(kept)
            if plan.asked == asked:
                return plan
    pairs, least = choose_senders(find_pairs(source, target, cast), topology)
    turns = rounds_of(pairs, limit)
    plan = RefitPlan(source, target, tuple(pairs), turns, limit, topology, cast, least)
    if kept is not None:
        plan.save(kept)
    return plan


def _place_of(folder: Path, asked: object) -> Path:
    """Where a plan is kept, by the digest of what was asked and the version of redist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise WriteError(f"cannot keep refits in {str(folder)!r}: {problem.strerror}") from None
    text = repr((asked, __version__)).encode()
    return folder / f"{hashlib.blake2b(text, digest_size=16).hexdigest()}.refit"
