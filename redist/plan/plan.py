"""Plans: sequences of steps, with everything that is known about them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from redist.layout.array_type import ArrayType
from redist.plan.memory import holder_classes, live_bytes, source_events
from redist.plan.rates import FLAT
from redist.plan.steps import Event, Step
from redist.plan.topology import Topology

if TYPE_CHECKING:
    from redist.torch.run_plan import TorchPlan

# What was proved about a plan's memory, and how.


@dataclass(frozen=True, slots=True)
class Certificate:
    """A verdict on the claim that live bytes never exceed the bound.

    ``verdict`` is ``proved``, ``refuted`` (``counterexample`` has the sizes) or ``unknown``
    (``reason`` says why). ``scope`` says which arrays the verdict covers. ``bound`` is a formula, and
    ``bound_bytes`` is the bound for this array.
    """

    verdict: str
    bound: str
    bound_bytes: int
    scope: str
    method: str
    reason: str = ""
    counterexample: tuple[tuple[str, int], ...] = ()
    seconds: float = 0.0

    def summary(self) -> str:
        """The certificate in one line of text."""
        match self.verdict:
            case "proved":
                return f"proved for {self.scope} ({self.method}, {self.seconds * 1e3:.0f} ms)"
            case "refuted":
                sizes = ", ".join(f"{name} = {value}" for name, value in self.counterexample)
                return f"REFUTED with {sizes} ({self.method})"
            case _:
                return f"unknown: {self.reason} ({self.method})"


@dataclass(frozen=True, slots=True)
class Alternative:
    """A plan that the search considered, with its cost figures."""

    name: str
    steps: str
    time_ps: int
    received_bytes: int
    messages: int
    peak_bytes: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that turn one layout into another, with their cost figures.

    >>> import redist
    >>> plan = redist.synthesize("f32[8{x}]", "f32[8]", mesh=redist.Mesh(x=2))
    >>> [step.op for step in plan.steps], plan.received_bytes, plan.certificate.verdict
    (['all_gather'], 32, 'proved')
    """

    source: ArrayType
    target: ArrayType
    steps: tuple[Step, ...]
    lower_bound_bytes: int
    naive_received_bytes: int
    naive_peak_bytes: int
    limit_bytes: int | None = None
    objective: str = "time"
    strategy: str = "auto"
    donate: bool = False
    search: str = "exact"
    considered: tuple[Alternative, ...] = ()
    certificate: Certificate | None = None
    search_bound: int | None = field(default=None, repr=False)
    """If the search was bounded, what no plan of the space costs less than, where that is known."""
    planned_for: str = field(default="", compare=False, repr=False)
    """The topology that it was planned for and where that came from, if a transfer knows; not in JSON."""

    @property
    def types(self) -> tuple[ArrayType, ...]:
        """The type before the first step and after each step: one more than there are steps."""
        return (self.source, *(step.after for step in self.steps))

    @property
    def received_bytes(self) -> int:
        """Bytes received, summed over ranks and steps."""
        return sum(step.received_bytes for step in self.steps)

    @property
    def time_ps(self) -> int:
        """Modelled time in picoseconds, summed over steps."""
        return sum(step.time_ps for step in self.steps)

    @property
    def messages(self) -> int:
        """Messages that the busiest receiver of each step gets, summed over steps."""
        return sum(step.messages_range[1] for step in self.steps)

    @property
    def events(self) -> tuple[Event, ...]:
        """All allocations of the plan, the source first."""
        return self.events_if(self.donate)

    def events_if(self, donate: bool) -> tuple[Event, ...]:
        """All allocations of the plan if the source is donated, or if it is kept."""
        own = (event for step in self.steps for event in step.events)
        return (*source_events(self.types, donate), *own)

    @property
    def peak_bytes(self) -> int:
        """The most bytes that any rank holds at any moment."""
        return self.peak_bytes_if_donated if self.donate else self.peak_bytes_if_kept

    @property
    def peak_bytes_if_donated(self) -> int:
        """The peak if the source is freed after the first step."""
        return self._peak_bytes(True)

    @property
    def peak_bytes_if_kept(self) -> int:
        """The peak if the source is kept to the end."""
        return self._peak_bytes(False)

    def _peak_bytes(self, donate: bool) -> int:
        classes = holder_classes(self.source.mesh, self.target.mesh)
        events = self.events_if(donate)
        return max(live_bytes(events, k, classes) for k in range(max(1, len(self.steps))))

    def with_certificate(self, certificate: Certificate) -> Plan:
        """The same plan with this certificate."""
        return replace(self, certificate=certificate)

    def to_json(self) -> str:
        """The plan as JSON text; :meth:`from_json` reads it back."""
        from redist.plan.serial import plan_to_json

        return plan_to_json(self)

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read a plan from JSON text; its figures are not checked here, but by ``redist check``."""
        from redist.plan.serial import plan_from_json

        return plan_from_json(text)

    def explain(self) -> str:
        """A table of the alternatives that were considered, with their costs."""
        from redist.plan.table import format_alternatives

        return format_alternatives(self)

    def svg(self, path: str | os.PathLike[str] | None = None, topology: Topology = FLAT) -> str:
        """Draw the plan as SVG: which rank holds what, what moves, and the memory in use.

        >>> import redist
        >>> plan = redist.synthesize("f32[8{x}]", "f32[8]", mesh=redist.Mesh(x=2))
        >>> plan.svg().startswith("<svg")
        True

        Returns the SVG text, and also writes it to ``path`` if that is given. ``topology`` determines which
        of several replicas sends; give the one that the plan was made for.
        """
        from redist.draw.picture import draw
        from redist.text.svg import write_if

        return write_if(draw(self, topology), path)

    def html(self, path: str | os.PathLike[str] | None = None, topology: Topology = FLAT) -> str:
        """Write one HTML page with the picture, the plan as text and the alternatives considered.

        >>> import redist
        >>> plan = redist.synthesize("f32[8{x}]", "f32[8]", mesh=redist.Mesh(x=2))
        >>> plan.html().startswith("<!DOCTYPE html>")
        True

        Returns the page, and also writes it to ``path`` if that is given; ``topology`` is as in :meth:`svg`.
        """
        from redist.draw.picture import make_page
        from redist.text.svg import write_if

        return write_if(make_page(self, topology), path)

    def to_mpi4py(self, topology: Topology = FLAT) -> str:
        """Write the plan as a program that uses plain mpi4py collectives, to read, run and keep.

        >>> import redist
        >>> plan = redist.synthesize("f32[8{x}]", "f32[8]", mesh=redist.Mesh(x=2))
        >>> print(*plan.to_mpi4py().splitlines()[-13:-10], sep="\\n")
            # 1 all_gather over x: f32[8]
            tile = all_gather(group_x, tile.reshape(4))
            tile = tile.reshape(8)

        Its function ``move(tile, comm)`` takes a rank's tile and returns the new one. ``topology`` determines
        which of several replicas sends; give the one that the plan was made for.
        """
        from redist.lower.mpi4py_text import to_mpi4py

        return to_mpi4py(self, topology)

    def to_jax(self, mesh: Any = None, topology: Topology = FLAT) -> Callable[[Any], Any]:
        """A function of a ``jax.Array`` that runs the steps with ``shard_map`` and JAX's collectives.

        ``mesh`` is a ``jax.sharding.Mesh`` whose devices take the places of the plan's devices, in order;
        without it, JAX's first devices do. The function works inside ``jit`` and can be differentiated.
        Needs JAX.
        """
        from redist.jax.compiled import to_jax

        return to_jax(self, mesh, topology=topology)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from redist.draw.picture import make_cell

        return make_cell(self)

    def to_torch(
        self,
        group: Any = None,
        device: str | None = None,
        transport: str = "auto",
        timeout_s: float | None = 300.0,
    ) -> TorchPlan:
        """**Collective over** ``group``. Prepare the plan to run on ``torch.distributed``, without MPI.

        In a job that ``torchrun`` started::

            plan = redist.synthesize("f32[8{x}, 8]", "f32[8, 8{x}]", mesh=redist.Mesh(x=4))
            move = plan.to_torch()               # over the default group, gloo or NCCL
            columns = move(torch.zeros(2, 8))    # this rank's tile in, that of the target out

        The ranks of the plan are rank numbers in ``group``. ``device`` is ``cpu`` or ``cuda``, by default
        the one whose tensors the group can send. ``transport="auto"`` uses shared memory if all ranks are on
        one host and the tensors are in host memory; ``"messages"`` uses only messages of the group.
        """
        from redist.torch.run_plan import TorchPlan

        return TorchPlan(self, group, device, transport, timeout_s)

    def __str__(self) -> str:
        from redist.plan.table import format_plan

        return format_plan(self)
