"""The rules of one side: which named tensors each stored tensor is made of, and the reverse."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from redist.errors import ArgumentError, ShapeError
from redist.names.part import Part, whole
from redist.names.patterns import Patterns
from redist.names.rule import Rule, parse_rules
from redist.names.sizes import Shape, frames_of, stored_shape
from redist.text.latest import Latest

NOTHING: Mapping[str, Sequence[int]] = MappingProxyType({})
Found = tuple[int, tuple[str, ...]]
"""The number of a rule, and what ``*`` and numbers in the stored name stand for."""


class Names:
    """Rules, one per line; a tensor that no rule matches is stored under its own name.

    >>> names = Names('''
    ...     # as an engine stores them
    ...     *.qkv[q|k|v, :] = *.q_proj, *.k_proj, *.v_proj
    ...     *.w13[e, f|f, :] = *.{e}.w1, *.{e}.w3
    ... ''')
    >>> [(part.name, part.shape) for part in names.parts_of("mlp.w13", (2, 8, 5))]
    [('mlp.0.w1', (4, 5)), ('mlp.1.w1', (4, 5)), ('mlp.0.w3', (4, 5)), ('mlp.1.w3', (4, 5))]
    >>> names.parts_of("norm", (5,))
    (Part(name='norm', shape=(5,), digits=(5,), dims=(0,), steps=(1,), starts=(0,)),)
    """

    __slots__ = ("_formats", "_frames", "_made", "_of_parts", "_of_stored", "rules")

    def __init__(self, rules: str | Iterable[str] = ()) -> None:
        lines = (
            rules.splitlines()
            if isinstance(rules, str)
            else [line for text in rules for line in text.splitlines()]
        )
        self.rules: tuple[Rule, ...] = parse_rules(lines)
        self._of_stored = Patterns([rule.stored for rule in self.rules])
        self._of_parts = Patterns([part.name for rule in self.rules for part in rule.parts])
        self._frames: Latest[object, tuple[Part, ...]] = Latest(1024)
        self._made: Latest[object, Shape] = Latest(1024)
        self._formats: Latest[object, list[str]] = Latest(1024)

    @classmethod
    def of(cls, rules: Names | str | Iterable[str] | None) -> Names:
        """Make rules from an argument: rules, text, lines, or None for no rules."""
        if isinstance(rules, Names):
            return rules
        return cls(() if rules is None else rules)

    def __str__(self) -> str:
        return "\n".join(rule.text for rule in self.rules)

    def __repr__(self) -> str:
        return f"Names({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Names) and self.rules == other.rules

    def __hash__(self) -> int:
        return hash(str(self))

    def parts_of(
        self, stored: str, shape: Sequence[int], known: Mapping[str, Sequence[int]] = NOTHING
    ) -> tuple[Part, ...]:
        """All named tensors in a stored tensor, in the order of the rule; indices count fastest.

        ``known`` has shapes of named tensors, as far as they are known; they are checked, the others are not.

        >>> Names("embed[v|_, :] = embed").parts_of("embed", (128, 4), {"embed": (100, 4)})[0].shape
        (100, 4)
        """
        size = tuple([int(n) for n in shape])
        found = self._rule_of(stored)
        if found is None:
            return (self._as_known(whole(stored, size), known, stored),)
        number, stars = found
        rule = self.rules[number]
        shapes = self._shapes(number, stars, known) if known else (None,) * len(rule.parts)
        key = (number, size, shapes)
        frames = self._frames.get(key)
        if frames is None:
            try:
                frames = frames_of(rule, size, shapes)
            except ShapeError as error:
                raise ShapeError(
                    f"cannot read {stored!r} of shape {size} by {rule.text!r}: {error}"
                ) from None
            self._frames[key] = frames
        parts = tuple(
            [
                Part(f.name.format(*stars), f.shape, f.digits, f.dims, f.steps, f.starts)
                for f in frames
            ]
        )
        if known:
            for part in parts:
                self._as_known(part, known, stored)
        return parts

    def stored_from(self, known: Mapping[str, Sequence[int]]) -> dict[str, Shape]:
        """The stored tensors, with their shapes, that can be made of named tensors of these shapes.

        Tensors that no rule uses keep their names. Padding needs a size: ``embed[v|_28, :] = embed``.

        >>> Names("*.qkv[q|k|v, :] = *.q, *.k, *.v").stored_from({"a.q": (8, 3), "a.k": (2, 3)})
        Traceback (most recent call last):
        ...
        redist.errors.ArgumentError: cannot make 'a.qkv' by '*.qkv[q|k|v, :] = *.q, *.k, *.v':
        'a.v' is missing
        """
        owners = [number for number, rule in enumerate(self.rules) for _ in rule.parts]
        groups: dict[Found | str, dict[str, int]] = {}
        for name in known:
            taken = False
            for place, stars, values in self._of_parts.find(name):
                taken = True
                counts = groups.setdefault((owners[place], stars), {})
                for letter, value in values.items():
                    counts[letter] = max(counts.get(letter, 0), value + 1)
            if not taken:
                groups[name] = {}
        made: dict[str, Shape] = {}
        for group, counts in groups.items():
            if isinstance(group, str):
                stored, size = group, tuple([int(n) for n in known[group]])
                self._check_not_made(stored)
            else:
                number, stars = group
                stored = self.rules[number].stored.with_indices({}).format(*stars)
                size = self._make(stored, number, stars, counts, known)
            made[stored] = size
        return made

    def _rule_of(self, stored: str) -> Found | None:
        """The one rule that matches the name of a stored tensor."""
        found = [(number, stars) for number, stars, _ in self._of_stored.find(stored)]
        if len(found) > 1:
            texts = " and ".join(repr(self.rules[number].text) for number, _ in found[:2])
            raise ArgumentError(
                f"cannot read {stored!r}: {texts} both match it; make the name of one narrower"
            )
        return found[0] if found else None

    def _shapes(
        self, number: int, stars: tuple[str, ...], known: Mapping[str, Sequence[int]]
    ) -> tuple[Shape | None, ...]:
        """Shapes of the parts of a rule where they are known; of indices the first counts."""
        found: list[Shape | None] = []
        for name in self._names_of(number, {}):
            shape = known.get(name.format(*stars))
            found.append(None if shape is None else tuple([int(n) for n in shape]))
        return tuple(found)

    def _make(
        self, stored: str, number: int, stars: tuple[str, ...], counts: Mapping[str, int],
        known: Mapping[str, Sequence[int]],
    ) -> Shape:  # fmt: skip
        """The shape of what a rule makes of named tensors, all of which must be there."""
        rule = self.rules[number]
        if self._rule_of(stored) != (number, stars):
            raise ArgumentError(
                f"cannot make {stored!r} by {rule.text!r}: the name does not tell what each * "
                "stands for; put text between them"
            )
        for form in self._names_of(number, counts):
            name = form.format(*stars)
            if name not in known:
                raise ArgumentError(f"cannot make {stored!r} by {rule.text!r}: {name!r} is missing")
        key = (number, self._shapes(number, stars, known), tuple(counts.items()))
        size = self._made.get(key)
        if size is None:
            try:
                size = stored_shape(rule, key[1], counts)
            except ShapeError as error:
                raise ShapeError(f"cannot make {stored!r} by {rule.text!r}: {error}") from None
            self._made[key] = size
        self.parts_of(stored, size, known)  # every shape is as the rule says
        return size

    def _names_of(self, number: int, counts: Mapping[str, int]) -> list[str]:
        """Formats of the names of all parts of a rule, for so many values of each index."""
        key = (number, tuple(counts.items()))
        found = self._formats.get(key)
        if found is None:
            found = []
            for part in self.rules[number].parts:
                letters = part.name.indices
                for values in itertools.product(
                    *(range(counts.get(letter, 1)) for letter in letters)
                ):
                    found.append(part.name.with_indices(dict(zip(letters, values, strict=True))))
            self._formats[key] = found
        return found

    def _check_not_made(self, stored: str) -> None:
        """A named tensor that stays as it is must not be what a rule makes of others."""
        found = self._rule_of(stored)
        if found is not None:
            rule, missing = self.rules[found[0]], self._names_of(found[0], {})[0].format(*found[1])
            raise ArgumentError(
                f"cannot keep {stored!r}: {rule.text!r} makes it, but {missing!r} is missing"
            )

    @staticmethod
    def _as_known(part: Part, known: Mapping[str, Sequence[int]], stored: str) -> Part:
        """The part, if its shape is what is known of it."""
        shape = known.get(part.name)
        if shape is not None and tuple(shape) != part.shape:
            raise ShapeError(
                f"cannot read {stored!r}: {part.name!r} would have shape {part.shape}, "
                f"but has {tuple(shape)}"
            )
        return part
