"""Bytes and times in the form that people write."""

from __future__ import annotations

import re
from operator import index
from typing import TYPE_CHECKING, overload

from redist.errors import RequestError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_UNITS = {
    "": 1,
    "b": 1,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
MOST_BYTES = 2**62
"""No limit of memory is larger: figures of plans are 64-bit numbers."""


def parse_bytes(text: str) -> int:
    """Bytes from text such as ``4096``, ``64MiB`` or ``1.5 GB``.

    >>> parse_bytes("64MiB")
    67108864
    >>> parse_bytes("40G")
    Traceback (most recent call last):
    ...
    redist.errors.RequestError: cannot read '40G' as a number of bytes; write 40GiB (powers of 2) or 40GB
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if match is not None and f"{match[2].lower()}ib" in _UNITS:
        unit = match[2].upper()
        raise RequestError(
            f"cannot read {text!r} as a number of bytes; write {match[1]}{unit}iB (powers of 2) or "
            f"{match[1]}{unit}B"
        )
    if match is None or match[2].lower() not in _UNITS:
        raise RequestError(
            f"cannot read {text!r} as a number of bytes; write for example 4096, 64MiB or 1.5GB"
        )
    whole, _, fraction = match[1].partition(".")
    unit = _UNITS[match[2].lower()]
    if fraction.strip("0") and unit == 1:
        raise RequestError(f"cannot read {text!r} as a number of bytes: it is not a whole number")
    return int(whole) * unit + int(fraction or "0") * unit // 10 ** len(fraction)


def limit_from(limit: int | float | str | None, name: str = "limit_bytes") -> int | None:
    """A memory limit as people write it: a number of bytes or text such as ``"1GiB"``; None is no limit.

    >>> limit_from("2MiB"), limit_from(2**21), limit_from(None)
    (2097152, 2097152, None)
    >>> limit_from(8e6), limit_from(0.5 * 2**30)
    (8000000, 536870912)
    >>> limit_from(True)
    Traceback (most recent call last):
    ...
    redist.errors.RequestError: cannot use limit_bytes=True: need bytes, such as 2**30 or '1GiB', or None
    """
    if limit is None:
        return None
    if isinstance(limit, str):
        n_bytes = parse_bytes(limit)
    elif isinstance(limit, float) and limit.is_integer():
        n_bytes = int(limit)
    else:
        try:
            n_bytes = -1 if isinstance(limit, (bool, float)) else index(limit)
        except TypeError:
            n_bytes = -1
    if n_bytes < 0:
        raise RequestError(
            f"cannot use {name}={limit!r}: need bytes, such as 2**30 or '1GiB', or None"
        )
    if n_bytes > MOST_BYTES:
        raise RequestError(
            f"cannot use {name}={limit!r}: limits go up to {MOST_BYTES} bytes (4 EiB); "
            "leave it out for no limit"
        )
    return n_bytes


def room_from(limit: int | float | str | None, name: str = "limit_bytes") -> int | None:
    """A limit that arrays must fit into: a positive number of bytes, or None.

    >>> room_from(0)
    Traceback (most recent call last):
    ...
    redist.errors.RequestError: cannot use limit_bytes=0: no array fits; give bytes, such as '1GiB'
    """
    n_bytes = limit_from(limit, name)
    if n_bytes == 0:
        raise RequestError(
            f"cannot use {name}={limit!r}: no array fits; give bytes, such as '1GiB'"
        )
    return n_bytes


def count_of(n: int, noun: str) -> str:
    """A number of things in words.

    >>> count_of(1, "rank"), count_of(4, "rank")
    ('1 rank', '4 ranks')
    """
    return f"{n} {noun}{'' if n == 1 else 's'}"


def format_bytes(n_bytes: int, round_up: bool = False) -> str:
    """Short text for a number of bytes: the nearest such text, or one that is not less.

    >>> format_bytes(8 * 2**20), format_bytes(1536), format_bytes(17)
    ('8 MiB', '1.5 KiB', '17 B')
    >>> format_bytes(20975616), format_bytes(20975616, round_up=True)
    ('20 MiB', '20.1 MiB')
    """
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n_bytes >= size:
            tenths = (n_bytes * 10 + (size - 1 if round_up else size // 2)) // size
            whole, tenth = divmod(tenths, 10)
            if tenth and whole >= 100:
                return f"{whole + round_up} {unit}"
            return f"{whole}.{tenth} {unit}" if tenth else f"{whole} {unit}"
    return f"{n_bytes} B"


def least_limit(n_bytes: int) -> str:
    """The smallest limit that would be enough, as a user writes it and as it is read.

    >>> least_limit(20975616)
    'limit_bytes=20975616 (20.1 MiB)'
    """
    return f"limit_bytes={n_bytes} ({format_bytes(n_bytes, round_up=True)})"


def format_beside(n_bytes: int, other_bytes: int) -> str:
    """Text for a number of bytes next to another: exact if short texts could not tell them apart.

    >>> format_beside(2**20 + 8, 2**20), format_beside(2**21, 2**20), format_beside(2**20, 2**20)
    ('1048584 bytes', '2 MiB', '1 MiB')
    """
    short = format_bytes(n_bytes)
    same = n_bytes != other_bytes and short == format_bytes(other_bytes)
    return f"{n_bytes} bytes" if same else short


def format_time(time_ps: int) -> str:
    """Short text for picoseconds.

    >>> format_time(1_500_000), format_time(0)
    ('1.5 us', '0 s')
    """
    for unit, size in (("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 10**3)):
        if time_ps >= size:
            return f"{time_ps / size:.4g} {unit}"
    return f"{time_ps} ps" if time_ps else "0 s"


def format_seconds(seconds: float) -> str:
    """Short text for seconds.

    >>> format_seconds(0.0015)
    '1.5 ms'
    """
    return format_time(round(seconds * 1e12))


@overload
def ceil_div(a: int, b: int) -> int: ...
@overload
def ceil_div(a: Ints, b: int | Ints) -> Ints: ...
def ceil_div(a: int | Ints, b: int | Ints) -> int | Ints:
    """a / b rounded up, of numbers or of arrays.

    >>> ceil_div(7, 2)
    4
    """
    return -(-a // b)


def ranks_in_words(who: list[int], size: int) -> str:
    """Ranks in words.

    >>> ranks_in_words([3], 8), ranks_in_words([0, 1, 2, 6], 8), ranks_in_words([0, 1], 2)
    ('rank 3', 'ranks 0-2, 6', 'all ranks')
    """
    if len(who) == size:
        return "all ranks" if size > 1 else "rank 0"
    runs: list[list[int]] = []
    for rank in sorted(who):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    return ("rank " if len(who) == 1 else "ranks ") + ", ".join(words)
