"""Counterexamples on real arrays: what ``redist simulate`` says of sizes that Z3 found."""

from __future__ import annotations

import os
import shlex
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import redist
from proofs.engine.theorem import Shown
from redist.errors import RedistError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import grid
from redist.plan.plan import Plan
from redist.plan.steps import Action
from redist.runtime.simulator import is_correct, random_tiles, simulate


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for one step, as it stands on the command line.

    >>> print(Asked("i32[4{x}]", "i32[4]", "x=2").command("simulate"))
    redist simulate 'i32[4{x}]' 'i32[4]' --mesh x=2 --strategy direct
    """

    source: str
    target: str
    mesh: str
    target_mesh: str = ""

    def words(self) -> list[str]:
        """The request as arguments."""
        other = ["--target-mesh", self.target_mesh] if self.target_mesh else []
        return [self.source, self.target, "--mesh", self.mesh, *other, "--strategy", "direct"]

    def command(self, name: str) -> str:
        """The request as a line to type."""
        return shlex.join(["redist", name, *self.words()])

    def plan(self) -> Plan:
        """The plan of one step."""
        mesh = redist.Mesh.parse(self.mesh)
        other = redist.Mesh.parse(self.target_mesh) if self.target_mesh else None
        return redist.synthesize(
            self.source, self.target, mesh=mesh, target_mesh=other, strategy="direct"
        )


def simulate_stored(text: str) -> tuple[bool, str]:
    """Whether a stored plan does what it says, and what ``redist simulate -`` prints about it."""
    report = redist.simulate(Plan.from_json(text))
    return report.is_as_planned, str(report)


def wrong_received(asked: Asked, said_elems: int, variant: str) -> Shown:
    """Put the bytes that a wrong variant says into the plan; the simulator measures others."""
    plan = asked.plan()
    assert len(plan.steps) == 1, "one step, so that its bytes are those of the plan"
    said = said_elems * plan.source.dtype.itemsize
    old, new = (f'"received_bytes": {n},' for n in (plan.received_bytes, said))
    text = plan.to_json()
    right, _ = simulate_stored(text)
    wrong, output = simulate_stored(text.replace(old, new))
    command = f"{asked.command('plan')} --json | sed 's/{old}/{new}/' | redist simulate -"
    differs = not wrong and "DIFFERS from the plan" in output
    return Shown(
        command,
        right and differs,
        f"{variant}: {said} bytes received; the simulator measures {plan.received_bytes}",
    )


def wrong_step(name: str, asked: Asked, action: Action, variant: str) -> Shown:
    """Put a wrong step into the plan; the simulator's arrays come out wrong, and it refuses the step.

    ``asked`` is a request whose plan has the right source; its only step gets ``action``, its target
    the type of ``asked``.
    """
    bad, refused = _with_step(name, asked, action)
    return Shown(
        refused.command,
        refused.contradicts and not arrives(bad),
        f"{variant}; run all the same, the array is wrong; {refused.text}",
    )


def refused_step(name: str, asked: Asked, action: Action, variant: str) -> Shown:
    """Put a wrong step into the plan; the simulator refuses it."""
    _, refused = _with_step(name, asked, action)
    return replace(refused, text=f"{variant}; {refused.text}")


def _with_step(name: str, asked: Asked, action: Action) -> tuple[Plan, Shown]:
    """A plan with another step, and what the simulator says of it."""
    plan = asked.plan()
    target = ArrayType.parse(asked.target, plan.target.mesh)
    step = replace(plan.steps[0], action=action, after=target)
    bad = replace(plan, steps=(step,), certificate=None)
    fine, output = simulate_stored(bad.to_json())
    path = Path(tempfile.gettempdir()) / f"redist-proofs-{os.getuid()}" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(bad.to_json(), encoding="utf-8")
    verdict = next(line for line in output.splitlines() if line.startswith("result"))
    command = f"redist simulate {shlex.quote(str(path))}"
    return bad, Shown(command, not fine and arrives(plan), " ".join(verdict.split()[1:]))


def arrives(plan: Plan) -> bool:
    """Whether the simulator ends with the array it began with, the steps taken as they are."""
    tiles = random_tiles(plan.source)
    try:
        return is_correct(plan, tiles, simulate(plan, tiles).tiles)
    except (RedistError, ValueError, IndexError):
        return False


def senders(asked: Asked) -> dict[int, set[int]]:
    """Who sent to whom: every source rank's tile is filled with its rank and the simulator run.

    >>> senders(Asked("i32[2]", "i32[2]", "a=2", "b=3@2"))
    {2: {0}, 3: {1}, 4: {0}}
    """
    plan = asked.plan()
    tiles = {rank: np.full_like(tile, rank) for rank, tile in random_tiles(plan.source).items()}
    after = simulate(plan, tiles).tiles
    return {rank: {int(v) for v in np.unique(tile)} for rank, tile in after.items()}


def arrives_without_one(plan: Plan) -> bool:
    """Whether the array is right if one element that was received is blanked.

    >>> arrives_without_one(Asked("i32[4{x}]", "i32[4]", "x=2").plan())
    False
    """
    before = random_tiles(plan.source)
    tiles = simulate(plan, before).tiles
    had, has = (grid(t).boxes() for t in (plan.source, plan.target))
    for row, rank in enumerate(int(rank) for rank in plan.target.mesh.rank_array()):
        inside = np.zeros(plan.target.shape, np.bool_)
        inside[tuple(slice(*ends) for ends in zip(has[0][row], has[1][row], strict=True))] = True
        own = plan.source.mesh.ranks.index(rank)
        inside[tuple(slice(*ends) for ends in zip(had[0][own], had[1][own], strict=True))] = False
        lacking = np.argwhere(inside)
        if len(lacking):
            at = tuple(lacking[0] - has[0][row])
            tiles[rank][at] = ~tiles[rank][at]
            try:
                return is_correct(plan, before, tiles)
            except RedistError:
                return False
    raise AssertionError("nothing is received")
