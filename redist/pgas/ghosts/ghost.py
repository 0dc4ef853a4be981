"""A tile without bytes: NumPy's functions run on it, give further ones, and are noted on the tape."""

# ruff: noqa: D102  (methods do what NumPy's of the same name do)

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from redist.errors import CaptureError
from redist.pgas.ghosts.stand_ins import VIEWS, look_at, order_of, pretend
from redist.pgas.ghosts.tape import RETURN_IT, Ref, Tape, TaskKind
from redist.pgas.kinds import number_kind
from redist.pgas.ordering.lines import sort_lines
from redist.pgas.structures import found_in, replaced

AnyArray = NDArray[Any]


def _method(function: Callable[..., Any], **defaults: Any) -> Callable[..., Any]:
    """A method that calls a function of NumPy with all of its options."""

    def method(self: Ghost, axis: Any = None, **options: Any) -> Any:
        return function(self, **{**defaults, **options, "axis": axis})

    return method


class Ghost(NDArrayOperatorsMixin):
    """Looks like an array of NumPy with the strides of ``like``, whose elements must not be looked at.

    ``number`` is its place on the tape, ``root`` that of the memory which it is, or is a view of.
    """

    __slots__ = ("like", "number", "root", "tape")
    __array_priority__ = 100.0

    def __init__(self, like: AnyArray, tape: Tape, root: int | None = None) -> None:
        self.like, self.tape = like, tape
        self.number = tape.new_value()
        self.root = self.number if root is None else root
        tape.roots[self.number] = self.root
        tape.shapes[self.number] = like.shape
        tape.dtypes[self.number], tape.n_bytes[self.number] = like.dtype, like.nbytes

    # How it looks

    shape = property(operator.attrgetter("like.shape"))
    strides = property(operator.attrgetter("like.strides"))
    dtype = property(operator.attrgetter("like.dtype"))
    ndim = property(operator.attrgetter("like.ndim"))
    size = property(operator.attrgetter("like.size"))
    itemsize = property(operator.attrgetter("like.itemsize"))
    nbytes = property(operator.attrgetter("like.nbytes"))
    flags = property(operator.attrgetter("like.flags"))

    @property
    def T(self) -> Ghost:
        return self.transpose()

    @property
    def mT(self) -> Ghost:
        return self._view(np.matrix_transpose)

    @property
    def real(self) -> Any:
        return self._view(np.real) if number_kind(self.dtype) == "c" else self

    @property
    def imag(self) -> Any:
        return self._view(np.imag)

    def __len__(self) -> int:
        return len(self.like)

    def __repr__(self) -> str:
        return f"Ghost({self.dtype}, {self.shape})"

    # Views

    def _view(self, function: Callable[..., Any], *args: Any, **options: Any) -> Ghost:
        """A function that looks at no elements."""
        like = function(self.like, *args, **options)
        made = self.__class__(like, self.tape, self.root)
        self.tape.record(
            TaskKind.PURE, function, (Ref(self.number), *args), options, made.number, (self.root,)
        )
        return made

    def transpose(self, *axes: Any) -> Ghost:
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else (axes or None)
        return self._view(np.transpose, order)

    def swapaxes(self, a: int, b: int) -> Ghost:
        return self._view(np.swapaxes, a, b)

    def squeeze(self, axis: Any = None) -> Ghost:
        return self._view(np.squeeze, axis)

    def reshape(self, *shape: Any, copy: bool | None = None) -> Ghost:
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        try:
            self.like.reshape(sizes, copy=False)
        except ValueError:
            if copy is False:
                raise
            full = pretend(self.shape, np.uint8).reshape(sizes, copy=False).shape
            return note(self.tape, np.reshape, (self, tuple(full)), {}, pretend(full, self.dtype))
        return self._view(reshaped, sizes)

    def view(self, dtype: Any) -> Ghost:
        return self._view(_viewed_as, np.dtype(dtype))

    def ravel(self) -> Ghost:
        return self.reshape(-1)

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        if not any(isinstance(one, (np.ndarray, list, Ghost)) for one in keys):
            like = self.like[(*keys, ...) if Ellipsis not in keys else keys]
            scalar = like.ndim == 0 and self.ndim > 0
            made = self.__class__(like, self.tape, self.root)
            given = (Ref(self.number), key)
            self.tape.record(
                TaskKind.PURE, operator.getitem, given, {}, made.number, (self.root,), (), scalar
            )
            return made
        if any(_is_truth(one) for one in keys):
            self.tape.refuse(f"how many elements are taken depends on values; {RETURN_IT}")
        small = np.broadcast_to(np.zeros((), np.uint8), self.shape)
        asked = tuple(
            np.zeros(one.shape, np.int64) if isinstance(one, Ghost) else one for one in keys
        )
        shape = small[asked].shape
        return note(self.tape, operator.getitem, (self, key), {}, pretend(shape, self.dtype))

    # Functions

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "__call__":
            return call(ufunc, inputs, options)
        if method == "at":
            return write(getattr(ufunc, method), inputs, options, inputs[0])
        if method not in ("accumulate", "reduce"):
            return NotImplemented
        return call(getattr(ufunc, method), inputs, options, ufunc)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any], options: dict[str, Any]
    ) -> Any:
        if function is np.copyto:
            return write(function, args, options, args[0])
        if function is np.shape:
            return self.shape
        if function is np.ndim:
            return self.ndim
        if function is np.reshape:
            return self.reshape(*args[1:], **options)
        if function is np.may_share_memory:
            first, second = (one.root if isinstance(one, Ghost) else None for one in args[:2])
            return first is not None and first == second
        if function is np.iscomplexobj:
            return number_kind(self.dtype) == "c"
        if function is np.split:
            return _split(self, *args[1:], **options)
        return call(function, args, options)

    def astype(self, dtype: Any, copy: bool = True) -> Ghost:
        if np.dtype(dtype) == self.dtype and not copy:
            return self
        like = pretend(self.shape, dtype, order_of(self.like))
        return note(self.tape, np.astype, (self, np.dtype(dtype)), {"copy": copy}, like)

    def copy(self) -> Ghost:
        return note(self.tape, np.copy, (self,), {"order": "C"}, pretend(self.shape, self.dtype))

    def conj(self) -> Any:
        return np.conjugate(self)

    def take(
        self, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise"
    ) -> Any:
        options = {"axis": axis} | ({} if mode == "raise" else {"mode": mode})  # CuPy has none
        if out is not None:
            return write(np.take, (self, indices), {**options, "out": out}, out)
        small = np.broadcast_to(np.zeros((), np.uint8), self.shape)
        asked = np.zeros(indices.shape, np.int64) if isinstance(indices, Ghost) else indices
        like = pretend(small.take(asked, axis, mode="clip").shape, self.dtype)
        return note(self.tape, np.take, (self, indices), options, like)

    sum = _method(np.sum, axis=None, dtype=None, keepdims=False)
    prod = _method(np.prod, axis=None, dtype=None, keepdims=False)
    max = _method(np.max, axis=None, keepdims=False)
    min = _method(np.min, axis=None, keepdims=False)
    any = _method(np.any, axis=None, keepdims=False)
    all = _method(np.all, axis=None, keepdims=False)
    argmin = _method(np.argmin, axis=None, keepdims=False)
    argmax = _method(np.argmax, axis=None, keepdims=False)
    cumsum = _method(np.cumsum, axis=None, dtype=None)

    # Writes

    def __setitem__(self, key: Any, value: Any) -> None:
        write(operator.setitem, (self, key, value), {}, self)

    def fill(self, value: Any) -> None:
        write(_fill, (self, value), {}, self)

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        write(sort_lines, (self, axis, kind), {}, self)

    # Values

    def _refuse(self, *args: Any, **options: Any) -> Any:
        self.tape.refuse(f"a value is not known before the program runs; {RETURN_IT}")

    __bool__ = __int__ = __float__ = __complex__ = __index__ = __iter__ = __array__ = _refuse
    __contains__ = item = tolist = tobytes = nonzero = __buffer__ = __dlpack__ = _refuse


