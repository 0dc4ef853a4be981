"""What one side of a refit holds: stored tensors by name, their layouts, and what they are made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from redist.errors import ArgumentError, ArgumentTypeError, LayoutError
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.layout.notation import parse_type, read_type
from redist.names import Names
from redist.names.patterns import NamePattern, Patterns
from redist.text.latest import Latest

if TYPE_CHECKING:
    from redist.refits.recorded import Recorded

Rules: TypeAlias = "Names | str | Sequence[str] | None"
Layout: TypeAlias = "str | ArrayType | tuple[str | None, Mesh] | Callable[..., Any] | None"
"""How a stored tensor lies: a whole type or the cuts of its dims, with a mesh of its own or without; None if
every rank has all of it; or a function of the numbers in the name that returns one of these."""


class Weights:
    """The tensors that the ranks of one side store, with their types, and rules for their names.

    >>> train = Weights({"norm": "bf16[64]", "qkv": "bf16[64{tp}+2*16{tp}, 64]"}, Mesh(tp=2),
    ...                 names="qkv[q|16|16, :] = q, k, v")
    >>> train.stored, str(train.types["qkv"]), train.ranks
    (('norm', 'qkv'), 'bf16[64{tp}+2*16{tp}, 64]', (0, 1))
    >>> [part.name for part in train.parts_of("qkv")]
    ['q', 'k', 'v']

    ``types`` has array types, or texts that are read as types on ``mesh``. Types may have their own meshes,
    for example one per pipeline stage (:meth:`redist.Mesh.at`). ``names`` are rules that say which named
    tensors a stored tensor is made of; a stored tensor without a rule is itself a named tensor. Weights can
    move between two sides that have the same named tensors (:func:`redist.refit`).
    """

    __slots__ = ("_open", "_types", "names", "recorded_by_rank", "stored")

    def __init__(
        self, types: Mapping[str, ArrayType | str], mesh: Any = None, *, names: Rules = None
    ) -> None:
        found = _Reader(_mesh_of(mesh))
        if not isinstance(types, Mapping) or not all(isinstance(name, str) for name in types):
            raise ArgumentTypeError(
                "cannot make weights: need a dict of types by name, as in {'w': 'bf16[4096{tp}, 4096]'}"
            )
        self.names = Names.of(names)
        self._open: Declared | None = None
        self._types = {name: found.whole(name, types[name]) for name in sorted(types)}
        self.stored = tuple(self._types)
        """The names of the stored tensors, in order: runs give their numbers in this list."""
        self.recorded_by_rank: Mapping[int, Recorded] | None = None
        """What each rank holds, if loaders were recorded: then boxes say what stored tensors are made of."""

    @classmethod
    def of(cls, state: Any, names: Rules = None) -> Weights:
        """**Local.** Describe the tensors of a dict, nested or not, with their present layouts.

        >>> import numpy as np
        >>> t = ArrayType.parse("f32[8{x}, 4]", Mesh(x=2))
        >>> print(Weights.of({"a": {"w": (np.zeros((4, 4), "f4"), t)}}).types["a.w"])
        f32[8{x}, 4]

        Values are PyTorch DTensors, jax.Arrays, global arrays, or tiles with their types. A rank that has
        only some of the tensors, such as one of a pipeline stage, learns of the others by :meth:`together`.
        """
        from redist.refits.sources import types_in

        return cls(types_in(state), names=names)

    @classmethod
    def recorded(cls, by_rank: Mapping[int, Recorded]) -> Weights:
        """**Local.** Describe what the loaders of these ranks store, as :func:`redist.torch.recorded` found.

        In the type of a stored tensor, the tiles of all ranks follow one another.
        """
        from redist.refits.recorded import check_apart, types_of

        made = cls(types_of(by_rank))
        alike: dict[str, Recorded] = {}  # copies of a model are planned once
        made.recorded_by_rank = {
            rank: alike.setdefault(by_rank[rank].text, by_rank[rank]) for rank in sorted(by_rank)
        }
        for one in alike.values():
            check_apart(one)
        return made

    def together(self, comm: Any = None) -> Weights:
        """**Collective over** ``comm``. Combine the tensors of all ranks, of which each knows only some.

        ``comm`` is an MPI communicator, by default of all ranks, or a PyTorch process group. Several ranks
        may have the same tensor if they describe it in the same way.
        """
        from redist.refits.sources import gathered

        return gathered(self, comm)

    @classmethod
    def from_json(cls, text: str) -> Weights:
        """Read weights from JSON text that :meth:`to_json` wrote."""
        from redist.refits.weights_files import weights_from_dict

        return weights_from_dict(json.loads(text))

    def to_json(self) -> str:
        """Types, meshes and rules as JSON text; :meth:`from_json` reads it back."""
        from redist.refits.weights_files import weights_to_dict

        return json.dumps(weights_to_dict(self), separators=(",", ":"))

    @classmethod
    def declare(
        cls, types: Mapping[str, Layout], mesh: Any = None, *, shapes: Mapping[str, Any] | None = None,
        names: Rules = None,
    ) -> Weights:  # fmt: skip
        """Declare layouts by patterns of names; the first pattern that matches a name counts.

        >>> serve = Weights.declare({"*.qkv": "64{tp}+2*16{tp}, {}", "*": None}, Mesh(tp=2), names=
        ...     "*.qkv[q|16|16, :] = *.q, *.k, *.v", shapes={"a.qkv": "bf16[96, 64]", "a.norm": "bf16[64]"})
        >>> {name: str(type) for name, type in serve.types.items()}
        {'a.norm': 'bf16[64]', 'a.qkv': 'bf16[64{tp}+2*16{tp}, 64]'}

        In a pattern, ``*`` stands for any text and ``{l}`` for a number. A layout is a complete type; only
        the cuts of the dims, as in ``"{tp}, {}"``; None for tensors that every rank has; a pair of one of
        these and a mesh; or a function of the numbers in the pattern:
        ``{"layers.{l}.*": lambda l: ("{tp}, {}", mesh.at(pp=l // 16))}``.

        ``shapes`` maps the name of each stored tensor to a shape, an array, or text such as
        ``"bf16[96, 64]"``; :func:`redist.stored` reads the shapes in a checkpoint, such as a folder from
        Hugging Face. Without ``shapes``, the stored tensors are those that can be made of the other side's
        named tensors; they become known in :func:`redist.refit`.
        """
        declared = Declared(types, _mesh_of(mesh), Names.of(names))
        made = cls({}, names=declared.names)
        if shapes is None:
            made._open = declared
            return made
        return declared.weights(shapes)

    @property
    def types(self) -> Mapping[str, ArrayType]:
        """The types of the stored tensors, in the order of their names."""
        self._must_be_known()
        return self._types

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks that hold a tensor, in order."""
        meshes = {id(t.mesh): t.mesh for t in self.types.values()}
        return tuple(sorted({rank for mesh in meshes.values() for rank in mesh.ranks}))

    def parts_of(self, stored: str) -> Any:
        """The named tensors that a stored tensor is made of."""
        return self.names.parts_of(stored, self.types[stored].shape)

    def met(self, other: Weights) -> Weights:
        """These weights; if their tensors are not known yet, they are found from the other side's names."""
        if self._open is None:
            return self
        if other._open is not None:
            raise ArgumentError(
                "cannot refit: both sides are declared by patterns alone, so no tensor has a name; "
                "give one of them shapes="
            )
        known = other.named()
        made = self.names.stored_from({name: shape for name, (shape, _) in known.items()})
        shapes: dict[str, Any] = {}
        for name, shape in made.items():
            part = self.names.parts_of(name, shape, {})[0].name
            shapes[name] = (shape, known[part][1])
        return self._open.weights(shapes)

    def named(self) -> dict[str, tuple[tuple[int, ...], DType]]:
        """The shape and dtype of every named tensor, by name."""
        if self.recorded_by_rank is not None:
            return {name: (one.tensors[name], one.stored[stored][1])
                    for one in self.recorded_by_rank.values() for stored, name in one.by_tensor}  # fmt: skip
        return {part.name: (part.shape, t.dtype) for name, t in self.types.items()
                for part in self.names.parts_of(name, t.shape)}  # fmt: skip

    def with_names(self, names: Rules) -> Weights:
        """The same weights with these rules; raises an error if they have rules already."""
        if names is None:
            return self
        if self.names.rules or self.recorded_by_rank is not None:
            raise ArgumentError(
                "cannot use names=: the target has rules already; give each side its own, as in "
                "redist.Weights(types, mesh, names=rules)"
            )
        made = Weights({}, names=names)
        made._types, made.stored = self._types, self.stored
        if self._open is not None:
            made._open = Declared(self._open.types, self._open.mesh, made.names)
        return made

    def held(self) -> Any:
        """Where named tensors are in the tiles of stored tensors: a :class:`redist.refits.held.Held`."""
        from redist.refits.held import Held

        return Held(self)

    def boxes(self) -> Any:
        """Buffers of all ranks and the boxes of named tensors in them, for :func:`redist.check_runs`."""
        from redist.refits.manifest import boxes_of

        return boxes_of(self)

    def lines(self) -> Iterator[str]:
        """Lines of text that describe each stored tensor and the rules."""
        texts: dict[int, str] = {}
        for name, t in self.types.items():
            text = texts.get(id(t))
            if text is None:
                text = texts[id(t)] = f"{t} on {t.mesh}"
            yield f"{name}: {text}"
        yield str(self.names)
        for rank, one in (self.recorded_by_rank or {}).items():
            yield f"{rank}: {one.text}"

    def digest(self) -> str:
        """Text that is the same for equal weights, on every rank."""
        return hashlib.blake2b("\n".join(self.lines()).encode(), digest_size=16).hexdigest()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Weights)
            and (self._open, self.names) == (other._open, other.names)
            and self.recorded_by_rank == other.recorded_by_rank
            and self._types == other._types
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if self._open is not None:
            return f"<Weights: {len(self._open.types)} patterns>"
        return f"<Weights: {len(self.stored)} tensors on {len(self.ranks)} ranks>"

    def _must_be_known(self) -> None:
        if self._open is not None:
            raise ArgumentError(
                "cannot list the tensors of weights that are declared by patterns alone: give shapes=, or "
                "refit them with a side whose tensors are known"
            )


class Declared:
    """Layouts by pattern, which are not yet applied to any tensor."""

    __slots__ = ("mesh", "names", "types")

    def __init__(self, types: Mapping[str, Layout], mesh: Mesh | None, names: Names) -> None:
        if not isinstance(types, Mapping):
            raise ArgumentTypeError(
                f"cannot declare weights from {types!r}: need a dict of types by pattern, as in "
                "{'*.q_proj.weight': '{tp}, {}', '*': None}"
            )
        self.types, self.mesh, self.names = dict(types), mesh, names

    def weights(self, shapes: Mapping[str, Any]) -> Weights:
        """Make the weights whose stored tensors have these names and shapes."""
        patterns = Patterns([NamePattern.of(text) for text in self.types])
        layouts, read, used = [*self.types.values()], _Reader(self.mesh), set[int]()
        found: dict[str, ArrayType] = {}
        for name in sorted(shapes):
            match = min(patterns.find(name), default=None, key=lambda one: one[0])
            if match is None:
                raise ArgumentError(
                    f"cannot declare weights: no pattern matches {name!r}; add one, such as '*': None for "
                    "tensors that every rank has"
                )
            number, _, values = match
            used.add(number)
            shape, dtype = shape_of(name, shapes[name])
            found[name] = read.layout(name, layouts[number], values, shape, dtype)
        unused = [text for number, text in enumerate(self.types) if number not in used]
        unused = [text for text in unused if text != "*"]
        if unused:
            raise ArgumentError(
                f"cannot declare weights: {unused[0]!r} matches none of {len(found)} tensors, such as "
                f"{next(iter(found), 'none')!r}"
            )
        return Weights(found, names=self.names)


class _Reader:
    """Reads types from text, each once for its text, shape and mesh."""

    def __init__(self, mesh: Mesh | None) -> None:
        self._mesh = mesh
        self._read: Latest[object, ArrayType] = Latest(2**16)

    def whole(self, name: str, given: Any) -> ArrayType:
        """A whole type, or the text of one."""
        if isinstance(given, ArrayType):
            return _settled(name, given)
        if not isinstance(given, str):
            raise ArgumentTypeError(
                f"cannot use {given!r} as the type of {name!r}: need an ArrayType or text such as "
                "'bf16[4096{tp}, 4096]'"
            )
        mesh = self._mesh_for(name, None)
        found = self._read.get(given)
        if found is None:
            found = self._read[given] = parse_type(given, mesh)
        return _settled(name, found)

    def layout(
        self, name: str, given: Any, values: Mapping[str, int], shape: tuple[int, ...] | None,
        dtype: DType | None,
    ) -> ArrayType:  # fmt: skip
        """The type of a tensor that has this shape and dtype, so far as these are known."""
        if callable(given) and not isinstance(given, ArrayType):
            given = given(**values)
        mesh = None
        if isinstance(given, tuple) and len(given) == 2:
            given, mesh = given[0], _mesh_of(given[1])
        if isinstance(given, ArrayType):
            found = given
        else:
            mesh = self._mesh_for(name, mesh)
            key = (given, mesh, shape, dtype)
            known = self._read.get(key)
            found = known if known is not None else self._of_text(name, given, mesh, shape, dtype)
            self._read[key] = found
        if shape is not None and found.shape != shape:
            raise LayoutError(f"cannot use the type {found} for {name!r}: it has shape {shape}")
        return _settled(name, found)

    def _of_text(
        self, name: str, given: Any, mesh: Mesh, shape: tuple[int, ...] | None, dtype: DType | None
    ) -> ArrayType:
        if given is not None and not isinstance(given, str):
            raise ArgumentTypeError(
                f"cannot use {given!r} as the layout of {name!r}: need text such as '{{tp}}, {{}}', an "
                "ArrayType, None, or a pair of one of these and a mesh"
            )
        if given is not None and "[" in given:
            return parse_type(given, mesh)
        if shape is None or dtype is None:
            raise ArgumentError(
                f"cannot use the layout {given!r} for {name!r}: its {'shape' if shape is None else 'dtype'} "
                "is not known; write a whole type, as in 'bf16[4096{tp}, 4096]'"
            )
        if given is None:
            return ArrayType(mesh, dtype, shape, ((),) * len(shape))
        return read_type(given, mesh, dtype, shape)

    def _mesh_for(self, name: str, mesh: Mesh | None) -> Mesh:
        mesh = self._mesh if mesh is None else mesh
        if mesh is None:
            raise ArgumentError(
                f"cannot read the type of {name!r}: there is no mesh; give mesh=, or an ArrayType"
            )
        return mesh


def _mesh_of(given: Any) -> Mesh | None:
    mesh = Mesh.of(given)
    if mesh is None or isinstance(mesh, Mesh):
        return mesh
    raise ArgumentTypeError(f"cannot use {given!r} as a mesh: need a Mesh, or text such as 'dp=4'")


def _settled(name: str, t: ArrayType) -> ArrayType:
    if t.pending_op is not None:
        raise ArgumentError(f"cannot refit {name!r} of type {t}: reduce it first")
    return t


def shape_of(name: str, given: Any) -> tuple[tuple[int, ...] | None, DType | None]:
    """Shape and dtype of what a user gives: an array, an entry of a file, text, or only numbers."""
    if isinstance(given, str):
        t = parse_type(given, Mesh())
        return t.shape, t.dtype
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], DType):
        return tuple(given[0]), given[1]
    if hasattr(given, "shape") and hasattr(given, "dtype"):
        kind = given.dtype if isinstance(given.dtype, DType) else DType.parse(given.dtype)
        return tuple(int(n) for n in given.shape), kind
    try:
        return tuple(int(n) for n in given), None
    except TypeError:
        raise ArgumentTypeError(
            f"cannot use {given!r} as the shape of {name!r}: need numbers, text such as 'bf16[96, 64]', or "
            "an object with shape and dtype"
        ) from None
