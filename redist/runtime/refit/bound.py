"""A refit bound to tiles: sent and received again and again, all or nothing, version by version."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from redist.errors import ArgumentError, PeerError, RequestError, TransferError
from redist.runtime.cuda.arrays import wait_for_gpu
from redist.runtime.refit.arrival import COPY, Handover
from redist.runtime.refit.mover import AUTO, Mover, PlanOfRuns
from redist.runtime.refit.ranks import RefitRanks
from redist.runtime.refit.said import (
    Bits,
    Said,
    Version,
    agreed,
    bits_of,
    check_bindings,
    problem_of,
)
from redist.text.units import count_of

Tiles = Mapping[str, Any]
CLOSED = "the bound plan is closed; bind the plan again"


class BoundRefit:
    """A plan bound to the tiles of this rank; making one is **collective**, and so is every refit.

    On ranks that train::

        refit = plan.bind(send=weights)          # a dict of arrays by name
        ...
        refit.send(version=7)                    # all of them
        refit.send(version=8, changed=["layers.0.mlp.w1"])

    On ranks that serve::

        refit = plan.bind(receive=parameters)
        refit.receive()                          # 7: parameters are of this version now

    A rank may have both kinds of tiles; it calls :meth:`send`.

    **All or nothing.** New weights serve when all of them have arrived on all ranks that receive; until
    then, and after any failure, the old ones do, and :attr:`version` says which. ``commit`` says how new
    weights become those that serve, and what that takes:

    - ``"copy"``: they arrive in memory beside the tiles, as much again, and are copied into the tiles when
      all are there. Tiles stay at their addresses, as captured CUDA graphs need it.
    - ``"swap"``: two sets of tiles serve in turn. Nothing is copied, but :attr:`tiles` has other arrays after
      each refit. The arrays that were given are copied once and not used again.
    - ``"in place"``: they arrive in the tiles. It takes no memory, but a failure leaves a mixture: the
      version is None, and nothing must be served before a refit has succeeded.

    Beside that a rank has staging for messages, at most ``plan.limit_bytes``: none where ranks share
    memory and tiles are mapped. Casts take less than 64 MiB more.

    Old weights survive the death of a rank that sends, and every wait for it ends: at once where ranks
    share memory, else when the connection breaks, at the latest after ``timeout_s``. If a rank that serves
    dies in the instant in which all agree, others may be a version apart; their versions say so.
    """

    def __init__(
        self,
        plan: PlanOfRuns,
        ranks: RefitRanks,
        send: Tiles | None,
        receive: Tiles | None,
        transport: str = AUTO,
        commit: str = COPY,
        version: Version | None = None,
        guard: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.plan = plan
        self.version: Version | None = version
        """That of the tiles: the last that was sent, or received whole. None if that is not known, or
        while weights arrive in place, and after that has failed."""
        self._ranks, self._guard = ranks, guard
        self._mover = mover = Mover(plan, ranks)
        self._is_closed = False
        with ranks.on_stream():
            with ranks.operation():
                said = mover.binding(send, receive, transport, commit)
                bindings = ranks.gather(said)
            check_bindings(bindings)
            with ranks.operation():
                why_not = mover.join(bindings)
        if why_not:
            mover.close()
            raise RequestError(why_not)

    @property
    def transport(self) -> str:
        """``ipc`` where ranks write and read each other's memory, else ``messages``."""
        return self._mover.transport

    @property
    def tiles(self) -> dict[str, Any]:
        """The target tiles that serve, by name; with ``commit="swap"`` other arrays after each refit."""
        return self._mover.arrival.tiles

    def send(self, version: Version, changed: Iterable[str] | None = None) -> Version:
        """**Collective.** Send the source tiles as this version; the version that the tiles have now.

        Every rank that has source tiles makes this call, with the same arguments; all others call
        :meth:`receive`. Where this rank receives, too, its target tiles are of the version when it returns;
        else it returns when its tiles have been read and may change.

        ``changed`` has the names of the stored tensors that have changed since the last refit, and only
        these travel; every rank must have that version. None sends all.
        """
        bits: Bits | None = None

        def check() -> None:
            nonlocal bits
            self._check_call(sending=True)
            if not isinstance(version, (int, str)) or isinstance(version, bool):
                raise ArgumentError(f"cannot send version {version!r}: need a whole number or text")
            bits = self._bits(changed)

        problem = problem_of(check)
        return self._refit(version, bits, problem)

    def receive(self) -> Version:
        """**Collective.** Receive what ranks with source tiles send; the version that the tiles have now."""
        return self._refit(None, None, problem_of(lambda: self._check_call(sending=False)))

    def _check_call(self, sending: bool) -> None:
        source = self._mover.source
        if sending and not (source.tiles or source.empty):
            raise RequestError("cannot send: this rank has no source tiles; call receive()")
        if not sending and source.tiles:
            raise RequestError("cannot receive: this rank has source tiles; call send(version)")

    def _bits(self, changed: Iterable[str] | None) -> Bits | None:
        """The stored tensors that changed, as bits."""
        if changed is None:
            return None
        if isinstance(changed, str) or not isinstance(changed, Iterable):
            raise ArgumentError(f"cannot send changed={changed!r}: need a list of names")
        known = self._mover.source.numbers
        names = list(changed)
        wrong = next(
            (name for name in names if not isinstance(name, str) or name not in known), None
        )
        if wrong is not None:
            raise RequestError(
                f"cannot send changed={wrong!r}: the source of the plan stores no tensor of this name"
            )
        return bits_of([known[name] for name in names], len(known))

    def _refit(self, version: Version | None, bits: Bits | None, problem: str | None) -> Version:
        """**Collective.** Agree, move, agree that all is there, and let it serve."""
        if self._is_closed:
            raise TransferError(f"cannot refit: {CLOSED}")
        ranks, mover = self._ranks, self._mover
        sends = version is not None
        held = self.version
        said = Said(sends, version, bits, held, mover.arrival.turn, problem)
        with ranks.on_stream():
            if mover.others_write:
                self.version = None
            with ranks.operation():
                if mover.on_gpu and sends:
                    wait_for_gpu()  # what was written before, on any stream, may be read
                told: list[Said] = ranks.gather(said)
            try:
                asked, changed = agreed(told)
            except RequestError:  # on all ranks: nobody writes
                self.version = held
                raise
            handover = self._move(asked, changed, [one.turn for one in told])
            if handover is not None:
                with self._guard or contextlib.nullcontext():
                    self.version = None
                    mover.arrival.finish(handover)
                    if mover.on_gpu:
                        ranks.finish()
            self.version = asked
        return asked

    def _move(
        self, version: Version, changed: Bits | None, turns: Sequence[int]
    ) -> Handover | None:
        """**Collective.** Move what was agreed on; how it is to serve, where this rank receives.

        Whoever receives votes, whatever happened: others must hear that there are no new weights.
        """
        mover, old = self._mover, self.version
        receives = bool(mover.target.tiles)
        handover, failed = Handover(), None
        try:
            with self._ranks.operation():
                program, handover = mover.program(changed)
                if receives and not mover.arrival.keeps_old:
                    self.version = None
                mover.move(program, handover, turns)
        except BaseException as problem:
            failed = problem
        if not receives:
            if failed is not None:
                raise failed
            return None
        missing = 0
        try:
            answers = self._ranks.vote((version, failed is None))
            missing = sum(answer != (version, True) for answer in answers)
        except BaseException as problem:
            if failed is None:
                with self._ranks.operation():  # so that nobody goes on with these ranks
                    raise problem
        if failed is not None:
            raise failed
        if missing:
            stays = (
                f"version {old!r} stays" if mover.arrival.keeps_old else "do not serve its tiles"
            )
            raise PeerError(
                f"cannot serve version {version!r}: it did not arrive whole on "
                f"{count_of(missing, 'rank')} of those that receive; {stays}"
            )
        return handover

    def close(self) -> None:
        """**Collective.** Let memory of others and staging go; tiles stay as they are."""
        if not self._is_closed:
            self._is_closed = True
            self._mover.close()

    def __enter__(self) -> BoundRefit:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
