"""Arrays to files and back, against NumPy: random arrays bit for bit, faults, limits, no file left behind.

As in ``mpirun -n 3 python -m tests.programs.pgas.writing --n 20``. With ``kill FOLDER`` one rank is killed
while a file is written there.
"""

from __future__ import annotations

import csv
import errno
import gzip
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

import redist
from redist import pgas
from redist.errors import PeerError
from redist.pgas.files.blocks import LEAST_BYTES
from redist.pgas.memory import BUFFERS
from redist.pgas.tiles.layouts import dtype_of
from redist.runtime.files.disk import Disk, use_disk
from tests.programs.mpi.counting import Count
from tests.programs.pgas.drawing import Draw
from tests.programs.pgas.layouts import layouts, meshes
from tests.programs.pgas.reading import COMM, SIZE, folder, refused
from tests.programs.pgas.rounds import Check, names_of, run_checks
from tests.programs.together import main

BAD = SIZE - 1
VALUES: Any = np.zeros(3)
DTYPES = ("f8", "f4", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8", "c16")
BOOKS_BYTES = 2**19
"""Lists, tables and pages for control that are no blocks."""


def some_values(rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Values with many bits, some of them odd."""
    kind = np.dtype(dtype)
    values = rng.integers(0, 256, (*shape, kind.itemsize), dtype=np.uint8).view(kind)
    values = values.reshape(shape)
    return values % 2 == 0 if kind.kind == "b" else values


def some_type(rng: Any, values: Any) -> Any:
    """A layout on a mesh of all ranks, or of some."""
    every = [*meshes(SIZE)]
    if SIZE > 1:
        every.append(redist.Mesh({"x": SIZE - 1}, ranks=range(1, SIZE)))
    mesh = every[rng.integers(len(every))]
    found = [*layouts(mesh, dtype_of(values.dtype), values.shape)]
    return found[rng.integers(len(found))]


def files_of_numpy(draw: Draw) -> str | None:
    """Any array, in any type, on all ranks or some, also a view: what is loaded has the same bits."""
    rng = draw.rng
    shape = tuple(int(n) for n in rng.choice([0, 1, 1, 2, 3, 7, 40], rng.integers(0, 5)))
    values = some_values(rng, shape, str(rng.choice(DTYPES)))
    a = pgas.asarray(values, type=some_type(rng, values))
    if values.ndim > 1 and rng.random() < 0.3:
        order = tuple(int(i) for i in rng.permutation(values.ndim))
        a, values = pgas.permute_dims(a, order), values.transpose(order)
    path = folder() / "any.npy"
    pgas.write_npy(path, a, limit_bytes=LEAST_BYTES)
    for mode in (None, "r"):
        found = np.load(path, mmap_mode=mode)
        if found.dtype != values.dtype or found.shape != values.shape:
            return f"{a.type}: {found.dtype} {found.shape}"
        if found.tobytes() != values.tobytes():
            return f"{a.type}: other bits"
    back = pgas.read_npy(path, type=some_type(rng, values))
    if np.asarray(back.gather()).tobytes() != values.tobytes():
        return f"{a.type} to {back.type}: other bits"
    COMM.barrier()
    return None


def tables_of_text(draw: Draw) -> str | None:
    """Arrays beside each other: what ``float`` makes of every field has the same bits."""
    rng = draw.rng
    rows = int(rng.choice([0, 1, 5, 64]))
    given: dict[str, Any] = {
        "x": some_values(rng, (rows, 3), "f8"), "label": some_values(rng, (rows,), "i8"),
        "y": some_values(rng, (rows, 1), str(rng.choice(["f4", "f2", "u8", "i1"]))),
    }  # fmt: skip
    arrays = {name: pgas.asarray(one, type=some_type(rng, one)) for name, one in given.items()}
    packed = rng.random() < 0.3
    path = folder() / ("any.csv.gz" if packed else "any.csv")
    pgas.write_csv(path, arrays, limit_bytes=LEAST_BYTES)
    text = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    names, *lines = csv.reader(text.decode().splitlines())
    if names != ["x_0", "x_1", "x_2", "label", "y"]:
        return f"{names}"
    if len(lines) != rows:
        return f"{len(lines)} lines of {rows}"
    columns = [*zip(*lines, strict=True)] or [()] * 5
    with np.errstate(over="ignore"):
        for i in range(3):
            if not same(np.array([float(t) for t in columns[i]]), given["x"][:, i]):
                return "other floats"
        if [int(t) for t in columns[3]] != given["label"].tolist():
            return "other integers"
        y = given["y"][:, 0]
        read = float if y.dtype.kind == "f" else int
        if not same(np.array([read(t) for t in columns[4]], y.dtype), y):
            return f"other {y.dtype}"
    if not packed and rows:
        back = pgas.read_csv(path, usecols=[0, 1, 2])
        if not same(back.gather(), given["x"]):
            return "read back: other floats"
    COMM.barrier()
    return None


def same(found: Any, values: Any) -> bool:
    """The same bits, but for those of a nan."""
    nans = values != values
    kept = np.where(nans, 0, found), np.where(nans, 0, values)
    return bool((nans == (found != found)).all()) and kept[0].tobytes() == kept[1].tobytes()


def pending_sums(draw: Draw) -> str | None:
    """What is pending is finished; the array is as before."""
    values = np.arange(float(SIZE * 6 * 5)).reshape(SIZE * 6, 5)
    a = pgas.sum(pgas.asarray(values, type="{x}, {}"), axis=0)
    before = a.type
    pgas.write_npy(folder() / "sum.npy", a)
    pgas.write_csv(folder() / "sum.csv", [a], columns=["total"])
    if a.type != before or not np.array_equal(np.load(folder() / "sum.npy"), values.sum(0)):
        return f"{a.type} {np.load(folder() / 'sum.npy')}"
    found = np.loadtxt(folder() / "sum.csv", skiprows=1)
    return None if np.array_equal(found, values.sum(0)) else f"{found}"


def how_text_looks(draw: Draw) -> str | None:
    """Names, formats and marks."""
    x = pgas.asarray(np.array([[0.1, 2.0], [1e300, np.nan]]), type="{}, {}")
    f4, flags = pgas.asarray(np.array([0.1, 3], "f4")), pgas.asarray(np.array([True, False]))
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (x, {}, "0.1,2.0\n1e+300,nan\n"),
        (x, {"columns": ["a", 'b "c", d']}, 'a,"b ""c"", d"\n0.1,2.0\n1e+300,nan\n'),
        ({"s": f4, "b": flags}, {"sep": ";"}, "s;b\n0.1;1\n3.0;0\n"),
        ({"s": f4, "b": flags}, {"header": False, "delimiter": "\t"}, "0.1\t1\n3.0\t0\n"),
        ([f4, x], {"fmt": "%.1f"}, f"0.1,0.1,2.0\n3.0,{1e300:.1f},nan\n"),
        ({"s": f4, "b": flags}, {"fmt": {"s": "%.3f"}}, "s,b\n0.100,1\n3.000,0\n"),
        (pgas.zeros((0, 2)), {"columns": ["a", "b"]}, "a,b\n"),
        (x, {"header": "p, q", "comments": ""}, "p,q\n0.1,2.0\n1e+300,nan\n"),
        (f4, {"header": "s", "fmt": "%.2f", "delimiter": ";"}, "s\n0.10\n3.00\n"),
        ({"s": f4, "b": flags}, {"header": "s;b", "sep": ";"}, "s;b\n0.1;1\n3.0;0\n"),
        ({"s": f4, "b": flags}, {"header": ""}, "0.1,1\n3.0,0\n"),
        (
            [f4, flags],
            {"fmt": "%.2f,%d", "header": "s,b", "columns": ["s", "b"]},
            "s,b\n0.10,1\n3.00,0\n",
        ),
    ]
    for given, options, text in cases:
        pgas.write_csv(folder() / "looks.csv", given, **options)
        found = (folder() / "looks.csv").read_text()
        COMM.barrier()
        if found != text:
            return f"{options}: {found!r}"
    return None


def mistakes(draw: Draw) -> str | None:
    """One error on all ranks, and no file."""
    a, path = pgas.zeros((4, 2)), folder() / "no.csv"
    npy, text = partial(pgas.write_npy, path), cast(Any, partial(pgas.write_csv, path))
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: npy(VALUES), "need a global array; pgas.asarray makes"),
        (lambda: npy(a, limit_bytes=5), "need 256 KiB or more"),
        (lambda: pgas.write_npy(folder() / "none" / "a.npy", a), "there is no folder"),
        (lambda: pgas.write_npy(folder(), a), "it is a folder"),
        (lambda: pgas.write_npy("/dev/null", a), "it is no file"),
        (lambda: pgas.write_npy("/proc/a.npy", a), "cannot write '/proc/a.npy'"),
        (lambda: text(a, columns=["a"]), "1 name for 2 columns"),
        (lambda: text(a, columns=["a", "a"]), "'a' stands twice"),
        (lambda: text({"a": a}, columns=["a", "b"]), "names are in the dict"),
        (lambda: text({}), "no column is given"),
        (lambda: text([a, pgas.zeros(3)]), "columns have 4 and 3 rows; they must be"),
        (lambda: text(pgas.zeros((2, 2, 2))), "needs 1 or 2 dims: a.reshape(2, -1) makes one"),
        (lambda: text(a[0, 0]), "a.reshape(1) makes one; pgas.write_npy takes any array"),
        (lambda: text(a, index=False), "cannot use index= in pgas.write_csv: leave it out"),
        (lambda: text(a, float_format="%d"), "write fmt="),
        (lambda: text(a * 1j), "pgas.real(a)"),
        (lambda: text(a, header=True), "give columns="),
        (lambda: text(a, header="a,b,c"), "3 names for 2 columns"),
        (lambda: text(a, header="a b"), "1 name for 2 columns"),
        (lambda: text(a, header="a,b", columns=["a", "c"]), "are named ['a', 'c']; leave header= out"),
        (lambda: text({"a": a}, header="a,b"), "are named ['a_0', 'a_1']; leave header= out"),
        (lambda: text(a, header="made today\na,b"), "the names stand in one line"),
        (lambda: text(a, header=["a", "b"]), "columns= takes a list of names"),
        (lambda: text(a, header="a,b", comments="# "), "write comments=\"\", or leave it out"),
        (lambda: text(a, footer="end"), "cannot use footer= in pgas.write_csv: leave it out"),
        (lambda: text(a, delimiter="ab"), "need one letter"),
        (lambda: text(a, delimiter=",", sep=";"), "are the same; give one"),
        (lambda: text(a, fmt="x"), "cannot format float64 by 'x'"),
        (lambda: text(a, fmt=["%d"]), "2 columns"),
        (lambda: text(a, fmt={"q": "%d"}), "cannot format column 'q'"),
    ]  # fmt: skip
    for number, (work, says) in enumerate(cases):
        said = refused(work)
        if says not in said:
            return f"{number}: {said}"
    return f"{path} is there" if path.exists() else None


@contextmanager
def an_old_file(name: str) -> Iterator[Path]:
    """A file that must be as it was, in a folder where nothing else must be, after the block."""
    home = folder() / name
    path = home / "old.npy"
    if COMM.rank == 0:
        home.mkdir()
        np.save(path, np.arange(3))
        path.chmod(0o640)
    COMM.barrier()
    yield path
    COMM.barrier()
    left = sorted(one.name for one in home.iterdir())
    assert left == ["old.npy"], left
    assert np.load(path).tolist() == [0, 1, 2], "the old file has changed"


@contextmanager
def failing_writes(problem: Callable[[], None], after: int) -> Iterator[None]:
    """Let writes of the bad rank go wrong."""
    n = 0

    class FailingDisk(Disk):
        def carry(self, *args: Any) -> None:
            nonlocal n
            n += 1
            if n > after and COMM.rank == BAD:
                problem()
            super().carry(*args)

    with use_disk(FailingDisk()):
        yield


def full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def rows(comm: Any = None) -> Any:
    return pgas.from_function(lambda i, j: i + j, (600, 301), type="{}, {x}", comm=comm)


def a_disk_that_fills_up(draw: Draw) -> str | None:
    """While it is written, on one rank: one error on all, what was there stays, ranks can go on."""
    for name, write in (("npy", pgas.write_npy), ("csv", pgas.write_csv)):
        with an_old_file(f"full {name}") as path, failing_writes(full, 1):
            said = refused(lambda: write(path, rows(), limit_bytes=LEAST_BYTES))  # noqa: B023
        where = "" if SIZE == 1 else f" (rank {BAD})"
        if said != f"cannot write {str(path)!r}: No space left on device{where}; nothing has changed under that name":  # noqa: E501  # fmt: skip
            return said
    return None


def a_limit_of_the_system(draw: Draw) -> str | None:
    """A file may not be so long: found before a byte moves."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with an_old_file("long") as path:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**17, before[1]))
        try:
            with redist.trace() as t:
                said = refused(lambda: pgas.write_npy(path, rows()))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    if "it needs 1.4 MiB" not in said:
        return said
    return f"{t}" if t.moves else None


def a_small_disk(draw: Draw) -> str | None:
    """A file system without room says so before a byte moves; a text is noticed where it ends."""
    home = folder() / "small"
    mounted = True
    if COMM.rank == 0:
        home.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(home)]
        mounted = subprocess.run(words, capture_output=True).returncode == 0
    if not COMM.bcast(mounted):
        return None  # only root can
    try:
        said = refused(lambda: pgas.write_npy(home / "a.npy", rows()))
        text = refused(lambda: pgas.write_csv(home / "a.csv", rows(), limit_bytes=LEAST_BYTES))
        COMM.barrier()
        left = [one.name for one in home.iterdir()]
        if "it needs 1.4 MiB, and" not in said or "No space left" not in text or left:
            return f"{said} / {text} / {left}"
        return None
    finally:
        COMM.barrier()
        if COMM.rank == 0:
            subprocess.run(["umount", "-l", str(home)], check=True)


def no_permission(draw: Draw) -> str | None:
    """A file that may not be written is not replaced."""
    if os.geteuid() == 0:
        return None
    with an_old_file("closed") as path:
        COMM.barrier()
        if COMM.rank == 0:
            path.chmod(0o440)
        COMM.barrier()
        said = refused(lambda: pgas.write_npy(path, rows()))
    return None if "may not be written" in said else said


def interrupt(draw: Draw) -> str | None:
    """Ctrl-C on one rank: it is that there, an error of the others, and no file."""

    def problem() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)

    caught: BaseException | None = None
    comm = COMM.Dup()
    a = rows(comm)
    with an_old_file("interrupted") as path, failing_writes(problem, 0):
        try:
            pgas.write_npy(path, a, limit_bytes=LEAST_BYTES)
        except BaseException as error:
            caught = error
    kind = KeyboardInterrupt if COMM.rank == BAD else PeerError
    return None if isinstance(caught, kind) else f"raised {caught!r}"


