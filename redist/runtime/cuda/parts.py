"""Parts of arrays on a GPU: copied from several arrays into one, and combined with lists of values in order.

Slices are copied by CuPy, which finds the one copy of bytes where there is one. Lists of indices become
addresses: of the runs of bytes that lie together on both sides, of all arrays at once, for one kernel.

Values for elements that may repeat are sorted by element, stable, and one thread folds each run::

    element  5  2  5  9  2            2  2    5  5    9
    value    a  b  c  d  e    ->      b, e    a, c    d
                                     thread  thread  thread      x2 = (x2 op b) op e, ...

So each element is combined with its values in the order in which they were given, as on the host, and
there are no atomic additions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from redist.layout.cuts import Ints
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import device_address, to_device
from redist.runtime.cuda.elements import BLOCKS_EACH, ITEMS, N_THREADS, PRELUDE
from redist.runtime.cuda.loops import n_processors, run_loop
from redist.runtime.elements.inspected import OPS
from redist.runtime.index_sets.part import Part

Piece = tuple[Any, Part, tuple[Any, ...]]
"""An array, a part of it, and where that goes: slices and lists of places, one for each dim."""

WORDS = {
    1: "unsigned char",
    2: "unsigned short",
    4: "unsigned",
    8: "unsigned long long",
    16: "Wide",
}
RUNS = """
typedef long long i64;
#ifndef ON_HOST
#define EACH_THREAD for (int tid = (int)threadIdx.x, once = 1; once; once = 0)
#define N_THREADS ((int)blockDim.x)
#endif
struct alignas(16) Wide { unsigned long long low, high; };
struct Few { i64 places[2 * FEW]; };
static __device__ __forceinline__ void copy(const i64 *places, i64 n, i64 width)
{
    EACH_THREAD
    {
        const i64 step = (i64)gridDim.x * N_THREADS;
        for (i64 k = (i64)blockIdx.x * N_THREADS + tid; k < n * width; k += step) {
            const i64 run = k / width, word = k % width;
            ((Word *)places[n + run])[word] = ((const Word *)places[run])[word];
        }
    }
}
extern "C" __global__ void runs(const i64 *places, i64 n, i64 width)
{
    copy(places, n, width);
}
extern "C" __global__ void few_runs(Few given, i64 n, i64 width)
{
    copy(given.places, n, width);
}
"""
"""Copies n runs of words; the places are first where they lie, then where they go."""
FEW = 64
"""So many runs are arguments of the kernel itself: nothing is brought to the GPU before it."""


def copy_parts(pieces: Iterable[Piece], out: Any) -> None:
    """**Local.** Copy parts of arrays to their places in ``out``, which is contiguous and of their dtype."""
    runs: dict[int, list[Ints]] = {}
    for array, part, where in pieces:
        if not part.n_elems:
            continue
        there = Part(tuple(_places(*one) for one in zip(where, out.shape, strict=True)))
        if not part.has_list and not there.has_list:
            out[(*where, ...)] = array[(*part.index(array.shape), ...)]
            continue
        (of, of_bytes), (to, to_bytes) = (
            one.runs(whole.shape, whole.strides, whole.dtype.itemsize)
            for one, whole in ((part, array), (there, out))
        )
        n_bytes = min(of_bytes, to_bytes)
        of, to = _cut(of, of_bytes, n_bytes), _cut(to, to_bytes, n_bytes)
        places = np.empty((2, len(of)), np.int64)
        np.add(of, device_address(array), out=places[0])
        np.add(to, device_address(out), out=places[1])
        runs.setdefault(n_bytes, []).append(places)
    for n_bytes, found in runs.items():
        _copy_runs(found[0] if len(found) == 1 else np.concatenate(found, axis=1), n_bytes)


def all_of(array: Any) -> Part:
    """All of an array as a part of it."""
    return Part(tuple(map(range, array.shape)))


def _places(where: Any, size: int) -> Any:
    return range(*where.indices(size)) if isinstance(where, slice) else where


def _cut(starts: Ints, run_bytes: int, n_bytes: int) -> Ints:
    """Where runs begin if each is cut into shorter ones.

    >>> _cut(np.array([100, 64]), 8, 4).tolist()
    [100, 104, 64, 68]
    """
    if run_bytes == n_bytes:
        return starts
    return (starts[:, np.newaxis] + np.arange(0, run_bytes, n_bytes)).reshape(-1)


def _copy_runs(places: Ints, n_bytes: int) -> None:
    """**Local.** Copy runs of some bytes from the places in the first row to those in the second."""
    bits = int(np.bitwise_or.reduce(places, axis=None)) | n_bytes | max(WORDS)
    word = bits & -bits
    n, width = places.shape[1], n_bytes // word
    source = f"struct Wide;\ntypedef {WORDS[word]} Word;\n#define FEW {FEW}\n{RUNS}"
    if n <= FEW:
        given = np.void(places.tobytes().ljust(16 * FEW, b"\0"))
        _start(source, "few_runs", n * width, given, n, width)
    else:
        _start(source, "runs", n * width, to_device(places), n, width)


def _start(source: str, name: str, n: int, *args: Any) -> None:
    n_blocks = min(math.ceil(n / N_THREADS), BLOCKS_EACH * n_processors())
    run_loop(source, name, n_blocks, N_THREADS, *args)


# Values combined with elements of one array, in order


CODES = {op: code for code, op in enumerate(OPS)}
"""What a value can do to an element; what is not ``replace`` needs a dtype of NumPy's."""
OF_REALS = """
static __device__ __forceinline__ Item combined(int op, Item a, Item b)
{
    switch (op) {
    case 1: return SUM;
    case 2: return PROD;
    case 3: return LARGEST;
    case 4: return LEAST;
    default: return b;
    }
}
"""
KINDS = ITEMS | {
    "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
    "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned",
    "uint64": "unsigned long long",
}  # fmt: skip
FORMS: dict[str, tuple[str, str, str, str]] = {
    "b": ("a | b", "a & b", "a | b", "a & b"),
    "i": ("(Item)((u64)a + (u64)b)", "(Item)((u64)a * (u64)b)", "a >= b ? a : b", "a <= b ? a : b"),
    "f": ("a + b", "a * b", "largest(a, b)", "least(a, b)"),
    "h": ("as_half(real_of(a) + real_of(b))", "as_half(real_of(a) * real_of(b))",
          "as_half(largest(real_of(a), real_of(b)))", "as_half(least(real_of(a), real_of(b)))"),
    "c": ("Item{a.x + b.x, a.y + b.y}", "Item{a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}",
          "is_nan(a) || at_least(a, b) ? a : b", "is_nan(a) || at_least(b, a) ? a : b"),
}  # fmt: skip
"""Sum, product, largest and least of two elements: truth values, integers, floats, halves, complex."""
COMPLEX = """
struct Item { Real x, y; };
static __device__ __forceinline__ bool is_nan(Item a) { return a.x != a.x || a.y != a.y; }
static __device__ __forceinline__ bool at_least(Item a, Item b)
{
    return (a.x > b.x && a.y == a.y && b.y == b.y) || (a.x == b.x && a.y >= b.y);
}
"""
HALF = """
static __device__ __forceinline__ Item as_half(float x)
{
    Item to;
    put(to, x);
    return to;
}
"""
FOLD = """
extern "C" __global__ void fold(i64 n, i64 width, Item *tile, const i64 *at, const Item *values,
                                const unsigned char *ops, i64 op)
{
    EACH_THREAD
    {
        const i64 step = (i64)gridDim.x * N_THREADS;
        for (i64 e = (i64)blockIdx.x * N_THREADS + tid; e < n * width; e += step) {
            const i64 i = width == 1 ? e : e / width, w = width == 1 ? 0 : e % width;
            const i64 there = at[i];
            if (i && at[i - 1] == there)
                continue;
            Item one = tile[there * width + w];
            for (i64 k = i; k < n && at[k] == there; k++)
                one = combined(ops ? ops[k] : (int)op, one, values[k * width + w]);
            tile[there * width + w] = one;
        }
    }
}
"""


