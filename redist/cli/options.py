"""What may stand on the command line."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from redist import __version__
from redist.cli.status import UsageError, one_line
from redist.measure.options import add_options, names_text
from redist.plan.request import OBJECTIVES, STRATEGIES

_MAIN_EPILOG = """\
example:
  redist plan "f32[4096{x}, 4096{y}]" "f32[4096{y}, 4096{x}]" --mesh x=2,y=4

exit status:
  0  done            2  the request is wrong (one line on stderr says what)
  1  found wrong     3  no plan fits the limit (says the least that would)
  4  neither proved nor refuted: the solver gave up

'redist COMMAND --help' explains a command.
"""

_NOTATION = """\
types:
  f32[1024, 512]                every device holds the whole array
  f32[1024{x}, 512{y}]          dim 0 is cut along mesh axis x, dim 1 along y
  f32[1024{x,y}, 512]           dim 0 is cut along x, then along y
  f32[1024{x}, 512] sum{y}      partial values: the sum along y is still to come
meshes:
  x=2,y=4                       8 devices in 2 rows of 4, played by ranks 0 to 7
  z=3@8  or  z=3@5;0;9          played by ranks 8, 9, 10  or by ranks 5, 0, 9
"""

_PLAN_EPILOG = f"""\
{_NOTATION}
examples:
  redist plan "f32[4096{{x}}, 4096{{y}}]" "f32[4096{{y}}, 4096{{x}}]" --mesh x=2,y=4
  redist plan "bf16[8192{{x}}]" "bf16[8192{{z}}]" --mesh x=4 --target-mesh z=3@8
  redist plan "f32[64{{x}}, 64]" "f32[64, 64]" --mesh x=8 --limit 40KiB --json > plan.json
  redist plan "f32[64{{x}}, 64]" "f32[64, 64{{x}}]" --mesh x=8 --html plan.html
"""

_CHECK_EPILOG = """\
example:
  redist plan "f32[64{x}, 64]" "f32[64, 64{x}]" --mesh x=8 --json > plan.json
  redist check plan.json
"""

_PROVE_EPILOG = f"""\
{_NOTATION}
examples:
  redist prove "f32[4096{{x}}, 4096{{y}}]" "f32[4096{{y}}, 4096{{x}}]" --mesh x=2,y=4
  redist prove "f32[1000{{x}}, 7]" "f32[1000, 7{{x}}]" --mesh x=3 --donate --smt2 queries.smt2
  redist prove plan.json --json

exit status: 0 proved, 1 refuted or rejected, 4 unknown: the solver gave up; 2 and 3 as ever.
"""

_SIMULATE_EPILOG = f"""\
{_NOTATION}
examples:
  redist simulate plan.json --seed 7
  redist simulate "i32[10{{x}}, 7]" "i32[10, 7{{x}}]" --mesh x=3
"""

_BENCH_EPILOG = f"""\
{names_text()}

examples:
  redist bench -n 8
  redist bench -n 4 --sizes 1GiB --cases rows-columns,uneven --json figures.json --plot figures.svg

exit status 1 means that a result was wrong. 'mpirun -n 8 python -m redist.measure' does the same
inside a job that you start yourself.
"""


_CALIBRATE_EPILOG = """\
example:
  redist calibrate -n 8 --output here.toml
  redist plan "f32[4096{x}, 4096]" "f32[4096, 4096{x}]" --mesh x=8 --topology here.toml

'mpirun -n 64 python -m redist.measure.calibrate --output FILE' does the same inside a job that you
start yourself, over several machines too.
"""


_DOCTOR_EPILOG = """\
examples:
  redist doctor                 what this process finds: MPI, kernels, CuPy, GPUs, transports
  redist doctor -n 4            and how 4 local ranks reach each other, pair by pair

