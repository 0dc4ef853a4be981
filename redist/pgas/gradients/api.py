"""Gradients of functions: of arrays, of programs, of functions that say how to go back themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

from redist.errors import ArgumentError, ArgumentTypeError, GradientError
from redist.pgas.creation import ones_like, zeros_like
from redist.pgas.gradients.cotangents import full
from redist.pgas.gradients.recorder import GradientRecorder, custom
from redist.pgas.gradients.rules import (  # noqa: F401  (they fill the table)
    elements,
    fourier,
    indexing,
    matrices,
    products,
    reducing,
    shapes,
)
from redist.pgas.gradients.rules.table import constant
from redist.pgas.kinds import is_float, number_kind
from redist.pgas.structures import found_in, replaced
from redist.pgas.tiles.arguments import kind_of_value, takes_any_array
from redist.pgas.tiles.arranging import arranging, asked, current_arranger
from redist.pgas.tiles.tiled import Tiled, tile_in

Argnums = int | Sequence[int]


def value_and_grad(
    function: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """**Local.** Make a function that returns the value of another one and its gradients.

    In an SPMD program::

        def loss(w, x, y):
            return pgas.mean((x @ w - y) ** 2)

        value, g = pgas.value_and_grad(loss)(w, x, y)
        w = w - 0.1 * g

    ``function`` must return one real number, as an array without dims; with ``has_aux``, a pair of it and
    anything else, and the result then has this pair in place of the value. ``argnums`` says by position with
    respect to which arguments to differentiate: arrays, or lists, dicts and so on of arrays, whose gradients
    have the same structure. If ``argnums`` is a tuple, so are the gradients. If ``function`` is a program
    (:func:`pgas.program`), so is the result.
    """
    return _gradient(function, "value_and_grad", argnums, has_aux)


def grad(
    function: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """**Local.** Make a function that returns the gradients of another one, as :func:`value_and_grad` does.

    With ``has_aux``, it returns a pair of the gradients and what the function returns beside its value. ::

        slope = pgas.grad(lambda x: pgas.sum(pgas.sin(x)))(x)      # cos(x), cut as x is
    """
    return _gradient(function, "grad", argnums, has_aux)


def _gradient(function: Any, what: str, argnums: Argnums, has_aux: bool) -> Callable[..., Any]:
    """What a program makes of itself by its method ``what``, or the same for a function."""
    _check_function(function)
    program: Callable[..., Callable[..., Any]] | None = getattr(function, what, None)
    if program is not None:
        return program(argnums, has_aux)
    return GradientFunction(function, argnums, has_aux, what == "value_and_grad")


def _check_function(function: Any) -> None:
    if not callable(function):
        raise ArgumentTypeError(f"cannot differentiate {kind_of_value(function)}: need a function")


class GradientFunction:
    """A function that gives the gradients of another one, ``__wrapped__``, perhaps behind its value."""

    def __init__(
        self, function: Callable[..., Any], argnums: Argnums, has_aux: bool, with_value: bool
    ) -> None:
        single = isinstance(argnums, int)
        self.places: tuple[int, ...] = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        if not self.places or any(
            isinstance(i, bool) or not isinstance(i, int) for i in self.places
        ):
            raise ArgumentTypeError(
                f"cannot differentiate by argnums={argnums!r}: need the number of an argument, or some"
            )
        self.is_single, self.has_aux, self.with_value = single, has_aux, with_value
        self.function = function
        update_wrapper(self, function)
        self.__name__ = f"gradient of {_name_of(function)}"

    def __call__(self, *args: Any, **options: Any) -> Any:
        """**Collective** as the function is. Run it, and go back through its calls."""
        name = _name_of(self.function)
        wanted = self._wanted(name, args)
        given, sources = _told_apart(args, wanted)
        recorder = GradientRecorder(current_arranger(), sources)
        with arranging(recorder):
            out = self.function(*given, **options)
        value, aux = _value_of(name, out, self.has_aux)
        owed = recorder.back({id(value): ones_like(value)})

        def gradient(x: Tiled) -> Any:
            if not is_float(x.dtype):
                raise GradientError(
                    f"cannot differentiate {name} by {x.type}: its values are no real or complex numbers"
                )
            g = owed.get(id(x))
            return zeros_like(x) if g is None else full(g, x.shape)

        found = tuple(replaced(given[i], (Tiled,), gradient) for i in wanted)
        slopes = found[0] if self.is_single else found
        if not self.with_value:
            return (slopes, aux) if self.has_aux else slopes
        return ((value, aux) if self.has_aux else value), slopes

    def _wanted(self, name: str, args: Sequence[Any]) -> tuple[int, ...]:
        """The places of the arguments by which the function is differentiated."""
        for i in self.places:
            if not -len(args) <= i < len(args):
                raise ArgumentError(
                    f"cannot differentiate {name} by argument {i}: {len(args)} were given by position"
                )
            arrays = found_in(args[i], (Tiled,))
            if not arrays:
                raise ArgumentTypeError(
                    f"cannot differentiate {name} by argument {i}: {kind_of_value(args[i])} has no global "
                    "array in it; make it one with pgas.asarray"
                )
            for x in arrays:
                if not is_float(x.dtype):
                    raise ArgumentTypeError(
                        f"cannot differentiate {name} by argument {i}: {x.type} has no real or complex "
                        "numbers; convert it with pgas.astype"
                    )
        return tuple(i % len(args) for i in self.places)

    def __repr__(self) -> str:
        return f"<{self.__name__}>"


def _name_of(function: Any) -> str:
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


def _told_apart(args: Sequence[Any], wanted: Sequence[int]) -> tuple[list[Any], list[Tiled]]:
    """**Local.** Arguments, with a copy of an array that is given twice; and the arrays in those wanted."""
    seen: set[int] = set()

    def apart(x: Any) -> Any:
        if id(x) in seen:
            return x.copy()
        seen.add(id(x))
        return x

    order = [*wanted, *(i for i in range(len(args)) if i not in wanted)]
    given = list(args)
    for i in dict.fromkeys(order):
        given[i] = replaced(args[i], (Tiled,), apart)
    return given, [x for i in dict.fromkeys(wanted) for x in found_in(given[i], (Tiled,))]


def _value_of(name: str, out: Any, has_aux: bool) -> tuple[Any, Any]:
    """The value to differentiate, and what is beside it."""
    aux = None
    if has_aux:
        if not (isinstance(out, (tuple, list)) and len(out) == 2):
            raise ArgumentTypeError(
                f"cannot differentiate {name} with has_aux: it gives {kind_of_value(out)}, not a pair of a "
                "value and something else"
            )
        out, aux = out
    if not isinstance(out, Tiled):
        raise ArgumentTypeError(
            f"cannot differentiate {name}: it gives {kind_of_value(out)}; let it give a global array "
            "without dims, and with has_aux anything else beside that"
        )
    if out.shape != () or number_kind(out.dtype) != "f":
        raise ArgumentError(
            f"cannot differentiate {name}: it gives {out.type}; let it give one real number, as by pgas.sum"
        )
    return out, aux


# What functions say of their own gradients.


def stop_gradient(x: Any, /) -> Any:
    """**Local.** Treat an array, or all arrays in lists, dicts and so on, as constant from here on.

    ``pgas.stop_gradient(x)`` has the same values as ``x``, and shares its memory.
    """
    return replaced(x, (Tiled,), _stopped)


@asked
@takes_any_array
def _stopped(x: Any, /) -> Any:
    return x.sharing(x.type, tile_in(x))


constant(_stopped)


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """**Local.** Let a function define its own gradient: it returns its result and a backward function.

    ::

        @pgas.custom_gradient
        def log1pexp(x):
            e = pgas.exp(x)
            return pgas.log1p(e), lambda g: g * (1 - 1 / (1 + e))

    The backward function is called with the cotangent of the result, and returns those of the arguments: one
    for each positional argument, or None where there is none. Calls made inside the function are not
    differentiated.
    """
    _check_function(function)
    return CustomGradient(function)


class CustomGradient:
    """A function that gives its result, and how its cotangent becomes those of the arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        update_wrapper(self, function)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """**Collective** as the function is."""
        name = _name_of(self.function)

        def checked(*args: Any, **options: Any) -> Any:
            out = self.function(*args, **options)
            if not (isinstance(out, tuple) and len(out) == 2 and callable(out[1])):
                raise ArgumentTypeError(
                    f"cannot use {name} with its own gradient: let it give a pair of its result and a "
                    "function of the result's cotangent"
                )
            return out

        return custom(current_arranger(), name, checked, args, options)[0]

    def __repr__(self) -> str:
        return f"<{_name_of(self.function)} with its own gradient>"
