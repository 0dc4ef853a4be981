"""Read what is asked for, the same for ``redist bench`` and inside an MPI job."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from redist.errors import RequestError
from redist.measure.cases import KINDS
from redist.text.units import parse_bytes

CONTENDER_NAMES = {
    "naive": "all-gather everything, keep a slice (Allreduce and slice for sums)",
    "by-hand": "one Alltoallw on subarray types (Reduce_scatter, Allreduce for sums)",
    "redist": "redist on its own buffers",
    "redist-any": "redist on any NumPy arrays",
    "redist-mpi": "redist with MPI messages only, as between nodes",
}
PICTURES = (".svg", ".png", ".pdf")


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What to measure.

    >>> BenchOptions.read(add_options(argparse.ArgumentParser()).parse_args(["--sizes", "1MiB"])).sizes
    (1048576,)
    """

    sizes: tuple[int, ...]
    cases: tuple[str, ...]
    contenders: tuple[str, ...]
    repeats: int
    peers: tuple[str, ...]
    """Modules whose ``CONTENDERS`` take part too."""
    json: str | None
    plot: str | None

    @staticmethod
    def read(args: argparse.Namespace) -> BenchOptions:
        """Read the options; the first that is wrong raises, named."""
        return BenchOptions(
            tuple(_read_size(text) for text in _split_list(args.sizes, "--sizes")),
            _read_names(args.cases, list(KINDS), "--cases"),
            _read_names(args.contenders, list(CONTENDER_NAMES), "--contenders"),
            _read_repeats(args.repeat),
            () if args.peers is None else tuple(_split_list(args.peers, "--peers")),
            args.json,
            _check_picture(args.plot),
        )

    def arguments(self) -> list[str]:
        """The command line that reads as these options."""
        out = ["--sizes", ",".join(map(str, self.sizes)), "--cases", ",".join(self.cases)]
        out += ["--contenders", ",".join(self.contenders), "--repeat", str(self.repeats)]
        out += ["--peers", ",".join(self.peers)] if self.peers else []
        for name, value in (("--json", self.json), ("--plot", self.plot)):
            out += [] if value is None else [name, value]
        return out


def add_options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the options to a parser."""
    parser.add_argument(
        "--sizes",
        metavar="BYTES,...",
        default="128MiB,1MiB",
        help="total size of the array, in the layout that takes more memory (default %(default)s)",
    )
    parser.add_argument("--cases", metavar="NAME,...", help="what to move (default: all)")
    parser.add_argument(
        "--contenders",
        metavar="NAME,...",
        help="which methods to compare (default: all of redist's own)",
    )
    parser.add_argument(
        "--repeat", metavar="N", default="15", help="repetitions of each (default %(default)s)"
    )
    parser.add_argument(
        "--peers",
        metavar="MODULE,...",
        help="modules with more contenders; bench.peers, in redist's repository, has other libraries",
    )
    parser.add_argument("--json", metavar="FILE", help="write all figures")
    parser.add_argument("--plot", metavar="FILE", help="draw them (SVG, PNG, PDF; extra 'plot')")
    return parser


def names_text() -> str:
    """What ``--cases`` and ``--contenders`` may name, for ``--help``."""
    lines = ["cases:", *(f"  {name:<15}{kind.text}" for name, kind in KINDS.items())]
    lines += ["contenders:", *(f"  {name:<15}{text}" for name, text in CONTENDER_NAMES.items())]
    return "\n".join(lines)


def _split_list(text: str, option: str) -> list[str]:
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items:
        raise RequestError(f"{option}: cannot use {text!r}; need a list such as a,b")
    return list(dict.fromkeys(items))


def _read_names(text: str | None, known: Sequence[str], option: str) -> tuple[str, ...]:
    """Names from a list, in the order of the list; all where none are given."""
    names = list(known) if text is None else _split_list(text, option)
    for name in names:
        if name not in known:
            raise RequestError(f"{option}: cannot use {name!r}; known: {', '.join(known)}")
    return tuple(name for name in known if name in names)


def _read_size(text: str) -> int:
    try:
        n_bytes = parse_bytes(text)
    except RequestError as error:
        raise RequestError(f"--sizes: {error}") from None
    if n_bytes < 1:
        raise RequestError(f"--sizes: cannot use {text!r}; need at least 1 byte")
    return n_bytes


def _read_repeats(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise RequestError(f"--repeat: cannot use {text!r}; need a number from 1 to 10000")
    return int(text)


def _check_picture(name: str | None) -> str | None:
    if name is not None and not name.lower().endswith(PICTURES):
        raise RequestError(f"--plot: cannot draw {name!r}; need a name in {', '.join(PICTURES)}")
    return name
