"""``python -m bench NAME``: measure and print; ``bench/README.md`` says what each benchmark answers.

``python -m bench NAME --help`` lists the options of one. ``mpirun -n 8 python -m bench run ...`` moves
arrays, as ``redist bench -n 8 ...`` does; ``python -m bench tables``, ``keep`` and ``figures`` are about
stored figures, ``python -m bench compare-checkouts FOLDER`` about another version of redist.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from bench.benchmarks import BENCHMARKS, EVERY
from bench.problems.judge import WrongPlanError
from bench.report.jobs import SkippedError
from bench.report.report import Tables, save_json

LAST = Path(__file__).parent / "results" / "last"
"""Where figures go that nobody asked to keep."""
COMMANDS = {
    "tables": "bench.tables.command",
    "keep": "bench.tables.stored",
    "figures": "bench.tables.renew",
    "compare-checkouts": "bench.checkouts",
}
"""What has a command line of its own."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run benchmarks; 0 if every result was right, 1 if a check failed."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    first = given[0] if given else "all"
    if first == "run":
        from redist.measure.job import main as measure

        return measure(given[1:], "python -m bench run")
    if first in COMMANDS:
        return int(importlib.import_module(COMMANDS[first]).main(given[1:]))
    which = next((name for name in (" ".join(given[:2]), first) if name in EVERY), "all")
    if which == "all" and first != "all" and not first.startswith("-"):
        _parser("all", everything).error(f"there is no {first!r}; known: {', '.join(EVERY)}")
    names = list(BENCHMARKS) if which == "all" else [which]
    if which != "all" and EVERY[which].why_not:
        print(f"{which}: skipped, {EVERY[which].why_not}", file=sys.stderr)
        return 0
    runs = {name: _load(name) for name in names if not EVERY[name].why_not}
    parser = _parser(which, everything if which == "all" else runs[which])
    args = vars(parser.parse_args(given[len(which.split()) if not first.startswith("-") else 0 :]))
    return _measure(which, runs, args.pop("json") or LAST / f"{which.replace(' ', '-')}.json", args)


def everything(n: int = 2000, seed: int = 0) -> Tables:
    """Measure plans and planning, whole programs and copies; results are checked first.

    n: random problems; seed: of the problems.
    """
    raise NotImplementedError


def _measure(which: str, runs: dict[str, Any], stored: Path, args: dict[str, Any]) -> int:
    reports: dict[str, Tables] = {}
    for name, run in runs.items():
        known = inspect.signature(run).parameters
        try:
            tables = run(**{key: value for key, value in args.items() if key in known})
        except SkippedError as error:
            print(f"bench {name}: skipped, {error}", file=sys.stderr)
            continue
        except WrongPlanError as error:
            print(f"bench {name}: {error}", file=sys.stderr)
            return 1
        print("\n\n".join(map(str, tables)), end="\n\n", flush=True)
        kept = name.partition(" ")[0]
        reports[kept] = (*reports.get(kept, ()), *tables)
    if reports:
        save_json(stored, reports, {"which": which, **args})
        print(f"JSON   {stored}")
    return int(any(table.is_wrong for tables in reports.values() for table in tables))


def _load(name: str) -> Callable[..., Tables]:
    return importlib.import_module(EVERY[name].module).run


def _parser(which: str, run: Callable[..., Tables]) -> argparse.ArgumentParser:
    """Options are the arguments of ``run``; what they mean stands in its docstring."""
    others = f"\n\nbenchmarks: {', '.join(EVERY)}; and {', '.join(COMMANDS)}"
    parser = argparse.ArgumentParser(
        prog="python -m bench" + ("" if which == "all" else f" {which}"),
        description=inspect.getdoc(run),
        epilog=others if which == "all" else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    hints = get_type_hints(run)
    for name, parameter in inspect.signature(run).parameters.items():
        flag, kind, default = f"--{name.replace('_', '-')}", hints[name], parameter.default
        if kind is bool:
            parser.add_argument(flag, action="store_true")
        elif get_origin(kind) is tuple:
            one = get_args(kind)[0]
            parser.add_argument(flag, type=one, nargs="+", default=default, help=f"({default})")
        else:
            asked = _positive if name == "n" else kind
            parser.add_argument(flag, type=asked, default=default, help=f"({default})")
    parser.add_argument("--json", type=Path, help="where to store figures (bench/results/last/)")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is too few; need 1 or more")
    return value


if __name__ == "__main__":
    sys.exit(main())
