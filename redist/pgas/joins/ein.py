"""The extended Einstein summation: any join of elements, then a sum, product, maximum or minimum."""

from __future__ import annotations

import dis
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError, RequestError
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.pgas.elementwise import binary, unary
from redist.pgas.joins.ein_kernel import REDUCTIONS, EinKernel
from redist.pgas.joins.trace_join import Join, trace_join, trace_known_join
from redist.pgas.kinds import computing, number_kind
from redist.pgas.memory import round_to_grains
from redist.pgas.products.contract_layout import (
    NamedLabels,
    Product,
    check_sizes,
    label_operands,
    place,
    place_within,
    read_labels,
)
from redist.pgas.products.einsum import sum_products
from redist.pgas.products.streaming import choose_stream, paired_blocks
from redist.pgas.reductions.named import grown_dtype
from redist.pgas.reductions.reduce import rounded_once
from redist.pgas.tiles.arguments import check_arrays
from redist.pgas.tiles.arranging import (
    ArrangedCall,
    ChosenTypes,
    EinForm,
    current_arranger,
    with_places,
)
from redist.pgas.tiles.budget import require_room
from redist.pgas.tiles.devices import check_alike
from redist.pgas.tiles.layouts import dtype_of
from redist.pgas.tiles.move import move
from redist.pgas.tiles.select import new_tile
from redist.pgas.tiles.tiled import T, Tiled

# Functions of Python that do the same in every call: what they do is found out once.


MODULES = ("numpy", "redist.pgas")
"""Modules that a function may name: what they hold does not change."""
BUILT_IN = ("abs", "pow", "round")


@dataclass(frozen=True, slots=True)
class FixedJoin:
    """A function that its code and the modules that it names say all about."""

    code: CodeType
    modules: tuple[str, ...]
    function: Callable[..., Any] = field(compare=False)

    def __call__(self, *elements: Any) -> Any:
        """What the function gives."""
        return self.function(*elements)


def as_fixed(function: Callable[..., Any]) -> FixedJoin | None:
    """**Local.** The function as one that does the same in every call; None if that is not known.

    Written again in a later call, as ``lambda`` is, it equals itself.

    >>> square, factor = (lambda: lambda a, b: (a - b) ** 2), 3.0
    >>> as_fixed(square()) == as_fixed(square()), as_fixed(lambda a: a * factor)
    (True, None)
    """
    if not isinstance(function, FunctionType) or function.__closure__ or function.__defaults__:
        return None
    code = function.__code__
    names = _names_outside(code)
    if function.__kwdefaults__ or names is None:
        return None
    modules = []
    for name in names:
        thing = function.__globals__.get(name)
        if isinstance(thing, ModuleType) and thing.__name__ in MODULES:
            modules.append(f"{name} is {thing.__name__}")
        elif thing is not None or name not in BUILT_IN:
            return None
    return FixedJoin(code, tuple(modules), function)


@lru_cache(maxsize=512)
def _names_outside(code: CodeType) -> tuple[str, ...] | None:
    """The names that code looks up outside itself; None if it has other code in it, or writes names."""
    if any(isinstance(one, CodeType) for one in code.co_consts):
        return None
    found: dict[str, None] = {}
    for step in dis.get_instructions(code):
        if step.opname.startswith(("STORE_GLOBAL", "STORE_NAME", "IMPORT", "STORE_ATTR")):
            return None
        if step.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME")):
            found[str(step.argval)] = None
    return tuple(found)


# Joins by name, by a function of NumPy or of ``pgas``, and what they are of this many operands.


FOLDED = (
    "add", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor",
    "maximum", "minimum", "multiply", "subtract",
)  # fmt: skip
"""Functions of two operands that join any number: the first two, then the result and the third, and so on."""


def _copy(x: Any) -> Any:
    return x


NAMES: dict[str, tuple[Callable[..., Any], int]] = {
    "copy": (_copy, 1),
    **{name: (getattr(unary, name), 1) for name in unary.__all__},
    **{name: (getattr(binary, name), 2) for name in binary.__all__},
}
"""Every join that has a name, and of how many operands it is."""


