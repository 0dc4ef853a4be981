"""The public suite of the array API standard (data-apis/array-api-tests) on several ranks.

As in ``python -m tests.programs.pgas.conformance FOLDER -n 3``, where FOLDER is a checkout of the suite with
its submodule. ``--seed 1`` draws other examples; ``-k``, ``-x`` and the like go to
pytest. Exit status 0: no test failed but those of ``EXPECTED``, on several ranks.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from tests.programs.launch import Done, run

FOLDER = "array_api_tests"
EXPECTED = {
    "test_dlpack.py::test_dunder_dlpack": "an array that is cut is refused: a rank has a tile of it only",
}
"""Tests that may fail on several ranks, and why."""


def files(suite: Path, wanted: list[str]) -> list[str]:
    """The suite's test files, or those whose names have a wanted word."""
    found = sorted(path.name for path in (suite / FOLDER).glob("test_*.py"))
    if not found:
        raise SystemExit(f"cannot run {suite}: it has no {FOLDER}/test_*.py; give a checkout")
    return [name for name in found if not wanted or any(word in name for word in wanted)]


def counts(done: Done, ranks: int) -> Counter[str]:
    """How many tests passed, failed and were skipped; a job that did not end well failed once more."""
    found = Counter(
        {what: len(done.lines(f"{what} {FOLDER}")) for what in ("PASSED", "FAILED", "SKIPPED")}
    )
    if done.status != 0 and not found["FAILED"]:
        found["FAILED"] = 1
    if ranks > 1:
        expected = sum(len(done.lines(f"FAILED {FOLDER}/{name} ")) for name in EXPECTED)
        found.update({"FAILED": -expected, "EXPECTED": expected})
    return found


def shown(n: Counter[str]) -> str:
    """Counts in words."""
    said = f"{n['PASSED']} passed, {n['FAILED']} failed, {n['SKIPPED']} skipped"
    return f"{said}, {n['EXPECTED']} failed as expected" if n["EXPECTED"] else said


def main() -> int:
    """0 if no test failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", type=Path)
    parser.add_argument("words", nargs="*", help="only files whose names have one of these")
    parser.add_argument("-n", type=int, default=1, help="ranks")
    parser.add_argument("--max-examples", type=int, default=20)
    parser.add_argument("--limit-s", type=float, default=600.0, help="for one file")
    args, options = parser.parse_known_args()
    suite = args.suite.resolve()
    total: Counter[str] = Counter()
    for name in files(suite, args.words):
        done = run(
            "tests.programs.pgas.suite_rank",
            args.n,
            *(str(suite), f"{FOLDER}/{name}", f"--max-examples={args.max_examples}", *options),
            variables={"PYTHONHASHSEED": "0"},
            limit_s=args.limit_s,
        )
        found = counts(done, args.n)
        total.update(found)
        print(f"{name}: {shown(found)} ({done.seconds:.0f} s)", flush=True)
        for line in done.output.splitlines() if found["FAILED"] else done.lines("SKIPPED "):
            if not line.startswith("PASSED "):
                print(f"  {line}", flush=True)
    print(f"{shown(total)} ({args.n} ranks, {args.max_examples} examples)")
    return 1 if total["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