def what_is_replaced(draw: Draw) -> str | None:
    """The mode stays, and of a link what it points to changes."""
    home = folder() / "replaced"
    path, link = home / "a.npy", home / "link.npy"
    if COMM.rank == 0:
        home.mkdir()
        np.save(path, np.zeros(1))
        path.chmod(0o640)
        link.symlink_to("a.npy")
    COMM.barrier()
    pgas.write_npy(link, rows())
    left = sorted(one.name for one in home.iterdir())
    mode = path.stat().st_mode & 0o777
    if left != ["a.npy", "link.npy"] or mode != 0o640 or not link.is_symlink():
        return f"{left} {mode:o} {link.is_symlink()}"
    return None if np.load(path).shape == (600, 301) else "other values"


def within_the_limit(draw: Draw) -> str | None:
    """What is allocated while a file is written, counted, is at most the limit."""
    whole = np.arange(float(800 * 1024)).reshape(800, 1024)
    limit = 2**20
    a = pgas.asarray(whole, type="{}, {x}")
    cases: list[tuple[Any, Any, str]] = [
        (pgas.write_npy, a, "moved to rows"),
        (pgas.write_npy, pgas.asarray(whole.T.copy(), type="{}, {x}").T, "rows with gaps"),
        (pgas.write_csv, a[:40], "text"),
    ]
    for write, one, what in cases:
        path = folder() / "limited"
        write(path, one[:1], limit_bytes=limit)  # worlds and tables are there before we count
        BUFFERS.forget()
        with Count() as count:
            write(path, one, limit_bytes=limit)
        if count.most > limit + BOOKS_BYTES:
            return f"{what}: {count.most} bytes, and not {limit}"
        if write is pgas.write_npy and not np.array_equal(np.load(path, mmap_mode="r"), whole):
            return f"{what}: other values"
        COMM.barrier()
    return None