def find_join(what: str, join: Any, n_operands: int) -> tuple[Callable[..., Any], bool]:
    """**Local.** The function that joins this many operands; whether it does the same in every call.

    ``what`` begins an error, after "cannot".

    >>> find_join("join", "multiply", 3)[1], find_join("join", lambda a, b: a - b, 2)[1]
    (True, True)
    """
    if isinstance(join, str):
        if join not in NAMES:
            raise ArgumentError(
                f"cannot {what}: no join is called {join!r}; use a name of an element-wise function, as "
                "'multiply' or 'subtract', or a function of the operands' elements"
            )
        return _of_operands(what, join, n_operands), True
    if isinstance(join, np.ufunc):
        if join.__name__ in FOLDED:
            return _of_operands(what, join.__name__, n_operands), True
        if join.signature is not None or (join.nin, join.nout) != (n_operands, 1):
            raise ArgumentError(
                f"cannot {what}: numpy.{join.__name__} does not join {n_operands} elements into one"
            )
        return join, True
    if not callable(join):
        raise ArgumentTypeError(
            f"cannot {what}: the join is {type(join).__name__}, not a function or a name of one"
        )
    for name, (function, _) in NAMES.items():
        if join is function:
            return _of_operands(what, name, n_operands), True
    fixed = as_fixed(join)
    return (join, False) if fixed is None else (fixed, True)


def _of_operands(what: str, name: str, n_operands: int) -> Callable[..., Any]:
    function, n = NAMES[name]
    if name in FOLDED:
        return _folded(function)
    if n != n_operands:
        raise ArgumentError(
            f"cannot {what}: {name} joins {n} operand{'s' * (n > 1)}, not {n_operands}"
        )
    return function


