"""Scripts for the compiled kernels: operations, and where a run stands, as structures of kernels.h."""

from __future__ import annotations

import ctypes
from enum import IntEnum

OperationRows = tuple[int, int]
"""Address and number of the rows of a list of copies."""

_INT, _WORD, _POINTER = ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p

OperationKind = IntEnum("OperationKind", "COPY READ COMBINE DESCRIBE CHECK MEET PAUSE", start=0)
"""Kinds of operations, as in kernels.h."""


class _Copy(ctypes.Structure):
    _fields_ = (("moves", _POINTER), ("n_moves", _INT), ("is_ahead", _INT), ("streams", _INT))


class _Read(ctypes.Structure):
    _fields_ = (("moves", _POINTER), ("n_moves", _INT), ("pid", _INT))


class _Combine(ctypes.Structure):
    _fields_ = (("moves", _POINTER), ("n_moves", _INT), ("code", _INT))


class Description(ctypes.Structure):
    """Where something is described, for even and odd meetings, and the bytes that describe it."""

    _fields_ = (("even", _POINTER), ("odd", _POINTER), ("bytes", _POINTER), ("n_bytes", _INT))


class _Meet(ctypes.Structure):
    _fields_ = (("word", _WORD), ("words", _POINTER))


class _Details(ctypes.Union):
    _fields_ = (
        ("copy", _Copy),
        ("read", _Read),
        ("combine", _Combine),
        ("description", Description),
        ("meet", _Meet),
    )


class Operation(ctypes.Structure):
    """One operation; ``tables`` is the address of two tables of base addresses.

    >>> Operation.meet_with(7).details.meet.word
    7
    """

    _fields_ = (("kind", _INT), ("tables", _POINTER), ("details", _Details))
    kind: int
    details: _Details

    @classmethod
    def copy(cls, rows: OperationRows, tables: int, *, is_ahead: bool, streams: bool) -> Operation:
        """Copy; if ``is_ahead``, between the buffers of the coming meeting."""
        return cls(OperationKind.COPY, tables, _Details(copy=_Copy(*rows, is_ahead, streams)))

    @classmethod
    def read(cls, rows: OperationRows, tables: int, pid: int) -> Operation:
        """Copy out of the memory of process ``pid``."""
        return cls(OperationKind.READ, tables, _Details(read=_Read(*rows, pid)))

    @classmethod
    def combine(cls, rows: OperationRows, tables: int, code: int) -> Operation:
        """Combine sources into destinations; ``code`` names dtype and reduction."""
        return cls(OperationKind.COMBINE, tables, _Details(combine=_Combine(*rows, code)))

    @classmethod
    def describe(cls, description: Description) -> Operation:
        """Write a description where the coming meeting reads it."""
        return cls(OperationKind.DESCRIBE, None, _Details(description=description))

    @classmethod
    def check(cls, description: Description) -> Operation:
        """End the script if something else is described now."""
        return cls(OperationKind.CHECK, None, _Details(description=description))

    @classmethod
    def meet_with(cls, word: int = 0, words: int | None = None) -> Operation:
        """Meet and say ``word``; all should say the same, or what stands at the address ``words``."""
        return cls(OperationKind.MEET, None, _Details(meet=_Meet(word, words)))

    @classmethod
    def pause(cls) -> Operation:
        """Let Python meet ranks of other nodes."""
        return cls(OperationKind.PAUSE, None, _Details())


class Script(ctypes.Structure):
    """A script and where it stands: next operation, whether its meeting was entered, last meeting."""

    _fields_ = (
        ("at", _INT),
        ("entered", _INT),
        ("seq", _WORD),
        ("operations", _POINTER),
        ("n_operations", _INT),
        ("control", _POINTER),
        ("n", _INT),
        ("me", _INT),
        ("wait_ns", _INT),
    )
    at: int
    entered: int
    seq: int