def rows_stay(draw: Draw) -> str | None:
    """Rows that are cut over ranks, and copies, are written from where they lie."""
    for cut in ("{x}, {}", "{}, {}"):
        a = pgas.ones((50, 3), type=cut)
        with redist.trace() as t:
            pgas.write_npy(folder() / "stay.npy", a)
        if t.moves:
            return f"{t}"
    return None


def all_is_tidied_up(draw: Draw) -> str | None:
    COMM.barrier()
    left = [one.name for one in folder().iterdir() if one.name.endswith(".tmp")]
    COMM.barrier()
    if COMM.rank == 0:
        shutil.rmtree(folder())
    return f"{left}" if left else None


OFTEN: tuple[Check, ...] = (files_of_numpy, tables_of_text)
ONCE: tuple[Check, ...] = (
    pending_sums, how_text_looks, mistakes, a_disk_that_fills_up, a_limit_of_the_system, a_small_disk,
    no_permission, interrupt, what_is_replaced, within_the_limit, rows_stay, all_is_tidied_up,
)  # fmt: skip
CHECKS = names_of([*OFTEN, *ONCE])


def kill(home: str) -> int:
    """Write a file again and again; the bad rank is killed in the middle."""
    path = Path(home) / "old.npy"
    pgas.write_npy(path, pgas.arange(3))

    def problem() -> None:
        print("running", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    with failing_writes(problem, 3):
        pgas.write_npy(path, rows(), limit_bytes=LEAST_BYTES)
    return 0


def program() -> int:
    """0 if nothing is wrong."""
    if sys.argv[1:2] == ["kill"]:
        return kill(sys.argv[2])
    return run_checks(OFTEN, ONCE, n=10)


if __name__ == "__main__":
    main(program)
