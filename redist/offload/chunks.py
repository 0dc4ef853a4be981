"""Cut a task whose tiles are too large for memory into chunks along its labels, so that little is loaded.

Of a contraction or an element-wise function in Einstein notation: labels that the result keeps are the outer
loops, so a chunk of the result is finished before the next; labels that are summed are the inner loops. A
chunk of an operand is loaded once for each chunk of the labels that it does not have: so chunks of the result
are large, and slices of the operands thin. For matrices much larger than a memory of M elements, no order
of a product does with much less: 2 m n k / sqrt(M) elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from redist.errors import NoPlanError, RequestError

MOST_TRIED = 4_000
"""Combinations of counts that are looked at."""
SMALL_COUNTS = 12
"""Counts up to this are all tried; of larger ones some."""
LEAST_SLICE = 8
"""Slices of fewer indices are taken only if nothing else fits: tasks on them are slow."""
THIN = 4
"""Slices of operands take one of so many parts of what the result leaves, so that more of them stay."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """A task in Einstein notation and into how many chunks each label is cut.

    >>> chunks = Chunks("mk,kn->mn", {"m": 10, "n": 8, "k": 6}, 8, {"m": 2, "n": 1, "k": 3})
    >>> chunks.ranges("m"), chunks.n_chunks, chunks.chunk_bytes == 8 * (5 * 2 + 2 * 8 + 5 * 8)
    (((0, 5), (5, 10)), 6, True)
    """

    notation: str
    sizes: Mapping[str, int]
    itemsize: int
    counts: Mapping[str, int]

    def __post_init__(self) -> None:
        labels = set("".join(self.terms) + self.kept)
        if not (labels == set(self.sizes) == set(self.counts)) or not set(self.kept) <= set(
            "".join(self.terms)
        ):
            raise RequestError(f"cannot cut {self.notation!r}: its labels are {sorted(labels)}")
        if any(not 1 <= self.counts[label] <= max(1, self.sizes[label]) for label in labels):
            raise RequestError(f"cannot cut {self.notation!r} into {dict(self.counts)} chunks")

    @property
    def terms(self) -> tuple[str, ...]:
        """The labels of each operand."""
        return tuple(self.notation.partition("->")[0].split(","))

    @property
    def kept(self) -> str:
        """The labels of the result."""
        return self.notation.partition("->")[2]

    @property
    def lost(self) -> str:
        """The labels that are summed, in the order in which they appear."""
        return "".join(one for one in dict.fromkeys("".join(self.terms)) if one not in self.kept)

    @property
    def n_chunks(self) -> int:
        """How many tasks it becomes."""
        return math.prod(self.counts.values())

    def ranges(self, label: str) -> tuple[tuple[int, int], ...]:
        """The chunks of a label, as even as can be."""
        size, n = self.sizes[label], self.counts[label]
        return tuple((size * k // n, size * (k + 1) // n) for k in range(n))

    def block_bytes(self, labels: str) -> int:
        """The largest chunk of an operand or of the result."""
        chunk = (-(-self.sizes[one] // self.counts[one]) for one in labels)
        return math.prod(chunk) * self.itemsize

    @property
    def chunk_bytes(self) -> int:
        """What a chunk works on at most: operands and result."""
        return sum(map(self.block_bytes, (*self.terms, self.kept)))

    @property
    def loaded_bytes(self) -> int:
        """What is loaded if only the result stays between chunks: operands, once for each outer chunk."""
        return self.itemsize * sum(
            math.prod(self.sizes[one] for one in term)
            * math.prod(self.counts[one] for one in self.kept if one not in term)
            for term in self.terms
        )


def choose_chunks(
    notation: str, sizes: Mapping[str, int], itemsize: int, room_bytes: int
) -> Chunks:
    """The chunks of a task that fit in some room with the least to load; of equals the fewest.

    Give less room than the limit, so that the next chunk can be loaded while one is worked on.

    >>> chunks = choose_chunks("mk,kn->mn", {"m": 4096, "n": 4096, "k": 4096}, 4, 20 * 2**20)
    >>> dict(chunks.counts), chunks.chunk_bytes <= 20 * 2**20
    ({'m': 2, 'k': 64, 'n': 2}, True)
    >>> choose_chunks("mk,kn->mn", {"m": 2, "n": 2, "k": 2}, 4, 8)
    Traceback (most recent call last):
    redist.errors.NoPlanError: cannot cut 'mk,kn->mn' into chunks of 8 bytes: one element of each takes 12;
    give 12 bytes
    """
    labels = "".join(dict.fromkeys("".join(notation.partition("->")[0].split(","))))
    finest = Chunks(notation, sizes, itemsize, {one: max(1, sizes[one]) for one in labels})
    if finest.chunk_bytes > room_bytes:
        least = finest.chunk_bytes
        raise NoPlanError(
            f"cannot cut {notation!r} into chunks of {room_bytes} bytes: one element of each takes {least}; "
            f"give {least} bytes",
            least,
        )
    thick = {one: max(1, sizes[one] // LEAST_SLICE) for one in finest.lost}
    found = _least_loads(_with(finest, thick), room_bytes) or _least_loads(finest, room_bytes)
    assert found is not None, "the finest chunks fit"
    return found


def _least_loads(finest: Chunks, room_bytes: int) -> Chunks | None:
    """Of all cuts of the labels of the result that fit, that with the least to load; None if none fits."""
    kept, sizes = finest.kept, finest.sizes
    most = max(2, int(MOST_TRIED ** (1 / max(1, len(kept)))))
    outer = [
        _with(finest, dict(zip(kept, counts, strict=True)))
        for counts in product(*(_counts_of(sizes[one], most) for one in kept))
    ]
    outer.sort(key=lambda one: (_expected_bytes(one, room_bytes), one.n_chunks))
    found = next((one for one in outer if one.chunk_bytes <= room_bytes), None)
    return None if found is None else _thin_slices(found, room_bytes)


def _expected_bytes(finest: Chunks, room_bytes: int) -> int:
    """Loads less what outer chunks find of the one before: loops turn round, so what fits is still there."""
    n_outer = math.prod(finest.counts[label] for label in finest.kept)
    spare = max(0, room_bytes - finest.block_bytes(finest.kept))
    whole = _with(finest, dict.fromkeys(finest.lost, 1))
    found = (n_outer - 1) * min([spare, *map(whole.block_bytes, finest.terms)])
    once = _with(finest, dict.fromkeys(finest.counts, 1)).loaded_bytes
    return max(once, finest.loaded_bytes - found)


def _thin_slices(finest: Chunks, room_bytes: int) -> Chunks:
    """The fewest cuts of the labels that are summed with which slices are thin, or at least fit."""
    result = finest.block_bytes(finest.kept)
    thin = result + (room_bytes - result) // THIN
    room = thin if finest.chunk_bytes <= thin else room_bytes
    for label in finest.lost:  # each as coarse as the finer others allow
        low, high = 1, finest.counts[label]
        while low < high:
            middle = (low + high) // 2
            if _with(finest, {label: middle}).chunk_bytes <= room:
                high = middle
            else:
                low = middle + 1
        finest = _with(finest, {label: low})
    return finest


def _with(chunks: Chunks, counts: Mapping[str, int]) -> Chunks:
    return Chunks(chunks.notation, chunks.sizes, chunks.itemsize, {**chunks.counts, **counts})


def _counts_of(size: int, most: int) -> list[int]:
    """Numbers of chunks worth trying: small ones, the finest, and some with different largest chunks.

    >>> _counts_of(10, 20), _counts_of(1000, 16)
    ([1, 2, 3, 4, 5, 10], [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 24, 32, 42, 63, 125, 1000])
    """
    different: dict[int, int] = {}
    count = 1
    while count <= size:
        chunk = -(-size // count)
        different[chunk] = count
        count = -(-size // (chunk - 1)) if chunk > 1 else size + 1
    counts = list(different.values()) or [1]
    if len(counts) <= most:
        return counts
    small = [n for n in counts if n <= min(SMALL_COUNTS, most // 2)]
    large = counts[len(small) :]
    some = max(1, most - len(small) - 1)
    return [*small, *(large[len(large) * k // some] for k in range(some)), counts[-1]]
