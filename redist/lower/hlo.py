"""Reading compiled XLA programs: how many elements or bytes do all devices together receive?"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from redist.errors import ArgumentError

INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?(\S+) = (\(.*?\)|\S+) ([a-z][\w-]*)\((.*?)\)(.*)")
SHAPE = re.compile(r"\b([a-z][a-z0-9]*)\[([\d,<= ]*)\]")
COLLECTIVES = "all-gather all-to-all all-reduce reduce-scatter collective-permute".split()
UNKNOWN = ("collective-broadcast", "ragged-all-to-all", "send", "recv")


def received_elems(text: str, n_devices: int) -> int:
    """Elements that all devices together receive in a compiled program.

    >>> received_elems('''
    ...   %p = f32[8,4]{1,0} parameter(0)
    ...   %g = f32[8,16]{1,0} all-gather(%p), replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={1}
    ...   ROOT %c = f32[8,16]{1,0} collective-permute(%g), source_target_pairs={{0,0},{1,2},{2,1}}
    ... ''', 8)
    1024

    A device of a group of g that puts in L elements receives L(g-1) in an all-gather, L(g-1)/g in
    an all-to-all or reduce-scatter, twice that in an all-reduce; a permute moves whole operands.
    """
    return sum(received(text, n_devices, elems))


def received_bytes(text: str, n_devices: int) -> tuple[int, int]:
    """The same in bytes, and the number of collectives; refused if one stands in a loop.

    >>> received_bytes('%p = bf16[8]{0} parameter(0)\\n %r = bf16[8]{0} all-reduce(%p)', 4)
    (96, 1)
    """
    if re.search(r"\bwhile\(", text) and _in_loops(text):
        raise ArgumentError("cannot count collectives in a loop: nobody knows how often they run")
    found = received(text, n_devices, shape_bytes)
    return sum(found), len(found)


def received(text: str, n_devices: int, size: Callable[[str], int]) -> list[int]:
    """What all devices together receive in every collective, in units of ``size``."""
    sizes: dict[str, int] = {}
    found_in_all = []
    for line in text.splitlines():
        found = INSTRUCTION.match(line)
        if found is None:
            continue
        name, shape, op, operands, rest = found.groups()
        sizes[name] = size(shape)
        op = op.removesuffix("-start")
        if op in UNKNOWN:
            raise ArgumentError(f"cannot count {op}: {line.strip()}")
        if op not in COLLECTIVES:
            continue
        given = [sizes[operand] for operand in re.findall(r"%([^\s,()]+)", operands)]
        found_in_all.append(_received(op, sum(given), len(given), rest, n_devices))
    return found_in_all


def _in_loops(text: str) -> bool:
    """Whether the body of a loop has a collective."""
    names = set(re.findall(r"body=%?([\w.-]+)", text))
    inside = False
    for line in text.splitlines():
        if line.endswith("{") and "=" not in line.partition("(")[0]:
            inside = line.split()[0].lstrip("%") in names
        found = INSTRUCTION.match(line)
        if inside and found is not None and found[3].removesuffix("-start") in COLLECTIVES:
            return True
    return False


def _received(op: str, given: int, n_operands: int, rest: str, n_devices: int) -> int:
    if op == "collective-permute":
        pairs = re.findall(r"\{(\d+),(\d+)\}", rest.partition("source_target_pairs=")[2])
        return given * sum(1 for a, b in pairs if a != b)
    g = group_size(rest, n_devices)
    if op == "all-gather":
        return n_devices * given * (g - 1)
    if op == "all-to-all" and n_operands > 1 and n_operands != g:
        raise ArgumentError(f"cannot count an all-to-all of {n_operands} pieces in groups of {g}")
    rounds = 2 if op == "all-reduce" else 1
    return n_devices * rounds * given * (g - 1) // g


def elems(shape: str) -> int:
    """Elements of a shape, or of all shapes of a tuple.

    >>> elems("f32[8,4]{1,0}"), elems("(f32[2,3]{1,0}, u8[])")
    (32, 7)
    """
    return sum(
        math.prod(int(n) for n in dims.split(",") if n.strip()) for _, dims in SHAPE.findall(shape)
    )


def shape_bytes(shape: str) -> int:
    """Bytes of a shape, or of all shapes of a tuple.

    >>> shape_bytes("f32[8,4]{1,0}"), shape_bytes("(c128[2]{0}, pred[3])")
    (128, 35)
    """
    total = 0
    for kind, dims in SHAPE.findall(shape):
        bits = re.search(r"\d+", kind)
        item = int(bits[0]) // 8 if bits else 1  # pred
        total += item * math.prod(int(n) for n in dims.split(",") if n.strip())
    return total


def group_size(rest: str, n_devices: int) -> int:
    """How many devices a collective joins, from its replica groups in any of their spellings.

    >>> group_size("replica_groups={{0,1},{2,3}}, dimensions={0}", 4)
    2
    >>> group_size("replica_groups=[2,4]<=[4,2]T(1,0)", 8)
    4
    >>> group_size("replica_groups=mesh['a'=4,'b'=2], device_ids=([2,2,2]T(0,2,1)) {'a':(2)2,'b'}", 8)
    4
    >>> group_size("replica_groups=mesh['x:(1)2'=2,'x:(2)2'=2,'y'=2] {'x:(1)2','y'}", 8)
    4
    >>> group_size("replica_groups={}", 8)
    8
    """
    groups = rest.partition("replica_groups=")[2]
    if groups.startswith("mesh["):
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", groups.partition("]")[0]))
        axes = re.search(r"\{([^}]*)\}", groups)
        parts = re.findall(r"'([^']+)'(?::\(\d+\)(\d+))?", axes[1] if axes else "")
        return math.prod(int(size or sizes[name]) for name, size in parts)
    if groups.startswith("["):
        return int(re.split(r"[,\]]", groups)[1])
    first = re.match(r"\{\{([\d,]+)\}", groups)
    return len(first[1].split(",")) if first else n_devices
