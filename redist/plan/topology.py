"""Topologies: latency and bandwidth between ranks, level by level."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from redist.errors import TopologyError
from redist.layout.cuts import Index
from redist.text.units import ceil_div


@dataclass(frozen=True, slots=True)
class Level:
    """A level of a topology: latency and time per byte between the ranks of a block of ``size`` ranks.

    ``link_fs`` is the time per byte, in one direction, of a link that all ranks of a block of the previous
    level share, such as the network card of a node; 0 if they share none.
    """

    name: str
    size: int | None
    latency_ps: int
    byte_fs: int
    link_fs: int = 0

    def time_ps(self, messages: Index, n_bytes: Index, link_bytes: Index | int = 0) -> Index:
        """Time for the messages and bytes of the busiest rank, and for the bytes of the busiest link.

        The bytes take as long as the slower of the two. Arguments are numbers, or arrays for many cases at
        once. All costs of messages are computed here.

        >>> Level("all", None, 1_000_000, 100_000).time_ps(2, 1000)
        2100000
        >>> Level("network", None, 1_000_000, 100_000, 80_000).time_ps(2, 1000, 4000)
        2320000
        """
        fs = n_bytes * self.byte_fs
        if self.link_fs:
            of_link = link_bytes * self.link_fs
            fs = max(fs, of_link) if isinstance(fs, int) else np.maximum(fs, of_link)
        return messages * self.latency_ps + ceil_div(fs, 1000)


@dataclass(frozen=True, slots=True)
class Topology:
    """Levels of ranks, nearest first; two ranks communicate at the first level that has both in one block.

    ``step_ps`` is the fixed cost of every step that moves anything at all, because ranks wait for each
    other.

    >>> t = Topology((Level("node", 8, 10**6, 10**5), Level("net", None, 10**7, 10**6)))
    >>> t.level_of(0, 7), t.level_of(0, 8)
    (0, 1)
    """

    levels: tuple[Level, ...]
    step_ps: int = 0

    def __post_init__(self) -> None:
        if self.step_ps < 0:
            raise TopologyError("what a step costs must not be negative")
        if not self.levels or self.levels[-1].size is not None:
            raise TopologyError("a topology needs a last level without a size: it spans all ranks")
        last = 1
        for level in self.levels:
            if level.latency_ps < 0 or level.byte_fs < 0 or level.link_fs < 0:
                raise TopologyError(f"level {level.name!r}: latency and bandwidth must be positive")
            if level.link_fs and level is self.levels[0]:
                raise TopologyError(
                    f"level {level.name!r}: ranks of the nearest level share no link"
                )
            if level.size is None:
                if level is not self.levels[-1]:
                    raise TopologyError(
                        f"level {level.name!r} needs a size: only the last spans all"
                    )
            elif level.size < 1 or level.size % last != 0:
                raise TopologyError(
                    f"level {level.name!r} has size {level.size}; need a multiple of {last}"
                )
            else:
                last = level.size

    def level_of(self, a: int, b: int) -> int:
        """The number of the level at which two ranks communicate."""
        for number, level in enumerate(self.levels):
            if level.size is None or a // level.size == b // level.size:
                return number
        raise AssertionError("the last level spans all ranks")

    @property
    def cheapest(self) -> Level:
        """A level with the lowest latency and the lowest time per byte of all levels."""
        return cheapest_of(self.levels)

    @staticmethod
    def load(path: str | Path) -> Topology:
        """Read a topology from a TOML file with one ``[[level]]`` table per level, nearest first.

        The keys of a table are ``name``, ``size`` (ranks in a block; absent in the last table),
        ``latency_us``, ``bandwidth_gb_s`` (of one rank, in 10^9 bytes per second), and ``link_gb_s`` if the
        ranks of a block of the previous level share a link. Before the tables, ``step_us`` may give the
        fixed cost of a step. ``[[computing]]`` tables are ignored here.
        """
        return Topology.from_tables(read_tables(path), str(path))

    @staticmethod
    def from_tables(data: Mapping[str, Any], name: str = "topology") -> Topology:
        """Make a topology from the tables of a topology file; ``name`` is for error messages."""
        tables = data.get("level")
        if not isinstance(tables, list) or not tables:
            raise TopologyError(f"cannot read {name}: need one [[level]] table per level")
        step = data.get("step_us", 0)
        if not isinstance(step, (int, float)) or isinstance(step, bool) or not 0 <= step <= 1e9:
            raise TopologyError(f"cannot read {name}: step_us must be a number from 0 to 1e9")
        others = sorted(set(data) - {"level", "step_us", "computing"})
        if others:
            raise TopologyError(f"cannot read {name}: unknown key {others[0]!r}; known: step_us")
        levels = []
        for number, table in enumerate(tables):
            where = f"cannot read {name}: level {number + 1}"
            if not isinstance(table, Mapping):
                raise TopologyError(f"{where}: need a table with latency_us and bandwidth_gb_s")
            unknown = set(table) - {"name", "size", "latency_us", "bandwidth_gb_s", "link_gb_s"}
            if unknown:
                raise TopologyError(
                    f"{where}: unknown key {sorted(unknown)[0]!r}; "
                    "known: name, size, latency_us, bandwidth_gb_s, link_gb_s"
                )
            size = table.get("size")
            if size is not None and (not isinstance(size, int) or isinstance(size, bool)):
                raise TopologyError(f"{where}: size must be a whole number")
            rates = []
            link = ["link_gb_s"] if "link_gb_s" in table else []
            for key in ("latency_us", "bandwidth_gb_s", *link):
                value = table.get(key)
                if not isinstance(value, (int, float)) or isinstance(value, bool):
                    raise TopologyError(f"{where}: {key} must be a positive number")
                if not 1e-9 <= value <= 1e9:
                    raise TopologyError(f"{where}: {key} is {value}; need 1e-9 to 1e9")
                rates.append(value)
            levels.append(
                Level(
                    str(table.get("name", f"level{number}")),
                    size,
                    round(rates[0] * 10**6),
                    max(1, round(10**6 / rates[1])),
                    *(max(1, round(10**6 / rate)) for rate in rates[2:]),
                )
            )
        try:
            return Topology(tuple(levels), round(step * 10**6))
        except TopologyError as error:
            raise TopologyError(f"cannot read {name}: {error}") from None


def cheapest_of(levels: Sequence[Level]) -> Level:
    """A level with the lowest latency and the lowest time per byte of the given levels.

    >>> near, far = Level("node", 8, 0, 400), Level("net", None, 9, 100)
    >>> cheapest_of([near, far])
    Level(name='cheapest', size=None, latency_ps=0, byte_fs=100, link_fs=0)
    """
    latency = min(level.latency_ps for level in levels)
    return Level("cheapest", None, latency, min(level.byte_fs for level in levels))


def format_topology(topology: Topology) -> str:
    """The text of a topology file; :meth:`Topology.load` reads it back.

    >>> from redist.plan.rates import FLAT
    >>> print(format_topology(FLAT))
    [[level]]
    name = "all"
    latency_us = 1
    bandwidth_gb_s = 10
    <BLANKLINE>
    """
    lines = [f"step_us = {topology.step_ps / 10**6:.6g}", ""] if topology.step_ps else []
    for level in topology.levels:
        lines += ["[[level]]", f'name = "{level.name}"']
        if level.size is not None:
            lines.append(f"size = {level.size}")
        lines.append(f"latency_us = {max(1e-9, level.latency_ps / 10**6):.6g}")
        lines.append(f"bandwidth_gb_s = {10**6 / max(1, level.byte_fs):.6g}")
        if level.link_fs:
            lines.append(f"link_gb_s = {10**6 / level.link_fs:.6g}")
        lines.append("")
    return "\n".join(lines)


def read_tables(path: str | Path) -> dict[str, Any]:
    """Read the tables of a topology file: the levels, and the costs of computing."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:  # pragma: no cover
        import tomli as tomllib

    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise TopologyError(f"cannot read topology {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TopologyError(f"cannot read topology {path}: {error}") from None
