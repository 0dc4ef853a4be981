"""``redist convert``: write weights of other files as a safetensors file or as a folder of them."""

from __future__ import annotations

import argparse
import sys

from redist.cli.command import OK, Commands, UsageError, add_command
from redist.cli.files import check_folder, name_text, read_text
from redist.cli.request import read_bytes

EPILOG = """\
IN is one of
  a file that ends in .safetensors, or a folder of such files
  a file that ends in .npz (arrays of objects are refused: they would be unpickled)
  a file that ends in .pt, .pth, .bin or .ckpt, read by PyTorch with weights_only=True
  a folder of PyTorch's distributed checkpoints (DCP), read by PyTorch; this unpickles its .metadata
OUT is one file if it ends in .safetensors, else a folder as Hugging Face has it.

examples:
  redist convert model.safetensors model/ --shard-bytes 5GB
  redist convert model/ model.safetensors
  redist convert pytorch_model.bin model.safetensors --dtype bf16
"""
UNPICKLES = {
    "torch": "PyTorch unpickles {} with weights_only=True",
    "dcp": "PyTorch unpickles {}/.metadata, which can run any code that is in it",
}


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add the command with its arguments."""
    text = "convert weights from other formats to a safetensors file or a folder of such files"
    parser = add_command(commands, "convert", text, EPILOG)
    parser.add_argument("source", metavar="IN", help="the file or folder to read")
    parser.add_argument("target", metavar="OUT", help="the file or folder to write")
    parser.add_argument(
        "--shard-bytes", metavar="BYTES", help="most bytes in each file of a folder (default 5GiB)"
    )
    parser.add_argument("--dtype", metavar="NAME", help="cast floats to this dtype, such as bf16")
    parser.add_argument(
        "--names", metavar="FILE", help="rules that say which named tensors the arrays are made of"
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Convert, and say what was written."""
    from redist.store.convert import convert, kind_of
    from redist.store.stored import stored

    check_folder(args.target.rstrip("/") or args.target, "OUT")
    shard = None if args.shard_bytes is None else read_bytes(args.shard_bytes, "--shard-bytes")
    if shard == 0:
        raise UsageError("--shard-bytes: a file needs room for an array")
    rules = None if args.names is None else read_text(args.names)
    note = UNPICKLES.get(kind_of(args.source))
    if note is not None:
        source = name_text(args.source.rstrip("/"))
        print(f"redist: {note.format(source)}", file=sys.stderr)
    done = convert(args.source, args.target, shard_bytes=shard, dtype=args.dtype, names=rules)
    if done.left_out:
        more = f" and {len(done.left_out) - 1} more" if len(done.left_out) > 1 else ""
        print(f"left out   {done.left_out[0]!r}{more}: no tensor")
    found = stored(args.target)
    print(f"wrote      {name_text(args.target)}: {found.sizes}")
    return OK