@lru_cache(maxsize=64)
def _folded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of two as a function of any number."""
    return lambda *elements: reduce(function, elements)


def ein(
    subscripts: str, /, *operands: T, join: str | Callable[..., Any] = "multiply", agg: str = "sum"
) -> T:
    """**Collective** if operands must move. Join elements, then aggregate over labels missing in the result.

    >>> import redist
    >>> from redist import pgas
    >>> def far(points, centres):
    ...     return pgas.ein("ik,jk->ij", points, centres, join=lambda a, b: (a - b) ** 2)
    >>> found = redist.explain(far, "f64[4096, 64{x}]", "f64[8, 64{x}]", mesh=redist.Mesh(x=4))
    >>> found.nodes[0].type, found.received_bytes
    ('f64[4096, 8] sum{x}', 0)

    ``join`` is a function of one element of each operand, written with operators and element-wise functions,
    or one of these functions itself, or its name; ``agg`` is ``"sum"``, ``"prod"``, ``"max"`` or ``"min"``.
    The array of all joined elements never exists as a whole: it is made and aggregated in blocks. Sums of
    products are contracted as in :func:`einsum`. An aggregated label that is cut gives a pending reduction.
    Joined elements have the dtype that NumPy's functions give; sums and products of them have the dtype that
    :func:`sum` gives.
    """
    what = f"ein {subscripts!r}"
    _check(what, subscripts, operands, agg)
    inputs, output = read_labels(what, subscripts, tuple(x.ndim for x in operands))
    sizes = check_sizes(what, [x.shape for x in operands], inputs)
    gone = [label for label in sizes if label not in output]
    joined, dtype = _traced(what, join, operands)
    if agg in ("max", "min") and gone:
        if number_kind(dtype) == "c":
            raise ArgumentTypeError(
                f"cannot {what}: values of {dtype} have no {agg}; join them to real ones"
            )
        if 0 in (sizes[one] for one in gone) and 0 not in (sizes[one] for one in output):
            empty = next(one for one in gone if sizes[one] == 0)
            raise ArgumentError(
                f"cannot {what}: there is no {agg} of nothing, and {empty!r} has size 0; leave it out"
            )
    result = grown_dtype(dtype) if gone and agg in ("sum", "prod") else dtype
    items = label_operands(operands, inputs)
    if gone and agg == "sum" and joined.is_product and result == dtype:
        return sum_products(items, output)
    labels = tuple(own for _, own in items)
    wide = computing(result) if gone and agg in ("sum", "prod") else result
    join_of = BlockedEin(what, joined, labels, dtype_of(wide), output, agg)
    out = join_of([x for x, _ in items])
    return out if wide == result else rounded_once(out, result)


def _check(what: str, subscripts: Any, operands: tuple[Any, ...], agg: Any) -> None:
    """Raise if arguments are no labels, no arrays that belong together, or no aggregation."""
    if not isinstance(subscripts, str):
        raise ArgumentTypeError(
            f"cannot ein {type(subscripts).__name__}: the labels come first, as text"
        )
    if "->" not in subscripts:
        raise ArgumentError(
            f"cannot {what}: it does not say what is kept; end it with '->' and the result's labels"
        )
    if not operands:
        raise ArgumentError(f"cannot {what} of nothing: give an array for every term")
    check_arrays(what, *operands)
    check_alike(what, *operands)
    first = operands[0]
    for x in operands[1:]:
        if x.comm != first.comm or x.mesh != first.mesh:
            raise RequestError(
                f"cannot {what} of arrays on {first.mesh} and on {x.mesh}: "
                "bring them to one mesh with .to(type)"
            )
    if not isinstance(agg, str) or agg not in REDUCTIONS:
        raise ArgumentError(
            f"cannot {what}: no aggregation is called {agg!r}; use {', '.join(REDUCTIONS)}"
        )


def _traced(what: str, join: Any, operands: tuple[Tiled, ...]) -> tuple[Join, np.dtype[Any]]:
    function, is_known = find_join(what, join, len(operands))
    dtypes = tuple(x.dtype for x in operands)
    trace = trace_known_join if is_known else trace_join
    return trace(what, function, dtypes, operands[0].memory.on_device)


@dataclass(frozen=True, slots=True)
class BlockedEin:
    """A join of elements and what is done with labels that the result lacks; called with its operands."""

    what: str
    join: Join
    labels: tuple[NamedLabels, ...]
    dtype: DType
    output: NamedLabels
    agg: str

    def __call__(self, arrays: Sequence[T]) -> T:
        """**Collective** if operands must move. Bring operands together; let the kernel work on the tiles."""
        first, what = arrays[0], self.what
        if (arranger := current_arranger()) is not None and arranger.wants(first.memory):
            return arranger.call(self._arranged(arrays), arrays)
        product = self._product(tuple(x.type for x in arrays), first.memory.on_device)
        kernel = EinKernel(self.join, self.labels, self.output, self.agg)
        found = place_within(first, product, place(product))
        if first.memory.limit_bytes is not None:
            moved = (end for x, end in zip(arrays, found.operands, strict=True) if x.type != end)
            needed = sum(round_to_grains(t.tile_bytes) for t in (*moved, found.result))
            require_room(first, what, needed + kernel.work_bytes(first.memory.on_device))
        streamed = choose_stream(product, found) if len(arrays) == 2 else None
        if streamed is not None:
            out = new_tile(first, found.result)
            for x, y in paired_blocks(first, arrays[1], product, found, *streamed):
                if out is not None:
                    first.memory.write(kernel, out, x, y)
                kernel = replace(kernel, adds=True)
            return first.new(found.result, out)
        there = [move(x, end) for x, end in zip(arrays, found.operands, strict=True)]
        return self._run_in(there, found.result)

    def _product(self, types: tuple[ArrayType, ...], on_device: bool) -> Product:
        return Product(
            types, self.labels, self.output, self.dtype, self.agg, "each join", on_device
        )

    def _run_in(self, arrays: Sequence[T], result: ArrayType) -> T:
        """**Local.** Work on the tiles of arrays that lie so that the result is of this type."""
        first = arrays[0]
        out = new_tile(first, result)
        if out is not None:
            kernel = EinKernel(self.join, self.labels, self.output, self.agg)
            first.memory.write(kernel, out, *(x.tile for x in arrays))
        return first.new(result, out)

    def _arranged(self, arrays: Sequence[Tiled]) -> ArrangedCall:
        """The call as a plan sees it."""
        on_device = arrays[0].memory.on_device
        node = self._product(tuple(x.type for x in arrays), on_device).node

        def choose(types: tuple[ArrayType, ...]) -> ChosenTypes:
            found = place(self._product(types, on_device))
            return ChosenTypes(found.operands, found.result)

        def run(given: Sequence[Any], made: ArrayType | None) -> Any:
            return self(given) if made is None else self._run_in(given, made)

        form = EinForm(node.notation, node.sizes, node.join, node.agg)
        given: Any = (self, *with_places(tuple(arrays), [])), {}
        return ArrangedCall("ein", run, form, choose, function=BlockedEin, given=given)