'mpirun -n 64 python -m redist.doctor.report' does the same inside a job that you start yourself,
over several machines too. Exit status 1 means that MPI does not start.
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions, so that each becomes one line."""

    def error(self, message: str) -> NoReturn:
        given = re.sub(r"\(choose from (.*)\)", r"(one of \1)", message)
        raise UsageError(f"{one_line(given)}; see '{self.prog} --help'")


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(
        prog="redist",
        description="Plan how a distributed array moves from one layout to another.",
        epilog=_MAIN_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"redist {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_plan(commands)
    _add_check(commands)
    _add_prove(commands)
    _add_simulate(commands)
    _add_bench(commands)
    _add_calibrate(commands)
    _add_doctor(commands)
    return parser


def _command(
    commands: argparse._SubParsersAction[_Parser], name: str, text: str, epilog: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _add_plan(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(commands, "plan", "find the best plan and print it", _PLAN_EPILOG)
    parser.add_argument("source", metavar="SOURCE", help="type of the array as it is")
    parser.add_argument("target", metavar="TARGET", help="type of the array as it should be")
    _add_request(parser, mesh_required=True)
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="also print the alternatives that were considered (in the JSON anyway)",
    )
    parser.add_argument("--svg", metavar="FILE", help="write a picture of the plan")
    parser.add_argument("--html", metavar="FILE", help="write a page: picture, plan, alternatives")


def _add_check(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(
        commands,
        "check",
        "judge a stored plan: replay every step, prove its memory bound",
        _CHECK_EPILOG,
    )
    parser.add_argument("file", metavar="FILE", help="a plan as JSON; - reads standard input")
    parser.add_argument("--smt2", metavar="FILE", help="write the proof question as SMT-LIB text")


def _add_prove(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(
        commands,
        "prove",
        "say in words what is certain about a plan's memory and traffic, and why",
        _PROVE_EPILOG,
    )
    _add_plan_or_types(parser)
    _add_request(parser, mesh_required=False)
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    parser.add_argument("--smt2", metavar="FILE", help="write the queries to Z3 as SMT-LIB text")


def _add_simulate(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(
        commands,
        "simulate",
        "run a plan on random data and compare with the right answer",
        _SIMULATE_EPILOG,
    )
    _add_plan_or_types(parser)
    _add_request(parser, mesh_required=False)
    parser.add_argument("--seed", metavar="N", default="0", help="seed of the data (default 0)")
    parser.add_argument(
        "--max-memory",
        metavar="BYTES",
        default="2GiB",
        help="refuse to hold more than this, all devices together (default 2GiB)",
    )


def _add_bench(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(
        commands,
        "bench",
        "move arrays between local ranks and compare with other ways: times, memory",
        _BENCH_EPILOG,
    )
    parser.add_argument("-n", dest="ranks", metavar="RANKS", required=True, help="how many ranks")
    add_options(parser)
    parser.add_argument("--mpi", metavar="MPIRUN", help="which mpirun to use")


def _add_calibrate(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(
        commands,
        "calibrate",
        "measure what steps, messages and bytes cost here, and write a topology file",
        _CALIBRATE_EPILOG,
    )
    parser.add_argument("-n", dest="ranks", metavar="RANKS", required=True, help="how many ranks")
    parser.add_argument(
        "--output", metavar="FILE", default="topology.toml", help="(default topology.toml)"
    )
    parser.add_argument(
        "--node-size", metavar="RANKS", help="pretend that nodes have so many ranks"
    )
    parser.add_argument("--mpi", metavar="MPIRUN", help="which mpirun to use")


def _add_doctor(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(
        commands,
        "doctor",
        "say what was detected here, which way arrays would move, and why",
        _DOCTOR_EPILOG,
    )
    parser.add_argument("-n", dest="ranks", metavar="RANKS", help="start so many local ranks")
    parser.add_argument(
        "--node-size", metavar="RANKS", help="pretend that nodes have so many ranks"
    )
    parser.add_argument("--mpi", metavar="MPIRUN", help="which mpirun to use")


def _add_plan_or_types(parser: argparse.ArgumentParser) -> None:
    """A stored plan, or two types; :mod:`redist.cli.given` reads them."""
    parser.add_argument(
        "source", metavar="FILE|SOURCE", help="a plan as JSON (- reads standard input), or a type"
    )
    parser.add_argument("target", metavar="TARGET", nargs="?", help="the other type")


def _add_request(parser: argparse.ArgumentParser, *, mesh_required: bool) -> None:
    """Options that describe a request; :mod:`redist.cli.request` reads them."""
    parser.add_argument(
        "--mesh", metavar="AXES", required=mesh_required, help="the devices, such as x=2,y=4"
    )
    parser.add_argument("--target-mesh", metavar="AXES", help="other devices for the target")
    parser.add_argument("--limit", metavar="BYTES", help="peak of the worst device, such as 64MiB")
    parser.add_argument("--objective", choices=OBJECTIVES, help="what to minimise (default time)")
    parser.add_argument("--strategy", choices=STRATEGIES, help="steps to use (default auto)")
    parser.add_argument("--donate", action="store_true", help="free the source after step 1")
    parser.add_argument("--topology", metavar="FILE", help="how fast ranks reach each other (TOML)")
