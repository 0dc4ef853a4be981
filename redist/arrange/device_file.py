"""What computing costs, in a topology file: a ``[[computing]]`` table for every kind of device."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redist.errors import TopologyError
from redist.layout.dtype import DType
from redist.plan.rates import CPU, GPU, KINDS, DeviceCosts, OperationCost, device_costs
from redist.plan.topology import read_tables
from redist.text.columns import table

KNOWN = ("device", "memory_gb_s", "other", *KINDS)
FS = 10**6
"""Femtoseconds of one of 10^9 a second."""


def load_costs(path: str | Path, device: str = "cpu") -> DeviceCosts:
    """What computing costs on a kind of device, from a TOML file; built-in costs if the file does not say.

    The keys of a table are ``device`` (cpu, gpu), ``memory_gb_s`` (10^9 bytes a second), ``product`` (10^9
    multiply-adds a second by dtype, such as ``{f32 = 20, f64 = 10}``), ``map``, ``reduce`` and ``copy``
    (10^9 elements a second), and ``other`` (10^9 elements a second of everything else).
    """
    return load_every_cost(path).get(device, device_costs(device == "gpu"))


def load_every_cost(path: str | Path) -> dict[str, DeviceCosts]:
    """What computing costs on every kind of device that a file names; built-in costs if it names none."""
    return read_costs(read_tables(path), str(path)) or {"cpu": CPU, "gpu": GPU}


def read_costs(data: Mapping[str, Any], name: str = "topology") -> dict[str, DeviceCosts]:
    """What computing costs on every kind of device that the tables of a file name.

    >>> found = read_costs({"computing": [{"memory_gb_s": 10, "product": {"f32": 20}}]})["cpu"]
    >>> found.byte_fs, found.of("product", "f32")
    (100000, 50000)
    """
    tables = data.get("computing", [])
    if not isinstance(tables, list) or not all(isinstance(one, Mapping) for one in tables):
        raise TopologyError(f"cannot read {name}: need [[computing]] tables")
    found: dict[str, DeviceCosts] = {}
    for one in tables:
        where = f"cannot read {name}: computing"
        unknown = sorted(set(one) - set(KNOWN))
        if unknown:
            raise TopologyError(f"{where}: unknown key {unknown[0]!r}; known: {', '.join(KNOWN)}")
        operations = []
        for kind in KINDS:
            rates = one.get(kind, {})
            if not isinstance(rates, Mapping):
                raise TopologyError(f"{where}: {kind} must be a table of dtypes")
            for dtype, rate in rates.items():
                fs = _fs(rate, f"{where}: {kind}.{dtype}")
                operations.append(OperationCost(kind, DType.parse(dtype).name, fs))
        device = str(one.get("device", "cpu"))
        usual = device_costs(device == "gpu")
        found[device] = DeviceCosts(
            _fs(one["other"], f"{where}: other") if "other" in one else usual.elem_fs,
            _fs(one["memory_gb_s"], f"{where}: memory_gb_s")
            if "memory_gb_s" in one
            else usual.byte_fs,
            tuple(operations),
        )
    return found


def _fs(rate: object, where: str) -> int:
    if not isinstance(rate, (int, float)) or isinstance(rate, bool) or not 1e-9 <= rate <= 1e9:
        raise TopologyError(f"{where} is {rate!r}; need a number from 1e-9 to 1e9")
    return max(1, round(FS / rate))


def format_costs(devices: Mapping[str, DeviceCosts]) -> str:
    """The text of tables that :func:`load_costs` reads back.

    >>> print(format_costs({"cpu": DeviceCosts(1000, 100, (OperationCost("map", "f32", 500),))}))
    [[computing]]
    device = "cpu"
    memory_gb_s = 10000
    other = 1000
    map = { f32 = 2000 }
    <BLANKLINE>
    """
    lines = []
    for device, costs in devices.items():
        lines += ["[[computing]]", f'device = "{device}"']
        lines += [f"memory_gb_s = {FS / costs.byte_fs:.6g}", f"other = {FS / costs.elem_fs:.6g}"]
        for kind in KINDS:
            own = [one for one in costs.operations if one.kind == kind]
            if own:
                rates = ", ".join(f"{one.dtype} = {FS / one.elem_fs:.6g}" for one in own)
                lines.append(f"{kind} = {{ {rates} }}")
        lines.append("")
    return "\n".join(lines)


def costs_lines(devices: Mapping[str, DeviceCosts]) -> list[str]:
    """A table to read: kinds of operations by dtype, in 10^9 a second.

    >>> print(*costs_lines({"cpu": DeviceCosts(1000, 100, (OperationCost("map", "f32", 500),))}), sep="\\n")
    10^9 a second              f32
    cpu             map       2000
    cpu             memory   10000
    """
    dtypes = list(
        dict.fromkeys(one.dtype for costs in devices.values() for one in costs.operations)
    )
    rows: list[tuple[str, ...]] = [("10^9 a second", "", *dtypes)]
    for device, costs in devices.items():
        known = {(one.kind, one.dtype): _rate_text(one.elem_fs) for one in costs.operations}
        for kind in KINDS:
            if any(one.kind == kind for one in costs.operations):
                rows.append((device, kind, *(known.get((kind, d), "") for d in dtypes)))
        rows.append((device, "memory", _rate_text(costs.byte_fs), *[""] * (len(dtypes) - 1)))
    return table(rows, left=(0, 1))


def _rate_text(fs: int) -> str:
    return f"{FS / fs:.4g}" if fs > 100 else f"{FS / fs:.0f}"
