"""Every error of redist derives from :class:`RedistError`, so one ``except`` catches them all.

If the array API standard or NumPy raises a built-in exception for a mistake, the error derives from that
exception too: ``except ValueError`` catches a :class:`ShapeError`.
"""

from __future__ import annotations

from numpy.linalg import LinAlgError


class RedistError(Exception):
    """Base class of all errors that redist raises on purpose."""


class ParseError(RedistError):
    """Text that does not follow the notation; ``position`` is the index of the first wrong character.

    >>> e = ParseError("f32[8{x]", 7, "expected ',' or '}'")
    >>> print(e)
    cannot parse 'f32[8{x]': expected ',' or '}' at character 8 (']')
    >>> print(e.pointer())
    f32[8{x]
           ^
    """

    def __init__(self, text: str, position: int, reason: str) -> None:
        self.text = text
        self.position = position
        self.reason = reason
        found = f"({text[position]!r})" if position < len(text) else "(end of text)"
        super().__init__(f"cannot parse {text!r}: {reason} at character {position + 1} {found}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.text, self.position, self.reason)

    def pointer(self) -> str:
        """The text, with a caret under the first wrong character."""
        return f"{self.text}\n{' ' * self.position}^"


class LayoutError(RedistError):
    """A mesh or an array type that cannot exist."""


class ConversionError(RedistError):
    """A conversion to or from another notation that is not possible without loss."""


class StepError(RedistError):
    """A step that the typing rules do not allow."""


class RequestError(RedistError):
    """A request that makes no sense as a whole: for example, shapes that differ or an unknown option."""


class CaptureError(RequestError):
    """Code that a program of global arrays cannot capture: it depends on values, or reaches outside."""


class GradientError(RequestError):
    """A gradient that does not exist: a function has none, or an array is changed in place."""


class ArgumentError(RequestError, ValueError):
    """An argument whose value a function cannot use."""


class ArgumentTypeError(RequestError, TypeError):
    """An argument whose type or dtype a function cannot use."""


class IndexKeyError(RequestError, IndexError):
    """An index that does not fit the array, or that is not a valid index at all.

    >>> issubclass(IndexKeyError, IndexError) and issubclass(IndexKeyError, RedistError)
    True
    """


class ShapeError(ArgumentError):
    """Arrays whose shapes do not match."""


class DimError(RequestError, ValueError, IndexError):
    """A dim that the array does not have, or that is given twice."""


class MissingNameError(RedistError, AttributeError):
    """A name of NumPy or of the array API standard that redist does not have; says what to use instead."""


class WholeArrayError(RequestError, BufferError):
    """A rank's tile of a global array would be mistaken for the whole array."""


class MatrixError(RedistError, LinAlgError):
    """A matrix that cannot be decomposed: it is singular, or not positive definite."""


class TopologyError(RedistError):
    """A topology that cannot be read."""


class PlanFormatError(RedistError):
    """A stored plan that cannot be read."""


class CheckError(RedistError):
    """A plan that the checker rejects; has the step (None: the plan as a whole) and the reason."""

    def __init__(self, step: int | None, reason: str) -> None:
        self.step = step
        self.reason = reason
        where = "the plan" if step is None else f"step {step + 1}"
        super().__init__(f"{where} is rejected: {reason}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.step, self.reason)


class MemoryCheckError(RedistError):
    """A memory graph that the checker rejects; has the vertex (None: the whole graph) and the reason."""

    def __init__(self, vertex: int | None, reason: str) -> None:
        self.vertex = vertex
        self.reason = reason
        where = "the memory graph" if vertex is None else f"vertex {vertex} of the memory graph"
        super().__init__(f"{where} is rejected: {reason}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.vertex, self.reason)


class NoPlanError(RedistError):
    """No plan fits the limit; ``least_bytes`` is the smallest limit that would be enough."""

    def __init__(self, message: str, least_bytes: int) -> None:
        self.least_bytes = least_bytes
        super().__init__(message)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (str(self), self.least_bytes)


class TransferError(RedistError):
    """A transfer that cannot run, or that another rank ended."""


class PeerError(TransferError):
    """Another rank failed, died or did not arrive in time; the message names the rank and the reason."""


class SpillError(RedistError):
    """Tiles that cannot be spilled or read back: the disk is full, or a read ends too early."""


class ReadError(RedistError, OSError):
    """A file that cannot be read as an array: it is missing, truncated, or does not contain numbers."""


class WriteError(RedistError, OSError):
    """A file that cannot be written: no such folder, permission or room; an existing file is unchanged."""


class LaunchError(RedistError):
    """An MPI job that cannot be started or joined: for example, mpirun is missing or unknown."""


class MemoryLimitError(RedistError):
    """An operation that does not fit within the memory limit of global arrays."""


class GatherWarning(UserWarning):
    """An expression gathers a large part of an array onto every rank."""


def error_in_words(error: BaseException) -> str:
    """The class of an error and its message; the class alone if the message is empty.

    >>> error_in_words(ValueError("too large")), error_in_words(KeyboardInterrupt())
    ('ValueError: too large', 'KeyboardInterrupt')
    """
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
