"""What runs on every rank: ``python -m bench.pytorch.job --json FILE``, by ``python -m bench torch``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from bench.pytorch import moves, refit


def main() -> int:
    """Measure; rank 0 writes what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=int, default=2**27)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--width", type=int, default=480)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(os.environ["STORE"], size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    found = {
        "ranks": dist.get_world_size(),
        "torch": torch.__version__.partition("+")[0],
        "bytes": args.bytes,
        "repeat": args.repeat,
        "layers": args.layers,
        "moves": [] if args.only == "refit" else moves.measure(args.bytes, args.repeat),
        "refit": []
        if args.only == "moves"
        else refit.measure(args.layers, args.width, args.repeat),
    }
    if dist.get_rank() == 0:
        args.json.write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
