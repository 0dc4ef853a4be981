"""The seam to whoever plans layouts: while a program is captured, calls pass through an arranger.

A call has a form: what it does with which dims, if there is a rule for it. The arranger decides in which
types its operands lie when it runs, and in which one its result is made; without one, functions decide.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from redist.layout.array_type import ArrayType
from redist.pgas.memory import TileMemory
from redist.pgas.structures import mapped
from redist.pgas.tiles.tiled import Tiled

F = TypeVar("F", bound=Callable[..., Any])
Types = tuple[ArrayType, ...]


class EinForm(NamedTuple):
    """A call in extended Einstein notation: labels, their sizes, how elements are joined and aggregated."""

    notation: str
    sizes: Mapping[str, int]
    join: str
    agg: str = "sum"


class ChosenTypes(NamedTuple):
    """Types in which a call is done without moves: of its operands, and of its result."""

    wanted: Types
    made: ArrayType


@dataclass(frozen=True, slots=True, eq=False)
class ArrangedCall:
    """A call of a function of global arrays, while a program is captured. It keeps none of them.

    ``run(arrays, made)`` does it, as often as one likes; with ``made``, its operands lie in types of a plan
    and so will its result.
    ``choose`` gives the types that the function would choose, if it has a rule. A ``fixed`` call depends on
    the types that it is given, or changes an array: it is left alone.
    """

    name: str
    run: Callable[[Sequence[Tiled], ArrayType | None], Any]
    form: EinForm | None = None
    choose: Callable[[Types], ChosenTypes] | None = None
    key: Hashable = None
    fixed: bool = False
    only: Types | None = None
    """The types of its operands that it is written for, if it names them."""
    numbers: tuple[str, ...] = ()
    """Those that it is given, exactly: all ranks must give the same."""
    function: Any = None
    """Whose call it is: rules of gradients are found by it."""
    given: Any = ((), {})
    """What that was given, by position and by name, with places for arrays."""


class Arranger(Protocol):
    """Decides in which types calls are done, or looks on."""

    def wants(self, memory: TileMemory) -> bool:
        """Whether calls on arrays in such a memory are asked for, where they are not always."""

    def call(self, call: ArrangedCall, arrays: Sequence[Tiled]) -> Any:
        """What the call gives for these arrays."""

    def finish(self, result: Any, arrays: Sequence[Tiled]) -> None:
        """The program, which was given or reaches these arrays, has ended with this result."""


_ARRANGER: ContextVar[Arranger | None] = ContextVar("arranger", default=None)


current_arranger: Callable[[], Arranger | None] = _ARRANGER.get
"""**Local.** Who decides on layouts here; None if functions do. It is no more, as every call asks."""


@contextmanager
def arranging(arranger: Arranger | None) -> Iterator[None]:
    """**Local.** Let someone decide on layouts while a block runs."""
    token = _ARRANGER.set(arranger)
    try:
        yield
    finally:
        _ARRANGER.reset(token)


def label_dims(
    shapes: Sequence[Sequence[int]], labels: Sequence[Sequence[Hashable]], kept: Sequence[Hashable]
) -> tuple[str, dict[str, int]]:
    """Notation and sizes for operands with these labels; dims of size 1 that others stretch have their own.

    >>> label_dims([(4, 1), (4, 3)], ["ab", "ab"], "ab")
    ('ab,ac->ac', {'a': 4, 'b': 1, 'c': 3})
    """
    full: dict[Hashable, int] = {}
    for shape, own in zip(shapes, labels, strict=True):
        for label, n in zip(own, shape, strict=True):
            full[label] = n if full.get(label, 1) == 1 else full[label]
    letters = itertools.chain(string.ascii_letters, map(chr, itertools.count(0x100)))
    names: dict[Hashable, str] = {}
    sizes: dict[str, int] = {}
    terms = []
    for shape, own in zip(shapes, labels, strict=True):
        term = ""
        for label, n in zip(own, shape, strict=True):
            name = names.get(label) if n == full[label] else None
            if name is None:
                name = next(letters)
                sizes[name] = n
                if n == full[label]:
                    names[label] = name
            term += name
        terms.append(term)
    end = ""
    for label in kept:
        if label not in names:
            names[label] = next(letters)
            sizes[names[label]] = 1
        end += names[label]
    return f"{','.join(terms)}->{end}", sizes


def asked(function: F) -> F:
    """Let a function without a rule of its own pass through the arranger; its name says what it does."""
    return _through_arranger(function, fixed=False)


def left_alone(function: F) -> F:
    """Let a function be as it is in every plan: it depends on the types it is given, or changes an array."""
    return _through_arranger(function, fixed=True)


def _through_arranger(function: F, fixed: bool) -> F:
    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        arranger = _ARRANGER.get()
        if arranger is None:
            return function(*args, **options)
        return arranger.call(*call_of(function, args, options, fixed))

    called.calls = function  # type: ignore[attr-defined]
    return called  # type: ignore[return-value]


def call_of(
    function: Callable[..., Any],
    args: Sequence[Any],
    options: Mapping[str, Any],
    fixed: bool = False,
) -> tuple[ArrangedCall, list[Tiled]]:
    """A call of a function without a rule, and the arrays that it is given."""
    arrays: list[Tiled] = []
    slots = with_places((tuple(args), dict(options)), arrays)

    def run(given: Sequence[Tiled], made: ArrayType | None) -> Any:
        own, named = filled(slots, given)
        return function(*own, **named)

    shapes = tuple((x.shape, str(x.dtype), x.memory.on_device) for x in arrays)
    call = ArrangedCall(
        function.__name__, run, key=(function, _frozen(slots), shapes), fixed=fixed,
        numbers=numbers_in(slots), function=function, given=slots,
    )  # fmt: skip
    return call, arrays


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an array stands in the arguments of a call."""

    number: int


def with_places(thing: Any, arrays: list[Tiled]) -> Any:
    """The same arguments with places for global arrays, which are found, and copies of NumPy's.

    So they can be kept: no array is kept with them, and nobody else changes them.
    """

    def kept(one: Any) -> Any:
        if isinstance(one, Tiled):
            arrays.append(one)
            return _Place(len(arrays) - 1)
        return one.copy() if isinstance(one, np.ndarray) else one

    return mapped(thing, kept)


def numbers_in(thing: Any) -> tuple[str, ...]:
    """The numbers among arguments, in order, each as a text that others do not have.

    >>> numbers_in(((0.1, [2]), {"axis": True}, slice(None, np.float32(0.1))))
    ('0.1', '2', 'True', '0.10000000149011612')
    """
    match thing:
        case tuple() | list():
            return tuple(text for one in thing for text in numbers_in(one))
        case dict():
            return numbers_in(list(thing.values()))
        case slice():
            return numbers_in((thing.start, thing.stop, thing.step))
        case np.generic():
            return (repr(thing.item()),)
        case bool() | int() | float() | complex():
            return (repr(thing),)
    return ()


def filled(thing: Any, arrays: Sequence[Tiled]) -> Any:
    """Arguments with arrays in their places."""
    return mapped(thing, lambda one: arrays[one.number] if isinstance(one, _Place) else one)


def _frozen(thing: Any) -> Hashable:
    """A key for arguments: equal for what a function treats alike."""
    match thing:
        case tuple() | list():
            return type(thing).__name__, *map(_frozen, thing)
        case dict():
            return tuple((key, _frozen(one)) for key, one in thing.items())
        case slice():
            return "slice", _frozen(thing.start), _frozen(thing.stop), _frozen(thing.step)
        case bool() | int() | float() | complex() | str() | None | _Place():
            return type(thing).__name__, thing
    return id(thing)
