"""One case of the random runs: some problems, a way to move them, and what must come out."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import redist
from redist.errors import NoPlanError
from redist.runtime.simulator import simulate
from tests.problems.problems import Problem
from tests.programs.mpi.cases import random_values
from tests.programs.mpi.ways import LAYOUTS, Dressed, bits, with_arithmetic
from tests.programs.together import meet

Array = NDArray[Any]
Arrays = dict[str, Any]

WAYS = ("call", "out", "own", "redistribute", "start", "limit", "donate", "least", "read-only")
CALLS = 5
"""Of every transfer, some with new arrays and some with the same: those take a shorter way."""


@dataclass(frozen=True, slots=True)
class Case:
    """One problem, or several by name that move as one, and how."""

    problems: dict[str, Problem]
    way: str
    seed: int

    @property
    def strategy(self) -> str:
        """Half of the plans have more steps than need be, unless dims have segments."""
        if not all(p.source.is_plain and p.target.is_plain for p in self.problems.values()):
            return "auto"
        return Random(self.seed).choice(("auto", "auto", "collectives", "no_permute"))

    @property
    def more_bytes(self) -> int:
        """What a limit grants beyond the least; large arrays would trickle for ever without."""
        large = any(p.source.global_elems > 10**5 for p in self.problems.values())
        if large:
            return 2**18
        return Random(self.seed).choice((8, 100, 1024, 4096)) if self.way == "limit" else 0

    @property
    def is_batch(self) -> bool:
        """Whether dicts are passed."""
        return "" not in self.problems

    def plain(self, arrays: Arrays) -> Any:
        """What a call takes: the array, or the dict."""
        return arrays if self.is_batch else arrays[""]

    def named(self, result: Any) -> Arrays:
        """What a call returned, by name."""
        return result if self.is_batch else {"": result}

    @property
    def types(self) -> tuple[Any, Any]:
        """Source and target, or dicts of them."""
        sources = {name: p.source for name, p in self.problems.items()}
        targets = {name: p.target for name, p in self.problems.items()}
        return self.plain(sources), self.plain(targets)

    def __str__(self) -> str:
        return f"{self.way} {', '.join(map(str, self.problems.values()))} (number {self.seed})"


class Trial:
    """A case on one rank: its tiles before, those that must come out, and what came out."""

    def __init__(self, case: Case, comm: MPI.Comm, options: dict[str, Any]) -> None:
        self.case, self.comm, self.rng = case, comm, Random(1000 * case.seed + comm.rank)
        options = {**options, "strategy": case.strategy}
        if case.way == "redistribute":  # which has no such options
            options = {"timeout_s": options["timeout_s"]}
        self.options = options
        if case.way in ("limit", "least"):
            least = self._least_bytes() if comm.rank == 0 else None
            meet(comm)
            least = comm.bcast(least)
            self.options = {**options, "limit_bytes": least + case.more_bytes}
        donate = case.way == "donate"
        self.transfer = redist.Transfer(*case.types, comm, donate=donate, **self.options)
        self.before: Arrays = {}
        self.after: Arrays = {}
        plans = self.transfer.plans if case.is_batch else {"": self.transfer.plan}
        for k, (name, problem) in enumerate(case.problems.items()):
            both = None
            if comm.rank == 0:
                tiles = random_values(problem.source, 100 * case.seed + k)
                with np.errstate(all="ignore"):
                    done = simulate(plans[name], tiles, self.transfer.topology).tiles
                both = [(tiles.get(rank), done.get(rank)) for rank in range(comm.size)]
            meet(comm)
            self.before[name], self.after[name] = comm.scatter(both)

    def _least_bytes(self) -> int:
        """The least limit that all plans keep."""
        least = 0
        for problem in self.case.problems.values():
            try:
                ends = problem.source, problem.target
                plan = redist.synthesize(*ends, limit_bytes=1, strategy=self.case.strategy)
                least = max(least, plan.peak_bytes)
            except NoPlanError as error:
                least = max(least, error.least_bytes)
        return least

    def wrong(self) -> str | None:
        """Run; what went wrong."""
        said: list[str | None] = []
        changes = Random(self.case.seed).choice((0.0, 0.4))
        for number in range(CALLS):
            if number == 0 or self.rng.random() < changes:  # else the same arrays again
                self.given = {name: self._source(name) for name in self.case.problems}
                self.outs = {name: self._out(name) for name in self.case.problems}
                self.takes_out = self.case.way == "out" or self.rng.random() < 0.5
            said.append(self._call())
        said.append(self._wrong_in_report())
        self.transfer.close()
        return next((text for text in said if text is not None), None)

    def _call(self) -> str | None:
        case = self.case
        given, outs = self.given, self.outs if self.takes_out else dict.fromkeys(self.outs)
        for name, source in given.items():
            if source is not None:
                source.fill(self.before[name])
                source.array.setflags(write=case.way != "read-only")
        for out in outs.values():
            if out is not None:
                out.fill(None)
        local = case.plain({name: g and g.array for name, g in given.items()})
        into = case.plain({name: o and o.array for name, o in outs.items()})
        match case.way:
            case "own":
                for name, values in self.before.items():
                    if values is not None:
                        case.named(self.transfer.input)[name][...] = values
                got = self.transfer()
                given, outs = dict.fromkeys(given), dict.fromkeys(outs)
            case "redistribute":
                got = redist.redistribute(local, *case.types, self.comm, out=into, **self.options)
            case "start":
                self.transfer.start(local, into)
                other = redist.Transfer(*case.types, self.comm, **self.options)
                other.start(local)
                wrong = self._differences(case.named(other.wait()))
                got = self.transfer.wait()
                other.close()
                if wrong is not None:
                    return f"the second under way: {wrong}"
            case _:
                got = self.transfer(local, into)
        return self._judge(case.named(got), given, outs)

    def _wrong_in_report(self) -> str | None:
        """Bytes that all ranks received must be those of the plans."""
        plans = self.transfer.plans.values() if self.case.is_batch else [self.transfer.plan]
        report = self.transfer.report()
        got = sum(step.received_bytes for step in report.steps)
        if any(step.op == "all_reduce" for plan in plans for step in plan.steps):
            return None  # which cuts tiles its own way
        planned = sum(plan.received_bytes for plan in plans)
        right = got == planned == sum(step.planned_bytes for step in report.steps)
        return None if right else f"received {got} of {planned} bytes:\n{report}"

    def _source(self, name: str) -> Dressed | None:
        return None if self.before[name] is None else self._dressed(name, self.before[name])

    def _out(self, name: str) -> Dressed | None:
        return None if self.after[name] is None else self._dressed(name, self.after[name])

    def _dressed(self, name: str, values: Array) -> Dressed:
        dtype = self.case.problems[name].source.dtype
        layout = self.rng.choice(("plain", "plain", *LAYOUTS))
        return Dressed(with_arithmetic(values, dtype, self.rng), layout)

    def _judge(
        self, got: Arrays, given: dict[str, Dressed | None], outs: dict[str, Dressed | None]
    ) -> str | None:
        """What is wrong with a result, with the sources after it, or around the outs."""
        wrong = self._differences(got)
        if wrong is not None:
            return wrong
        for name, source in given.items():
            if source is None:
                continue
            if self.case.way != "donate" and bits(source.array) != bits(self.before[name]):
                return f"{name} the source was modified"
            if not source.is_untouched_around():
                return f"{name} bytes around the source were modified"
        for name, out in outs.items():
            if out is None:
                continue
            if got[name] is not out.array:
                return f"{name} out was not used"
            if not out.is_untouched_around():
                return f"{name} bytes around out were modified"
        return None

    def _differences(self, got: Arrays) -> str | None:
        for name, want in self.after.items():
            array = got[name]
            if (array is None) != (want is None):
                return f"{name} got {array}, want {want}"
            if want is None:
                continue
            dtype = self.case.problems[name].source.dtype
            if array.shape != want.shape or array.dtype not in (want.dtype, dtype.extended_name):
                return f"{name} {array.dtype}{array.shape}, want {want.dtype}{want.shape}"
            if bits(array) != bits(want):
                size = array.dtype.itemsize
                both = [np.frombuffer(bits(a), np.uint8).reshape(-1, size) for a in (array, want)]
                bad = np.flatnonzero(np.any(both[0] != both[1], axis=1))
                return f"{name} {len(bad)} of {want.size} elements differ, the first is {bad[0]}"
        return None
