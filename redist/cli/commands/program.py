"""``redist program``: explain a program of global arrays for a machine that need not be here."""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redist.arrange.device_file import load_costs
from redist.cli.command import OK, Commands, UsageError, add_command
from redist.cli.files import name_text, write_text
from redist.cli.request import NOTATION, read_mesh, read_topology, read_type
from redist.plan.rates import CPU

if TYPE_CHECKING:
    from redist.graph.nodes import ProgramGraph
    from redist.graph.program_plan import ProgramPlan

EPILOG = f"""\
{NOTATION}
examples:
  redist program step.py:step "f64[16384{{x}}, 8]" "f64[8, 8]" --mesh x=4
  redist program step.py:step "f64[16384{{x}}, 8]" "f64[8, 8]" --mesh x=4 --plan
  redist program model.py:up "f32[64{{x}}, 4096, 8192]" "f32[8192, 28672{{y}}]" --mesh x=64,y=16 --svg up.svg
"""


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add the command with its arguments."""
    text = "explain a function of global arrays: its calls, and what would move"
    parser = add_command(commands, "program", text, EPILOG)
    parser.add_argument("function", metavar="FILE:FUNCTION", help="a function in a Python file")
    parser.add_argument("types", metavar="TYPE", nargs="*", help="types of its arguments, in order")
    parser.add_argument(
        "--mesh", metavar="AXES", required=True, help="the devices, such as x=2,y=4"
    )
    parser.add_argument("--topology", metavar="FILE", help="how fast ranks reach each other (TOML)")
    parser.add_argument(
        "--plan", action="store_true", help="plan the layout of every value, and show the plan"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument("--svg", metavar="FILE", help="draw it")
    parser.add_argument("--html", metavar="FILE", help="draw it on a page, with the text below")
    return parser


def run(args: argparse.Namespace) -> int:
    """Capture the function on arrays without values, plan its moves, print what was found."""
    mesh = read_mesh(args.mesh, "--mesh")
    types = [read_type(text, mesh, f"TYPE {i + 1}") for i, text in enumerate(args.types)]
    topology = None if args.topology is None else read_topology(args.topology)
    name, function = _load_function(args.function)
    from redist.pgas.programs.explain import explain_elsewhere, plan_elsewhere

    found: ProgramGraph | ProgramPlan
    if args.plan:
        costs = CPU if args.topology is None else load_costs(args.topology, "cpu")
        found = plan_elsewhere(name, function, types, mesh, topology, costs)
    else:
        found = explain_elsewhere(name, function, types, mesh, topology)
    if args.svg:
        write_text(args.svg, found.svg(), "--svg")
    if args.html:
        write_text(args.html, found.html(), "--html")
    print(found.to_json() if args.json else found)
    return OK


def _load_function(text: str) -> tuple[str, Callable[..., Any]]:
    """Read ``FILE:FUNCTION``: the name, and the function of that file; a program's own function."""
    file, _, name = text.rpartition(":")
    if not file or not name:
        raise UsageError(f"cannot use {text!r}: need FILE:FUNCTION, such as step.py:step")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"cannot read {name_text(file)}: there is no such file")
    sys.path.insert(0, str(path.resolve().parent))
    try:
        names = runpy.run_path(str(path), run_name=path.stem)
    except Exception as problem:
        raise UsageError(
            f"cannot load {name_text(file)}: {type(problem).__name__}: {problem}; what a file does by "
            'itself belongs below if __name__ == "__main__"'
        ) from None
    finally:
        sys.path.pop(0)
    found = names.get(name)
    if not callable(found):
        raise UsageError(f"cannot find the function {name!r} in {name_text(file)}")
    return name, getattr(found, "function", found)
