"""Arrays from files, against what NumPy reads: every rank reads its share, errors come on all.

As in ``mpirun -n 3 python -m tests.programs.pgas.reading``.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas
from redist.pgas.files import csv as csv_files
from redist.pgas.files import lines
from redist.pgas.files.lines import line_start, pieces
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
SIZE = COMM.size
TYPES = ("{x}, {}", "{}, {x}", "{}, {}", None)


@cache
def folder() -> Path:
    """**Collective** at first. One for all ranks."""
    return Path(COMM.bcast(tempfile.mkdtemp(prefix="redist-") if COMM.rank == 0 else None))


def stored(name: str, write: Callable[[Path], Any]) -> Path:
    """**Collective.** A file that the first rank writes."""
    path = folder() / name
    if COMM.rank == 0:
        write(path)
    COMM.barrier()
    return path


def refused(work: Callable[[], Any]) -> str:
    try:
        work()
    except redist.RedistError as problem:
        same = COMM.allgather(str(problem))
        return str(problem) if len(set(same)) == 1 else f"ranks say {same}"
    return "nothing"


def npy_files_are_numpys() -> str | None:
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "rows": rng.normal(size=(23, 5)),
        "columns": np.asfortranarray(rng.normal(size=(23, 5))),
        "cube": np.asfortranarray(rng.integers(0, 9, (7, 3, 4))),
        "line": np.arange(11, dtype=np.int16),
        "few": rng.normal(size=(1, 4)).astype(np.float32),
        "single": np.array([[2.5]]),
        "none": np.empty((0, 3)),
        "other end": rng.normal(size=(9, 2)).astype(">f8"),
        "complex": rng.normal(size=(8, 2)) + 1j,
        "one": np.array(7.5),
        "flags": rng.random((9, 3)) < 0.5,
    }
    for name, values in arrays.items():
        path = stored(f"{name}.npy", partial(np.save, arr=values))
        cuts = TYPES if name in ("rows", "columns", "single") else (None,)
        for cut in cuts:
            found = pgas.read_npy(path, type=cut)
            if not np.array_equal(found.gather(), values):
                return f"{name} {cut}: other values"
            if found.dtype != values.dtype.newbyteorder("="):
                return f"{name}: {found.dtype}"
            if cut is not None and found.type != pgas.zeros(values.shape, type=cut).type.with_dtype(
                found.type.dtype
            ):
                return f"{name} {cut}: {found.type}"
    few = redist.Mesh({"y": 1}, ranks=[SIZE - 1])
    found = pgas.read_npy(folder() / "rows.npy", mesh=few, type="{}, {y}")
    return None if found.mesh == few and np.array_equal(found.gather(), arrays["rows"]) else "mesh"


def npy_errors_are_one() -> str | None:
    cut_off = stored("cut.npy", lambda path: np.save(path, np.ones(100)))
    if COMM.rank == 0:
        cut_off.write_bytes(cut_off.read_bytes()[:-80])
    many = stored("all.npz", lambda path: np.savez(path, a=np.ones(3)))
    other = stored("text.npy", lambda path: path.write_text("1,2\n"))
    objects = stored(
        "objects.npy", lambda path: np.save(path, np.array([{}, None]), allow_pickle=True)
    )
    fine = stored("fine.npy", lambda path: np.save(path, np.ones((4, 4))))
    wanted: list[tuple[Any, dict[str, Any], str]] = [
        (folder() / "missing.npy", {}, "No such file"),
        (cut_off, {}, "it ends after 720 B of 800 B"),
        (many, {}, "this is an .npz, an archive of several arrays"),
        (other, {}, "it is not a file of NumPy; pgas.read_csv reads text"),
        (objects, {}, "and not numbers"),
        (fine, {"type": "{x}"}, "1 dim, but the array has 2"),
        (fine, {"type": "f64[5{x}, 4]"}, "the array is f64 of shape (4, 4)"),
    ]
    for path, options, text in wanted:
        said = refused(partial(pgas.read_npy, path, **options))
        if text not in said:
            return f"{path.name} {options}: {said}"
    return None


def shares_alone_are_read() -> str | None:
    """What a rank reads of a long file is its share, and nothing moves."""
    values = np.arange(90000.0).reshape(-1, 3)
    path = stored("long.npy", lambda path: np.save(path, values))
    with redist.trace() as t:
        x = pgas.read_npy(path, type="{x}, {}")
    if t.moves:
        return f"{t}"
    with redist.trace() as t:
        y = pgas.read_npy(path, type="{}, {x}")
    if len(t.moves) != 1 and SIZE > 1:
        return f"{len(t.moves)} moves"
    assert x.box is not None and x.local is not None
    lo, hi = x.box[0]
    right = np.array_equal(x.local, values[lo:hi]) and np.array_equal(y.gather(), values)
    return None if right else "other values"


def texts() -> dict[str, tuple[str, dict[str, Any], Any]]:
    """Files with options, and what they hold."""
    rng = np.random.default_rng(1)
    table = rng.normal(size=(37, 4))
    body = "\n".join(",".join(map(repr, row)) for row in table.tolist())
    uneven = np.where(np.arange(60)[:, None] < 6, 1.0 / 3, np.arange(120).reshape(60, 2) % 7)
    numbers = np.arange(40).reshape(10, 4)
    whole = "\n".join(";".join(map(str, row)) for row in numbers.tolist())
    nan = np.nan
    return {
        "plain": (body + "\n", {}, table),
        "no last end": (body, {}, table),
        "names": ("a,b,c,d\n" + body + "\n", {}, table),
        "chosen": ("a, b ,c,d\n" + body, {"usecols": ["d", "b"]}, table[:, [3, 1]]),
        "one": ("a, b ,c,d\n" + body, {"usecols": "b"}, table[:, [1]]),
        "one by number": (body, {"usecols": 2}, table[:, [2]]),
        "by a function": ("a, b ,c,d\n" + body, {"usecols": lambda name: name != "b"}, table[:, [0, 2, 3]]),
        "a range": (body, {"usecols": range(1, 3)}, table[:, 1:3]),
        "numbers chosen": (body, {"usecols": [-1, 0]}, table[:, [3, 0]]),
        "first line left out": ("1,2,3,4\n" + body, {"header": True}, table),
        "other line ends": (body.replace("\n", "\r\n") + "\r\n", {}, table),
        "blank lines": ("\n\n" + body.replace("\n", "\n\n \n") + "\n\n\n", {}, table),
        "integers": (whole, {"dtype": np.int32, "delimiter": ";"}, numbers.astype(np.int32)),
        "float32": (body, {"dtype": np.float32}, table.astype(np.float32)),
        "gaps": ("a,b,c\n1,,3\nNA, null ,nan\n,5,\n", {}, np.array([[1, nan, 3], [nan] * 3, [nan, 5, nan]])),
        "gap first": (",2\n3,NA\n", {}, np.array([[nan, 2], [3, nan]])),
        "other gaps": ("1,?\n-,4\n", {"missing": ["?", "-"]}, np.array([[1, nan], [nan, 4]])),
        "quotes": ('"a","b, c"\n"1.5","2"\n 3 , "4" \n', {"usecols": ["b, c"]}, np.array([[2.0], [4]])),
        "words": (
            'name,x\n"Smith, ""J"" ",1\n"two\nlines, here\n",2\nplain,3\n' * 1 + '"a\nb",4\n' * 40,
            {"usecols": ["x"]}, np.array([[1.0], [2], [3], *[[4.0]] * 40]),
        ),
        "stray quotes": (
            '5" pipe,1\nx,2\n', {"quote": None, "usecols": [1], "header": False}, np.array([[1.0], [2]]),
        ),
        "comments": ("# made by\n#,a\nx,y\n1,2\n# half\n3,4\n", {}, np.array([[1.0, 2], [3, 4]])),
        "byte order mark": ("\ufeff1,2\n3,4\n", {}, np.array([[1.0, 2], [3, 4]])),
        "mark and names": ("\ufeffa,b\n3,4\n", {"usecols": ["a"]}, np.array([[3.0]])),
        "comma": ("a;b\n1,5;2\n;-3,25\n", {"sep": ";", "decimal": ","}, np.array([[1.5, 2], [nan, -3.25]])),
        "lines before": ("a title\n\nx,y\n1,2\n", {"header": 1}, np.array([[1.0, 2]])),
        "pandas' header": ("1,2\n3,4\n", {"header": 0}, np.array([[3.0, 4]])),
        "latin": ("ort,x\nM\u00fcnchen,1\n", {"usecols": [1]}, np.array([[1.0]])),
        "one column": ("x\n1\n2\n3\n", {}, np.array([[1.0], [2], [3]])),
        "one line": ("5,6", {}, np.array([[5.0, 6]])),
        "names alone": ("a,b\n", {}, np.empty((0, 2))),
        "odd numbers": ("nan,inf\n-1e300,+.5\n", {}, np.array([[np.nan, np.inf], [-1e300, 0.5]])),
        "lines of many lengths": (
            "\n".join(",".join(map(repr, row)) for row in uneven.tolist()), {}, uneven,
        ),
    }  # fmt: skip


def csv_files_are_read_whole() -> str | None:
    for name, (text, options, want) in texts().items():
        path = stored(f"{name}.csv", partial(Path.write_bytes, data=text.encode()))
        for cut in TYPES if name == "plain" else TYPES[:1]:
            found = pgas.read_csv(path, type=cut, **options)
            if found.dtype != want.dtype or not np.array_equal(
                found.gather(), want, equal_nan=True
            ):
                return f"{name} {cut}: {found.type} {found.gather().tolist()}"
    return None


def packed_files_are_read() -> str | None:
    """Compressed files, dealt out in pieces; errors have their lines."""
    table = np.random.default_rng(5).normal(size=(2000, 3))
    text = "\n".join(",".join(map(repr, row)) for row in table.tolist()).encode()
    for name, pack in (("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)):
        path = stored(f"t.csv.{name}", partial(Path.write_bytes, data=pack(text)))
        with small_pieces():
            found = pgas.read_csv(path, type="{x}, {}")
        if not np.array_equal(found.gather(), table):
            return name
        bad = text.replace(repr(float(table[777, 1])).encode(), b"here")
        path = stored(f"bad.csv.{name}", partial(Path.write_bytes, data=pack(bad)))
        with small_pieces():
            said = refused(partial(pgas.read_csv, path))
        if "line 778, column 2: 'here' is not a number" not in said:
            return said
        path = stored(f"cut.csv.{name}", partial(Path.write_bytes, data=pack(text)[:-20]))
        said = refused(partial(pgas.read_csv, path))
        if "cannot read" not in said:
            return f"{name}: {said}"
    return None


@contextmanager
def small_pieces() -> Iterator[None]:
    """Let files be read a few lines at a time."""
    whole: Any = lines.pieces
    csv_files.pieces = partial(whole, most_bytes=1000)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        csv_files.pieces = whole  # type: ignore[attr-defined]


def several_files_are_one() -> str | None:
    parts = [np.arange(3.0 * n).reshape(n, 3) + 100 * n for n in (5, 1, 40, 7)]
    for i, part in enumerate(parts):
        text = "a,b,c\n" + "".join(",".join(map(repr, row)) + "\n" for row in part.tolist())
        made = stored(f"part-{i}.csv", partial(Path.write_text, data=text))
    names = [folder() / f"part-{i}.csv" for i in (2, 0)]
    for given, want in ((folder() / "part-*.csv", parts), (names, [parts[2], parts[0]])):
        found = pgas.read_csv(given, usecols=["c", "a"], type="{x}, {}")  # type: ignore[arg-type]
        if not np.array_equal(found.gather(), np.concatenate(want)[:, [2, 0]]):
            return f"{given}: {found.gather()}"
    said = refused(lambda: pgas.read_csv(folder() / "none-*.csv"))
    if "no file has such a name" not in said:
        return said
    other = stored("part-9.csv", lambda path: path.write_text("a,b\n1,2\n"))
    said = refused(lambda: pgas.read_csv([made, other]))
    return None if "that has ('a', 'b', 'c'), and this ('a', 'b')" in said else said


def columns_have_names() -> str | None:
    cases: dict[str, tuple[str, dict[str, Any], list[str]]] = {
        "plain": ("a, b ,c\n1,2,3\n", {}, ["a", "b", "c"]),
        "quoted": ('# no\n\n"a";"b; c"\n1;2\n', {"sep": ";"}, ["a", "b; c"]),
        "third line": ("made\nby me\nx,y\n1,2\n", {"header": 2}, ["x", "y"]),
        "numbers as names": ("1990,2000\n1,2\n", {"header": True}, ["1990", "2000"]),
    }
    for name, (text, options, want) in cases.items():
        path = stored(f"named {name}.csv", partial(Path.write_text, data=text))
        found = COMM.allgather(pgas.column_names(path, **options))
        if any(one != want for one in found):
            return f"{name}: {found}"
    packed = stored("names.csv.gz", lambda path: path.write_bytes(gzip.compress(b"p,q\n1,2\n")))
    if pgas.column_names([packed, packed]) != ["p", "q"]:
        return "packed"
    bare = stored("bare.csv", lambda path: path.write_text("1,2\n"))
    for work, words in (
        (lambda: pgas.column_names(bare), "choose its 2 columns by number, as in usecols=[0]"),
        (lambda: pgas.column_names(folder() / "nowhere.csv"), "No such file"),
        (lambda: pgas.column_names(bare, skiprows=2), "write header=N to skip N lines"),  # type: ignore[call-arg]
    ):
        if words not in (said := refused(work)):
            return said
    return None


def csv_errors_name_the_line() -> str | None:
    good = [f"{i},{i + 1},{i + 2}" for i in range(200)]
    ragged, long, letters = ([*good] for _ in range(3))
    ragged[150] = ragged[190] = "1,2"
    long[7] += ",9"
    letters[111] = "1,two,3"
    wanted: list[tuple[str, dict[str, Any], str]] = [
        ("a,b,c\n" + "\n".join(ragged), {}, "line 152 has 2 fields, the first line has 3"),
        ("\n".join(long), {}, "line 8 has 4 fields, the first line has 3"),
        (
            "\n\n" + "\n".join(letters),
            {},
            "line 114, column 2: 'two' is not a number; usecols= leaves the column out",
        ),
        (
            "1,2\n3,\n",
            {"dtype": int},
            "line 2, column 2: '' is missing, and int64 has no nan; dtype=float",
        ),
        ("1.5,2\n", {"dtype": int}, "line 1, column 1: '1.5' is no int64; dtype=float reads it"),
        ("a,b\n1,2\n# no\n\n3,?\n", {}, "line 5, column 2 ('b'): '?' is not a number; usecols="),
        (
            "a;b\n1;2\n",
            {},
            "line 2, column 1 ('a;b'): '1;2' is not a number; delimiter=';' parts it",
        ),
        (
            "a,b\n1;2\n",
            {},
            "line 2 has 1 field, the first line has 2; delimiter=';' parts it otherwise",
        ),
        ("a;b\n1,5;2\n", {"sep": ";"}, "'1,5' is not a number; decimal=',' reads it"),
        (
            'a,b\n1,"x\n y"\n3,4\n5,z\n',
            {"usecols": ["a", "b"]},
            "line 2, column 2 ('b'): 'x\\n y' is",
        ),
        ('a,b\n1,"x\n y"\nz,4\n', {"usecols": ["a"]}, "line 4, column 1 ('a'): 'z' is"),
        ('a,b\n1,"2\n3,4\n', {}, "a quote '\"' has no end; quote=None takes"),
        ("a,a\n1,2\n", {"usecols": ["a"]}, "several have that name"),
        ("1,2\n", {"delimiter": ",", "sep": ";"}, "are the same; give one"),
        ("1,2\n", {"decimal": ","}, "it needs another delimiter: sep=';', for example"),
        (
            "a;b,c\n1;2\n",
            {},
            "line 2 has 1 field, the first line has 2; with delimiter=';' they agree",
        ),
        (
            "s,n;p;q\n1,2;3;4\n",
            {"usecols": range(1, 4)},
            "it has 2, from 0 on; delimiter=';' parts it",
        ),
        (
            "s,n;p;q\n1,2;3;4\n",
            {"usecols": ["p"]},
            "('s', 'n;p;q'); delimiter=';' parts it otherwise",
        ),
        ("a,b\n1,2\n", {"usecols": slice(1)}, "cannot read columns slice("),
        ("1,2\n", {"usecols": len}, "by a function: they have no names; give their numbers"),
        ("a,b\n1,2\n", {"usecols": str.isdigit}, "usecols wants none of ('a', 'b')"),
        ("a,b\n1,2\n", {"usecols": {"a"}}, "need a name, a number, or a list of them"),
        ("a,b\n1,2\n", {"usecols": [1.5]}, "cannot read columns [1.5]"),
        ("a,b\n1,2\n", {"usecols": "ab"}, "cannot read column 'ab'"),
        (
            "a,b\n1,2\n",
            {"na_values": "?"},
            "cannot use na_values= in pgas.read_csv: write missing=",
        ),
        ("a,b\n1,2\n", {"nrows": 5}, "take a[:n]"),
        (
            "site,n,x,kind\nA,1,2,u\nB,3,4,v\nC,5,6,w\n",
            {},
            "usecols=['n', 'x'] leaves out the 2 columns of text: 'site', 'kind'",
        ),
        (
            "a,b,c,d,e,f,g,city\n" + "1,2,3,4,5,6,7,Oslo\n" * 5,
            {},
            "usecols=lambda name: name != 'city' leaves out the column of text: 'city'",
        ),
        (
            "a,b,c,d,e,f,g,city,k\n" + "1,2,3,4,5,6,7,Oslo,m\n" * 5,
            {},
            "usecols=lambda name: name not in ['city', 'k'] leaves out the 2 columns of text",
        ),
        (
            "1,2,3,4,5,6,7,Oslo\n" * 5,
            {"header": False},
            "usecols=[i for i in range(8) if i not in (7,)] leaves out the column of text: 7",
        ),
        (
            "a,b,c,d,e,f,g,city,k\n" + "1,2,3,4,5,6,7,Oslo,8\n" * 5,
            {"usecols": range(8)},
            "usecols=['a', 'b', 'c', 'd', 'e', 'f', 'g'] leaves out the column of text: 'city'",
        ),
        ("A,1\nB,2\nC,5\n", {"header": False}, "usecols=[1] leaves out the column of text: 0"),
        ("1,2\n", {"quote": "ab"}, "cannot use quote='ab'"),
        ("", {}, "it is empty"),
        ("\n# 1\n", {}, "it has blank lines and comments alone"),
        ("a,b\n1,2\n3,4\n", {"header": 9}, "it has 3 lines, and header=9 skips 9"),
        (
            "1,2\n",
            {"header": "yes"},
            "cannot use header='yes': need True, False or a number of lines",
        ),
        ("1,2\n", {"header": -1}, "cannot use header=-1: need True, False or a number of lines"),
        ("a,b\n1,2\n", {"usecols": ["c"]}, "it has ('a', 'b')"),
        ("1,2\n", {"usecols": ["c"]}, "its columns have no names"),
        ("1,2\n", {"usecols": [2]}, "cannot read column 2"),
        ("1,2\n", {"delimiter": "::"}, "cannot part fields by '::'"),
        ("1,2\n", {"dtype": object}, "need integers or floats"),
        ("1,2\n", {"type": "{x}"}, "1 dim, but the array has 2"),
    ]
    for number, (text, options, said) in enumerate(wanted):
        path = stored(f"bad{number}.csv", partial(Path.write_text, data=text))
        found = refused(partial(pgas.read_csv, path, **options))
        if said not in found:
            return f"{said!r}: {found}"
    array = stored("not_text.npy", lambda path: np.save(path, np.ones(3)))
    nothing = stored("nothing.npy", partial(Path.write_bytes, data=b""))
    others = [
        (pgas.read_csv, array, "it is a file of NumPy; pgas.read_npy reads it"),
        (
            pgas.read_npy,
            folder() / "bad0.csv",
            "it is not a file of NumPy; pgas.read_csv reads text",
        ),
        (pgas.read_npy, nothing, "it is empty"),
    ]
    for read, path, said in others:
        found = refused(partial(read, path))
        if said not in found:
            return f"{said!r}: {found}"
    missing = refused(lambda: pgas.read_csv(folder() / "missing.csv"))
    return None if "No such file" in missing else missing


def a_rank_that_sees_no_file_is_named() -> str | None:
    if SIZE == 1:
        return None
    path = stored("seen.npy", lambda path: np.save(path, np.ones((8, 2))))
    table = stored("seen.csv", lambda path: path.write_text("1,2\n" * 30))
    empty = stored("elsewhere", Path.mkdir)
    last, before = SIZE - 1, Path.cwd()
    os.chdir(empty if last == COMM.rank else folder())  # the same name, and another folder
    try:
        said = [
            refused(partial(pgas.read_npy, path.name)),
            refused(partial(pgas.read_csv, table.name)),
        ]
    finally:
        os.chdir(before)
    for found in said:
        if f"(rank {last})" not in found or "No such file" not in found:
            return found
    return None


def lines_are_cut_anywhere() -> str | None:
    """Every cut of a text gives each line to one range, in pieces of any length."""
    path = stored("cuts.txt", lambda path: path.write_bytes(b"a\nbcd\n\nef\n" + b"g" * 40 + b"\nh"))
    text = path.read_bytes()
    with path.open("rb") as file:
        for p in range(1, 9):
            cuts = [line_start(file, len(text) * i // p, 0, len(text)) for i in range(p + 1)]
            for most in (1, 3, 7, 100):
                got = [list(pieces(file, a, b, most)) for a, b in pairwise(cuts)]
                every = [piece for own in got for piece in own]
                if b"".join(every) != text:
                    return f"{p} ranges, {most} bytes: {got}"
                if not all(piece.endswith(b"\n") for piece in every[:-1]):
                    return f"{p} ranges, {most} bytes: a line is cut"
    return None


def all_is_tidied_up() -> str | None:
    COMM.barrier()
    if COMM.rank == 0:
        shutil.rmtree(folder())
    return None


CHECKED = (
    npy_files_are_numpys, npy_errors_are_one, shares_alone_are_read, csv_files_are_read_whole,
    packed_files_are_read, several_files_are_one,
    columns_have_names, csv_errors_name_the_line, a_rank_that_sees_no_file_is_named, lines_are_cut_anywhere,
    all_is_tidied_up,
)  # fmt: skip
CHECKS = tuple(check.__name__ for check in CHECKED)


def program() -> int:
    """0 if nothing is wrong."""
    return run_named({check.__name__: check for check in CHECKED})


if __name__ == "__main__":
    main(program)
