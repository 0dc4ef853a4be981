"""Settle theorems: obligations proved, their assumptions possible, every twin refuted and shown."""

from __future__ import annotations

import pkgutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module

from proofs.engine.theorem import PROVED, REFUTED, UNKNOWN, Obligation, Theorem, Twin

ROOM = "proofs.theorems"
ORDER = (
    "tiles factors rules rewrites normal_form memory allocations exchange pending rounds pairing senders"
).split()
"""In which order theorems build on each other; others follow."""
EXIT = {PROVED: 0, REFUTED: 1, UNKNOWN: 2}
"""Exit status of a verdict."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check says of its theorem: ``verdict`` is ``proved`` where the check went well.

    ``kind`` is ``obligation``, ``assumptions`` or ``twin``. A twin went well if Z3 refuted it and
    the simulator agrees; ``command`` then shows it.
    """

    kind: str
    name: str
    verdict: str
    text: str
    seconds: float
    command: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything found about one theorem."""

    theorem: Theorem
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> str:
        """The worst of the findings; refuted where obligations or twins are missing."""
        kinds = {finding.kind for finding in self.findings}
        if not {"obligation", "twin"} <= kinds:
            return REFUTED
        return worst(finding.verdict for finding in self.findings)

    @property
    def seconds(self) -> float:
        """Time of all checks."""
        return sum(finding.seconds for finding in self.findings)


def worst(verdicts: Iterable[str]) -> str:
    """Refuted before unknown before proved.

    >>> worst(["proved", "unknown", "proved"]), worst(["unknown", "refuted"]), worst([])
    ('unknown', 'refuted', 'proved')
    """
    return max(verdicts, key=(PROVED, UNKNOWN, REFUTED).index, default=PROVED)


def theorems() -> dict[str, Theorem]:
    """Every theorem by name: modules of ``proofs.theorems`` define ``THEOREM``."""
    found = {}
    modules = [info.name for info in pkgutil.iter_modules(import_module(ROOM).__path__)]
    for module in sorted(modules, key=lambda name: ([*ORDER, name].index(name), name)):
        theorem = getattr(import_module(f"{ROOM}.{module}"), "THEOREM", None)
        if isinstance(theorem, Theorem):
            found[theorem.name] = theorem
    return found


Check = Callable[[], Finding]


def checks(theorem: Theorem) -> Iterator[tuple[str, Check]]:
    """Every check of a theorem with its name, not yet run."""
    for obligation in theorem.obligations():
        yield obligation.name, partial(check_obligation, obligation)
        yield f"{obligation.name}: possible", partial(check_assumptions, obligation)
    for twin in theorem.twins:
        yield f"wrong: {twin.name}", partial(check_twin, twin)


def settle(
    chosen: Sequence[Theorem], watch: Callable[[int, int, str], None] = lambda *_: None
) -> Iterator[Outcome]:
    """Run all checks, theorem by theorem.

    ``watch`` hears how many are done, of how many, and what comes next.
    """
    listed = [(theorem, list(checks(theorem))) for theorem in chosen]
    total, done = sum(len(todo) for _, todo in listed), 0
    for theorem, todo in listed:
        findings = []
        for name, check in todo:
            watch(done, total, f"{theorem.name}: {name}")
            findings.append(check())
            done += 1
        yield Outcome(theorem, tuple(findings))
    watch(done, total, "")


def check_obligation(obligation: Obligation) -> Finding:
    """Whether Z3 finds no counterexample."""
    answer = obligation.settle()
    text = answer.reason or ", ".join(f"{k} = {v}" for k, v in answer.values.items())
    return Finding("obligation", obligation.name, answer.verdict, text, answer.seconds)


def check_assumptions(obligation: Obligation) -> Finding:
    """Whether the assumptions of an obligation, all but its negated claim, are possible at all.

    From impossible assumptions everything follows.
    """
    extra = obligation.witness
    answer = Obligation(obligation.name, (*obligation.negation[:-1], *extra)).settle()
    verdict = {REFUTED: PROVED, PROVED: REFUTED}.get(answer.verdict, UNKNOWN)
    text = "" if verdict == PROVED else f"the assumptions are impossible {answer.reason}".strip()
    if verdict == UNKNOWN:
        text = f"whether the assumptions are possible: {answer.reason}"
    return Finding("assumptions", obligation.name, verdict, text, answer.seconds)


def check_twin(twin: Twin) -> Finding:
    """Whether a wrong variant is refuted, and the simulator confirms it on the sizes found."""
    started = time.perf_counter()
    answer = twin.obligation().settle()
    if answer.verdict != REFUTED:
        verdict = {PROVED: REFUTED}.get(answer.verdict, UNKNOWN)
        text = answer.reason or "a wrong variant was not refuted"
        return Finding("twin", twin.name, verdict, text, time.perf_counter() - started)
    shown = twin.show(answer.values)
    verdict = PROVED if shown.contradicts else REFUTED
    text = shown.text if shown.contradicts else f"the simulator does not confirm: {shown.text}"
    seconds = time.perf_counter() - started
    return Finding("twin", twin.name, verdict, text, seconds, shown.command)
