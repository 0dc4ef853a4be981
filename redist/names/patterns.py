"""Names with ``*`` and ``{e}``: what they match, found quickly among many."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from redist.text.latest import Latest

_PIECES = re.compile(r"(\*|\{[A-Za-z][A-Za-z0-9]*\})")
_DIGITS = b"0123456789"


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A name in pieces: text, ``*`` for any text, ``{e}`` for a number.

    ``shared`` are letters in braces that stand in the names of both sides: as for ``*``, the same on both.
    The others are indices.

    >>> pattern = NamePattern.of("*.experts.{e}.w1")
    >>> pattern.n_stars, pattern.indices, pattern.with_indices({"e": 7})
    (1, ('e',), '{0}.experts.7.w1')
    >>> NamePattern.of("*.{l}.experts.{e}.w1", ("l",)).with_indices({"e": 7})
    '{0}.{1}.experts.7.w1'
    """

    pieces: tuple[str, ...]
    shared: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str, shared: tuple[str, ...] = ()) -> NamePattern:
        """The pattern that a text spells."""
        return cls(tuple(piece for piece in _PIECES.split(text) if piece), shared)

    @property
    def n_stars(self) -> int:
        """How many ``*`` it has."""
        return self.pieces.count("*")

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters in braces, each once."""
        return tuple(dict.fromkeys(p[1:-1] for p in self.pieces if p[0] == "{"))

    @property
    def indices(self) -> tuple[str, ...]:
        """The letters in braces that are not shared."""
        return tuple(letter for letter in self.letters if letter not in self.shared)

    def with_indices(self, values: Mapping[str, int]) -> str:
        """The name with values of its indices, as a format of what is the same on both sides."""
        stars = iter(range(len(self.pieces)))
        places = {letter: self.n_stars + n for n, letter in enumerate(self.shared)}
        found = ""
        for piece in self.pieces:
            if piece == "*":
                found += f"{{{next(stars)}}}"
            elif piece[0] == "{":
                letter = piece[1:-1]
                found += f"{{{places[letter]}}}" if letter in places else str(values[letter])
            else:
                found += piece
        return found

    def expression(self) -> str:
        """As a regular expression with a group for every star (``s0``) and every letter (``i_e``)."""
        found, seen = "", set[str]()
        stars = iter(range(len(self.pieces)))
        for piece in self.pieces:
            if piece == "*":
                found += f"(?P<s{next(stars)}>.*?)"
            elif piece[0] == "{":
                name = piece[1:-1]
                found += f"(?P=i_{name})" if name in seen else f"(?P<i_{name}>0|[1-9][0-9]*)"
                seen.add(name)
            else:
                found += re.escape(piece)
        return found

    def expression_without_digits(self) -> bytes:
        """What the name matches when its digits are left out."""
        return b"".join(
            b".*" if p == "*" else b"" if p[0] == "{" else re.escape(_without_digits(p))
            for p in self.pieces
        )


def _without_digits(name: str) -> bytes:
    """A name without its digits; as bytes, which are quicker here."""
    return name.encode("utf-8", "surrogatepass").translate(None, _DIGITS)


class Patterns:
    """Many patterns; finds those that match a name.

    Most names of a model differ in their numbers alone. So it is remembered which patterns match a name
    without its digits, and only these are tried.

    >>> patterns = Patterns([NamePattern.of("*.q"), NamePattern.of("*.{e}.w")])
    >>> list(patterns.find("layers.3.7.w"))
    [(1, ('layers.3',), {'e': 7})]
    """

    __slots__ = ("_alike", "_full", "_indices", "_likely", "_stars")

    def __init__(self, patterns: Sequence[NamePattern]) -> None:
        self._full = [re.compile(p.expression(), re.DOTALL) for p in patterns]
        self._alike = [re.compile(p.expression_without_digits(), re.DOTALL) for p in patterns]
        self._stars = [
            [*(f"s{star}" for star in range(p.n_stars)), *(f"i_{letter}" for letter in p.shared)]
            for p in patterns
        ]
        self._indices = [p.indices for p in patterns]
        self._likely: Latest[bytes, list[int]] = Latest(4096)

    def find(self, name: str) -> Iterator[tuple[int, tuple[str, ...], dict[str, int]]]:
        """Numbers of the patterns that match, with what is the same on both sides and with indices."""
        alike = _without_digits(name)
        likely = self._likely.get(alike)
        if likely is None:
            likely = [n for n, pattern in enumerate(self._alike) if pattern.fullmatch(alike)]
            self._likely[alike] = likely
        for number in likely:
            match = self._full[number].fullmatch(name)
            if match is not None:
                stars = tuple([match[group] for group in self._stars[number]])
                values = {letter: int(match[f"i_{letter}"]) for letter in self._indices[number]}
                yield number, stars, values
