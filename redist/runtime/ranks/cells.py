"""A rank of ``redist.launch``: runs the cells and functions that the notebook sends, until it ends."""

from __future__ import annotations

import ast
import io
import linecache
import pickle
import signal
import socket
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from redist.errors import RedistError
from redist.launch.local import Raised, receive, send
from redist.runtime.ranks.joining import join


class Shown(io.TextIOBase):
    """Text that goes to the notebook, in whole lines."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._line = sock, ""

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Send what ends a line; keep the rest."""
        whole, newline, rest = (self._line + text).rpartition("\n")
        self._line = rest
        if newline:
            send(self._sock, ("out", whole + newline))
        return len(text)

    def finish(self) -> None:
        """Send what has no end of line."""
        if self._line:
            send(self._sock, ("out", self._line))
            self._line = ""


def run_cell(text: str, name: str, names: dict[str, Any]) -> None:
    """Run a cell, and print its last line if that is an expression."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    tree = ast.parse(text, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), name, "eval"), names)
        if value is not None:
            print(repr(value))


def answer(question: Any, names: dict[str, Any]) -> Any:
    """What a cell or a function comes to."""
    match question:
        case ("cell", text, name):
            return run_cell(text, name, names)
        case ("source", text, name, args, options):
            file = f"<{name}>"
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
            exec(compile(text, file, "exec"), names)
            return names[name](*args, **options)
        case ("call", function, args, options):
            return function(*args, **options)
    raise ValueError(question)


def raised(error: BaseException) -> Raised:
    """An error as the notebook is told of it; the traceback begins in the cell."""
    where = error.__traceback__
    while where and where.tb_frame.f_code.co_filename == __file__:
        where = where.tb_next
    lines = traceback.format_exception(type(error), error, where)
    return Raised(type(error).__name__, str(error), "".join(lines) if where else "")


def serve(sock: socket.socket) -> None:
    """Join the job of the notebook, and answer its questions until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    rank, size, ticket, timeout_s = receive(sock)
    try:
        comm = join(rank, size, at=ticket, timeout_s=timeout_s)
    except RedistError as error:
        send(sock, ("done", raised(error)))
        return
    send(sock, ("done", None))
    names: dict[str, Any] = {"__name__": "__main__", "comm": comm}
    while True:
        try:
            question = receive(sock)
        except EOFError:
            return
        except Exception as error:  # a function whose module is not here
            send(sock, ("done", raised(error)))
            continue
        if question == ("end",):
            return
        send(sock, ("done", _answer_and_show(question, names, Shown(sock))))


def _answer_and_show(question: Any, names: dict[str, Any], shown: Shown) -> Any:
    """The answer, or what was raised; what is printed meanwhile is shown."""
    with redirect_stdout(shown), redirect_stderr(shown):
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            value = answer(question, names)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            pickle.dumps(value)
        except BaseException as error:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            value = raised(error)
    shown.finish()
    return value


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
