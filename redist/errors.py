"""Every error of redist derives from :class:`RedistError`, so one ``except`` catches them all.

If the array API standard or NumPy names a built-in type for a mistake, the error derives from that too:
``except ValueError`` catches a :class:`ShapeError`.
"""

from __future__ import annotations

from numpy.linalg import LinAlgError


class RedistError(Exception):
    """Base of all errors raised on purpose by redist."""


class ParseError(RedistError):
    """Text that does not follow the notation; knows the character where it went wrong.

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
        """The text with a caret under the character."""
        return f"{self.text}\n{' ' * self.position}^"


class LayoutError(RedistError):
    """A mesh or an array type that cannot exist."""


class ConversionError(RedistError):
    """A conversion to or from another notation that would lose something."""


class StepError(RedistError):
    """A step that the typing rules refuse."""


class RequestError(RedistError):
    """A request that makes no sense as a whole: shapes differ, an unknown option."""


class CaptureError(RequestError):
    """Something that a program of global arrays cannot hold: it depends on values, or reaches outside."""


class GradientError(RequestError):
    """A gradient that cannot be taken: a function has none, or an array is changed in place."""


class ArgumentError(RequestError, ValueError):
    """An argument with a value that a function cannot use."""


class ArgumentTypeError(RequestError, TypeError):
    """An argument of a type or dtype that a function cannot use."""


class IndexKeyError(RequestError, IndexError):
    """An index that does not fit an array, or that cannot be one.

    >>> issubclass(IndexKeyError, IndexError) and issubclass(IndexKeyError, RedistError)
    True
    """


class ShapeError(ArgumentError):
    """Shapes of arrays that do not go together."""


class DimError(RequestError, ValueError, IndexError):
    """A dim that an array does not have, or one named twice."""


class MissingNameError(RedistError, AttributeError):
    """A name of NumPy's or of the standard that is not offered; says what to write instead."""


class WholeArrayError(RequestError, BufferError):
    """Somebody takes what a rank has of a global array for all of it."""


class MatrixError(RedistError, LinAlgError):
    """A matrix that a decomposition refuses: singular, or not positive definite."""


class TopologyError(RedistError):
    """A topology that cannot be read."""


class PlanFormatError(RedistError):
    """A stored plan that cannot be read."""


class CheckError(RedistError):
    """A plan that the checker rejects; names the step (None: the plan as a whole) and the reason."""

    def __init__(self, step: int | None, reason: str) -> None:
        self.step = step
        self.reason = reason
        where = "the plan" if step is None else f"step {step + 1}"
        super().__init__(f"{where} is rejected: {reason}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.step, self.reason)


class MemoryCheckError(RedistError):
    """A memory graph that the checker rejects; names the vertex (None: the whole graph) and the reason."""

    def __init__(self, vertex: int | None, reason: str) -> None:
        self.vertex = vertex
        self.reason = reason
        where = "the memory graph" if vertex is None else f"vertex {vertex} of the memory graph"
        super().__init__(f"{where} is rejected: {reason}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.vertex, self.reason)


class NoPlanError(RedistError):
    """No plan fits the limit; ``least_bytes`` is the least limit that would do."""

    def __init__(self, message: str, least_bytes: int) -> None:
        self.least_bytes = least_bytes
        super().__init__(message)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (str(self), self.least_bytes)


class TransferError(RedistError):
    """A transfer that cannot run, or that another rank ended."""


class PeerError(TransferError):
    """Another rank failed, died or did not come within the time limit; names the rank and why."""


class SpillError(RedistError):
    """Tiles that cannot be stored or read back: no room on the disk, or a read that ends too early."""


class ReadError(RedistError, OSError):
    """A file that cannot be read as an array: missing, cut off, or not of numbers."""


class WriteError(RedistError, OSError):
    """A file that cannot be written: no such folder, no permission, no room; what was there is as it was."""


class LaunchError(RedistError):
    """An MPI job that cannot be started: no mpirun, or one that is not known."""


class MemoryLimitError(RedistError):
    """What was asked for does not fit the memory limit of global arrays."""


class GatherWarning(UserWarning):
    """An expression brings much of an array onto every rank."""


def error_in_words(error: BaseException) -> str:
    """The kind of an error and what it says; the kind alone if it says nothing.

    >>> error_in_words(ValueError("too large")), error_in_words(KeyboardInterrupt())
    ('ValueError: too large', 'KeyboardInterrupt')
    """
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
