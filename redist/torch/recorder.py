"""Record what a loader of weights puts where, without real weights: its copies become boxes.

Loaders of engines take views of weights and copy them into views of parameters. Here the weights are tensors
without memory, and nothing is copied: for each copy, this records which elements go where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from redist.errors import ConversionError, LayoutError
from redist.refits.recorded import Recorded, RecordedBox, View, boxes_of_view
from redist.refits.weights import Weights, shape_of
from redist.torch.layouts import from_torch, to_torch

Named = tuple[str, torch.Tensor]
ALIASES = {"clone", "_to_copy", "contiguous", "lift_fresh", "to"}
"""Copies that hold the same elements: a weight that is copied so stays the weight."""
NEW = set("empty_like zeros_like ones_like full_like new_empty new_zeros new_empty_strided".split())
"""Of a weight these take shape, dtype and device alone."""
FILLS = {"fill_", "zero_", "copy_"}
"""Writes of constants into parameters, as of padding: they are left out."""


def recorded(
    load: Callable[[Iterator[Named]], Any],
    shapes: Weights | Mapping[str, Any],
    parameters: Mapping[str, torch.Tensor],
) -> Recorded:
    """**Local.** What a loader puts where on this rank, for ``redist.Weights.recorded({rank: ...})``.

    ``load`` is called with pairs of names and tensors, as an engine's ``model.load_weights`` is.
    ``parameters`` are the tensors that it loads into, such as ``dict(model.named_parameters())``: they may
    be on any device, including the meta device, and nothing is written to them. ``shapes`` gives the shape
    and dtype of each weight: the weights of the other side, the result of :func:`redist.stored`, or a dict
    of arrays or texts.

    Only views and copies can be recorded; a loader that computes with weights, or casts them, is refused.
    Record before the engine rearranges parameters for its kernels: later changes are not seen.

    On an engine with 2 ranks, each of which has half of the queries::

        found = redist.torch.recorded(model.load_weights, train, dict(model.named_parameters()))
        serve = redist.Weights.recorded({rank: found}).together(group)
        plan = redist.refit(train, serve)
    """
    if isinstance(shapes, Weights):
        shapes = shapes.named()
    recorder = _Recorder(parameters)
    with recorder:
        load(recorder.weights(shapes))
    return recorder.found()


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Hears of every operation on tensors while a loader runs."""

    def __init__(self, parameters: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self._parameters: dict[int, list[tuple[str, torch.Tensor]]] = {}
        self._weights: dict[int, tuple[str, torch.Tensor]] = {}
        self._boxes: dict[object, RecordedBox] = {}
        for name, tensor in parameters.items():
            known = self._parameters.setdefault(_storage(tensor), [])
            if all(_extent(other) != _extent(tensor) for _, other in known):  # else it is tied
                known.append((name, tensor))

    def weights(self, shapes: Mapping[str, Any]) -> Iterator[Named]:
        """Every weight as a tensor without memory."""
        for name in shapes:
            shape, dtype = shape_of(name, shapes[name])
            if dtype is None or shape is None:
                raise ConversionError(f"cannot record a loader: the dtype of {name!r} is not known")
            tensor = torch.empty(shape, dtype=to_torch(dtype), device="meta")
            self._weights[_storage(tensor)] = name, tensor
            yield name, tensor

    def found(self) -> Recorded:
        """What was written down."""
        boxes = tuple(self._boxes.values())
        stored, used = {box.stored for box in boxes}, {box.tensor for box in boxes}
        return Recorded(
            {name: (tuple(t.shape), from_torch(t.dtype))
             for known in self._parameters.values() for name, t in known if name in stored},
            {name: tuple(t.shape) for name, t in self._weights.values() if name in used},
            boxes,
        )  # fmt: skip

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Write copies of weights into parameters down; let what does not touch weights pass."""
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        touched = [t for t in _tensors((args, kwargs)) if _storage(t) in self._weights]
        written = self._written(func, args, kwargs)
        if name == "copy_" and touched and written is not None:
            self._copy(args[0], args[1], *written)
            return args[0]
        if written is not None and not touched and name in FILLS:
            return args[0]
        if written is None and (not touched or name in NEW or _is_view(func)):
            return func(*args, **kwargs)
        if written is None and name in ALIASES and kwargs.get("dtype") in (None, args[0].dtype):
            return torch.ops.aten.alias.default(args[0])
        what = repr(self._weights[_storage(touched[0])][0] if touched else written and written[0])
        raise ConversionError(
            f"cannot record the loader of {what}: {func} is more than a view or a copy; declare its "
            "type by hand, as in redist.Weights({'w': 'bf16[8{tp}, 4]'}, mesh)"
        )

    def _written(self, func: Any, args: Any, kwargs: Any) -> tuple[str, torch.Tensor] | None:
        """The parameter that an operation writes to, if it does."""
        for k, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            tensor = args[k] if k < len(args) else kwargs.get(argument.name)
            if not isinstance(tensor, torch.Tensor):
                continue
            for name, parameter in self._parameters.get(_storage(tensor), ()):
                begin, end = _extent(parameter)
                if begin <= tensor.storage_offset() < end:
                    return name, parameter
        return None

    def _copy(
        self, to: torch.Tensor, of: torch.Tensor, stored: str, parameter: torch.Tensor
    ) -> None:
        name, weight = self._weights[_storage(of)]

        def refuse(reason: str) -> ConversionError:
            return ConversionError(f"cannot record how {name!r} is put into {stored!r}: {reason}")

        if of.dtype != to.dtype:
            raise refuse(
                f"it is cast from {of.dtype} to {to.dtype}; record weights of the parameter's dtype, and say "
                "cast=True to refit"
            )
        if not parameter.is_contiguous():
            raise refuse("the parameter is not contiguous")
        if of.dim() > to.dim():
            of = of.reshape(of.shape[of.dim() - to.dim() :])
        missing = to.dim() - of.dim()
        if (1,) * missing + tuple(of.shape) != tuple(to.shape):
            raise refuse(f"{list(of.shape)} is repeated to fill {list(to.shape)}")
        size = to.element_size()
        source = View(tuple(to.shape), (0,) * missing + of.stride(), of.storage_offset())
        target = View(
            tuple(to.shape), to.stride(), to.storage_offset() - parameter.storage_offset()
        )
        try:
            for lo, shape, at, strides in boxes_of_view(tuple(weight.shape), source, target):
                steps = tuple(step * size for step in strides)
                box = RecordedBox(stored, name, lo, shape, at * size, steps)
                # The last one that is written there stays.
                self._boxes[stored, shape, box.offset, steps] = box
        except LayoutError as problem:
            raise refuse(str(problem)) from None


def _storage(tensor: torch.Tensor) -> int:
    """What is equal for tensors that share memory, or would if they had some."""
    return int(tensor.untyped_storage()._cdata)


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The first element in the storage, and one past the last, if the tensor is contiguous."""
    return tensor.storage_offset(), tensor.storage_offset() + max(1, tensor.numel())


def _is_view(func: Any) -> bool:
    """Whether an operation returns other views of its arguments and writes nothing."""
    returns = func._schema.returns
    alias = [one.alias_info for one in returns if one.alias_info is not None]
    return bool(alias) and not any(one.is_write for one in alias)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, Mapping):
        yield from _tensors(list(values.values()))
    elif isinstance(values, Iterable) and not isinstance(values, str):
        for value in values:
            yield from _tensors(value)