@lru_cache(maxsize=32)
def _fold_source(dtype: np.dtype[Any]) -> str:
    """The text of the kernel for elements of a dtype; those that NumPy cannot combine are only replaced."""
    size, kind = dtype.itemsize, dtype.kind
    lines = [PRELUDE, "typedef unsigned long long u64;"]
    if kind == "c":
        lines += [f"typedef {'float' if size == 8 else 'double'} Real;", COMPLEX]
    else:
        lines.append(f"typedef {KINDS[dtype.name]} Item;")
    form = "h" if dtype.name in ("float16", "bfloat16") else {"u": "i"}.get(kind, kind)
    if form == "h":
        lines.append(HALF)
    names = ("SUM", "PROD", "LARGEST", "LEAST")
    lines += [f"#define {name} {text}" for name, text in zip(names, FORMS[form], strict=True)]
    return "\n".join((*lines, OF_REALS, FOLD))


def places_of(part: Part, array: Any) -> Ints:
    """**Local.** Where the elements of a part lie, in order: counted in elements from the first one.

    >>> places_of(Part((range(0, 2), np.array([2, 0]))), np.zeros((2, 3))).tolist()
    [2, 0, 5, 3]
    """
    size = array.dtype.itemsize
    starts, run_bytes = part.runs(array.shape, array.strides, size)
    return _cut(starts, run_bytes, size) // size


def fold_in(
    tile: Any, at: Ints, values: Any, ops: Sequence[tuple[int, int]], width: int = 1, anew: bool = False
) -> None:  # fmt: skip
    """**Local.** Combine elements with values, each with its own in the order given.

    ``values`` are as many as ``at``, contiguous, of the tile's dtype. ``ops`` has numbers of
    :data:`CODES`, and for how many values each holds. ``at`` may count units of ``width`` elements. With
    ``anew`` the first value of each unit replaces what was there.
    """
    import cupy

    if not len(at):
        return
    places = to_device(at)
    order = cupy.argsort(places)  # stable, whatever is asked for
    places, values = places[order], values.reshape(-1, width)[order]
    kinds = {op for op, _ in ops}
    mixed: Any = None
    if len(kinds) > 1 or anew:
        each = np.repeat(np.array([op for op, _ in ops], np.uint8), [n for _, n in ops])
        mixed = to_device(each)[order]
    if anew:
        mixed[:1] = 0
        mixed[1:] *= places[1:] == places[:-1]
    _start(
        _fold_source(tile.dtype), "fold", len(at) * width, len(at), width,
        np.uintp(device_address(tile)), places, values, mixed, min(kinds),
    )  # fmt: skip


def joined(arrays: Sequence[Any]) -> Any:
    """**Local.** Arrays of the host and of the GPU, one after another, as one of the GPU."""
    import cupy

    parts: list[Any] = []
    for array in arrays:
        if not is_device(array) and parts and isinstance(parts[-1], list):
            parts[-1].append(array)
        else:
            parts.append(array if is_device(array) else [array])
    there = [to_device(np.concatenate(one)) if isinstance(one, list) else one for one in parts]
    return there[0] if len(there) == 1 else cupy.concatenate(there)
