"""``redist inspect``: what a checkpoint holds, whether it is intact, what loading it would take."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from redist.cli.command import FAILED, OK, UNKNOWN, Commands, UsageError, add_command
from redist.cli.files import name_text, read_text
from redist.cli.request import MOST_RANKS, read_mesh
from redist.text.units import format_bytes

if TYPE_CHECKING:
    from redist.store.stored import Stored

EPILOG = """\
--types may be given several times, as NAME=TYPE or GLOB=TYPE; a name without a type has the default layout.
An exact name comes first, then the first glob that matches; arrays that nothing matches are not loaded.

examples:
  redist inspect model.safetensors --verify
  redist inspect model/ --mesh x=2,y=2 --types "*.weight={x}, {y}" --types "*"
"""


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add the command with its arguments."""
    text = (
        "list the arrays of a checkpoint, compare checksums, state what a load would read and hold"
    )
    parser = add_command(commands, "inspect", text, EPILOG)
    parser.add_argument("path", metavar="PATH", help="a safetensors file, or a folder of them")
    parser.add_argument("--verify", action="store_true", help="read everything, compare checksums")
    parser.add_argument("--mesh", metavar="AXES", help="the ranks that would load it: x=2,y=4")
    parser.add_argument(
        "--types", metavar="NAME=TYPE", action="append", help="the types to load it into"
    )
    parser.add_argument(
        "--names", metavar="FILE", help="rules: which named tensors are loaded as one array"
    )
    parser.add_argument("--json", action="store_true", help="print the arrays as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the arrays, then what was asked for."""
    from redist.store.stored import stored

    if args.mesh is None and (args.types or args.names):
        option = "--types" if args.types else "--names"
        raise UsageError(f"{option} goes with --mesh, such as --mesh x=2,y=4")
    if args.json and (args.verify or args.mesh):
        raise UsageError("--json prints the arrays alone; leave out --verify and --mesh")
    found = stored(args.path)
    loading = None if args.mesh is None else _loading(found, args)
    if args.json:
        print(json.dumps(_as_json(found), indent=2, ensure_ascii=False))
        return OK
    print(f"{name_text(found.path)}: {found.listing()}")
    if loading is not None:
        print("\n" + "\n".join(loading))
    return _verify(found) if args.verify else OK


def _as_json(found: Stored) -> dict[str, object]:
    return {
        "path": found.path,
        "files": [Path(file).name for file in found.files],
        "meta": None if found.meta is None else dict(found.meta),
        "arrays": {
            name: {
                "dtype": str(entry.dtype),
                "shape": list(entry.shape),
                "bytes": entry.nbytes,
                "file": entry.file,
                "begin": entry.begin,
                "crc32": None if entry.crc is None else [f"{crc:08x}" for crc in entry.crc],
            }
            for name, entry in found.items()
        },
    }


def _loading(found: Stored, args: argparse.Namespace) -> list[str]:
    """What loading would read, move and hold."""
    from redist.store.expected import expected_load

    mesh = read_mesh(args.mesh, "--mesh")
    if mesh.n_devices > MOST_RANKS:
        raise UsageError(f"--mesh: {mesh.n_devices} ranks; at most {MOST_RANKS} here")
    rules = None if args.names is None else read_text(args.names)
    return expected_load(found, _types(args.types), mesh, rules).lines()


def _types(given: list[str] | None) -> dict[str, str | None] | None:
    """Types by name: ``w={x}, {}``; a name alone has the default layout.

    >>> _types(["w={x}, {}", "*"])
    {'w': '{x}, {}', '*': None}
    """
    if given is None:
        return None
    types: dict[str, str | None] = {}
    for text in given:
        name, equals, dims = text.partition("=")
        if not name.strip():
            raise UsageError(
                f"--types: cannot use {text!r}: need NAME=TYPE, such as 'w={{x}}, {{}}'"
            )
        types[name.strip()] = dims.strip() if equals else None
    return types


def _verify(found: Stored) -> int:
    from redist.store.verify import wrong_blocks

    if not found.has_checksums:
        print("\nunknown    the file has no checksums to compare with")
        return UNKNOWN
    wrong = [*wrong_blocks(found)]
    for one in wrong:
        print(f"\nwrong      {one}")
    if wrong:
        return FAILED
    blocks = sum(entry.n_blocks for entry in found.values())
    print(f"\nintact     {blocks} checksums compared, {format_bytes(found.nbytes)} read")
    return OK
