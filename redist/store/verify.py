"""Compare the bytes of a checkpoint with its checksums, array by array, on one process."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator

from redist.errors import ReadError
from redist.store.header import BLOCK_BYTES, Entry
from redist.store.stored import Stored

STEP_BYTES = 2**22


def why_wrong(name: str, block: int, crc: int, said: int) -> str:
    """What errors say of a block whose bytes are not what was written."""
    return (
        f"block {block} of {name!r} has crc {crc:08x}, the header says {said:08x}; the file was changed or "
        "the disk is failing"
    )


def wrong_blocks(found: Stored) -> Iterator[str]:
    """**Local.** Read everything that has checksums; what is wrong with the blocks that do not match."""
    for entry in found.values():
        if entry.crc is None:
            continue
        for block, (crc, said) in enumerate(zip(_crcs(found, entry), entry.crc, strict=True)):
            if crc != said:
                yield why_wrong(entry.name, block, crc, said)


def _crcs(found: Stored, entry: Entry) -> Iterator[int]:
    buffer = memoryview(bytearray(min(STEP_BYTES, entry.nbytes)))
    with open(found.files[entry.file], "rb", buffering=0) as file:
        for begin in range(entry.begin, entry.end, BLOCK_BYTES):
            file.seek(begin, os.SEEK_SET)
            left, crc = min(BLOCK_BYTES, entry.end - begin), 0
            while left:
                n = file.readinto(buffer[:left])
                if not n:
                    raise ReadError(f"cannot read {found.path!r}: it became shorter")
                crc = zlib.crc32(buffer[:n], crc)
                left -= n
            yield crc
