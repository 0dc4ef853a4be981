"""From a route (actions and types) to a plan with all its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from redist.layout.array_type import ArrayType
from redist.plan.memory import (
    default_staging_bytes,
    fixed_live_bytes,
    hop_live_bytes,
    rounds_for,
    staging_for,
    step_events,
)
from redist.plan.steps import Action, Step
from redist.plan.topology import Topology
from redist.plan.traffic import StepTraffic, traffic_of

Hop = tuple[Action, ArrayType]
Path = tuple[Hop, ...]


@dataclass(slots=True)
class Pricer:
    """Prices hops and routes of one request; remembers the traffic of every hop it has seen."""

    source: ArrayType
    target: ArrayType
    topology: Topology
    limit_bytes: int | None
    donate: bool
    _seen: dict[tuple[Action, ArrayType], StepTraffic] = field(default_factory=dict)

    def traffic(self, action: Action, before: ArrayType, after: ArrayType) -> StepTraffic:
        """What the action moves."""
        key = (action, before)
        if key not in self._seen:
            self._seen[key] = traffic_of(action, before, after, self.topology)
        return self._seen[key]

    def budget_bytes(self, fixed_bytes: int) -> int:
        """Staging that a step may use next to ``fixed_bytes`` of live tiles."""
        budget = default_staging_bytes(self.source, self.target)
        if self.limit_bytes is not None:
            budget = min(budget, self.limit_bytes - fixed_bytes)
        return max(0, budget)

    def fixed_bytes(self, before: ArrayType, after: ArrayType) -> int:
        """Live bytes of one hop without staging, wherever in a route it stands."""
        first = before == self.source
        return hop_live_bytes(self.source, self.target, before, after, first, self.donate)

    def rounds(self, traffic: StepTraffic, staging_bytes: int) -> int:
        """Rounds of a step."""
        busiest = max(traffic.sent_worst, traffic.received_range[1]) * self.source.dtype.itemsize
        return rounds_for(busiest, staging_bytes)

    def staging_bytes(self, traffic: StepTraffic, fixed_bytes: int) -> int:
        """Staging of a step next to ``fixed_bytes`` of live tiles."""
        itemsize = self.source.dtype.itemsize
        most = traffic.received_range[1] * itemsize
        return staging_for(most, self.budget_bytes(fixed_bytes), itemsize)

    def time_ps(self, traffic: StepTraffic, staging_bytes: int) -> int:
        """Modelled time of a step; rounds cost only where a limit makes them more."""
        usual = staging_for(
            traffic.received_range[1] * self.source.dtype.itemsize,
            default_staging_bytes(self.source, self.target),
            self.source.dtype.itemsize,
        )
        extra = max(0, self.rounds(traffic, staging_bytes) - self.rounds(traffic, usual))
        return traffic.time_ps(self.topology, self.source.dtype.itemsize, extra)

    def hop_time_ps(self, action: Action, before: ArrayType, after: ArrayType) -> int:
        """Modelled time of one hop."""
        traffic = self.traffic(action, before, after)
        if self.limit_bytes is None:
            return traffic.time_ps(self.topology, self.source.dtype.itemsize)
        fixed = self.fixed_bytes(before, after)
        return self.time_ps(traffic, self.staging_bytes(traffic, fixed))

    def least_limit_bytes(self, route: Path) -> int:
        """The smallest limit under which the route can run."""
        return max(fixed_live_bytes(self.types(route), self.donate))

    def fits(self, route: Path) -> bool:
        """Whether the route can run within the limit."""
        return self.limit_bytes is None or self.least_limit_bytes(route) <= self.limit_bytes

    def types(self, route: Path) -> list[ArrayType]:
        """The source and the type after every hop."""
        return [self.source, *(after for _, after in route)]

    def steps(self, route: Path) -> tuple[Step, ...]:
        """The route as steps."""
        types = self.types(route)
        itemsize = self.source.dtype.itemsize
        live = fixed_live_bytes(types, self.donate)
        return tuple(
            self._step(action, types, number, live[number], itemsize)
            for number, (action, _) in enumerate(route)
        )

    def _step(
        self, action: Action, types: Sequence[ArrayType], number: int, live: int, itemsize: int
    ) -> Step:
        before, after = types[number], types[number + 1]
        traffic = self.traffic(action, before, after)
        least, most = traffic.received_range
        staging = self.staging_bytes(traffic, live)
        return Step(
            action=action,
            after=after,
            events=step_events(types, number, staging),
            rounds=self.rounds(traffic, staging),
            over=traffic.over,
            group=traffic.group,
            received_bytes=traffic.received_elems * itemsize,
            received_range_bytes=(least * itemsize, most * itemsize),
            sent_worst_bytes=traffic.sent_worst * itemsize,
            messages_range=traffic.messages_range,
            time_ps=self.time_ps(traffic, staging),
            peak_bytes=live + staging,
        )
