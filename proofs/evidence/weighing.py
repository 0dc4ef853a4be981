"""Counterexamples about memory: what ``redist simulate`` measures against what a variant says."""

from __future__ import annotations

import shlex
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import redist
from proofs.engine.theorem import Shown
from proofs.evidence.showing import Asked, simulate_stored
from redist.plan.plan import Plan
from redist.plan.steps import Event


@dataclass(frozen=True, slots=True)
class Wanted(Asked):
    """A request with its options.

    >>> print(Wanted("i32[4{x}]", "i32[4]", "x=2", donate=True).command("simulate"))
    redist simulate 'i32[4{x}]' 'i32[4]' --mesh x=2 --strategy no_permute --donate
    """

    strategy: str = "no_permute"
    donate: bool = False
    limit_bytes: int | None = None

    def words(self) -> list[str]:
        """The request as arguments."""
        out = [self.source, self.target, "--mesh", self.mesh, "--strategy", self.strategy]
        out += ["--donate"] if self.donate else []
        return out + ([] if self.limit_bytes is None else ["--limit", str(self.limit_bytes)])

    def plan(self) -> Plan:
        """The plan."""
        return redist.synthesize(
            self.source,
            self.target,
            mesh=redist.Mesh.parse(self.mesh),
            strategy=self.strategy,
            donate=self.donate,
            limit_bytes=self.limit_bytes,
        )


def saying(plan: Plan, peak_bytes: int) -> Plan:
    """The plan with the allocations of its worst steps understated so that its peak is this.

    Simulating it shows the truth: the simulator weighs tiles and staging, not these figures.
    """
    steps = list(plan.steps)
    for number, step in enumerate(steps):
        over = step.peak_bytes - peak_bytes
        if over > 0:
            out, *rest = step.events
            less = Event(out.what, out.n_bytes - over, out.born, number, out.at)
            steps[number] = replace(step, events=(less, *rest))
    return replace(plan, steps=tuple(steps), certificate=None)


def wrong_peak(name: str, plan: Plan, said_bytes: int, variant: str) -> Shown:
    """Let a plan say the peak of a wrong variant; the simulator measures more."""
    path = Path(tempfile.gettempdir()) / "redist-proofs" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    wrong = saying(plan, said_bytes)
    path.write_text(wrong.to_json(), encoding="utf-8")
    right, _ = simulate_stored(plan.to_json())
    fine, output = simulate_stored(wrong.to_json())
    return Shown(
        f"redist simulate {shlex.quote(str(path))}",
        right and not fine and wrong.peak_bytes == said_bytes and "OVER the plan" in output,
        f"{variant}: at most {said_bytes} bytes; the simulator measures {plan.peak_bytes}",
    )
