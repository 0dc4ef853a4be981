"""A fluid discrete-event engine: processes start activities that share resources, and wait for them.

An activity has an amount (bytes, or seconds of work) and uses resources in proportion to its rate. Rates
are shared fairly: those of all activities grow together, each by its weight, until one of their resources
is full; the rest goes on growing. They change only when an activity starts or ends, so the engine jumps
from one such moment to the next.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Generator, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Process = Generator["list[Event]", None, None]
"""Yields what it waits for."""
LITTLE = 1e-9
"""What is left to do, or to wait, by no more than this share, happens together with what happens."""


@dataclass(slots=True, eq=False)
class Event:
    """Something that has happened or will, and who waits for it."""

    done: bool = False
    waiting: list[_Waiting] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A process, and how many events have not yet happened for which it waits."""

    process: Process
    missing: int


@dataclass(slots=True, eq=False)
class Gate:
    """A meeting: all who have come go on ``delay_s`` after the last of ``size``."""

    engine: Engine
    size: int
    delay_s: float
    come: int = 0
    event: Event = field(default_factory=Event)

    def enter(self) -> Event:
        """Come; the event is that all have."""
        self.come += 1
        event = self.event
        if self.come == self.size:
            self.come, self.event = 0, Event()
            self.engine.after(self.delay_s, event)
        return event


@dataclass(slots=True, eq=False)
class _Activity:
    left: float
    amount: float
    weight: float
    uses: tuple[tuple[int, float], ...]
    event: Event
    delay_s: float


class Engine:
    """Runs processes until all have ended.

    >>> engine = Engine({"link": 10.0})
    >>> def send(amount):
    ...     yield [engine.start(amount, {"link": 1.0})]
    >>> for amount in (10.0, 30.0):
    ...     engine.spawn(send(amount))
    >>> engine.run()
    4.0
    """

    def __init__(self, capacities: Mapping[Any, float]) -> None:
        self.now = 0.0
        self._numbers: dict[Hashable, int] = {}
        rates: list[float] = []
        for name, capacity in capacities.items():
            if math.isfinite(capacity):
                self._numbers[name] = len(rates)
                rates.append(capacity)
        self._capacities = np.array(rates, dtype=np.float64)
        self._active: list[_Activity] = []
        self._timers: list[tuple[float, int, Event]] = []
        self._count = itertools.count()
        self._ready: list[Process] = []

    def start(
        self,
        amount: float,
        uses: Mapping[Any, float],
        weight: float = 1.0,
        delay_s: float = 0.0,
        event: Event | None = None,
    ) -> Event:
        """Begin an activity; its event comes ``delay_s`` after its end. Uses nothing: at once."""
        event = Event() if event is None else event
        known = tuple(
            (self._numbers[name], c) for name, c in uses.items() if c and name in self._numbers
        )
        if amount <= 0 or not known:
            self.after(delay_s, event)
        else:
            self._active.append(_Activity(amount, amount, weight, known, event, delay_s))
        return event

    def after(self, seconds: float, event: Event | None = None) -> Event:
        """Let an event happen after so many seconds."""
        event = Event() if event is None else event
        heapq.heappush(self._timers, (self.now + seconds, next(self._count), event))
        return event

    def spawn(self, process: Process) -> None:
        """Let a process run."""
        self._ready.append(process)

    def run(self) -> float:
        """Run until nothing is left to happen; the time of the last event."""
        self._settle()
        while self._active or self._timers:
            rates = self._rates()
            left = np.array([one.left for one in self._active])
            ends = left / rates if len(rates) else left
            step = float(ends.min(initial=math.inf))
            if self._timers:
                step = min(step, max(0.0, self._timers[0][0] - self.now))
            self._pass(step, rates, ends)
            while self._timers and self._timers[0][0] <= self.now * (1 + LITTLE):
                self._happen(heapq.heappop(self._timers)[2])
            self._settle()
        return self.now

    def _pass(self, step: float, rates: Floats, ends: Floats) -> None:
        """Let time pass, and end what has ended."""
        self.now += step
        going = []
        for one, rate, end in zip(self._active, rates.tolist(), ends.tolist(), strict=True):
            one.left -= min(one.left, rate * step)
            if end <= step or one.left <= LITTLE * one.amount:
                self.after(one.delay_s, one.event)
            else:
                going.append(one)
        self._active = going

    def _rates(self) -> Floats:
        """Fair rates: progressive filling."""
        n = len(self._active)
        owner = np.repeat(np.arange(n), [len(one.uses) for one in self._active])
        pairs = [pair for one in self._active for pair in one.uses]
        resource = np.array([number for number, _ in pairs], dtype=np.int64)
        weight = np.array([one.weight for one in self._active])
        load = np.array([c for _, c in pairs]) * weight[owner] if pairs else np.zeros(0)
        level, open_ = np.zeros(n), np.ones(n, dtype=bool)
        free = self._capacities.copy()
        at, size = 0.0, len(free)
        while open_.any():
            live = open_[owner]
            demand = np.bincount(resource[live], weights=load[live], minlength=size)
            grow = np.full(size, math.inf)
            np.divide(free, demand, out=grow, where=demand > 0)
            step = max(0.0, float(grow.min()))
            at += step
            free -= demand * step
            full = (demand > 0) & (grow <= step * (1 + 1e-12) + 1e-300)
            stops = np.unique(owner[live & full[resource]])
            level[stops], open_[stops] = at, False
        return level * weight

    def _happen(self, event: Event) -> None:
        event.done = True
        for one in event.waiting:
            one.missing -= 1
            if not one.missing:
                self._ready.append(one.process)

    def _settle(self) -> None:
        """Let all go on who can, each until it waits for something or has ended."""
        while self._ready:
            process = self._ready.pop()
            for events in process:
                if missing := [event for event in events if not event.done]:
                    one = _Waiting(process, len(missing))
                    for event in missing:
                        event.waiting.append(one)
                    break
