"""What all moves over one process group share: its ranks, their memory, and prepared moves."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from redist.errors import RedistError, RequestError
from redist.plan.plan import Plan
from redist.plan.topology import Level, Topology
from redist.torch.memory import SharedMemory
from redist.torch.ranks import Ranks
from redist.torch.transfer import Tensors, TensorTransfer

TRANSPORTS = ("auto", "messages", "views")
"""``auto``: memory that ranks share if they are on one host, else messages; ``messages`` of the group
only; ``views``: messages, and copies by PyTorch, as on GPUs."""
MOST_TRANSFERS = 64
ERROR, NEW = 1, 2
"""Words of a meeting: an error, and what a request that is not prepared adds; tokens are multiples of 4."""
MESSAGES = Topology((Level("network", None, 20_000_000, 500_000),), 100_000_000)
"""By messages of a group: 20 us each, 2 GB/s, and 100 us for a step."""
ONE_HOST = Topology((Level("host", None, 0, 100_000),), 20_000_000)
"""On one host a byte is a copy, 10 GB/s; a step costs 20 us."""


class GroupWorld:
    """The moves over one group. Making one is **collective over** the group."""

    def __init__(
        self, group: Any, transport: str, timeout_s: float | None, names: tuple[int, ...] | None
    ) -> None:
        self.ranks = Ranks(group, timeout_s, names)
        self.memory = SharedMemory.join(self.ranks) if transport == "auto" else None
        self.by_views = transport == "views"
        self.topology = MESSAGES if self.memory is None else ONE_HOST
        self.prepared: dict[str, TensorTransfer] = {}

    def find(
        self,
        text: str | None,
        error: RedistError | None,
        device: str,
        make_plans: Callable[[Topology], Sequence[Plan]],
    ) -> TensorTransfer:
        """**Collective.** The prepared move of a request; the same error on all ranks if they cannot agree.

        ``text`` says all there is to agree on. Rank 0 of the group plans, and tells the others.
        """
        found = self.prepared.get(text or "")
        word = ERROR
        if text is not None and error is None:
            word = _token(text) | (NEW if found is None else 0)
        if not self._meet(word) or word == ERROR:
            answers = self.ranks.gather((text, None if error is None else str(error)))
            self._raise_unless_agreed(answers, error)
            found = None  # the same request, prepared on some ranks only
        if found is not None:
            return found
        assert text is not None
        plans = self._plan(make_plans)
        found = TensorTransfer(
            self.ranks,
            self.memory if device == "cpu" else None,
            plans,
            self.topology,
            device,
            self.by_views,
        )
        while len(self.prepared) >= MOST_TRANSFERS:
            self.prepared.pop(next(iter(self.prepared)))
        self.prepared[text] = found
        return found

    def run(self, transfer: TensorTransfer, sources: Tensors) -> list[torch.Tensor | None]:
        """**Collective.** Move; a failure in the middle reaches the other ranks as an error of theirs."""
        try:
            return transfer.run(sources)
        except BaseException as problem:
            if self.memory is not None:
                self.memory.give_up(f"{type(problem).__name__}: {problem}")
            raise

    def _meet(self, word: int) -> bool:
        if self.memory is not None:
            return self.memory.meet(word)
        words = self.ranks.tell(np.array([word]))
        return bool((words == word).all())

    def _plan(self, make_plans: Callable[[Topology], Sequence[Plan]]) -> Sequence[Plan]:
        """**Collective.** Plans that rank 0 makes, or the error that it meets, on every rank."""
        answer: Any = None
        if self.ranks.rank == 0:
            try:
                answer = tuple(make_plans(self.topology))
            except RedistError as problem:
                answer = problem
            except Exception as problem:
                answer = RequestError(f"rank 0 failed: {type(problem).__name__}: {problem}")
        answer = self.ranks.gather(answer)[0]
        if isinstance(answer, RedistError):
            raise answer
        plans: Sequence[Plan] = answer
        return plans

    def _raise_unless_agreed(
        self, answers: Sequence[tuple[str | None, str | None]], error: RedistError | None
    ) -> None:
        """**Local.** Raise if a rank has an error, or asks for something else than another."""
        errors = _by_text([failed for _, failed in answers], self.ranks.names)
        if errors:
            said = "; ".join(f"{who}: {text}" for text, who in errors.items())
            if len(errors) == 1 and all(failed for _, failed in answers):
                said = next(iter(errors))
            raise RequestError(said) from error
        texts = _by_text([text for text, _ in answers], self.ranks.names)
        if len(texts) > 1:
            said = "; ".join(f"{who}: {text}" for text, who in texts.items())
            raise RequestError(f"cannot move: ranks ask for different things; {said}")


def _by_text(texts: Sequence[str | None], names: Sequence[int]) -> dict[str, str]:
    """Who says what, in words."""
    found: dict[str, list[int]] = {}
    for name, text in zip(names, texts, strict=True):
        if text is not None:
            found.setdefault(text, []).append(name)
    return {
        text: ("rank " if len(who) == 1 else "ranks ") + ", ".join(map(str, who))
        for text, who in found.items()
    }


def _token(text: str) -> int:
    """A number for a request, the same on every rank."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 3 << 2


_WORLDS: dict[Any, GroupWorld] = {}


def world_of(
    group: Any, transport: str, timeout_s: float | None, names: tuple[int, ...] | None = None
) -> GroupWorld:
    """The world of a group, or of some of its ranks; **collective over** these the first time."""
    if transport not in TRANSPORTS:
        raise RequestError(f"unknown transport {transport!r}; known: {', '.join(TRANSPORTS)}")
    group = dist.group.WORLD if group is None else group
    if group is None:
        raise RequestError(
            "cannot move: torch.distributed is not initialised; call init_process_group first"
        )
    if names == tuple(dist.get_process_group_ranks(group)):
        names = None
    key = group, names, transport
    found = _WORLDS.get(key)
    if found is None:
        found = _WORLDS[key] = GroupWorld(group, transport, timeout_s, names)
    found.ranks.timeout_s = timeout_s
    return found
