"""What all moves over one process group share: its ranks, their memory, and prepared moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from redist.errors import RedistError, RequestError
from redist.plan.plan import Plan
from redist.plan.rates import ONE_NODE, TORCH_MESSAGES
from redist.plan.topology import Topology
from redist.runtime.ranks.answers import MOST_TRANSFERS, made_by_first
from redist.runtime.ranks.tokens import NEW, Token, request_token
from redist.text.latest import Latest
from redist.torch.ranks import Ranks, SharedMemory
from redist.torch.requests import Ends, Request, agreed_ends, error_of_all
from redist.torch.transfer import Tensors, TensorTransfer

TRANSPORTS = ("auto", "messages", "views")
"""``auto``: memory that ranks share if they are on one host, else messages; ``messages`` of the group
only; ``views``: messages, and copies by PyTorch, as on GPUs."""


class GroupWorld:
    """The moves over one group. Making one is **collective over** the group.

    Ranks of one host meet in memory that they share, by whatever transport they move: so they find out
    if they ask for different ones.
    """

    def __init__(self, group: Any, timeout_s: float | None, names: tuple[int, ...] | None) -> None:
        self.ranks = Ranks(group, timeout_s, names)
        self.memory = SharedMemory.join(self.ranks)
        self.prepared: Latest[str, TensorTransfer] = Latest(MOST_TRANSFERS)
        self.shared_keys: Latest[str, str] = Latest(MOST_TRANSFERS)
        """For the text of a request that fits together with others, the key of all of them."""

    def find(
        self, request: Request | None, error: RedistError | None, device: str, transport: str,
        make_plans: Callable[[Topology, Sequence[Ends]], Sequence[Plan]],
    ) -> TensorTransfer:  # fmt: skip
        """**Collective.** The prepared move of a request; the same error on all ranks if they cannot agree.

        The request names the device and the transport. Rank 0 of the group plans, and tells the others.
        """
        key, found, ends = self.agree(request, error)
        if found is not None:
            return found
        memory = self.memory if transport == "auto" else None
        topology = TORCH_MESSAGES if memory is None else ONE_NODE
        plans = made_by_first(
            self.ranks.rank,
            lambda: tuple(make_plans(topology, ends)),
            lambda answer: self.ranks.gather(answer)[0],
        )
        shared = memory if device == "cpu" else None
        found = TensorTransfer(self.ranks, shared, plans, topology, device, transport == "views")
        self.prepared[key] = found
        return found

    def agree(
        self, request: Request | None, error: RedistError | None
    ) -> tuple[str, TensorTransfer | None, Sequence[Ends]]:
        """**Collective.** What all ranks ask for: its key, its move if it is prepared, and the ends.

        It is an error on all ranks if one has an error, or if they cannot agree. Requests of ranks that
        name parts of one mesh differ in their texts; they share a key that is made of all of them.
        """
        text = "" if request is None else request.text
        key = self.shared_keys.get(text, text)
        found = self.prepared.get(key)
        key = text if found is None else key
        token: int = Token.ERROR
        if request is not None and error is None:
            token = request_token(key) | (NEW if found is None else 0)
        ends: Sequence[Ends] = () if request is None else request.ends
        if not self._meet(token) or token == Token.ERROR:
            answers = self.ranks.gather((request, None if error is None else str(error)))
            said = error_of_all([failed for _, failed in answers], self.ranks.names)
            if said is not None:
                raise RequestError(said) from error
            key, ends = self._agree(text, [asked for asked, _ in answers])
            found = None  # the same request, prepared on some ranks only, or by parts
        return key, found, ends

    def _agree(self, text: str, requests: Sequence[Request]) -> tuple[str, Sequence[Ends]]:
        """**Local.** The key and the ends of what all ranks ask for together, or an error."""
        ends = agreed_ends(requests, self.ranks.names)
        texts = [request.text for request in requests]
        if len(set(texts)) == 1:
            self.shared_keys.pop(text, None)
            return text, ends
        self.shared_keys[text] = key = f"shared {sha256(repr(texts).encode()).hexdigest()}"
        return key, ends

    def run(self, transfer: TensorTransfer, sources: Tensors) -> list[torch.Tensor | None]:
        """**Collective.** Move; a failure in the middle reaches the other ranks as an error of theirs."""
        try:
            return transfer.run(sources)
        except BaseException as problem:
            if self.memory is not None and self.memory.failure.broken is None:
                self.memory.failure.abort(problem)
            raise

    def wait_at_most(self, timeout_s: float | None) -> None:
        """**Local.** Let every wait for another rank last no longer; None: for ever."""
        self.ranks.timeout_s = timeout_s
        if self.memory is not None:
            self.memory.failure.timeout_s = timeout_s

    def _meet(self, token: int) -> bool:
        """**Collective.** Whether all ranks come with one token."""
        if self.memory is not None:
            return self.memory.meet(token)
        return bool((self.ranks.tell(np.array([token])) == token).all())


def check_transport(transport: str) -> None:
    """Raise unless this is a way to move."""
    if transport not in TRANSPORTS:
        raise RequestError(f"unknown transport {transport!r}; known: {', '.join(TRANSPORTS)}")


_WORLDS: dict[Any, GroupWorld] = {}


def world_of(
    group: Any, timeout_s: float | None, names: tuple[int, ...] | None = None
) -> GroupWorld:
    """The world of a group, or of some of its ranks; **collective over** these the first time."""
    group = dist.group.WORLD if group is None else group
    if group is None:
        raise RequestError(
            "cannot move: torch.distributed is not initialised; call init_process_group first"
        )
    if names == tuple(dist.get_process_group_ranks(group)):
        names = None
    key = group, names
    found = _WORLDS.get(key)
    if found is None:
        found = _WORLDS[key] = GroupWorld(group, timeout_s, names)
    found.wait_at_most(timeout_s)
    return found
