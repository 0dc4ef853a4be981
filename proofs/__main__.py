"""``python -m proofs [name ...]``: check the theorems, print what is proved and what is not."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from proofs.engine.run import EXIT, settle, theorems, worst
from proofs.engine.table import readme_table, summary, terminal_table, with_table
from proofs.engine.theorem import Theorem
from redist.errors import RequestError
from redist.text.parser import LineParser
from redist.text.progress import Progress

USAGE = 64
"""Exit status of a command line that makes no sense; 0, 1 and 2 are verdicts."""
README = Path(__file__).with_name("README.md")


def main(arguments: Sequence[str] | None = None, known: Mapping[str, Theorem] | None = None) -> int:
    """Check theorems; 0 if all are proved, 1 if one is refuted, 2 if one is unknown."""
    known = theorems() if known is None else known
    try:
        args = _parser(list(known)).parse_args(arguments)
    except RequestError as error:
        print(f"proofs: {error}", file=sys.stderr)
        return USAGE
    wrong = [name for name in args.names if name not in known]
    if wrong:
        print(
            f"proofs: there is no theorem {wrong[0]!r}; known: {', '.join(known)}", file=sys.stderr
        )
        return USAGE
    if args.write and args.names:
        print("proofs: --write needs all theorems; give no names with it", file=sys.stderr)
        return USAGE
    chosen = [known[name] for name in dict.fromkeys(args.names or known)]
    if not chosen:
        print("proofs: there is no theorem to check", file=sys.stderr)
        return USAGE
    outcomes = list(settle(chosen, Progress("proofs")))
    print(terminal_table(outcomes, shutil.get_terminal_size((120, 24)).columns))
    print(f"\n{summary(outcomes)}")
    if args.write:
        readme = README.read_text(encoding="utf-8")
        README.write_text(with_table(readme, readme_table(outcomes)), encoding="utf-8")
    return EXIT[worst(outcome.verdict for outcome in outcomes)]


def _parser(names: Sequence[str]) -> argparse.ArgumentParser:
    parser = LineParser(
        prog="python -m proofs",
        description="Check theorems that hold for every size, and refute their wrong variants.",
        epilog="exit status: 0 all proved, 1 one is refuted, 2 one is unknown, "
        f"{USAGE} the command line makes no sense",
    )
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"of {', '.join(names)}; all if none"
    )
    parser.add_argument("--write", action="store_true", help="renew the table in proofs/README.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