class DeviceGhost(Ghost):
    """A ghost of a tile on a GPU: taken for an array of one wherever that is asked."""

    __slots__ = ()

    @property
    def __cuda_array_interface__(self) -> Any:
        self._refuse()


def reshaped(tile: Any, shape: Any) -> Any:
    """A view in another shape: that there is one is known."""
    return tile.reshape(shape)


def _is_truth(one: Any) -> bool:
    return isinstance(one, Ghost) and number_kind(one.dtype) == "b"


def _fill(tile: AnyArray, value: Any) -> None:
    tile.fill(value)


def _viewed_as(tile: AnyArray, dtype: Any) -> AnyArray:
    return tile.view(dtype)


def _split(x: Ghost, where: Any, axis: int = 0) -> list[Any]:
    n = x.shape[axis]
    ends = [n * k // where for k in range(1, where)] if isinstance(where, int) else list(where)
    edges = [0, *ends, n]
    before = (slice(None),) * (axis % x.ndim)
    return [x[(*before, slice(a, b))] for a, b in itertools.pairwise(edges)]


def likes_of(thing: Any) -> Any:
    """The same structure with what ghosts look like in their places."""
    return replaced(thing, (Ghost,), lambda ghost: ghost.like)


def refs_of(thing: Any, found: list[Ghost]) -> Any:
    """The same structure with numbers in the places of ghosts, which are found; other arrays copied."""

    def change(one: Any) -> Any:
        if isinstance(one, np.ndarray):
            return one.copy()
        found.append(one)
        return Ref(one.number)

    return replaced(thing, (Ghost, np.ndarray), change)


def call(
    function: Callable[..., Any],
    args: Sequence[Any],
    options: Mapping[str, Any],
    ufunc: np.ufunc | None = None,
) -> Any:
    """Note a call of a function of NumPy; ``ufunc`` if it is a method of one."""
    out = options.get("out")
    if isinstance(out, tuple) and len(out) == 1:
        out = out[0]
        options = {**options, "out": out}
    if isinstance(out, Ghost):
        return write(function, args, options, out)
    ghosts = found_in((args, dict(options)), (Ghost,))
    looks_like = function if ufunc is None else _method_of(ufunc, function)
    try:
        like = look_at(looks_like, likes_of(list(args)), likes_of(dict(options)))
    except CaptureError as problem:
        ghosts[0].tape.refuse(
            f"what it gives is not known without values ({problem}); call it outside"
        )
    root = ghosts[0].root if function in VIEWS else None
    return note(ghosts[0].tape, function, args, options, like, root)


def _method_of(ufunc: np.ufunc, method: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose result looks like that of a method of a ufunc."""
    if method.__name__ == "accumulate":
        return np.cumprod if ufunc is np.multiply else np.cumsum
    return np.prod if ufunc is np.multiply else np.sum


def note(
    tape: Tape,
    function: Callable[..., Any],
    args: Sequence[Any],
    options: Mapping[str, Any],
    like: Any,
    root: int | None = None,
    kind: type[Ghost] | None = None,
) -> Any:
    """Note a call whose result looks so; the ghosts that it gives: as operands are, or of a kind."""
    ghosts: list[Ghost] = []
    refs, named = refs_of((tuple(args), dict(options)), ghosts)
    reads = [one.root for one in ghosts]
    if kind is None:
        kind = DeviceGhost if any(isinstance(one, DeviceGhost) for one in ghosts) else Ghost
    if isinstance(like, list):
        whole = tape.new_value()
        tape.record(TaskKind.PURE, function, refs, named, whole, reads)
        made = []
        for at, one in enumerate(like):
            part, taken = kind(one, tape), (Ref(whole), at)
            scalar = one.ndim == 0
            tape.record(TaskKind.PURE, operator.getitem, taken, {}, part.number, reads, (), scalar)
            made.append(part)
        return made
    result = kind(like, tape, root)
    scalar = like.ndim == 0
    tape.record(TaskKind.PURE, function, refs, named, result.number, reads, (), scalar)
    return result


def write(
    function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any], into: Any
) -> Any:
    """Note a call that writes into a ghost; it."""
    if not isinstance(into, Ghost):
        first = found_in((args, dict(options)), (Ghost,))[0]
        first.tape.refuse("it would change an array that is not part of the program")
    ghosts: list[Ghost] = []
    refs, named = refs_of((tuple(args), dict(options)), ghosts)
    reads = [one.root for one in ghosts]
    into.tape.record(TaskKind.WRITE, function, refs, named, None, reads, (into.root,))
    return into
