"""Manifests: two sides and the runs between them in a file, as JSON lines or as arrays.

JSON lines, one object a line, in any order; buffers are numbered in the order of their lines::

    {"tensor": ["w", [4, 6], 2]}                           name, shape, itemsize
    {"source": [0, "w.0", 24]}                             a buffer: rank, name, bytes
    {"source_box": [0, "w", [0, 0], [2, 6], 0]}            in buffer 0: tensor, lo, shape, offset
    {"target": [1, "w", 48]}
    {"target_box": [0, "w", [0, 0], [4, 6], 0, [12, 2]]}   and strides, where it is not in C order
    {"run": [0, 0, 0, 0, 24, 24]}                          round, buffer, offset, buffer, offset, bytes
    {"runs": "runs.npy"}                                   more runs, in a file beside this one

Files that end in ``.npz`` have the same as arrays; :func:`write_manifest` makes both.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn
from zipfile import BadZipFile

import numpy as np

from redist.check.boxes import Boxes, Rows, side_of
from redist.check.run_rows import FIELDS, RUN, as_runs
from redist.errors import ArgumentError, ReadError, WriteError

FORMS = {
    "tensor": "name, [sizes], itemsize",
    "source": "rank, name, bytes",
    "target": "rank, name, bytes",
    "source_box": "buffer, tensor, [lo], [shape], offset, then [strides] and itemsize if they differ",
    "target_box": "buffer, tensor, [lo], [shape], offset, then [strides] and itemsize if they differ",
    "run": "round, buffer, offset, buffer, offset, bytes, then count, step, step if blocks repeat",
    "runs": "a file of NumPy",
}
"""What a line has, by its key."""
SIDES = ("source", "target")
UNREADABLE = (
    AttributeError,
    BadZipFile,
    EOFError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    zlib.error,
)
"""What NumPy raises of files that are not its own, or were changed."""
ZIP = b"PK\x03\x04"
"""How a file of several arrays begins."""
Manifest = tuple[Rows, Boxes, Boxes]
"""Runs, source, target."""


def read_manifest(path: Path) -> Manifest:
    """**Local.** Read runs, source and target from a file."""
    try:
        if path.suffix == ".npz":
            return _from_arrays(path)
        if path.suffix == ".npy":
            raise ReadError(
                f"cannot read {str(path)!r}: it has runs alone; name it in a manifest of JSON lines that "
                f'describes both sides: {{"runs": "{path.name}"}}'
            )
        return manifest_of(path.read_text(encoding="utf-8-sig"), str(path), path.parent)
    except ReadError:
        raise
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise ReadError(f"cannot read {str(path)!r}: {why}") from None


def is_manifest(text: str) -> bool:
    """Whether a text begins as JSON lines of a manifest.

    >>> is_manifest('{"tensor": ["w", [4, 6], 2]}'), is_manifest('{"version": 1}')
    (True, False)
    """
    try:
        first = json.loads(text.lstrip().partition("\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and len(first) == 1 and next(iter(first)) in FORMS


def manifest_of(text: str, name: str, folder: Path = Path()) -> Manifest:
    """Runs, source and target from JSON lines; ``name`` is what errors call the file."""
    found: dict[str, list[tuple[int, Any]]] = {kind: [] for kind in FORMS}

    def wrong(number: int, reason: str) -> NoReturn:
        raise ReadError(f"cannot read {name!r}: line {number}: {reason}") from None

    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            read = json.loads(line)
            ((kind, value),) = read.items()
            found[kind].append((number, value))
        except (AttributeError, KeyError, ValueError, RecursionError):
            wrong(
                number, f'need an object with one of {", ".join(FORMS)}, such as {{"run": [...]}}'
            )

    def rows(kind: str, *forms: type, more: int = 0) -> list[tuple[Any, ...]]:
        """Values of all lines of a kind, of these types and perhaps some more."""
        out = []
        for number, value in found[kind]:
            good = isinstance(value, list) and len(forms) <= len(value) <= len(forms) + more
            if not good or not all(map(isinstance, value, forms)):
                wrong(number, f'need "{kind}": [{FORMS[kind]}]')
            out.append(tuple(value))
        return out

    tensors = {called: (shape, item) for called, shape, item in rows("tensor", str, list, int)}
    shapes = {called: tuple(shape) for called, (shape, _) in tensors.items()}
    sides = []
    for side in SIDES:
        boxes = []
        kind = f"{side}_box"
        for (number, _), row in zip(
            found[kind], rows(kind, int, str, list, list, int, more=2), strict=True
        ):
            if row[1] not in tensors:
                wrong(number, f"there is no line for the tensor {row[1]!r}")
            more = (*row[5:], *(None, tensors[row[1]][1])[len(row) - 5 :])
            boxes.append((*row[:5], *more))
        try:
            sides.append(Boxes.of(shapes, rows(side, int, str, int), boxes))
        except (ArgumentError, TypeError) as problem:
            raise ReadError(f"cannot read {name!r}: the {side}: {problem}") from None
    try:
        runs = [as_runs([value for _, value in found["run"]])]
        runs += [as_runs(_array(folder / str(value))) for _, value in found["runs"]]
    except ArgumentError as problem:
        raise ReadError(f"cannot read {name!r}: {problem}") from None
    return (runs[1] if len(runs) == 2 and not len(runs[0]) else _all_of(runs)), sides[0], sides[1]


def write_manifest(path: str | Path, runs: Any, source: Any, target: Any) -> None:
    """**Local.** Write a manifest: arrays if the name ends in ``.npz``, else JSON lines.

    >>> import redist
    >>> from redist.check.boxes import Boxes
    >>> from tempfile import TemporaryDirectory
    >>> side = Boxes.of({"w": (2,)}, [(0, "w", 4)], [(0, "w", (0,), (2,), 0, None, 2)])
    >>> with TemporaryDirectory() as folder:
    ...     write_manifest(f"{folder}/w.jsonl", [(0, 0, 0, 0, 0, 4)], side, side)
    ...     redist.check_runs(f"{folder}/w.jsonl").is_right
    True
    """
    rows, sides = as_runs(runs), dict(zip(SIDES, map(side_of, (source, target)), strict=True))
    try:
        if str(path).endswith(".npz"):
            arrays: dict[str, Any] = {"runs": rows}
            for name, side in sides.items():
                words = {"tensors": dict(side.tensors), "buffers": list(side.names)}
                arrays[name] = np.array(json.dumps(words))
                arrays |= {f"{name}_ranks": side.ranks, f"{name}_sizes": side.sizes}
                arrays[f"{name}_boxes"] = side.rows
            np.savez(path, **arrays)
            return
        with Path(path).open("w", encoding="utf-8") as file:
            for kind, value in _lines(rows, sides):
                file.write(json.dumps({kind: value}) + "\n")
    except OSError as problem:
        raise WriteError(f"cannot write {str(path)!r}: {problem.strerror or problem}") from None


def _lines(rows: Rows, sides: dict[str, Boxes]) -> Iterator[tuple[str, Any]]:
    """Keys and values of JSON lines."""
    shapes = {name: shape for side in sides.values() for name, shape in side.tensors.items()}
    for name, shape in shapes.items():
        yield "tensor", [name, list(shape), 1]
    for kind, side in sides.items():
        names = list(side.tensors)
        for rank, name, n_bytes in zip(
            side.ranks.tolist(), side.names, side.sizes.tolist(), strict=True
        ):
            yield kind, [rank, name, n_bytes]
        for row in side.rows:
            name = names[row["tensor"]]
            last = side.n_dims - len(shapes[name])
            lo, shape, strides = (row[key].tolist()[last:] for key in ("lo", "shape", "strides"))
            buffer, offset, item = (int(row[key]) for key in ("buffer", "offset", "itemsize"))
            yield f"{kind}_box", [buffer, name, lo, shape, offset, strides, item]
    for run in rows:
        yield "run", [int(run[name]) for name in FIELDS if name in (rows.dtype.names or ())]


def _from_arrays(path: Path) -> Manifest:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            sides = []
            for name in SIDES:
                words = json.loads(str(file[name]))
                tensors = {called: tuple(shape) for called, shape in words["tensors"].items()}
                numbers = (file[f"{name}_{what}"] for what in ("ranks", "sizes", "boxes"))
                sides.append(Boxes(tensors, words["buffers"], *numbers))
            return as_runs(file["runs"]), sides[0], sides[1]
    except UNREADABLE as problem:
        raise ReadError(f"cannot read {str(path)!r} as a manifest: {problem}") from None


def _array(path: Path) -> Any:
    """Runs in a file of NumPy; the file is mapped, not read at once."""
    try:
        with path.open("rb") as file:
            zipped = file.read(len(ZIP)) == ZIP
        if not zipped:
            return np.lib.format.open_memmap(path, mode="r")
    except (OSError, *UNREADABLE) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise ReadError(f"cannot read {str(path)!r}: {why}") from None
    raise ReadError(f"cannot read {str(path)!r}: it has several arrays; need one of runs, .npy")


def _all_of(parts: list[Rows]) -> Rows:
    """All runs in one array; what says nothing of repeats is one block."""
    out = np.zeros(sum(map(len, parts)), dtype=RUN)
    out["count"] = 1
    begin = 0
    for part in parts:
        for name in part.dtype.names or ():
            if name in FIELDS:
                out[name][begin : begin + len(part)] = part[name]
        begin += len(part)
    return out
