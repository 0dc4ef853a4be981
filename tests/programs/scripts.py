"""A program as users write it, run as ``python`` runs it, but in a job that runs others too.

``examples/heat.py`` is a file, ``README.md:shares.py`` a program that a page shows; after it comes what rank
0 must print, which may be empty. As in
``mpirun -n 2 python -m tests.programs.several scripts examples/heat.py "heat: 37 x 37" --n 37``.
"""

from __future__ import annotations

import gc
import os
import runpy
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

from mpi4py import MPI

from tests.docs.documents import DOCUMENTS
from tests.programs.together import all_well, main, meet

ROOT = Path(__file__).resolve().parents[2]
COMM = MPI.COMM_WORLD


def checks_on(ranks: int, args: Sequence[str]) -> tuple[str, ...]:
    """The program itself is all that is checked."""
    return (args[0],)


@contextmanager
def file_of(name: str) -> Iterator[Path]:
    """**Collective.** The file of a program, in a folder of its own if a page shows it."""
    page, found, program = name.partition(":")
    if not found:
        yield ROOT / name
        return
    folder = Path(COMM.bcast(tempfile.mkdtemp() if COMM.rank == 0 else None))
    if COMM.rank == 0:
        (document,) = (one for one in DOCUMENTS if one.name == page)
        for file, text in document.files.items():
            (folder / file).write_text(text, encoding="utf-8")
    meet(COMM)
    try:
        yield folder / program
    finally:
        meet(COMM)
        if COMM.rank == 0:
            shutil.rmtree(folder)


def run(path: Path, said: str) -> str | None:
    """Why it does not end well, or does not say what it should."""
    printed = StringIO()
    try:
        with redirect_stdout(printed):
            runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        if end.code:
            return f"status {end.code}"
    except Exception:
        return traceback.format_exc()
    if COMM.rank == 0 and said not in printed.getvalue():
        return f"it prints {printed.getvalue()[-2000:]!r}"
    return None


def program() -> int:
    """0 if the program ends well on all ranks."""
    name, said, *args = sys.argv[1:]
    before = os.getcwd()
    with file_of(name) as path:
        sys.argv = [str(path), *args]
        if path.parent != ROOT / "examples":
            os.chdir(path.parent)
        wrong = run(path, said)
        os.chdir(before)
        gc.collect()
    return int(not all_well(COMM, name, wrong))


if __name__ == "__main__":
    main(program)
