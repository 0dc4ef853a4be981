"""How a copy is cut along its dims: the order of the dims on either side, and a tile's extents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LINE = 128
SECTOR = 32
"""Bytes that memory is read and written in."""
_FAR = 2**62


@dataclass(frozen=True, slots=True)
class BlockDim:
    """A dim of a copy: ``count`` steps of this many bytes; in a group, of one row to the next."""

    count: int
    dst: int
    src: int
    in_group: bool = False
    is_run: bool = False
    is_loose: bool = False

    @property
    def tracked(self) -> bool:
        """Whether the kernel has to know the place along this dim."""
        return self.in_group or self.is_loose


def order_of(strides: Sequence[int]) -> list[int]:
    """Dims from the fastest on; repeated elements (stride 0) last."""
    return sorted(range(len(strides)), key=lambda k: abs(strides[k]) or _FAR)


def extents_of(
    axes: list[BlockDim], to: list[int], of: list[int], budget: int, least: int
) -> list[int]:
    """log2 of a tile's extent along every dim: long runs on both sides."""
    out = [0] * len(axes)
    good, most = [_cap(axis.count, least) for axis in axes], [ceil_log(a.count) for a in axes]
    for caps in (good, most):
        while sum(out) < budget:
            best = None
            for order in (to, of):
                run = 0
                for k in order:
                    run += out[k]
                    if out[k] < caps[k]:
                        if best is None or run < best[0]:
                            best = (run, k)
                        break
            if best is None:
                break
            out[best[1]] += 1
    return out


def _cap(count: int, least: int) -> int:
    """log2 of a tile's extent along a dim: large, with few idle places in the last tile."""
    top = ceil_log(count)

    def used(log: int) -> float:
        return count / (-(-count >> log) << log)

    good = max(log for log in range(top + 1) if used(log) >= 0.8)
    low = min(top, ceil_log(least))
    return good if good >= low else max(range(low, top + 1), key=used)


def writes_parts(axes: Sequence[BlockDim], to: Sequence[int], extents: Sequence[int]) -> bool:
    """Whether rows of a tile begin between sectors of the destination.

    >>> odd = [BlockDim(63, 4, 256), BlockDim(64, 252, 4)]
    >>> writes_parts(odd, [0, 1], [5, 5]), writes_parts(odd, [0, 1], [6, 5])
    (True, False)
    """
    run, is_whole = abs(axes[to[0]].dst) if to else 0, True
    for k in to:
        if is_whole and abs(axes[k].dst) == run:
            run *= axes[k].count
            is_whole = 1 << extents[k] >= axes[k].count
        elif axes[k].dst % SECTOR:
            return True
    return False


def ceil_log(n: int) -> int:
    """log2, rounded up."""
    return (n - 1).bit_length()
